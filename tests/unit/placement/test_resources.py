"""Huge pages, NUMA nodes and storage pools: what VMs use, and what a host has."""

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


def stocks_of(cpu=1, mem=1024, **options):
    """Return the stocks of a call; master and host must agree on them."""
    needs = spec.requirements_from_master("vm1", cpu, mem, options)
    deployment = spec.deployment(HostSettings(), "vm1", cpu, mem, options)
    assert spec.requirements(deployment.vm).stocks == needs.stocks
    return dict(needs.stocks)


def test_a_plain_vm_takes_none():
    assert stocks_of() == {}


def test_huge_pages_hold_all_of_the_memory():
    assert stocks_of(mem=PAGES) == {"hugepages of 2048 KiB": 4096}
    two_sizes = [{"size": "2m", "nodeset": "0"}, {"size": "1g", "nodeset": "1"}]
    assert stocks_of(mem={**PAGES, "hugepages": two_sizes}) == {
        "hugepages of 1048576 KiB": 0,
        "hugepages of 2048 KiB": 0,
    }


@pytest.mark.parametrize(
    ("tune", "expected"),
    [
        ({"memory": {"mode": "strict", "nodeset": "1"}}, {"NUMA node 1": 1024}),
        ({"memory": {"nodeset": "0-1,3"}}, {f"NUMA node {n}": 342 for n in (0, 1, 3)}),
        ({"memory": {"mode": "preferred", "nodeset": "1"}}, {"NUMA node 1": 0}),
        ({"memnodes": {0: {"mode": "strict", "nodeset": "2"}}}, {"NUMA node 2": 0}),
    ],
)
def test_nodes_that_a_vm_is_bound_to_share_its_memory_and_others_are_to_be_there(tune, expected):
    assert stocks_of(numatune=tune) == expected


def test_a_disk_in_a_pool_takes_of_that_and_not_of_the_image_folder():
    disks = [
        {"name": "system", "size": 1000},
        {"name": "data", "size": 2000, "pool": "ssd"},
        {"name": "more", "size": 500, "pool": "ssd"},
        {"name": "elsewhere", "size": 300, "pool": "/srv/elsewhere"},
    ]

    needs = spec.requirements_from_master("vm1", 1, 512, {"disks": disks})

    assert stocks_of(disks=disks) == {"storage pool ssd": 2500}
    assert needs.disk_mib == 1300


def test_the_limit_of_a_stock_comes_from_libvirt_and_its_use_from_the_vms(tmp_path):
    with connect.open_connection(HostSettings(uri="test:///default")) as conn:
        nodes = hostfacts.capabilities(conn)["nodes"]
    assert {number: node["memory_mib"] for number, node in nodes.items()} == {0: 2048, 1: 4096}
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
    options = {"numatune": {"memory": {"mode": "strict", "nodeset": "1"}}, "disks": []}
    mem = {"boot": 512, "hugepages": [{"size": "2m"}]}
    vm = replace(spec.deployment(HostSettings(), "vm1", 1, mem, options).vm, disks=())
    totals = commitments.StockTotals(pools)
    totals.memory([readdomain.domain(domain.build(vm))])
    (tmp_path / "a.img").touch()
    os.truncate(tmp_path / "a.img", 60 * 2**20)
    totals.disk(str(tmp_path / "a.img"), "raw")
    totals.disk(str(tmp_path / "elsewhere/b.img"), "raw")
    coming = ComingFacts(
        vcpus=1,
        memory_mib=1,
        disk_mib=0,
        affinity=[],
        anti_affinity=[],
        stocks={resources.pool("ssd"): 7},
    )

    stocks = commitments.count_stocks(nodes, pools, totals, [coming])

    assert stocks["hugepages of 2048 KiB"] == Stock(limit_mib=1024, committed_mib=512)
    assert stocks["hugepages of 1048576 KiB"] == Stock(limit_mib=0, committed_mib=0)
    assert stocks["NUMA node 1"] == Stock(limit_mib=4096, committed_mib=512)
    assert stocks["storage pool ssd"] == Stock(limit_mib=900, committed_mib=300 + 60 + 7)
    assert stocks["storage pool lvm"] == Stock(limit_mib=9, committed_mib=5)
    # No volumes are made in such a pool: one that exists is taken.
    assert stocks["storage pool san"] == Stock(limit_mib=9, committed_mib=0)
    assert "storage pool off" not in stocks
    # Volumes of `dir` are thin, those of `logical` are not.
    stocks = commitments.count_stocks(nodes, pools, totals, [coming], pool_ratio=2.5)
    assert stocks["storage pool ssd"] == Stock(limit_mib=2250, committed_mib=300 + 60 + 7)
    assert stocks["storage pool lvm"].limit_mib == stocks["storage pool san"].limit_mib == 9
