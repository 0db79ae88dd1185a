"""The status asks all hosts once, counts no silent host as zero, and agrees with the checks."""

import time
from datetime import timedelta

import keypairs
import pytest
import setupkit
from saltvirt.ca import store
from saltvirt.checks.audit.master import run as audit
from saltvirt.checks.doctor.doctoranswer import MoveLeft
from saltvirt.checks.doctor.master import masterrecords
from saltvirt.checks.doctor.master import run as doctor
from saltvirt.checks.master import masterfacts, runningmaster
from saltvirt.checks.master.asking import ProblemsFound
from saltvirt.checks.setup.master import run as setup
from saltvirt.checks.setup.master import unloaded
from saltvirt.checks.status.master import run
from saltvirt.checks.status.statusanswer import HostStatus, RoomFacts, StatusFacts
from saltvirt.cluster import membership, minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import lastseen
from saltvirt.cluster.rpc import minions, waits
from saltvirt.core import wire
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import OrderFacts
from test_doctor_judging import facts, loose_file_of

NOW = store.utc_now()
HOSTS = ("hyper1", "hyper2", "hyper3")


def status_of_host(**more):
    """Return the status of a host and its VMs."""
    room = {"used": 2, "promised": 6, "limit": 8}
    fields = {
        **{"is_in_maintenance": False, "states": {}, "coming": [], "unfinished": []},
        **{"moves": [], "unreadable": {}, "restart": {}},
        **{name: RoomFacts(**room) for name in ("cpus", "memory_mib", "disk_mib")},
    }
    return HostStatus(**{**fields, **more})


class Fleet:
    """A master and three hosts; ``statuses`` has the status of each host."""

    def __init__(self, opts, signed):
        self.opts, self.calls = opts, []
        self.statuses = {host: status_of_host() for host in HOSTS}
        self.doctor = {host: facts() for host in HOSTS}
        self.setup = {host: wire.plain(setupkit.host_facts("hyper2")) for host in HOSTS}
        self.audit = dict.fromkeys(HOSTS, wire.plain(next(iter(signed.facts.values()))))
        self.silent, self.errors, self.why_not = set(), {}, {}
        for host in HOSTS:
            minionkeys.accept(opts, host, keypairs.named("a host")[0])
            minionkeys.forget(opts, host)

    def ask(self, _cloud, targets, fun, _arg=(), kwarg=None, **_more):
        """Stand for ``minions.ask``."""
        self.calls.append((fun, sorted(targets)))
        return {host: self._reply(host, fun, kwarg or {}) for host in targets}

    def _reply(self, host, fun, kwarg):
        if host in self.silent:
            return minions.Reply(minion=host, is_missing=True)
        if host in self.errors:
            return minions.Reply(minion=host, error=self.errors[host])
        checks = {"audit": self.audit, "doctor": self.doctor, "setup": self.setup}
        if fun != run.FUN:
            part = {"virt.audit": "audit", doctor.FUN: "doctor", setup.FUN: "setup"}[fun]
            return minions.Reply(minion=host, value=wire.plain(checks[part][host]))
        parts = {name: answers[host] for name, answers in checks.items() if kwarg.get("checks")}
        why_not = self.why_not.get(host, {})
        parts = {name: part for name, part in parts.items() if name not in why_not}
        host_status = None if "host" in why_not else self.statuses[host]
        answer = StatusFacts(host=host_status, **parts, why_not=why_not)
        return minions.Reply(minion=host, value=wire.plain(answer))

    def status(self, now=NOW, **options):
        """Return the status of the cloud."""
        return run.status(Cloud.of(self.opts), now, **options)


@pytest.fixture
def fleet(opts, monkeypatch, signed):
    opts["virt"] = {"hypervisors": ["hyper*"]}
    new_fleet = Fleet(opts, signed)
    monkeypatch.setattr(minions, "ask", new_fleet.ask)
    monkeypatch.setattr(doctor, "_PAUSE_S", 0)
    monkeypatch.setattr(masterrecords, "find_answering_minions", lambda _cloud, _names: frozenset())
    monkeypatch.setattr(unloaded, "unsigned_answers", lambda *_args: {})
    # Salt's loaders would start processes.
    monkeypatch.setattr(runningmaster, "read_served", lambda _opts: runningmaster.ServedFiles())
    monkeypatch.setattr(runningmaster, "has_pillar", lambda _opts: True)
    return new_fleet


def test_all_hosts_are_asked_once(fleet):
    fleet.status()
    fleet.status(has_checks=False)

    assert fleet.calls == [(run.FUN, list(HOSTS))] * 2


