"""A pool of 10,000 volumes is answered for, and what vanishes while it is listed is left out."""

import time

import libvirt
import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt.domains import cloudvms, lifecycle, query, snapshots
from saltvirt.libvirt.storage import volumes
from saltvirt.vm.show.host import inspect, migrationinfo
from saltvirt.xml.edit import clone

MANY = 10_000
# What a job of a minion is waited for at the least; it takes a tenth of that on a busy machine.
MOST_S = 60
DOMAIN = """<domain type='test'><name>{}</name><memory>65536</memory><os><type>hvm</type></os>
<devices><disk type='file' device='disk'><source file='/default-pool/v7'/><target dev='vda'/>
</disk></devices></domain>"""
SNAPSHOT = "<domainsnapshot><name>s1</name></domainsnapshot>"
GONE = libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
HOST = HostSettings(uri="test:///default")


@pytest.mark.nightly
def test_a_pool_of_ten_thousand_volumes_is_answered_for(conn, virt):
    pool = conn.storagePoolLookupByName("default-pool")
    for number in range(MANY):
        pool.createXML(clone.volume(f"v{number}", 1 << 20, "raw"))
    conn.defineXML(DOMAIN.format("web1"))
    begun = time.monotonic()

    listed = virt.pool_list_volumes("default-pool")
    infos = virt.volume_infos("default-pool")["default-pool"]
    one = virt.volume_infos("default-pool", "v7")["default-pool"]

    assert time.monotonic() - begun < MOST_S
    assert sorted(listed) == sorted(infos) == sorted(f"v{number}" for number in range(MANY))
    assert {name for name, said in infos.items() if said["used_by"]} == {"v7"}
    assert one["v7"] == infos["v7"] and one["v7"]["capacity"] == 1 << 20


# Each question about all VMs, and which of them the answer is about.
LISTINGS = {
    "virt.vm_info": inspect.vm_info,
    "virt.full_info": lambda conn: inspect.full_info(conn)["vm_info"],
    "disks in use": lambda conn: lifecycle.disks(conn),
    "volumes": lambda conn: volumes.infos(conn, "default-pool")["default-pool"]["v7"]["used_by"],
    "salt-cloud": cloudvms.nodes,
    "reachable": query.reachable,
    "snapshots": snapshots.read_all,
    "migration": lambda conn: migrationinfo.gather(conn, HOST),
}


@pytest.mark.parametrize("question", LISTINGS.values(), ids=LISTINGS)
def test_a_vm_that_vanishes_while_all_are_listed_is_left_out(conn, monkeypatch, question):
    conn.storagePoolLookupByName("default-pool").createXML(clone.volume("v7", 1 << 20, "raw"))
    for name in ("gone", "web1"):
        conn.defineXML(DOMAIN.format(name)).snapshotCreateXML(SNAPSHOT, 0)
    assert {"gone", "web1"} <= set(question(conn))

    def vanishing(ask):
        def asked(self, *given):
            listed = ask(self, *given)
            if "gone" in self.listDefinedDomains():
                self.lookupByName("gone").undefineFlags(GONE)
            return listed

        return asked

    for name in ("listAllDomains", "getAllDomainStats"):
        real = getattr(libvirt.virConnect, name)
        monkeypatch.setattr(libvirt.virConnect, name, vanishing(real))

    found = set(question(conn))

    assert "web1" in found and "gone" not in conn.listDefinedDomains()
    assert "gone" not in found
