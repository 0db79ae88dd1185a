"""A host with unusable figures has failed; the other hosts' answers stand."""

import copy
import importlib.util
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc import minions
from saltvirt.core import wire
from saltvirt.core.errors import BadArgument
from saltvirt.core.journal.movefacts import Noted
from saltvirt.core.model import Requirements
from saltvirt.placement import choose, score
from saltvirt.placement.answers import ComingFacts, HostInfo, Load
from saltvirt.placement.shownvms import FullInfo

ROOT = Path(__file__).resolve().parents[3]
FLEET = json.loads((ROOT / "tests/data/fleets/three.json").read_text())
HOST = FLEET["hyper2"]
BEYOND = "is not a number of 64 bits"
WANTED = Requirements(name="web9", vcpus=1, memory_mib=10, disk_mib=10)


def host_info_with(path, value):
    """Return a host's answer to ``virt.host_info`` with another value at a path."""
    out = copy.deepcopy(HOST)
    *way, last = path.split(".")
    inner = out
    for name in way:
        inner = inner[name]
    inner[last] = value
    return out


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("memory.committed_mib", -(10**9), "is less than 0"),
        ("cpu.vcpus_committed", -1, "is less than 0"),
        ("storage.committed_mib", -1, "is less than 0"),
        ("memory.committed_mib", -(10**400), BEYOND),
        ("memory.limit_mib", 10**400, BEYOND),
        ("memory.limit_mib", 10**4300, BEYOND),
        ("storage.images.free_mib", float("nan"), BEYOND),
        ("storage.pools", {"vms": {"sizes": [1, float("inf")]}}, BEYOND),
        ("new", {"said_by_newer_ones": 2**64}, BEYOND),
    ],
    # Python has no text for 4,300 digits.
    ids=lambda answer: answer if isinstance(answer, str) else "value",
)
def test_a_host_with_unusable_figures_has_failed_and_the_others_stand(
    monkeypatch, opts, path, value, reason
):
    answers = {**FLEET, "hyper2": host_info_with(path, value)}
    replies = {host: minions.Reply(minion=host, value=answer) for host, answer in answers.items()}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)

    survey = inventory.survey(Cloud.of(opts), replies, "virt.host_info")

    line = survey.failed.pop("hyper2")
    assert line.startswith(f"hyper2's answer is not understood: {path}") and f"{reason} (" in line
    assert len(line) < 300 and "\n" not in line
    assert survey.failed == {} and sorted(survey.answers) == sorted({*FLEET} - {"hyper2"})
    assert choose.evaluate(survey.answers, WANTED)
    assert "hyper2" not in table(survey.raw_answers)


def table(answers):
    """Return the printed table of hosts."""
    spec = importlib.util.spec_from_file_location("virt_hosts", ROOT / "_output/virt_hosts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.output(answers)


def test_the_reserve_of_a_host_may_exceed_its_memory():
    info = wire.read("h1", "virt.host_info", HostInfo, host_info_with("memory.limit_mib", -500))
    assert info.memory.limit_mib == -500
    overcommitted_host = {
        "freecpu": -2,
        "freemem": -96.5,
        "node_info": {"cpus": 2, "phymemory": 3072},
    }
    assert (
        wire.read("h1", "virt.full_info", FullInfo, {**overcommitted_host, "vm_info": {}}).freecpu
        == -2
    )


@pytest.mark.parametrize(
    "cpu", [float("nan"), float("inf"), -(10**9), -0.5, 10**400], ids=lambda _cpu: "cpu"
)
def test_a_load_is_finite_and_not_negative(cpu):
    load = {"cpus": 4, "memory_mib": 100, "vms": {"a": {"cpu": cpu, "memory_mib": 5}}}

    with pytest.raises(wire.BadAnswer, match=r"^h1's answer is not understood: vms.a.cpu is "):
        wire.read("h1", "virt.load", Load, load)


def test_untyped_answers_are_checked_for_such_numbers_as_well(monkeypatch, opts):
    replies = {"h1": minions.Reply(minion="h1", value={"a": [10**5000]})}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)

    survey = inventory.survey(Cloud.of(opts), replies, "virt.vm_info")

    assert survey.answers == {} and "a[0] is not a number" in survey.failed["h1"]


def test_facts_that_a_host_passes_on_are_checked_as_well():
    groups = {"affinity": [], "anti_affinity": []}
    with pytest.raises(BadArgument, match="^about: memory_mib is less than 0$"):
        wire.argument("about", ComingFacts, {"vcpus": 1, "memory_mib": -1, "disk_mib": 1, **groups})


def test_an_inode_number_may_use_64_bits():
    answer = {"signatures": {"/srv/a.qcow2": [2**64 - 1, 4096, 1]}}

    assert wire.plain(wire.read("h1", "virt.migrate", Noted, answer)) == {
        **wire.plain(Noted()),
        **answer,
    }


def test_a_deeply_nested_answer_is_checked():
    deep = [10**400]
    for _ in range(2000):
        deep = [deep]

    with pytest.raises(wire.BadAnswer, match="is not understood"):
        wire.read("h1", "virt.host_info", HostInfo, {**HOST, "new": deep})


@given(st.lists(st.floats(-10, 10), min_size=3, max_size=3))
def test_a_score_is_from_0_to_1(free_shares):
    assert 0 <= score.share_left(free_shares, (1, 2, 0), (1.0, 1.0, 0.5)) <= 1
