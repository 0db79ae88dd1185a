"""The report on a dead host: what ran there, what is left of it, and the commands in order."""

import itertools
import json
import shlex
from pathlib import Path

import pytest
import yaml
from saltvirt.cluster import membership, minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import lastlisted, lastseen
from saltvirt.cluster.rpc import minions, waits
from saltvirt.core.errors import BadArgument
from saltvirt.core.journal import recordfacts
from saltvirt.migration.master import hostlost
from saltvirt.placement.shownvms import ListedVm
from test_output import outputter

CHECKOUT = Path(__file__).parents[3]
SHARED = "/srv/shared"
MOVE = {
    "purpose": "arrival",
    "token": "0123456789abcdef",
    "phase": "preparing",
    "since": 1.0,
    "uuid": None,
    "source": "hyper3",
    "target": "hyper1",
}
ROWS = {
    "db1": ListedVm(state="running", cpu=4, mem_mib=8192),
    "web1": ListedVm(state="running", cpu=2, mem_mib=2048),
}


class FakeHosts:
    """Two responsive hosts, and hyper3, which is dead."""

    def __init__(self):
        self.vms = {"hyper1": {"mail": "running"}, "hyper2": {}}
        self.moves = {"hyper1": {"cache": [MOVE]}, "hyper2": {}}
        self.disks = {"hyper1": {}, "hyper2": {}}
        self.asked = []

    def ask(self, _cloud, targets, fun, arg=(), kwarg=None, **_options):
        """Stand for ``minions.ask``."""
        self.asked.append(fun)
        return {host: self._reply(host, fun) for host in targets}

    def _reply(self, host, fun):
        answers = {
            "virt.vm_state": self.vms,
            "virt.migration_state": self.moves,
            "virt.shared_disks": self.disks,
        }[fun]
        if host not in answers:
            return minions.Reply(minion=host, is_missing=True)
        if isinstance(answers[host], str):
            return minions.Reply(minion=host, error=answers[host])
        return minions.Reply(minion=host, value=answers[host])


@pytest.fixture
def hosts(opts, monkeypatch):
    """The hosts of a master that has seen four VMs on hyper3."""
    fake_hosts = FakeHosts()
    monkeypatch.setattr(minions, "ask", fake_hosts.ask)
    opts["virt"] = {"hypervisors": ["hyper1", "hyper2", "hyper3"]}
    for minion in ("hyper1", "hyper2", "hyper3", "web1", "db1"):
        minionkeys.accept(opts, minion, "a key")
    names = ["cache", "db1", "mail", "web1"]
    lastseen.refresh(opts, lastseen.ReportedNames(names_by_host={"hyper3": names}))
    fake_hosts.disks["hyper1"] = {
        "web1": [
            {"path": f"{SHARED}/web1_data.qcow2", "is_open": False},
            {"path": f"{SHARED}/web1_system.qcow2", "is_open": True},
        ]
    }
    fake_hosts.disks["hyper2"] = {"web1": fake_hosts.disks["hyper1"]["web1"][1:]}
    return fake_hosts


def report_on(opts, host="hyper3"):
    """Return the report on a host."""
    return hostlost.report(Cloud.of(opts, is_reading=True), host)


def commands(report):
    """Return all commands of a report, in their order."""
    return list(itertools.chain.from_iterable(step["commands"] for step in report["steps"]))


def test_the_report_lists_the_vms_and_the_commands_in_order(opts, hosts):
    report = report_on(opts)

    assert report["host"] == "hyper3" and report["state"] == "does not answer"
    assert report["vms"]["web1"] == {
        "cpu": None,
        "mem_mib": None,
        "shared_disks": {
            f"{SHARED}/web1_system.qcow2": ["hyper1", "hyper2"],
            f"{SHARED}/web1_data.qcow2": ["hyper1"],
        },
        "open": [f"{SHARED}/web1_system.qcow2"],
        "also_on": [],
    }
    assert report["vms"]["mail"]["also_on"] == ["hyper1"]
    assert report["moves"] == {"cache": "from hyper3 to hyper1"}
    assert "off" in report["steps"][0]["step"] and report["steps"][0]["commands"] == []
    assert commands(report) == [
        "salt-run virt.settle cache keep=hyper1",
        "salt-run virt.disallow hyper3 force=True",
        "salt-key -d hyper3",
        "salt-run virt.vm_info mail",
        "salt-run virt.init web1 CPUS MIB 'disks=[{name: system, source_file: "
        f"{SHARED}/web1_system.qcow2}}, {{name: data, source_file: {SHARED}/web1_data.qcow2}}]' "
        "seed=False",
        "salt-key -d db1",
        "salt-run virt.init db1 CPUS MIB IMAGE",
        "salt-run virt.allow hyper3",
    ]


def test_the_commands_have_the_sizes_of_vms_that_were_listed(opts, hosts):
    lastlisted.remember(opts, {"hyper3": ROWS})

    report = report_on(opts)

    assert report["vms"]["web1"]["cpu"] == 2 and report["vms"]["web1"]["mem_mib"] == 2048
    assert report["vms"]["cache"]["cpu"] is None
    init_commands = [command for command in commands(report) if "virt.init" in command]
    assert init_commands[0].startswith("salt-run virt.init web1 2 2048 'disks=")
    assert init_commands[1] == "salt-run virt.init db1 4 8192 IMAGE"
    assert "put in the CPUs" not in str(report["steps"])


