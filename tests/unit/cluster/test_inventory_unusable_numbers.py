"""A host whose figures cannot be used has failed; the other hosts' answers stand."""

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


def changed(path, value):
    """Return what a host says, with one of its figures changed."""
    out = copy.deepcopy(HOST)
    *way, last = path.split(".")
    inner = out
    for name in way:
        inner = inner[name]
    inner[last] = value
    return out


@pytest.mark.parametrize(
    ("path", "value", "why"),
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
    ids=lambda one: one if isinstance(one, str) else "value",
)
def test_a_host_whose_figures_are_nonsense_has_failed_and_the_others_stand(
    monkeypatch, opts, path, value, why
):
    said = {**FLEET, "hyper2": changed(path, value)}
    replies = {host: minions.Reply(minion=host, value=one) for host, one in said.items()}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)

    found = inventory.survey(Cloud.of(opts), replies, "virt.host_info")

    line = found.failed.pop("hyper2")
    assert line.startswith(f"hyper2's answer is not understood: {path}") and f"{why} (" in line
    assert len(line) < 300 and "\n" not in line
    assert found.failed == {} and sorted(found.answers) == sorted({*FLEET} - {"hyper2"})
    assert choose.evaluate(found.answers, WANTED)
    assert "hyper2" not in table(found.raw_answers)


def table(said):
    """Return what is printed of hosts."""
    spec = importlib.util.spec_from_file_location("virt_hosts", ROOT / "_output/virt_hosts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.output(said)


def test_what_a_host_keeps_back_may_be_more_than_it_has():
    info = wire.read("h1", "virt.host_info", HostInfo, changed("memory.limit_mib", -500))
    assert info.memory.limit_mib == -500
    over = {"freecpu": -2, "freemem": -96.5, "node_info": {"cpus": 2, "phymemory": 3072}}
    assert wire.read("h1", "virt.full_info", FullInfo, {**over, "vm_info": {}}).freecpu == -2


@pytest.mark.parametrize(
    "cpu", [float("nan"), float("inf"), -(10**9), -0.5, 10**400], ids=lambda _cpu: "cpu"
)
def test_a_load_is_finite_and_not_negative(cpu):
    said = {"cpus": 4, "memory_mib": 100, "vms": {"a": {"cpu": cpu, "memory_mib": 5}}}

    with pytest.raises(wire.BadAnswer, match=r"^h1's answer is not understood: vms.a.cpu is "):
        wire.read("h1", "virt.load", Load, said)


def test_questions_whose_answers_have_no_type_are_no_way_round(monkeypatch, opts):
    replies = {"h1": minions.Reply(minion="h1", value={"a": [10**5000]})}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)

    found = inventory.survey(Cloud.of(opts), replies, "virt.vm_info")

    assert found.answers == {} and "a[0] is not a number" in found.failed["h1"]


def test_what_one_host_passes_on_of_another_is_checked_as_well():
    groups = {"affinity": [], "anti_affinity": []}
    with pytest.raises(BadArgument, match="^about: memory_mib is less than 0$"):
        wire.argument("about", ComingFacts, {"vcpus": 1, "memory_mib": -1, "disk_mib": 1, **groups})


def test_the_number_of_a_file_may_be_any_that_a_file_system_gives():
    said = {"signatures": {"/srv/a.qcow2": [2**64 - 1, 4096, 1]}}

    assert wire.plain(wire.read("h1", "virt.migrate", Noted, said)) == {
        **wire.plain(Noted()),
        **said,
    }


def test_an_answer_that_is_nested_without_end_is_looked_through():
    deep = [10**400]
    for _ in range(2000):
        deep = [deep]

    with pytest.raises(wire.BadAnswer, match="is not understood"):
        wire.read("h1", "virt.host_info", HostInfo, {**HOST, "new": deep})


@given(st.lists(st.floats(-10, 10), min_size=3, max_size=3))
def test_a_score_is_from_0_to_1(rest):
    assert 0 <= score.share_left(rest, (1, 2, 0), (1.0, 1.0, 0.5)) <= 1
