"""A job that is killed at any phase of a move, on either side, leaves what can be settled."""

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
@pytest.mark.parametrize("has_arrived", [False, True])
def test_a_host_that_dies_while_it_sends_is_settled(end, point, has_arrived):
    with end.hypervisor.libvirt() as conn:
        paths = end.make(conn)
    target = {"phase": "ready", "has": False, "is_empty": False}

    def work():
        end.begin()
        end.send()
        end.step("finish")

    end.hypervisor.dies(work, point)
    was_sent = (end.folder / "defined").exists()
    if has_arrived and not was_sent:
        (end.folder / "defined").touch()
    is_over = point in ("departure.end", *(f"departure.{w}leaving" for w in ("before-", "")))
    has_begun = end.phase("departure") not in (None, "planned", "sending") or is_over
    target["has"] = has_arrived and has_begun or is_over
    target["phase"] = "arrived" if is_over else "ready"

    with end.hypervisor.libvirt() as conn:
        # The test driver does not keep what the killed process has undefined.
        settling = Settling(end, conn, target)
        step, is_moved = settling.settle()

        assert step == "done"
        is_here = lifecycle.is_defined(conn, "web1")
        assert is_here is not bool(target["has"])
        assert [path.exists() for path in paths] == [is_here] * 2
        assert is_moved is (
            None if point == "departure.end" and not settling.done else target["has"]
        )
    assert end.record("departure") is None
    assert records.read_records(reservations.folder(end.settings), "cancelled") == []


@pytest.mark.parametrize("when", ["before-", ""])
def test_a_host_that_dies_as_it_cancels_keeps_the_vm(end, when):
    with end.hypervisor.libvirt() as conn:
        paths = end.make(conn)

    def fail():
        raise MigrationFailed("cut")

    def work():
        end.meanwhile = fail
        end.begin()
        end.send()

    end.hypervisor.dies(work, f"departure.{when}cancelled")
    assert end.phase("departure") == ("sending" if when else "cancelled")

    with end.hypervisor.libvirt() as conn:
        settling = Settling(end, conn, {"phase": "ready", "has": False, "is_empty": False})
        assert settling.settle() == ("done", False)
        assert lifecycle.is_defined(conn, "web1") and is_untouched(end, paths)
    assert end.record("departure") is None
    assert records.read_records(reservations.folder(end.settings), "cancelled") == []


@pytest.fixture
def info(end):
    """The migration info of a VM that is not here yet."""
    with end.hypervisor.libvirt() as conn:
        paths = end.make(conn)
        moving_vm = migrationinfo.gather(conn, end.settings, "web1")["web1"]
        lifecycle.undefine(conn, "web1")
    for path in paths:
        path.unlink()
    return moving_vm


@pytest.mark.parametrize("point", ["before-preparing", "preparing", "before-ready", "ready", "end"])
def test_a_host_that_dies_while_it_makes_ready_drops_it_later(end, info, point):
    def work():
        arrival.prepare(end.context, info, "t1", "hyper1")
        end.step("drop")

    end.hypervisor.dies(work, f"arrival.{point}")

    with end.hypervisor.libvirt():
        if end.record("arrival") is not None:
            end.step("drop")
        assert end.hypervisor.files() == [] and end.record("arrival") is None
        arrival.prepare(end.context, info, "t1", "hyper1")
        assert end.phase("arrival") == "ready"


@pytest.mark.parametrize("when", ["before-", ""])
def test_a_host_that_dies_as_it_refuses_can_be_asked_again(end, info, when):
    def work():
        arrival.prepare(end.context, info, "t1", "hyper1")
        end.step("refuse")

    end.hypervisor.dies(work, f"arrival.{when}refused")
    assert end.phase("arrival") == ("ready" if when else "refused")

    with end.hypervisor.libvirt():
        end.step("refuse")
        assert end.phase("arrival") == "refused"
        end.step("drop")
    assert end.hypervisor.files() == [] and end.record("arrival") is None