def test_nothing_is_changed(opts, hosts):
    before = lastseen.read_all(opts), membership.read_listed(opts)

    report_on(opts)

    assert (lastseen.read_all(opts)["hyper3"], membership.read_listed(opts)) == (
        before[0]["hyper3"],
        before[1],
    )
    assert set(hosts.asked) == {"virt.vm_state", "virt.migration_state", "virt.shared_disks"}


def test_steps_that_are_done_are_left_out(opts, hosts):
    membership.disallow(opts, ["hyper3"])

    report = report_on(opts)

    assert "shut out" in report["state"]
    assert set(report["vms"]) == {"cache", "db1", "mail", "web1"}
    assert "salt-run virt.disallow hyper3 force=True" not in commands(report)
    assert "salt-key -d hyper3" in commands(report)


def test_a_host_that_answers_is_not_lost(opts, hosts):
    hosts.vms["hyper3"] = {"web1": "running"}

    report = report_on(opts)

    assert report["state"] == "answers" and set(report["vms"]) == {"web1"}
    assert commands(report) == ["salt-run virt.evacuate hyper3", "salt-run virt.disallow hyper3"]


def test_a_host_that_answers_with_an_error_is_not_lost(opts, hosts):
    hosts.vms["hyper3"] = "libvirt does not answer"

    report = report_on(opts)

    assert report["state"] == "libvirt does not answer"
    assert commands(report) == [
        "salt-run virt.setup_check hyper3",
        "salt-run virt.disallow hyper3 force=True",
    ]


def test_a_host_that_cannot_look_is_named(opts, hosts):
    hosts.disks["hyper2"] = "'virt.shared_disks' is not available."

    assert report_on(opts)["unasked"] == {"hyper2": "'virt.shared_disks' is not available."}


def test_a_move_of_this_master_alone_is_named(opts, hosts):
    hosts.moves = {"hyper1": {}, "hyper2": {}}
    facts = recordfacts.MoveOrderFacts(source="hyper2", target="hyper3", uuid=None)
    with orders.opened(opts, "api") as order:
        orders.begin_move(order, "0123456789abcdef", facts)

        report = report_on(opts)

    assert report["moves"] == {"api": "from hyper2 to hyper3"}
    assert "salt-run virt.settle api keep=hyper2" in commands(report)


@pytest.mark.parametrize("host", ["hyper9", "", None, 3.5])
def test_an_unknown_host_is_refused(opts, hosts, host):
    with pytest.raises(BadArgument) as excinfo:
        report_on(opts, host)

    assert str(excinfo.value).startswith("host: ")


def test_a_file_of_any_name_gives_a_command_of_one_value(opts, hosts):
    path = f"{SHARED}/web1_a, b}}; rm -r '$HOME'.raw"
    hosts.disks["hyper1"] = {"web1": [{"path": path, "is_open": False}]}
    hosts.disks["hyper2"] = {}

    (command,) = (text for text in commands(report_on(opts)) if "virt.init web1" in text)

    words = shlex.split(command)
    disks = yaml.safe_load(words[5].partition("=")[2])
    assert disks[0]["source_file"] == path and len(disks) == 1


def test_the_report_is_shown_with_each_command_whole(opts, hosts):
    report = report_on(opts)

    shown = outputter("virt_lost")(report)

    lines = shown.splitlines()
    assert lines[0] == "hyper3: does not answer"
    assert lines[1].split() == ["VM", "WHAT", "IS", "LEFT", "OF", "IT"]
    assert "cache  nothing that another host sees" in lines
    assert any(line.startswith("mail   a VM of that name is on hyper1") for line in lines)
    for command in commands(report):
        assert f"   {command}" in lines
    numbers = [line.split(".")[0] for line in lines if line[:1].isdigit()]
    assert numbers == [str(number) for number in range(1, len(report["steps"]) + 1)]


def test_the_page_shows_what_the_command_prints(opts, hosts):
    lastseen.refresh(opts, lastseen.ReportedNames(names_by_host={"hyper3": ["db1", "web1"]}))
    lastlisted.remember(opts, {"hyper3": ROWS})
    hosts.moves = {"hyper1": {}, "hyper2": {}}
    system = {"path": f"{SHARED}/web1_system.qcow2", "is_open": False}
    hosts.disks = dict.fromkeys(hosts.disks, {"web1": [system]})
    waits.record_silence(opts, ["hyper3"], ["hyper3"], lambda _host: True)
    silent = Path(opts["cachedir"]) / "salt-virt" / "silent.json"
    content = json.loads(silent.read_text())
    content["since"]["hyper3"] -= 185
    silent.write_text(json.dumps(content))

    shown = outputter("virt_lost")(report_on(opts))

    page = (CHECKOUT / "docs/host-lost.md").read_text()
    assert f"```text\n{shown}\n```" in page, shown


def test_an_error_is_shown_as_one():
    assert outputter("virt_lost")({"error": "no such host"}) == "error: no such host"
