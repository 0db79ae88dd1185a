"""Moves that versions before the records have begun are taken over, and settled as one's own."""

import fcntl
import json
import time

import pytest
from saltvirt.core import locks
from saltvirt.core.errors import NameTaken, StorageError
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt import legacymoves, reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.migration.host import departure, movestate
from saltvirt.vm.power.host import startlock
from saltvirt.vm.purge.host import purge
from saltvirt.vm.show.host import inspect

ROOM = {"vcpus": 1, "memory_mib": 64, "disk_mib": 1, "affinity": [], "anti_affinity": []}


def leave(end, kind, **said):
    """Leave a file of an older version."""
    folder = end.hypervisor.root / "state" / kind
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "web1.json"
    path.write_text(json.dumps({"name": "web1", **said}))
    return path


@pytest.mark.parametrize(
    ("until_s", "is_held", "is_adopted"),
    [(-5, False, True), (600, False, False), (-5, True, False), (None, False, False)],
    ids=["late", "awaited", "held", "a build's"],
)
def test_a_claim_is_taken_over_when_nobody_is_at_it(end, conn, until_s, is_held, is_adopted):
    until = {} if until_s is None else {"until": time.time() + until_s}
    path = leave(end, "claims", paths=[str(end.images / "a")], defines=True, **ROOM, **until)
    with open(path) as handle:
        if is_held:
            fcntl.flock(handle, fcntl.LOCK_EX)
        legacymoves.adopt(end.settings)

    assert path.exists() is not is_adopted
    assert end.phase("arrival") == ("ready" if is_adopted else None)
    if is_adopted:
        (shown,) = movestate.read_moves(end.settings)["web1"]
        assert shown.token == moveprotocol.legacy_token("web1") and shown.source is None
        # What came in those days was not noted, so nobody calls it empty.
        assert end.state(conn, shown.token)["target"]["is_empty"] is False


def test_a_departure_is_taken_over_and_settled(end, conn):
    paths = end.make(conn)
    uuid = lifecycle.uuid(conn, "web1")
    said = {"uuid": uuid, "uri": "qemu+tls://hyper2/system", "paths": [str(p) for p in paths]}
    path = leave(end, "departures", **said)

    (shown,) = movestate.read_moves(end.settings)["web1"]

    assert not path.exists() and (shown.phase, shown.target) == ("handing", "hyper2")
    (end.folder / "defined").touch()
    end.step("finish", token=shown.token)
    assert not any(path.exists() for path in paths) and end.record("departure") is None


def departed(end, conn):
    """Leave the departure of a VM that an older version was sending; return its file."""
    paths = [str(path) for path in end.make(conn)]
    uuid = lifecycle.uuid(conn, "web1")
    return leave(end, "departures", uuid=uuid, uri="qemu+tls://hyper2/system", paths=paths)


def test_a_vm_whose_departure_nobody_has_taken_over_yet_is_not_started(end, conn):
    path = departed(end, conn)

    with (
        pytest.raises(startlock.OnItsWay, match="handed over to hyper2.*salt-run virt.settle web1"),
        startlock.allow_start(conn, end.settings, "web1"),
    ):
        pytest.fail("it was started")
    assert not path.exists() and end.phase("departure") == "handing"


def test_a_vm_whose_departure_nobody_has_taken_over_yet_is_not_purged(end, conn):
    departed(end, conn)

    with pytest.raises(NameTaken, match="leaving this host.*salt-run virt.settle web1"):
        purge.purge(conn, end.settings, "web1")
    assert lifecycle.is_defined(conn, "web1")


SPOILT = ["", "\0" * 90, '{"name": "web1", "uu', "[]", '{"name": "web1"}']
SAID = {"name": "web1", "uuid": "u1", "uri": "qemu+tls://hyper2/system", "paths": []}
SPOILT += [json.dumps({**SAID, **wrong}) for wrong in ({"uri": "qemu:///system"}, {"paths": "a"})]


