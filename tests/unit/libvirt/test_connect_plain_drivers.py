"""Drivers without statistics answer what Salt 3006.25 returned of libvirt's own test host."""

import faces
import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect


@pytest.fixture
def face():
    return faces.load("modules", "virt_query")


def test_the_host_is_shown_without_statistics_of_its_memory(face):
    # salt/modules/virt.py 4413-4428, 4796-4846 of 3006.25.
    assert face.node_info() == {
        "cpucores": 2,
        "cpumhz": 1400,
        "cpumodel": "i686",
        "cpus": 16,
        "cputhreads": 2,
        "numanodes": 2,
        "phymemory": 3072,
        "sockets": 2,
    }
    assert (face.freemem(), face.freecpu()) == (768.0, 14)


def test_a_vm_is_shown_without_bulk_statistics(face):
    found = face.vm_info()["test"]

    assert (found["cpu"], found["maxMem"], found["mem"]) == (2, 8388608, 2097152)
    assert found["cputime"] > 0
    full = faces.load("modules", "virt_answers").full_info()
    assert full["freemem"] == 768.0


def test_nics_are_those_of_the_definition(face):
    nic = "<interface type='network'><mac address='52:54:00:aa:00:01'/><source network='lan'/>"
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as conn:
        running = conn.lookupByName("test").XMLDesc(0)
        conn.defineXML(running.replace("<devices>", f"<devices>{nic}</interface>"))

        assert "52:54:00:aa:00:01" not in conn.lookupByName("test").XMLDesc(0)
        assert "52:54:00:aa:00:01" in faces.load("modules", "virt_vm").get_nics("test")
        assert "52:54:00:aa:00:01" in face.vm_info()["test"]["nics"]


def test_a_paused_vm_keeps_what_it_was_given_and_one_that_is_off_does_not(face):
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as conn:
        vm = conn.lookupByName("test")
        vm.suspend()
        assert (face.freemem(), face.freecpu()) == (768.0, 14)
        vm.destroy()
        assert (face.freemem(), face.freecpu()) == (2816.0, 16)


def test_some_vms_are_shown_by_name_state_and_tag_with_some_fields():
    own = faces.load("modules", "virt_answers")
    whole = own.vms()

    assert whole["names"] == ["test"] and set(whole["vm_info"]) == {"test"}
    few = own.vms("te*", state="running", fields="state,mem")
    assert few["vm_info"] == {"test": {"state": "running", "mem": 2097152}}
    assert (few["freemem"], few["freecpu"]) == (768.0, 14)
    for given in ({"name": "web*"}, {"state": "paused"}, {"tag": "shop"}):
        assert own.vms(**given)["vm_info"] == {} and own.vms(**given)["names"] == ["test"]


def test_a_tag_is_a_group_or_that_it_is_held():
    own, moving = faces.load("modules", "virt_answers"), faces.load("modules", "virt_migrate")
    # Its state lasts as long as a connection.
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False):
        moving.hold("test")

        assert set(own.vms(tag="hold")["vm_info"]) == {"test"}
        assert own.vms(tag="hold,shop")["vm_info"] == {}
