"""
NICs that are functions of a card (SR-IOV): a VM that runs, and its definition, show them otherwise.

The XML of the running VM is mocked, as this machine has no such card: it is what libvirt writes of
a NIC in a network that hands out functions (virDomainNetDefFormat, of its actual type).
"""

from types import SimpleNamespace

import pytest
from saltvirt.vm.update.host import live, plan
from saltvirt.xml import parse, tag
from saltvirt.xml.domain import nic

MAC, OTHER = "52:54:00:6d:90:02", "52:54:00:6d:90:03"
ADDRESS = "<address type='pci' domain='0x0000' bus='0x02' slot='0x10' function='0x{}'/>"
# As virsh dumpxml shows it while the VM runs; its definition has <source network='sriov'/>.
HANDED_OUT = f"""<interface type='hostdev' managed='yes'><mac address='{MAC}'/><driver name='vfio'/>
<source>{ADDRESS.format(5)}</source><vlan><tag id='42'/></vlan><alias name='hostdev0'/>
<address type='pci' domain='0x0000' bus='0x00' slot='0x04' function='0x0'/></interface>"""


def domain(interface):
    """Return a domain with one NIC."""
    return parse(f"<domain><devices>{interface}</devices></domain>")


def wants(*interfaces):
    """Return the steps and what waits, of a call for some NICs of a VM that has one."""
    made = [nic.build(nic.Interface(**one)) for one in interfaces]
    root = tag("domain", None, tag("devices", None, *made))
    asked = SimpleNamespace(live=True, cpu=None, mem=None, disks=None, host_devices=None)
    asked.interfaces = interfaces
    decided = live.decide(domain(HANDED_OUT), plan.Plan(root=root, changed=("interfaces",)), asked)
    return [(one.how, one.name) for one in decided.steps], decided


IN_SRIOV = {"type": "network", "mac": MAC, "source": {"network": "sriov"}}


def test_a_function_that_was_handed_out_is_what_its_definition_asks_for():
    assert wants(IN_SRIOV)[0] == []


@pytest.mark.parametrize("other", [{}, {"type": "bridge", "mac": MAC, "source": {"bridge": "br0"}}])
def test_a_function_goes_as_the_running_vm_has_it(other):
    steps, decided = wants(*([other] if other else []))

    assert steps == [("detached", MAC), *([("attached", MAC)] if other else [])]
    # By this libvirt knows which one is meant.
    assert '<address type="pci" domain="0x0000" bus="0x02"' in decided.steps[0].xml
    assert 'type="hostdev"' in decided.steps[0].xml


def test_another_function_comes_beside_it():
    steps, decided = wants(IN_SRIOV, {**IN_SRIOV, "mac": OTHER})

    assert steps == [("attached", OTHER)]
    assert 'network="sriov"' in decided.steps[0].xml
