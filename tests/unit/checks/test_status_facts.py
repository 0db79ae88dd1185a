"""The status of a host: its VMs, its capacity, and VMs that wait for a restart."""

import dataclasses

import pytest
from saltvirt.checks.status.host import facts
from saltvirt.checks.status.statusanswer import HostStatus
from saltvirt.core import wire
from saltvirt.core.errors import VirtError
from saltvirt.libvirt.domains import lifecycle
from saltvirt.vm.show.host import inspect

pytestmark = pytest.mark.slow


def look(host, conn, info=None):
    """Return the status of the host as the master reads it."""
    plain_status = wire.plain(facts.read_host_status(conn, host.settings, info))
    return wire.read("h1", "virt.status_facts", HostStatus, plain_status)


def test_vms_and_capacity_are_those_of_host_info(hypervisor):
    with hypervisor.libvirt() as conn:
        status_before = look(hypervisor, conn)
        hypervisor.init()
        info = inspect.host_info(conn, hypervisor.settings)
        status = look(hypervisor, conn)

    assert status.states == {name: vm.state for name, vm in info.vms.items()} != {}
    assert status.cpus.promised == info.cpu.vcpus_committed > status_before.cpus.promised
    assert status.memory_mib.limit == info.memory.limit_mib
    assert status.disk_mib.promised == pytest.approx(info.storage.committed_mib, abs=100)
    assert (status.coming, status.unfinished, status.moves) == ([], [], [])


def test_running_vms_are_used_and_stopped_vms_are_promised(hypervisor):
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        status_when_running = look(hypervisor, conn)
        lifecycle.destroy(conn, "web1")
        status_when_stopped = look(hypervisor, conn)

    assert (
        status_when_running.cpus.used > status_when_stopped.cpus.used
        and status_when_running.memory_mib.used > status_when_stopped.memory_mib.used
    )
    assert status_when_running.cpus.promised == status_when_stopped.cpus.promised


def test_a_vm_with_changes_for_its_next_start_waits_for_a_restart(hypervisor):
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        assert look(hypervisor, conn).restart == {}
        xml = lifecycle.inactive_xml(conn, "web1")
        conn.defineXML(xml.replace("1</vcpu>", "3</vcpu>"))

        assert look(hypervisor, conn).restart == {"web1": ["3 CPUs"]}


def test_the_answer_to_the_setup_check_has_the_facts_already(hypervisor):
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        info = inspect.host_info(conn, hypervisor.settings)
        # The figures of the file system change between two calls.
        from_info, from_libvirt = look(hypervisor, conn, info), look(hypervisor, conn)
        assert dataclasses.replace(from_info, disk_mib=from_libvirt.disk_mib) == from_libvirt

    assert facts.find_info({"info": wire.plain(info)}) == info
    assert facts.find_info({"refused_option": "virt:images"}) is None
    assert facts.find_info({"info": None}) is None and facts.find_info(None) is None


def test_a_failed_part_leaves_the_others():
    def fail():
        raise VirtError("libvirt does not answer")

    assert facts.read_parts({"audit": lambda: {"a": 1}, "doctor": fail}) == (
        {"audit": {"a": 1}},
        {"doctor": "libvirt does not answer"},
    )