@pytest.mark.parametrize("text", SPOILT)
def test_a_departure_that_a_crash_has_spoilt_is_named_and_kept(end, conn, text):
    path = departed(end, conn)
    path.write_text(text)
    end.make(conn, "db1", "4dea22b3-1d52-d8f3-2516-782e98ab3fa1")
    why = f"the record {path} cannot be read .*see which host has the VM, then move"

    (shown,) = movestate.read_moves(end.settings)["web1"]
    info = inspect.host_info(conn, end.settings)

    assert shown.purpose == "unreadable" and shown.error == info.unreadable["web1"]
    assert info.unfinished == ["web1"]
    for work in (
        lambda: startlock.refuse_moving(end.settings, "web1"),
        lambda: reservations.refuse_moving(end.settings, "web1"),
        lambda: departure.begin(end.context, "web1", "t1", "hyper2"),
        lambda: end.state(conn),
    ):
        with pytest.raises(StorageError, match=why):
            work()
    with startlock.allow_start(conn, end.settings, "db1"):
        pass
    assert path.read_text() == text and end.record("departure") is None


@pytest.mark.parametrize("said", [{"disk_mib": 1.5}, {"paths": "a"}])
def test_a_claim_of_another_type_is_named_and_holds_up_no_other_vm(end, conn, said):
    until = time.time() - 5
    path = leave(end, "claims", **{"paths": [], "defines": True, **ROOM, "until": until, **said})
    end.make(conn, "db1", "4dea22b3-1d52-d8f3-2516-782e98ab3fa1")

    legacymoves.adopt(end.settings)

    assert path.exists() and end.record("arrival") is None
    assert "see which host has the VM" in legacymoves.unreadable(end.settings)["web1"]
    with startlock.allow_start(conn, end.settings, "db1"):
        pass


def test_an_old_claim_that_says_less_is_taken_over(end, conn):
    path = leave(end, "claims", paths=[], defines=True, until=time.time() - 5)

    legacymoves.adopt(end.settings)

    assert not path.exists() and end.record("arrival").facts["vcpus"] == 0


def test_an_old_departure_beside_a_broken_record_holds_up_no_other_vm(end, conn):
    path = leave(end, "departures", uuid="u", uri="qemu+tls://hyper2/system", paths=[])
    broken = reservations.folder(end.settings) / "departure/web1.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    end.make(conn, "db1", "4dea22b3-1d52-d8f3-2516-782e98ab3fa1")

    with startlock.allow_start(conn, end.settings, "db1"):
        pass
    with pytest.raises(StorageError, match="cannot be read"):
        startlock.refuse_moving(end.settings, "web1")
    assert path.exists()


def test_a_departure_that_an_old_job_is_about_to_write_is_left_to_it(end, conn):
    path = departed(end, conn)
    path.write_text("")

    with locks.hold_lock(path):
        assert legacymoves.unreadable(end.settings) == {}


def test_one_that_was_taken_over_before_a_crash_is_not_taken_over_again(end, conn):
    paths = end.make(conn)
    uuid = lifecycle.uuid(conn, "web1")
    said = {"uuid": uuid, "uri": "qemu+tls://hyper2/system", "paths": [str(p) for p in paths]}
    path = leave(end, "departures", **said)
    legacymoves.adopt(end.settings)
    leave(end, "departures", **said)

    legacymoves.adopt(end.settings)

    assert not path.exists() and end.phase("departure") == "handing"


def test_what_is_buried_of_one_old_move_says_nothing_of_another(end, conn):
    end.step("cancel", token=moveprotocol.legacy_token("web1"), seen=None, is_refused=True)
    end.make(conn, "db1", "4dea22b3-1d52-d8f3-2516-782e98ab3fa1")

    seen = movestate.read_state(conn, end.settings, "db1", moveprotocol.legacy_token("db1"), None)

    assert seen.source.phase is None


def test_one_that_was_sent_without_digests_arrives(end, conn):
    paths = end.make(conn)
    said = {"paths": [str(p) for p in paths], "defines": True, **ROOM}
    leave(end, "claims", until=time.time() - 5, **said)
    uuid = lifecycle.uuid(conn, "web1")
    token = moveprotocol.legacy_token("web1")
    leave(end, "departures", uuid=uuid, uri="qemu+tls://hyper2/system", paths=said["paths"])
    noted = end.state(conn, token)["noted"]

    end.step("arrive", token=token, is_handed=False, noted=noted)

    assert end.phase("arrival") == "arrived"