def test_vms_and_capacity_are_counted_over_all_hosts(fleet):
    fleet.statuses["hyper1"] = status_of_host(
        states={"web1": "running", "web2": "shutdown"}, coming=["new"]
    )
    fleet.statuses["hyper2"] = status_of_host(
        states={"db1": "running", "db2": "a made-up state"}, is_in_maintenance=True
    )
    too_much = RoomFacts(used=1, promised=20, limit=8)
    fleet.statuses["hyper3"] = status_of_host(cpus=too_much)

    status = fleet.status(has_checks=False)

    assert status["vms"] == {
        "by_state": {"running": 2, "shutdown": 1, "unknown": 1},
        **{"total": 4, "coming": 1, "last_seen": 0},
    }
    # The host in maintenance and the overcommitted host have nothing free to promise.
    assert status["room"]["cpus"] == {"used": 5, "promised": 32, "free_to_promise": 2, "limit": 24}
    assert status["room"]["disk_mib"]["free_to_promise"] == 4
    assert status["hosts"]["maintenance"] == ["hyper2"]
    assert status["checks"] is None


def test_a_silent_host_is_named_with_its_vms_and_not_counted_as_zero(fleet):
    fleet.statuses["hyper3"] = status_of_host(states={"web1": "running", "web2": "running"})
    fleet.status(has_checks=False)
    fleet.silent.add("hyper3")
    waits.record_silence(fleet.opts, ["hyper3"], ["hyper3"], lambda _host: True)
    since = time.time() - 7200
    waits._file(fleet.opts).change(lambda _before: {"hyper3": since})

    status = fleet.status(has_checks=False)

    (silent_host,) = status["hosts"]["silent"]
    assert (silent_host["host"], silent_host["last_seen"]) == ("hyper3", 2)
    assert 7190 < silent_host["silent_s"] < 7300 and silent_host["since"].endswith("+00:00")
    assert (status["hosts"]["allowed"], status["hosts"]["answering"]) == (3, 2)
    assert (status["vms"]["total"], status["vms"]["last_seen"]) == (0, 2)
    assert status["room"]["cpus"]["limit"] == 16


def test_silence_is_on_record_from_the_first_time(fleet):
    fleet.silent.add("hyper2")
    fleet.status(has_checks=False)

    assert set(waits.silent_since(fleet.opts)) == {"hyper2"}
    fleet.silent.clear()
    fleet.status(has_checks=False)
    assert waits.silent_since(fleet.opts) == {}


def test_hosts_that_fail_are_named_with_the_reason(fleet):
    fleet.errors["hyper1"] = "'virt.status_facts' is not available."
    fleet.why_not["hyper2"] = {"host": "libvirt does not answer"}

    status = fleet.status()

    assert [(row["host"], row["reason"]) for row in status["hosts"]["failed"]] == [
        ("hyper1", "'virt.status_facts' is not available."),
        ("hyper2", "libvirt does not answer"),
    ]
    assert status["hosts"]["answering"] == 1


def findings(check):
    """Return the findings of a command that fails if it has findings."""
    try:
        return check()["findings"]
    except ProblemsFound as problems:
        return problems.table["findings"]


@pytest.mark.parametrize("is_silent", [False, True])
def test_each_verdict_is_that_of_its_command(fleet, is_silent):
    fleet.doctor["hyper1"] = facts(files=[loose_file_of()], left={"lock": ["/l"]})
    fleet.setup["hyper2"] = {**fleet.setup["hyper2"], "lacking": ["qemu-img"]}
    if is_silent:
        fleet.silent.add("hyper3")

    checks = fleet.status()["checks"]
    cloud = Cloud.of(fleet.opts)
    findings_by_command = {
        "doctor": findings(lambda: doctor.doctor(cloud, NOW)),
        "audit": findings(lambda: audit.audit(cloud, NOW)),
        "setup_check": findings(lambda: setup.check(cloud, [])),
    }

    for name, rows in findings_by_command.items():
        assert sum(checks[name]["by_check"].values()) == len(rows), name
        assert set(checks[name]["by_check"]) == {row["check"] for row in rows}
    needed_rows = [row for row in findings_by_command["setup_check"] if row["level"] == "needed"]
    assert checks["setup_check"]["findings"] == len(needed_rows)
    assert checks["setup_check"]["hints"] == len(findings_by_command["setup_check"]) - len(
        needed_rows
    )
    assert checks["doctor"]["hints"] == 0 and checks["doctor"]["error"] is None


def test_a_host_that_cannot_read_a_part_is_unchecked_there_alone(fleet):
    fleet.why_not["hyper1"] = {"audit": "its files cannot be read"}

    checks = fleet.status()["checks"]

    assert checks["audit"]["by_check"]["not-checked"] == 1
    assert "not-checked" not in checks["doctor"]["by_check"]


