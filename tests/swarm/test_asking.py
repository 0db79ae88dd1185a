"""Sixty hosts are asked for a new VM in few bytes each, and a job goes to them alone."""

import json
import time

import pytest
from conftest import SHORT, at_first, swarm_of, vms_by_host
from swarmkit.settings import Spec

HOSTS, SAMPLE = 60, 10
BYTES = "awk '/lo:/ {print $2}' /proc/net/dev"
PINNED = ("seed=False", "dry_run=True")


def spec(**more):
    """Return sixty hosts that are listed one by one, and looked at ten at a time."""
    ids = Spec(hosts=HOSTS).ids
    virt = {"timeout_s": 20, "hypervisors": ids, "sample_hosts": SAMPLE}
    return Spec(hosts=HOSTS, vms=5, processes=6, options={**SHORT, "virt": virt, **more})


@pytest.fixture(scope="module")
def filtering():
    """Their master sends a job to those alone whom it is for."""
    with swarm_of(spec(zmq_filtering=True), "q") as it:
        warmed(it)
        yield it


def warmed(swarm, limit_s=180):
    """Wait until all hosts have loaded what they answer with, which is not what is tested here."""
    end = time.monotonic() + limit_s
    while set(swarm.run("virt.host_info").data) != set(swarm.spec.ids):
        assert time.monotonic() < end, "some hosts do not answer"


def dry(swarm, name, *options):
    """Return the table of hosts for a new VM."""
    done = swarm.run("virt.init", name, 1, 512, *PINNED, *options)
    assert done.code == 0, done.out + done.err
    return done.data


def test_all_hosts_answer_to_lists_of_some_of_them(filtering):
    assert vms_by_host(filtering.run("virt.list").data) == at_first(filtering.spec)


def test_a_sample_is_looked_at_and_the_same_again(filtering):
    first = dry(filtering, "web1")

    assert len(first) == SAMPLE
    assert all(one["fits"] for one in first.values())
    assert dry(filtering, "web1") == first
    assert set(dry(filtering, "web2")) != set(first)
    assert len(dry(filtering, "web1", "placement=pack")) == HOSTS


def test_a_name_beyond_the_sample_is_taken_though_its_host_was_not_asked_since(filtering):
    looked = dry(filtering, "web3")
    host = next(one for one in filtering.spec.ids if one not in looked)
    made = filtering.salt(host, "virt.init", "web3", 1, 512, "seed=False")
    assert "web3" in filtering.domains(host), made.out + made.err

    done = filtering.run("virt.init", "web3", 1, 512, "seed=False")

    assert done.code == 1
    assert f"'web3' is on {host} already (running)" in done.data["error"]
    assert filtering.run("virt.purge", "web3").code == 0


def test_a_silent_host_that_had_the_name_keeps_it(filtering):
    name = "vm-h0007-003"
    filtering.run("virt.list")
    with filtering.failing({"host": "h0007", "silent": True}):
        done = filtering.run("virt.init", name, 1, 512, *PINNED)

    assert done.code == 1
    assert f"{name}' may be on h0007" in done.data["error"]


def test_what_a_host_says_is_a_few_hundred_bytes(filtering):
    about = json.dumps({"nic": ["default"], "disk": ["default"]})
    said = filtering.salt("h0001", "virt.placement_facts", about).data["h0001"]

    assert len(json.dumps(said, separators=(",", ":"))) < 600
    assert said["offer"]["committed"]["vcpus"] == 5
    dry(filtering, "web5")
    before = int(filtering.sh(BYTES))
    dry(filtering, "web5")
    spent = int(filtering.sh(BYTES)) - before
    # Of which Salt's own way of a job and its answer is more than half.
    assert spent < HOSTS * 3500, f"{spent / HOSTS:.0f} bytes a host"
