"""Whoever dies at a phase boundary of a move, on either side: what is left is settled."""

import pytest
from endkit import Settling, is_untouched
from saltvirt.core.journal import records
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.migration.host import arrival
from saltvirt.vm.show.host import migrationinfo

POINTS = [
    f"departure.{when}{phase}"
    for phase in ("planned", "sending", "handing", "leaving")
    for when in ("before-", "")
]


@pytest.mark.parametrize("point", [*POINTS, "departure.end"])
@pytest.mark.parametrize("came", [False, True])
def test_a_host_that_dies_while_it_sends_is_settled(end, point, came):
    with end.hypervisor.libvirt() as conn:
        paths = end.make(conn)
    other = {"phase": "ready", "has": False, "is_empty": False}

    def work():
        end.begin()
        end.send()
        end.step("finish")

    end.hypervisor.dies(work, point)
    was_sent = (end.folder / "defined").exists()
    if came and not was_sent:
        (end.folder / "defined").touch()
    is_over = point in ("departure.end", *(f"departure.{w}leaving" for w in ("before-", "")))
    has_begun = end.phase("departure") not in (None, "planned", "sending") or is_over
    other["has"] = came and has_begun or is_over
    other["phase"] = "arrived" if is_over else "ready"

    with end.hypervisor.libvirt() as conn:
        # What the test driver does not keep: which file was undefined in the process that died.
        hands = Settling(end, conn, other)
        step, is_moved = hands.settle()

        assert step == "done"
        is_here = lifecycle.is_defined(conn, "web1")
        assert is_here is not bool(other["has"])
        assert [path.exists() for path in paths] == [is_here] * 2
        assert is_moved is (None if point == "departure.end" and not hands.done else other["has"])
    assert end.record("departure") is None
    assert records.read_records(reservations.folder(end.settings), "cancelled") == []


@pytest.mark.parametrize("when", ["before-", ""])
def test_a_host_that_dies_as_it_cancels_keeps_the_vm(end, when):
    with end.hypervisor.libvirt() as conn:
        paths = end.make(conn)

    def fails():
        raise MigrationFailed("cut")

    def work():
        end.meanwhile = fails
        end.begin()
        end.send()

    end.hypervisor.dies(work, f"departure.{when}cancelled")
    assert end.phase("departure") == ("sending" if when else "cancelled")

    with end.hypervisor.libvirt() as conn:
        hands = Settling(end, conn, {"phase": "ready", "has": False, "is_empty": False})
        assert hands.settle() == ("done", False)
        assert lifecycle.is_defined(conn, "web1") and is_untouched(end, paths)
    assert end.record("departure") is None
    assert records.read_records(reservations.folder(end.settings), "cancelled") == []


@pytest.fixture
def said(end):
    """What the source says of a VM that is not here yet."""
    with end.hypervisor.libvirt() as conn:
        paths = end.make(conn)
        said = migrationinfo.gather(conn, end.settings, "web1")["web1"]
        lifecycle.undefine(conn, "web1")
    for path in paths:
        path.unlink()
    return said


@pytest.mark.parametrize("point", ["before-preparing", "preparing", "before-ready", "ready", "end"])
def test_a_host_that_dies_while_it_makes_ready_drops_it_later(end, said, point):
    def work():
        arrival.prepare(end.context, said, "t1", "hyper1")
        end.step("drop")

    end.hypervisor.dies(work, f"arrival.{point}")

    with end.hypervisor.libvirt():
        if end.record("arrival") is not None:
            end.step("drop")
        assert end.hypervisor.files() == [] and end.record("arrival") is None
        arrival.prepare(end.context, said, "t1", "hyper1")
        assert end.phase("arrival") == "ready"


@pytest.mark.parametrize("when", ["before-", ""])
def test_a_host_that_dies_as_it_refuses_can_be_asked_again(end, said, when):
    def work():
        arrival.prepare(end.context, said, "t1", "hyper1")
        end.step("refuse")

    end.hypervisor.dies(work, f"arrival.{when}refused")
    assert end.phase("arrival") == ("ready" if when else "refused")

    with end.hypervisor.libvirt():
        end.step("refuse")
        assert end.phase("arrival") == "refused"
        end.step("drop")
    assert end.hypervisor.files() == [] and end.record("arrival") is None
