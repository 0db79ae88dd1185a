"""What a minion can write into the master's log, and onto the operator's terminal."""

import importlib.util
import logging
from pathlib import Path
from types import SimpleNamespace

import keypairs
import pytest
from saltvirt.cluster import membership, minionkeys
from saltvirt.cluster.refusallog import Refusals
from saltvirt.cluster.rpc import hostcommands
from saltvirt.core.crypto import signed

ROOT = Path(__file__).resolve().parents[3]
LOG = logging.getLogger("saltvirt.test")
PROGRESS = "salt/virt/image_build"


def pillar(name, opts):
    """Return an external pillar as the master loads it."""
    spec = importlib.util.spec_from_file_location(f"{name}_asked", ROOT / f"_pillar/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__opts__ = {**opts, "grains": {}}
    return module.ext_pillar


QUESTIONS = {
    "an unknown word": {"A" * 3_000_000: 1},
    "many unknown words": {f"word{number}": "A" * 1000 for number in range(10_000)},
    "an unknown word beside the right ones": {"name": "web1", "version": 2, "B" * 3_000_000: 1},
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
@pytest.mark.parametrize("name", ["virtkey", "libvirt"])
def test_a_foreign_question_leaves_a_short_line(opts, caplog, name, question):
    membership.allow(opts, ["hyper1"])

    answer = pillar(name, opts)("evil1", {}, **question)

    assert len(str(answer)) < 1000 and "error" in str(answer)
    lines = [row.getMessage() for row in caplog.records if row.levelno >= logging.WARNING]
    assert len(lines) == 1 and len(lines[0]) < 1500 and "evil1" in lines[0]


@pytest.mark.parametrize("name", ["virtkey", "libvirt"])
def test_a_question_with_more_values_than_a_hypervisors_is_refused(opts, caplog, name):
    answer = pillar(name, opts)("evil1", {}, *["A" * 1000] * 10_000)

    assert len(str(answer)) < 1000 and len(caplog.text) < 3000


def test_an_empty_question_has_no_answer(opts):
    assert pillar("virtkey", opts)("evil1", {}) == pillar("libvirt", opts)("evil1", {}) == {}


def test_a_minion_fills_at_most_ten_lines_a_minute(caplog):
    refusals = Refusals(LOG, "no certificate")
    for second in range(1000):
        refusals.note("evil1", "no\x1b[2J\nreason", now=second / 100)
    refusals.note("hyper1", "another reason", now=10)

    assert caplog.text.count("no certificate for evil1: no\\x1b[2J reason") == 10
    assert "no certificate for hyper1: another reason" in caplog.text
    refusals.note("evil1", "again", now=61)
    assert "evil1: 990 more refusals were not logged" in caplog.text
    assert "no certificate for evil1: again" in caplog.text


def test_the_log_of_many_minions_has_a_bounded_size(caplog):
    refusals = Refusals(LOG, "no certificate")
    for number in range(5000):
        refusals.note(f"evil{number}", "x" * 100_000, now=0)

    assert len(refusals._since) == 1000
    assert max(len(row.getMessage()) for row in caplog.records) < 1200


def test_events_in_a_hosts_name_are_one_warning_of_a_command(opts, caplog):
    public, private = keypairs.named("a host")
    minionkeys.accept(opts, "hyper1", public)
    stages = []
    cloud = SimpleNamespace(opts=opts, progress=lambda stage, **_figures: stages.append(stage))
    watch = hostcommands.progress_watcher(cloud, PROGRESS, "hyper1", "web1")

    for _number in range(2000):
        watch(PROGRESS, {"id": "hyper1", "data": {"said": "x", "signature": "x"}})

    warned = [row for row in caplog.records if row.levelno == logging.WARNING]
    assert len(warned) == 1 and "passed over, in the name of hyper1" in warned[0].getMessage()
    answer = signed.SignedAnswer(
        minion="hyper1", about=PROGRESS, fun="", value={"name": "web1", "stage": "S"}, why=None
    )
    watch(PROGRESS, {"id": "hyper1", "data": signed.pack(answer, private.encode())})
    assert stages == ["S"]