def test_a_failed_check_has_its_reason_and_the_others_run(fleet, monkeypatch):
    def fail(*_args, **_kwargs):
        raise OSError("no such folder")

    monkeypatch.setattr(masterrecords, "read_records", fail)

    checks = fleet.status()["checks"]

    assert checks["doctor"] == {
        **{"findings": None, "hints": None, "by_check": None, "first": None},
        "error": "no such folder",
    }
    assert checks["audit"]["findings"] is not None


def test_unfinished_work_is_found_on_master_and_hosts(fleet):
    order_context = orders.opened(fleet.opts, "cut")
    with order_context as order:
        orders.begin(order, orders.PLACING, OrderFacts())
    fleet.statuses["hyper1"] = status_of_host(
        unfinished=["half"],
        moves=[
            MoveLeft(name="gone", purpose="departure", phase="sending", is_live=False),
            MoveLeft(name="on-its-way", purpose="departure", phase="sending", is_live=True),
        ],
        unreadable={"odd": "its record is no JSON"},
    )

    rows = fleet.status(has_checks=False)["unfinished"]

    assert [(row["vm"], row["host"], row["what"], row["phase"]) for row in rows] == [
        ("cut", None, "command", "placing"),
        ("half", "hyper1", "build, purge or move of a disk", None),
        ("gone", "hyper1", "move", "sending"),
        ("odd", "hyper1", "unreadable record", None),
    ]
    assert records.read_record(orders.folder(fleet.opts), orders.PURPOSE, "cut") is not None


def test_a_running_command_is_not_unfinished(fleet):
    with orders.opened(fleet.opts, "busy") as order:
        orders.begin(order, orders.PLACING, OrderFacts())
        status = fleet.status(has_checks=False)

    assert (status["at_work"], status["unfinished"]) == (["busy"], [])


def test_vms_with_changes_for_the_next_start_are_listed(fleet):
    fleet.statuses["hyper2"] = status_of_host(
        states={"web1": "running"}, restart={"web1": ["4 CPUs"]}
    )

    assert fleet.status(has_checks=False)["restart"] == [
        {"vm": "web1", "host": "hyper2", "changes": ["4 CPUs"]}
    ]


def test_hosts_that_are_shut_out_and_keys_that_wait_are_named(fleet):
    membership.disallow(fleet.opts, ["hyper3"])
    lastseen.record_move(fleet.opts, "web1", "hyper3")
    folder = membership.folder(fleet.opts).parent / "minions_pre"
    folder.mkdir(exist_ok=True)
    (folder / "new1").write_text("a key")

    status = fleet.status(has_checks=False)

    assert status["hosts"]["shut_out"] == [{"host": "hyper3", "last_seen": 1}]
    assert status["keys_waiting"] == ["new1"]
    assert fleet.calls == [(run.FUN, ["hyper1", "hyper2"])]


def test_certificates_are_named_when_they_end_soon_and_the_newest_counts(fleet, monkeypatch):
    def row(host, purpose, days, state="good"):
        ends = (NOW + timedelta(days=days)).isoformat()
        fields = {"serial": f"{host}{purpose}{days}", "signer": "ca", "days_left": days}
        return {"host": host, "purpose": purpose, "not_after": ends, "state": state, **fields}

    rows = [
        row("hyper1", "libvirt-server", 5, "replaced"),
        row("hyper1", "libvirt-server", 300),
        row("hyper2", "qemu-server", 12),
        row("hyper3", "qemu-client", -2, "expired"),
        row("hyper2", "vnc-server", 3, "revoked"),
        row("stranger", "qemu-server", 1),
    ]
    monkeypatch.setattr(run.certificates, "list_certificates", lambda *_args: rows)
    ends = {"/etc/ca.pem": NOW + timedelta(days=40), "/etc/new.pem": NOW + timedelta(days=400)}
    monkeypatch.setattr(masterfacts.MasterFacts, "ca_ends", ends)

    ending_certificates = fleet.status(has_checks=False)["certificates"]

    assert [(row["host"], row["certificate"], row["days_left"]) for row in ending_certificates] == [
        (None, "/etc/ca.pem", 40),
        ("hyper2", "qemu-server", 12),
        ("hyper3", "qemu-client", -2),
    ]


def test_the_status_of_a_master_without_hosts_is_an_error(fleet):
    fleet.opts["virt"] = {"hypervisors": ["other*"]}

    status = fleet.status(has_checks=False)

    assert (status["hosts"]["allowed"], status["vms"]["total"]) == (0, 0)
