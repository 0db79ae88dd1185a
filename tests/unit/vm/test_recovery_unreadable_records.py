"""A record that cannot be read holds up its own VM, is named, and holds up no other."""

import json

import onrecord
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.libvirt import reservations
from saltvirt.migration.host import movestate
from saltvirt.vm.power.host import startlock
from saltvirt.vm.purge.host import purge
from saltvirt.vm.recovery.host import unfinished
from saltvirt.vm.show.host import inspect

# Many, each on a played host of its own.
pytestmark = pytest.mark.slow

PURPOSES = ("build", "purge", "diskmove", "departure", "arrival")
CUT_OFF = '{"version": 1, "purp'


def _of_another_type(purpose):
    facts = {**getattr(onrecord, purpose)(), "paths": "/srv/web1.qcow2"}
    said = {"purpose": purpose, "name": "web1", "token": "t1", "phase": "handing", "since": 0}
    return json.dumps({"version": 1, **said, "facts": facts})


SPOILT = [(purpose, CUT_OFF) for purpose in PURPOSES]
SPOILT += [(purpose, _of_another_type(purpose)) for purpose in PURPOSES]


@pytest.fixture(params=SPOILT, ids=[*PURPOSES, *(f"{one}'s paths" for one in PURPOSES)])
def spoilt(hypervisor, request):
    """A host with VMs web1 and db1; of web1 a record is cut off, or says what it cannot mean."""
    purpose, text = request.param
    with hypervisor.libvirt():
        hypervisor.init()
        hypervisor.init("db1")
    path = reservations.folder(hypervisor.settings) / purpose / "web1.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_it_is_named_and_its_host_answers(hypervisor, spoilt):
    settings = hypervisor.settings
    with hypervisor.libvirt() as conn:
        info = inspect.host_info(conn, settings)
        seen = {name: inspect.presence(conn, settings, name) for name in ("web1", "db1")}

    assert sorted(info.vms) == ["db1", "web1"]
    ((name, why),) = info.unreadable.items()
    assert name == "web1" and f"the record {spoilt} cannot be read" in why
    assert "see what it was about, then move it away" in why
    # Whatever was begun for it: its name is not given to another.
    assert info.unfinished == ["web1"]
    assert {name: one.unfinished for name, one in seen.items()} == {"web1": True, "db1": False}


def test_nothing_is_done_with_its_vm_and_all_with_others(hypervisor, spoilt):
    settings = hypervisor.settings
    with hypervisor.libvirt() as conn:
        with pytest.raises(StorageError, match="cannot be read"):
            purge.purge(conn, settings, "web1")
        if spoilt.parent.name in ("departure", "arrival"):
            with (
                pytest.raises(StorageError, match="cannot be read"),
                startlock.allow_start(conn, settings, "web1"),
            ):
                pytest.fail("it was started")
        with startlock.allow_start(conn, settings, "db1"):
            pass
        purge.purge(conn, settings, "db1")
        hypervisor.init("mail1")
        unfinished.settle(conn, settings)

    assert hypervisor.domains() == ["mail1", "web1"] and spoilt.exists()
    assert len(hypervisor.files()) == 6


def test_moves_name_it_beside_the_others(hypervisor, spoilt):
    with records.hold_record(reservations.folder(hypervisor.settings), "departure", "db1") as held:
        held.begin("t1", "planned", **onrecord.departure())

    known = movestate.read_moves(hypervisor.settings)

    assert [one.phase for one in known["db1"]] == ["planned"]
    if spoilt.parent.name in ("departure", "arrival"):
        (one,) = known["web1"]
        assert str(spoilt) in one.error and one.target is None
