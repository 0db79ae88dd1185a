"""Drivers without statistics answer what Salt 3006.25 returned of libvirt's own test host."""

import faces
import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect


@pytest.fixture
def virt_query():
    return faces.load("modules", "virt_query")


def test_the_host_is_shown_without_statistics_of_its_memory(virt_query):
    # salt/modules/virt.py 4413-4428, 4796-4846 of 3006.25.
    assert virt_query.node_info() == {
        "cpucores": 2,
        "cpumhz": 1400,
        "cpumodel": "i686",
        "cpus": 16,
        "cputhreads": 2,
        "numanodes": 2,
        "phymemory": 3072,
        "sockets": 2,
    }
    assert (virt_query.freemem(), virt_query.freecpu()) == (768.0, 14)


def test_a_vm_is_shown_without_bulk_statistics(virt_query):
    domain = virt_query.vm_info()["test"]

    assert (domain["cpu"], domain["maxMem"], domain["mem"]) == (2, 8388608, 2097152)
    assert domain["cputime"] > 0
    full_info = faces.load("modules", "virt_answers").full_info()
    assert full_info["freemem"] == 768.0


def test_nics_are_those_of_the_definition(virt_query):
    nic = "<interface type='network'><mac address='52:54:00:aa:00:01'/><source network='lan'/>"
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as conn:
        running = conn.lookupByName("test").XMLDesc(0)
        conn.defineXML(running.replace("<devices>", f"<devices>{nic}</interface>"))

        assert "52:54:00:aa:00:01" not in conn.lookupByName("test").XMLDesc(0)
        assert "52:54:00:aa:00:01" in faces.load("modules", "virt_vm").get_nics("test")
        assert "52:54:00:aa:00:01" in virt_query.vm_info()["test"]["nics"]


def test_a_paused_vm_keeps_its_memory_and_a_stopped_one_does_not(virt_query):
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as conn:
        vm = conn.lookupByName("test")
        vm.suspend()
        assert (virt_query.freemem(), virt_query.freecpu()) == (768.0, 14)
        vm.destroy()
        assert (virt_query.freemem(), virt_query.freecpu()) == (2816.0, 16)


def test_some_vms_are_shown_by_name_state_and_tag_with_some_fields():
    virt_answers = faces.load("modules", "virt_answers")
    every_vm = virt_answers.vms()

    assert every_vm["names"] == ["test"] and set(every_vm["vm_info"]) == {"test"}
    running_vms = virt_answers.vms("te*", state="running", fields="state,mem")
    assert running_vms["vm_info"] == {"test": {"state": "running", "mem": 2097152}}
    assert (running_vms["freemem"], running_vms["freecpu"]) == (768.0, 14)
    for filters in ({"name": "web*"}, {"state": "paused"}, {"tag": "shop"}):
        assert virt_answers.vms(**filters)["vm_info"] == {} and virt_answers.vms(**filters)[
            "names"
        ] == ["test"]


def test_a_tag_is_a_group_or_the_word_hold():
    virt_answers, virt_migrate = (
        faces.load("modules", "virt_answers"),
        faces.load("modules", "virt_migrate"),
    )
    # The test driver keeps the hold only while a connection is open.
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False):
        virt_migrate.hold("test")

        assert set(virt_answers.vms(tag="hold")["vm_info"]) == {"test"}
        assert virt_answers.vms(tag="hold,shop")["vm_info"] == {}
