"""A host's short answer says of names what its whole one does, asked for more or for them alone."""

from dataclasses import replace

import onrecord
from saltvirt.core import wire
from saltvirt.core.journal import records
from saltvirt.core.model import Policy, Requirements
from saltvirt.libvirt import reservations
from saltvirt.placement import brief
from saltvirt.storage import definitionfiles
from saltvirt.vm import spec
from saltvirt.vm.show.host import inspect, offering
from saltvirt.xml import METADATA_NS

KEPT = """
<domain type='test'>
  <name>left</name>
  <metadata>
    <saltvirt:vm xmlns:saltvirt='{ns}' moved_to='hyper2'/>
  </metadata>
  <memory>1024</memory>
  <os><type>hvm</type></os>
</domain>
"""


def answers(hypervisor, **asked):
    """Return what the host says asked for all, for names alone, and its whole answer."""
    with hypervisor.libvirt() as conn:
        settings = hypervisor.settings
        whole = offering.facts(conn, settings, "hyper1", brief.Query(**asked))
        named = offering.facts(conn, settings, "hyper1", brief.Query(**asked, only=["hyper2"]))
        return whole, named, inspect.host_info(conn, settings)


def test_names_are_told_alike_whoever_is_asked_for_more(hypervisor):
    hypervisor.init("web1")
    hypervisor.init("web2")
    (hypervisor.definitions / "left.xml").write_text(KEPT.format(ns=METADATA_NS))
    place = reservations.folder(hypervisor.settings)
    coming = Requirements(name="db1", vcpus=1, memory_mib=64, anti_affinity=("db",))
    with records.hold_record(place, "arrival", "db1") as held:
        held.begin("t1", "preparing", **onrecord.arrival(**reservations.room(coming)))
        whole, named, info = answers(hypervisor, groups=["db"])
        listed = answers(hypervisor, with_names=True)[1].names.listed

    assert whole.names == named.names
    assert named.offer is None
    assert listed == sorted(info.vms) == ["web1", "web2"]
    assert named.names.digest == brief.digest(info.vms)
    assert named.names.kept == info.kept == {"left": "hyper2"}
    assert named.names.building == info.building == ["db1"]
    assert whole.offer.groups["db1"].anti_affinity == ["db"]
    assert whole.offer.committed.memory_mib == info.memory.committed_mib


def test_a_vm_that_libvirt_has_not_loaded_is_told_of_whoever_is_asked(
    hypervisor, monkeypatch, tmp_path
):
    kept = tmp_path / "not-loaded"
    kept.mkdir()
    (kept / "web1.xml").touch()
    monkeypatch.setattr(definitionfiles, "_DEFINITIONS", kept)

    whole, named, info = answers(hypervisor)

    assert "libvirt has not loaded" in info.unreadable["web1"]
    assert whole.names.unreadable == named.names.unreadable == info.unreadable


def test_each_nic_of_a_profile_is_told_where_a_call_says_more_of_one(hypervisor):
    nic = {"dmz": [{"name": "eth0", "source": "br7", "vlan": 7}, {"name": "b", "network": "n"}]}
    nic["bad"] = [{"name": "eth0", "type": "x"}]
    hypervisor.settings = replace(hypervisor.settings, nic=nic)
    call = {"nic": "dmz", "interfaces": [{"name": "b", "network": "other"}]}

    def told(given):
        required = spec.requirements_from_master("web1", 1, 64, given)
        about = brief.build_query([required], Policy())
        whole = answers(hypervisor, nic=about.nic, with_nics=about.with_nics)[0]
        return wire.plain(whole.offer.nic["dmz"])

    assert told(call)["nics"] == {
        "eth0": {"type": "bridge", "on": "br7", "tagged": True, "switched": False},
        "b": {"type": "network", "on": "n", "tagged": False, "switched": False},
    }
    assert "nics" not in told({"nic": "dmz"})
    with hypervisor.libvirt() as conn:
        whole = inspect.host_info(conn, hypervisor.settings).profiles.nic
    assert whole["bad"].error and whole["default"].nics["eth0"].on == "br0"
