"""The mark in a kept definition, when the VM stays here after all."""

import pytest
from endkit import is_untouched
from saltvirt.libvirt.domains import lifecycle
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.migration.host import departure


@pytest.fixture
def cancel_as_lost(end):
    """A function that cancels a move by the operator's word that its target is lost."""
    return lambda phase: end.step("cancel", seen=phase, is_refused=False, is_lost=True)


def _dies_at(monkeypatch, step):
    """End a job on the source just before a step of it."""

    def die(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(departure.Departure, step, die)


def test_a_source_that_kept_its_definition_takes_it_back_from_a_target_that_is_lost(
    end, conn, cancel_as_lost, monkeypatch
):
    """undefinesource=False; the source dies before its record ends, then its target burns down."""
    paths = end.make(conn)
    end.begin()
    end.send(undefinesource=False)
    with monkeypatch.context() as patch:
        _dies_at(patch, "end")
        with pytest.raises(KeyboardInterrupt):
            end.step("finish")
    assert end.phase("departure") == "leaving" and end.state(conn)["source"]["has"]

    cancel_as_lost("leaving")

    assert end.phase("departure") == "cancelled"
    assert is_untouched(end, paths)


def test_a_source_that_died_as_it_gave_way_has_the_vm_again_when_that_is_cancelled(end, conn):
    """keep=hyper3 was interrupted; the VM on hyper3 was the wrong one and was purged."""
    paths = end.make(conn)
    end.begin()
    end.send()
    lifecycle.mark_moved(conn, "web1", "hyper3")  # give_way, up to the end of its record

    end.step("cancel", seen="handing", is_refused=True)

    assert is_untouched(end, paths)


def test_a_source_whose_definition_is_gone_already_does_not_cancel(
    end, conn, cancel_as_lost, monkeypatch
):
    """The finish by another master died after this one had looked: nothing is left here."""
    end.make(conn)
    end.begin()
    end.send()
    with monkeypatch.context() as patch:
        _dies_at(patch, "remove")
        with pytest.raises(KeyboardInterrupt):
            end.step("finish")
    assert end.phase("departure") == "leaving" and not lifecycle.is_defined(conn, "web1")

    with pytest.raises(MigrationFailed):
        cancel_as_lost("leaving")
