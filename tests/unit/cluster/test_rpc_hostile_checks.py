"""A hypervisor with hostile answers to audits and other checks gets an error line."""

import dataclasses

import hostilehost
import pytest
import setupkit
import test_rpc_hostile_answers as hostile
from hostilehost import HOSTILE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from saltvirt.checks.doctor.doctoranswer import SeenVm
from saltvirt.checks.doctor.master import masterrecords, run
from saltvirt.checks.master import runningmaster
from saltvirt.checks.setup.master import unloaded
from saltvirt.checks.status.statusanswer import StatusFacts
from saltvirt.cluster.inventory import inventory
from saltvirt.core import filecontent, wire
from sizes import sizes
from test_doctor_judging import facts, loose_file_of
from test_status_run import status_of_host

# Commands that only read.
CALLS = [
    ("virt_audit", "audit", {}, None),
    ("virt_setup", "setup_check", {}, None),
    ("virt_status", "status", {}, None),
    ("virt_doctor", "doctor", {}, None),
    ("virt_doctor", "doctor", {"fix": True}, None),
    ("virt_doctor", "trash", {}, None),
    ("virt_doctor", "trash_restore", {"host": HOSTILE, "entry": "own-1"}, "own"),
    ("virt_doctor", "trash_empty", {}, None),
]
TRASHED = {
    **{
        "vm": "own",
        "uuid": "u",
        "since": "2026-11-25 02:17:00",
        "until": "2026-12-02 02:17:00",
        "why": "purged",
    },
    **{"bytes": 7, "files": ["/a"], "volumes": [], "definition": None, "away": []},
}
BIN = {"own-1": TRASHED}
lab = hostile.lab


@pytest.fixture
def checked_lab(lab, monkeypatch, signed):
    """The same master, with hosts that answer the questions of checks of a whole cloud."""
    audit = wire.plain(next(iter(signed.facts.values())))
    setup = wire.plain(setupkit.host_facts("h2"))

    def doctor(cloud, host):
        vms_of_host = cloud.hosts[host].items()
        vms = {name: SeenVm(uuid=vm["uuid"], files=["/a"]) for name, vm in vms_of_host}
        leftovers = {"lock": ["/var/lib/salt-virt/x.lock"], "download": ["/srv/a.part"]}
        host_facts = facts(
            code=filecontent.of_code(), vms=vms, files=[loose_file_of()], left=leftovers
        )
        return wire.plain(dataclasses.replace(host_facts, copies=["/a", "/b"]))

    def status(cloud, host, **_kwargs):
        parts = {"audit": audit, "doctor": doctor(cloud, host), "setup": setup}
        states = {name: "running" for name in cloud.hosts[host]}
        host_status = status_of_host(states=states, restart={"web": ["2 CPUs"]}, unfinished=["own"])
        return wire.plain(StatusFacts(host=host_status, **parts, why_not={"other": "no such part"}))

    for name, answer in (
        ("_audit", lambda _cloud, _host: audit),
        ("_setup_facts", lambda _cloud, _host, **_kwargs: setup),
        ("_doctor_facts", doctor),
        ("_status_facts", status),
        ("_doctor_mend", lambda _cloud, _host, _leftovers: ["removed"]),
        ("_trash", lambda _cloud, _host: BIN),
        ("_trash_restore", lambda _cloud, _host, _entry: {"files": ["/a"], "definition": None}),
        ("_trash_empty", lambda _cloud, _host, *_entries: {"own-1": 7}),
    ):
        monkeypatch.setattr(hostilehost.Cloud, name, answer, raising=False)
    monkeypatch.setattr(run, "_PAUSE_S", 0)
    # A unit test has no minions that could answer.
    monkeypatch.setattr(masterrecords, "find_answering_minions", lambda _cloud, _names: frozenset())
    monkeypatch.setattr(unloaded, "unsigned_answers", lambda *_args: {})
    # Salt's loaders would start processes.
    monkeypatch.setattr(runningmaster, "read_served", lambda _opts: runningmaster.ServedFiles())
    monkeypatch.setattr(runningmaster, "has_pillar", lambda _opts: True)
    monkeypatch.setattr(hostilehost.Keys, "waiting", lambda _keys: [], raising=False)
    for name in {call[0] for call in CALLS}:
        lab.modules[name] = hostile._runner(name, lab.opts)
    return lab


def run_and_check(lab, monkeypatch, call, changes, from_the=0):
    """Run a command, and check all that must hold."""
    outcome = hostile.play(lab, monkeypatch, call, changes, from_the)
    assert outcome.log.tracebacks == [], outcome.log.tracebacks[0]
    for text in [*hostile.shown(lab, outcome), *outcome.log.said]:
        assert hostile._control_characters(text) == [], text
    assert [text for text in hostile._texts(outcome.answer) if "\n" in text] == []
    hostile._check_files(lab, outcome, call[3])
    # Each host gets orders about its own leftovers only.
    assert {fun for _host, fun, _args, _kwarg in outcome.edge.orders} <= {
        "virt.doctor_mend",
        "virt.trash_empty",
    }
    for host, vm in (("h1", "web"), ("h2", "db"), ("h1", "away")):
        assert outcome.edge.cloud.where(vm) == [host]
    return outcome


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_answers_of_a_friendly_host_are_understood(checked_lab, monkeypatch, call):
    answer = run_and_check(checked_lab, monkeypatch, call, []).answer

    assert HOSTILE in str(answer), answer
    assert hostile.wrong_in_answer(call, answer) == []


def test_a_host_with_wrong_answers_does_not_hide_the_others_trash(checked_lab, monkeypatch):
    call = ("virt_doctor", "trash_empty", {}, None)
    monkeypatch.setattr(inventory, "hosts", lambda *_a, **_k: [HOSTILE, "h1", "h2"])

    answer = run_and_check(checked_lab, monkeypatch, call, [("set", 0, "nonsense")]).answer

    assert answer["emptied"] == {"h1": {"own-1": 7}, "h2": {"own-1": 7}}
    assert list(answer["failed"]) == [HOSTILE] and HOSTILE in answer["error"]


@sizes(quick=80, full=1000)
@pytest.mark.slow
def test_any_answer_of_a_hostile_host_is_one_line(checked_lab, monkeypatch, size):
    @settings(
        max_examples=size,
        deadline=None,
        database=None,
        derandomize=size == 80,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.sampled_from(CALLS),
        st.lists(hostile.CHANGE, min_size=1, max_size=3),
        st.sampled_from([0, 0, 0, 1, 2]),
    )
    def one(call, changes, from_the):
        run_and_check(checked_lab, monkeypatch, call, changes, from_the)

    one()
