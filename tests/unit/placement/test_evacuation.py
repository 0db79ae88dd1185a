"""Where many VMs go at once: pure, so whole clouds are tried."""

import copy
from dataclasses import replace

import pytest
import told
from hypothesis import given, settings
from hypothesis import strategies as st
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument
from saltvirt.model import Move
from saltvirt.placement import evacuation
from saltvirt.spec import move
from tightclouds import host, moving


def named(*vms):
    """Return facts by their VM's name."""
    return {one.name: one for one in vms}


def test_big_vms_go_first_and_each_counts_for_the_next():
    hosts = {"a": host(100), "b": host(60)}

    there, stays = evacuation.evacuate(
        hosts, named(moving("small", 40), moving("big", 90), moving("mid", 50))
    )

    assert list(there) == ["big", "mid"] and there == {"big": "a", "mid": "b"}
    assert "memory wanted" in stays["small"] and "a: " in stays["small"]


def test_what_cannot_move_stays_with_its_reason():
    there, stays = evacuation.evacuate(
        {"a": host(1000)},
        named(moving("pinned", 10, obstacles=["it has a device of this host"]), moving("free", 10)),
    )

    assert there == {"free": "a"} and stays == {"pinned": "it has a device of this host"}


def test_groups_stay_together_and_apart():
    hosts = {name: host(1000) for name in "abc"}
    there, stays = evacuation.evacuate(
        hosts,
        named(
            moving("w1", 10, affinity=["web"]),
            moving("w2", 20, affinity=["web"]),
            moving("d1", 30, anti_affinity=["db"]),
            moving("d2", 30, anti_affinity=["db"]),
        ),
    )

    assert there["w1"] == there["w2"] and there["d1"] != there["d2"] and not stays


def test_a_group_of_which_one_cannot_move_stays_together():
    held = ["it has snapshots"]

    there, stays = evacuation.evacuate(
        {"a": host(1000)},
        named(
            moving("w1", 10, affinity=["web"]),
            moving("w2", 20, affinity=["web"], obstacles=held),
            moving("free", 10),
        ),
    )

    assert there == {"free": "a"}
    assert stays == {
        "w1": "w2, which stays with it: it has snapshots",
        "w2": "it has snapshots",
    }


def test_who_joins_its_group_elsewhere_does_not_wait_for_one_that_cannot_move():
    there = host(1000, vms={"w0": {"affinity": ["web"]}})

    moves, stays = evacuation.evacuate(
        {"a": host(1000), "b": there},
        named(
            moving("w1", 10, affinity=["web"]),
            moving("w2", 20, affinity=["web"], obstacles=["it has snapshots"]),
        ),
    )

    assert moves == {"w1": "b"} and stays == {"w2": "it has snapshots"}


def test_the_hosts_that_were_given_are_not_changed():
    hosts = {"a": host(1000)}
    before = copy.deepcopy(hosts)

    evacuation.evacuate(hosts, named(moving("x", 10)))

    assert hosts == before


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 60), max_size=12), st.lists(st.integers(10, 120), max_size=4))
def test_no_host_is_ever_overcommitted_and_every_vm_is_accounted_for(sizes, limits):
    hosts = {f"h{n}": host(limit) for n, limit in enumerate(limits)}
    vms = named(*[moving(f"vm{n:02}", size) for n, size in enumerate(sizes)])

    there, stays = evacuation.evacuate(hosts, vms)

    assert {*there, *stays} == {*vms} and not {*there} & {*stays}
    for name, one in hosts.items():
        taken = sum(vms[vm].memory_mib for vm, to in there.items() if to == name)
        assert taken <= one.memory.limit_mib


def test_a_thousand_equal_hosts_each_take_one():
    base = host(64 * 1024)
    vms = told.but(base, vms={f"o{n}": {"vcpus": 2, "memory_mib": 2048} for n in range(20)}).vms
    hosts = {
        f"h{n}": replace(base, vms={f"h{n}-{k}": v for k, v in vms.items()}) for n in range(1000)
    }

    there, stays = evacuation.evacuate(hosts, named(*[moving(f"vm{n}", 2048) for n in range(20)]))

    assert len(there) == 20 and not stays
    assert len(set(there.values())) == 20


@pytest.mark.parametrize(
    ("given_", "why"),
    [
        ({"max_bandwith": 1}, "did you mean 'max_bandwidth'"),
        ({"max_bandwidth": 0}, "max_bandwidth: 0 is out of range"),
        ({"max_bandwidth": 10**20}, "out of range; give between 1 and 8796093022207"),
        ({"postcopy_bandwidth": 10**20}, "out of range; give between 1 and 8796093022207"),
        ({"max_downtime": 10**7}, "max_downtime: 10000000 is out of range"),
        ({"parallel_connections": 256}, "parallel_connections: 256 is out of range"),
        ({"comp_mt_level": 10}, "comp_mt_level: 10 is out of range; give between 0 and 9"),
        ({"comp_mt_threads": 256}, "comp_mt_threads: 256 is out of range"),
        ({"comp_mt_dthreads": 256}, "comp_mt_dthreads: 256 is out of range"),
        ({"comp_xbzrle_cache": 2**63}, "comp_xbzrle_cache: 9223372036854775808 is out of range"),
        ({"postcopy_after": 2**31}, "postcopy_after: 2147483648 is out of range"),
        ({"limit_s": 10**20}, "out of range; give between 1 and 31536000"),
        ({"stall_s": 10**20}, "out of range; give between 1 and 31536000"),
        ({"max_downtime": "soon"}, "is not a whole number"),
        ({"live": "yes"}, "neither True nor False"),
        ({"copy_storage": "some"}, "'some'; all or incremental"),
        ({"copy_storage": ["all"]}, "; all or incremental"),
        ({"comp_methods": "zip"}, "of mt and xbzrle"),
        ({"password": "x"}, "by their certificates"),
    ],
)
def test_a_move_with_a_bad_argument_is_refused(given_, why):
    with pytest.raises(BadArgument, match=why):
        move(HostSettings(), given_)


def test_the_old_keywords_of_a_move_mean_what_they_did():
    made = move(
        HostSettings(tunnel=True),
        {
            "copy_storage": "inc",
            "comp_methods": "mt,xbzrle",
            "compressed": True,
            "postcopy_after": 3,
        },
    )

    assert made == Move(
        copy_storage="incremental",
        comp_methods=("mt", "xbzrle"),
        tunnel=True,
        compressed=True,
        postcopy=True,
        postcopy_after=3,
    )
