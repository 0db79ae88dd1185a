"""Placement decides the same by a host's brief as by all of its facts."""

import json
import random
from dataclasses import replace

import pytest
import somefleets
import told
from saltvirt.core import wire
from saltvirt.core.model import Policy, Requirements
from saltvirt.placement import brief, choose
from saltvirt.placement.many import plan_many


def over_the_wire(infos, query):
    """Return what a master reads from the briefs of these hosts."""
    infos_by_host = {}
    for host, info in infos.items():
        plain_brief = json.loads(json.dumps(wire.plain(brief.build_brief(info, query))))
        answer = wire.read(host, "virt.placement_facts", brief.Brief, plain_brief)
        assert wire.plain(answer) == plain_brief
        assert answer.names.digest == brief.digest(info.vms)
        infos_by_host[host] = brief.to_host_info(answer, info.vms)
    return infos_by_host


def shown(evaluations):
    return [
        (evaluation.host, evaluation.reasons, evaluation.score, evaluation.crowd, evaluation.note)
        for evaluation in evaluations
    ]


@pytest.mark.parametrize("seed", range(40))
def test_hosts_are_evaluated_as_by_all_that_they_have(seed):
    draw = random.Random(seed)
    infos = somefleets.hosts(draw)
    required = somefleets.request(draw, "new")
    for policy in somefleets.POLICIES:
        brief_infos = over_the_wire(infos, brief.build_query([required], policy))

        evaluations = choose.evaluate(brief_infos, required, policy=policy)

        assert shown(evaluations) == shown(choose.evaluate(infos, required, policy=policy))


@pytest.mark.parametrize("seed", range(30))
def test_many_are_planned_as_by_all_that_hosts_have(seed):
    draw = random.Random(seed)
    infos, requests = somefleets.hosts(draw), somefleets.requests(draw)
    for policy in somefleets.POLICIES:
        brief_infos = over_the_wire(infos, brief.build_query(requests, policy))

        assert plan_many(requests, brief_infos, policy=policy) == plan_many(
            requests, infos, policy=policy
        )


def full_host():
    """Return a host with some of everything that a VM can need."""
    (info,) = somefleets.hosts(random.Random(1), most=1).values()
    return told.but(
        info,
        bridges=["br0", "br1"],
        links=["eth0", "eth1"],
        networks={
            "default": {"active": True, "bridge": "virbr0"},
            "off": {"active": False, "bridge": None},
        },
        profiles={
            "nic": {
                "lan": {"bridges": ["br1"], "networks": ["off"], "links": [], "bridge_vlans": True},
                "bad": {"error": "no such type"},
            },
            "disk": {"large": {"size_mib": 10**6, "has_image": True}, "bad": {"error": "no"}},
        },
        domain_types={"default": "qemu", "usable": ["qemu"], "why": "no /dev/kvm"},
        machines={"x86_64": {"versions": {"pc-q35-": ["4.2", "7.2"]}, "names": ["q35"]}},
    )


@pytest.mark.parametrize(
    "needs",
    [
        {"bridges": ("br1", "br7")},
        {"networks": ("default", "off", "none")},
        {"links": ("eth1", "eth7")},
        {"nic_profile": "lan"},
        {"nic_profile": "bad", "disk_profile": "bad"},
        {"nic_profile": "none", "disk_profile": "large"},
        {"domain_type": "kvm"},
        {"domain_type": "qemu", "cpu_features": ("vmx", "no-such")},
        {"arch": "s390x"},
        {"machine": "pc-q35-7.1", "next_machine": "pc-q35-9.0"},
        {"machine": "q35", "next_machine": "pc-i440fx-7.2"},
        {"machine": "virt", "cpu_qemu": "99.0"},
        {"newer": (("a thing", "99.0"),)},
        {"bridge_vlans": True},
    ],
)
def test_each_kind_of_need_has_its_reasons(needs):
    required = Requirements(name="new", vcpus=1, memory_mib=1, **needs)
    infos = {"h1": full_host(), "h2": replace(full_host(), bridges=[], networks={}, links=[])}

    brief_infos = over_the_wire(infos, brief.build_query([required], Policy()))

    evaluations = shown(choose.evaluate(brief_infos, required))
    assert evaluations == shown(choose.evaluate(infos, required))


def test_the_brief_of_a_host_with_fifty_vms_has_a_few_hundred_bytes():
    required = Requirements(
        name="new", vcpus=1, memory_mib=1, nic_profile="lan", disk_profile="large"
    )
    info = full_host()
    info = told.but(info, vms={f"vm-{number:03}": told.VM for number in range(50)})

    plain_brief = wire.plain(brief.build_brief(info, brief.build_query([required], Policy())))

    assert len(json.dumps(plain_brief, separators=(",", ":"))) < 700
    assert "vm-001" not in json.dumps(plain_brief)


def test_a_host_decides_by_its_rank_whether_it_is_in_the_sample():
    hosts = [f"h{number:04}" for number in range(1000)]
    limit = sorted(brief.rank("web1", host) for host in hosts)[99]
    query = brief.Query(seed="web1", below=limit)

    sample = [host for host in hosts if query.is_for(host)]

    assert len(sample) == 100
    other_limit = sorted(brief.rank("web2", host) for host in hosts)[99]
    other_sample = [
        host for host in hosts if brief.Query(seed="web2", below=other_limit).is_for(host)
    ]
    assert len({*sample}.intersection(other_sample)) < 30
    assert brief.Query(only=["h0001"]).is_for("h0001")
    assert not brief.Query(only=["h0001"]).is_for("h0002")
    assert brief.Query().is_for("h0002")


@pytest.mark.parametrize(
    ("needs", "policy", "is_of_one_host"),
    [
        ({}, {}, True),
        ({"anti_affinity": ("db",)}, {"placement": "pack"}, True),
        ({"anti_affinity": ("db@rack",)}, {}, False),
        ({"affinity": ("db",)}, {}, False),
        ({}, {"spread_over": "rack"}, False),
        ({}, {"headroom": True}, False),
    ],
)
def test_a_choice_that_depends_on_other_hosts_is_recognized(needs, policy, is_of_one_host):
    required = Requirements(name="new", vcpus=1, memory_mib=1, **needs)

    assert brief.is_of_one_host(required, Policy(**policy)) is is_of_one_host
