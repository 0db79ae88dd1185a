"""A machine with PCIe gets ports for devices that are attached while the VM runs."""

import dataclasses

import pytest
from saltvirt.core.model import Disk, Nic, Vm
from saltvirt.xml import parse
from saltvirt.xml.domain import controller, domain


def vm(**fields):
    disks = (Disk(name="system", target="vda", path="/x/web1_system.qcow2", format="qcow2"),)
    nics = (Nic(name="eth0", type="bridge", source="br0", mac="52:54:00:00:00:01"),)
    defaults = {"name": "web1", "cpu": 1, "vcpus": 1, "memory": 512, "memory_mib": 512}
    return Vm(**{**defaults, "disks": disks, "nics": nics, "arch": "x86_64", **fields})


def ports(vm_):
    root = parse(domain.build(vm_))
    return root.findall("devices/controller[@model='pcie-root-port']")


@pytest.mark.parametrize(
    ("machine", "arch"),
    [
        ("q35", "x86_64"),
        ("pc-q35-7.2", "x86_64"),
        ("virt", "aarch64"),
        ("virt-9.1", "riscv64"),
        (None, "aarch64"),
    ],
)
def test_a_running_vm_can_get_eight_more_devices(machine, arch):
    small_vm = vm(machine=machine, arch=arch)

    # A disk, a NIC, five devices that libvirt adds, and eight spare ports.
    assert len(ports(small_vm)) == 15
    large_vm = dataclasses.replace(small_vm, disks=small_vm.disks * 6)
    assert len(ports(large_vm)) == 20


@pytest.mark.parametrize("machine", [None, "pc", "pc-i440fx-7.2", "s390-ccw-virtio"])
def test_a_machine_without_pcie_gets_none(machine):
    assert parse(domain.build(vm(machine=machine))).find("devices/controller") is None


def test_the_root_comes_before_its_ports():
    first, *further = controller.ports(vm(machine="q35"))

    assert (first.model, first.index) == ("pcie-root", "0")
    assert {controller_.model for controller_ in further} == {"pcie-root-port"}
