"""Huge pages, NUMA nodes and storage pools: what VMs take of them, and what a host has."""

import os
from dataclasses import replace

import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect, hostfacts
from saltvirt.placement import resources
from saltvirt.placement.answers import ComingFacts
from saltvirt.placement.resources import Stock
from saltvirt.vm import spec
from saltvirt.vm.show.host import commitments
from saltvirt.xml.domain import domain
from saltvirt.xml.edit import readdomain

PAGES = {"boot": 4096, "hugepages": [{"size": "2m"}]}


def asked(cpu=1, mem=1024, **given):
    """Return the stocks that a call takes: the same on the master and on the host."""
    found = spec.requirements_from_master("vm1", cpu, mem, given)
    deployment = spec.deployment(HostSettings(), "vm1", cpu, mem, given)
    assert spec.requirements(deployment.vm).stocks == found.stocks
    return dict(found.stocks)


def test_a_plain_vm_takes_none():
    assert asked() == {}


def test_huge_pages_hold_all_of_the_memory():
    assert asked(mem=PAGES) == {"hugepages of 2048 KiB": 4096}
    two = [{"size": "2m", "nodeset": "0"}, {"size": "1g", "nodeset": "1"}]
    assert asked(mem={**PAGES, "hugepages": two}) == {
        "hugepages of 1048576 KiB": 0,
        "hugepages of 2048 KiB": 0,
    }


@pytest.mark.parametrize(
    ("tune", "taken"),
    [
        ({"memory": {"mode": "strict", "nodeset": "1"}}, {"NUMA node 1": 1024}),
        ({"memory": {"nodeset": "0-1,3"}}, {f"NUMA node {n}": 342 for n in (0, 1, 3)}),
        ({"memory": {"mode": "preferred", "nodeset": "1"}}, {"NUMA node 1": 0}),
        ({"memnodes": {0: {"mode": "strict", "nodeset": "2"}}}, {"NUMA node 2": 0}),
    ],
)
def test_nodes_that_a_vm_is_bound_to_share_its_memory_and_others_are_to_be_there(tune, taken):
    assert asked(numatune=tune) == taken


def test_a_disk_in_a_pool_takes_of_that_and_not_of_the_image_folder():
    disks = [
        {"name": "system", "size": 1000},
        {"name": "data", "size": 2000, "pool": "ssd"},
        {"name": "more", "size": 500, "pool": "ssd"},
        {"name": "elsewhere", "size": 300, "pool": "/srv/elsewhere"},
    ]

    found = spec.requirements_from_master("vm1", 1, 512, {"disks": disks})

    assert asked(disks=disks) == {"storage pool ssd": 2500}
    assert found.disk_mib == 1300


def test_what_a_host_has_comes_from_libvirt_and_what_is_taken_from_its_vms(tmp_path):
    with connect.open_connection(HostSettings(uri="test:///default")) as conn:
        nodes = hostfacts.capabilities(conn)["nodes"]
    assert {number: one["memory_mib"] for number, one in nodes.items()} == {0: 2048, 1: 4096}
    nodes[0]["pages"][2048] = 1024
    pools = {
        "ssd": {
            "type": "dir",
            "path": str(tmp_path),
            "active": True,
            "capacity_mib": 900,
            "free_mib": 600,
        },
        "off": {"type": "dir", "path": "/x", "active": False, "capacity_mib": 1, "free_mib": 1},
        "lvm": {"type": "logical", "path": "/y", "active": True, "capacity_mib": 9, "free_mib": 4},
        "san": {"type": "iscsi", "path": "/z", "active": True, "capacity_mib": 9, "free_mib": 0},
    }
    given = {"numatune": {"memory": {"mode": "strict", "nodeset": "1"}}, "disks": []}
    mem = {"boot": 512, "hugepages": [{"size": "2m"}]}
    vm = replace(spec.deployment(HostSettings(), "vm1", 1, mem, given).vm, disks=())
    taken = commitments.StockTotals(pools)
    taken.memory([readdomain.domain(domain.build(vm))])
    (tmp_path / "a.img").touch()
    os.truncate(tmp_path / "a.img", 60 * 2**20)
    taken.disk(str(tmp_path / "a.img"), "raw")
    taken.disk(str(tmp_path / "elsewhere/b.img"), "raw")
    coming = ComingFacts(
        vcpus=1,
        memory_mib=1,
        disk_mib=0,
        affinity=[],
        anti_affinity=[],
        stocks={resources.pool("ssd"): 7},
    )

    found = commitments.count_stocks(nodes, pools, taken, [coming])

    assert found["hugepages of 2048 KiB"] == Stock(limit_mib=1024, committed_mib=512)
    assert found["hugepages of 1048576 KiB"] == Stock(limit_mib=0, committed_mib=0)
    assert found["NUMA node 1"] == Stock(limit_mib=4096, committed_mib=512)
    assert found["storage pool ssd"] == Stock(limit_mib=900, committed_mib=300 + 60 + 7)
    assert found["storage pool lvm"] == Stock(limit_mib=9, committed_mib=5)
    # Nobody makes volumes there: one that is there is taken.
    assert found["storage pool san"] == Stock(limit_mib=9, committed_mib=0)
    assert "storage pool off" not in found
    # Volumes of `dir` are thin, those of `logical` are not.
    found = commitments.count_stocks(nodes, pools, taken, [coming], pool_ratio=2.5)
    assert found["storage pool ssd"] == Stock(limit_mib=2250, committed_mib=300 + 60 + 7)
    assert found["storage pool lvm"].limit_mib == found["storage pool san"].limit_mib == 9
