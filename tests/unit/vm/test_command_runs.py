"""A command on one VM, or on several, runs where they are; an answer tells of each."""

import json
import logging
import threading
from concurrent import futures
from dataclasses import replace

import asloaded
import pytest
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import lastseen
from saltvirt.cluster.rpc import minions
from saltvirt.core.errors import BadArgument, NameTaken, NoSuchVm, VirtError
from saltvirt.storage.master import fileusers
from saltvirt.vm.command.master import vmcommand


class Orders:
    """Stand for the hosts' functions: what each was ordered, and what it answers."""

    def __init__(self, hosts):
        self.given, self.hosts, self.answers = [], hosts, {}

    def order(self, _cloud, host, fun, arg, kwarg, **_options):
        """Stand for ``minions.order``."""
        self.given.append((host, fun, list(arg), dict(kwarg or {})))
        if self.hosts.is_silent(host):
            return minions.Reply(minion=host, is_missing=True, error=f"{host} does not answer")
        answer = self.answers.get((fun, arg[0]), self.answers.get(fun, True))
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, minions.Reply):
            return answer
        return minions.Reply(minion=host, value=answer)


@pytest.fixture
def orders(monkeypatch, cloud):
    """Hosts with web1, web2 and db, whose orders are noted."""
    for host, name, state in (
        ("hyper1", "web1", "running"),
        ("hyper2", "web2", "shutdown"),
        ("hyper3", "db", "running"),
    ):
        cloud.hosts.put(host, name, state)
    made = Orders(cloud.hosts)
    # Mocked: unit tests have no minions.
    monkeypatch.setattr(minions, "order", made.order)
    master = cloud.master

    def of(_opts, _events=None, _name="", _quiet=False, *, is_reading=False):
        made.is_reading = is_reading
        return master

    monkeypatch.setattr(Cloud, "of", of)
    return made


def run(*args, **given):
    """Run a command."""
    return vmcommand.run({}, None, *args, **given)


def told(orders):
    """Return the host, function and VM of each order."""
    return sorted((host, fun, arg[0]) for host, fun, arg, _kwarg in orders.given)


def test_the_host_of_one_vm_acts_and_the_answer_has_both(orders):
    assert run("reboot", "web1") == {
        "hyper1": {"web1": "asked to reboot; its guest may ignore that"}
    }
    assert orders.given == [("hyper1", "virt.reboot", ["web1"], {})]


@pytest.mark.parametrize(
    ("command", "name", "outcome"),
    [
        ("start", "web1", "already running; nothing was done"),
        ("resume", "web1", "already running; nothing was done"),
        ("stop", "web2", "already off; nothing was done"),
        ("shutdown", "web2", "already off; nothing was done"),
    ],
)
def test_a_vm_that_is_so_already_is_a_success_that_says_so(orders, command, name, outcome):
    (answer,) = run(command, name).values()

    assert answer == {name: outcome}
    assert orders.given == []


def test_a_kept_definition_is_not_already_off(orders, cloud):
    cloud.hosts.put("hyper1", "moved", "shutdown", moved_to="hyper9")
    orders.answers["virt.stop"] = minions.Reply(minion="hyper1", error="it has moved to hyper9")

    with pytest.raises(VirtError, match="it has moved to hyper9"):
        run("stop", "moved")


@pytest.mark.parametrize("command", ["start", "hold", "set_autostart", "undefine", "guest_exec"])
def test_a_dry_run_locates_the_vm_and_orders_nothing(orders, command):
    (rows,) = run(command, "web2", dry_run=True).values()

    assert "would" in rows["web2"]
    assert orders.given == [] and orders.is_reading


def test_a_dry_run_of_a_command_for_all_hosts_asks_none(orders, monkeypatch):
    monkeypatch.setattr(fileusers, "order", None)

    answer = run("delete_snapshots", "web1", "s1", dry_run=True)

    assert answer == {"hyper1": {"web1": "would lose these snapshots"}}


@pytest.mark.parametrize(("flag", "value"), [("dry_run", True), ("test", True)])
def test_the_host_itself_makes_the_dry_run_of_an_update(orders, flag, value):
    orders.answers["virt.update"] = {"definition": True}
    given = {"dry_run": value} if flag == "dry_run" else {}
    changes = {"cpu": 2} | ({"test": value} if flag == "test" else {})

    answer = run("update", "web1", kwarg=changes, **given)

    assert answer == {"hyper1": {"web1": {"definition": True}}}
    assert orders.given == [("hyper1", "virt.update", ["web1"], {"cpu": 2, "test": True})]
    assert orders.is_reading


def test_an_update_that_acts_says_nothing_of_a_dry_run(orders):
    orders.answers["virt.update"] = {"definition": True}

    run("update", "web1", kwarg={"cpu": 2, "test": False})

    assert orders.given[0][3] == {"cpu": 2} and not orders.is_reading


@pytest.mark.parametrize(
    "word", ["connection", "username", "password", "replies", "uuid", "cpus", "fun"]
)
@pytest.mark.parametrize("command", ["update", "guest_exec", "delete_snapshots", "revert_snapshot"])
def test_no_caller_leads_a_host_elsewhere_by_an_argument(orders, command, word):
    with pytest.raises(BadArgument, match=rf"virt\.{command} has no argument '{word}'"):
        run(command, "web1", kwarg={word: "qemu+ssh://evil/system"})
    assert orders.given == []


def test_a_command_that_needs_all_hosts_asks_them(orders, monkeypatch):
    given = []

    def order(_cloud, host, fun, args, kwarg, *, force, **_options):
        given.append((host, fun, args, kwarg, force))
        return {"reverted": "s1"}

    monkeypatch.setattr(fileusers, "order", order)

    answer = run("revert_snapshot", "web1", "s1", kwarg={"cleanup": True}, force=True)

    assert answer == {"hyper1": {"web1": {"reverted": "s1"}}}
    assert given == [("hyper1", "virt.revert_snapshot", ["web1", "s1"], {"cleanup": True}, True)]


def test_the_move_of_a_disk_reports_its_progress_and_may_take_a_day(orders, monkeypatch):
    calls = []

    def order(_cloud, _host, _fun, args, kwarg, *, force, watch, limit_s):
        calls.append((args, kwarg, force, limit_s))
        assert callable(watch)
        return {"outcome": "disk vda moved"}

    monkeypatch.setattr(fileusers, "order", order)

    answer = run("move_disk", "web1", "vda", "fast", dry_run=True)

    assert answer == {"hyper1": {"web1": {"outcome": "disk vda moved"}}}
    assert calls == [(["web1", "vda", "fast"], {"test": True, "report": True}, False, 86400)]


def test_a_vm_is_removed_only_if_all_hosts_can_be_asked(orders, cloud):
    lastseen.record_move(cloud.opts, "web1", "hyper3")
    cloud.hosts.silence("hyper3")

    assert run("reboot", "web1") == {
        "hyper1": {"web1": "asked to reboot; its guest may ignore that"}
    }
    with pytest.raises(NameTaken, match="was last seen on hyper3"):
        run("undefine", "web1")


def test_of_several_vms_each_has_a_row(orders):
    answer = run("hold", "web*")

    rows = {
        "web1": {
            "host": "hyper1",
            "outcome": "held",
            "error": None,
        },
        "web2": {
            "host": "hyper2",
            "outcome": "held",
            "error": None,
        },
    }
    assert answer == {"vms": rows}
    assert told(orders) == [("hyper1", "virt.hold", "web1"), ("hyper2", "virt.hold", "web2")]


def test_all_hosts_are_asked_once_for_several_vms(orders, cloud, monkeypatch):
    asked = []

    def ask(_cloud, targets, fun, arg=(), kwarg=None, **options):
        asked.append(fun)
        return cloud.hosts.ask(_cloud, targets, fun, arg, kwarg, **options)

    monkeypatch.setattr(minions, "ask", ask)

    run("hold", ["web1", "web2", "db"], max_parallel=2)

    assert asked == ["virt.host_info"]


def test_the_state_of_the_survey_is_asked_again_before_nothing_is_done(orders):
    answer = run("start", "*")

    outcomes = {name: row["outcome"] for name, row in answer["vms"].items()}
    assert outcomes == {
        "db": "already running; nothing was done",
        "web1": "already running; nothing was done",
        "web2": "started",
    }


def test_a_failure_of_one_leaves_the_others_and_fails_the_command(orders):
    orders.answers["virt.hold", "web2"] = minions.Reply(minion="hyper2", error="it does not run")

    with pytest.raises(VirtError, match="virt.hold failed for 2 of 3 VMs: web2, nobody") as failed:
        run("hold", ["web1", "web2", "nobody"])

    rows = failed.value.table["vms"]
    assert rows["web1"] == {
        "host": "hyper1",
        "outcome": "held",
        "error": None,
    }
    assert rows["web2"]["error"] == "hyper2: it does not run"
    assert rows["nobody"]["host"] is None and "no VM called 'nobody'" in rows["nobody"]["error"]


def test_progress_counts_the_vms_that_were_located(orders, monkeypatch, cloud):
    lines = []
    master = replace(cloud.master, progress=lambda _stage, **figures: lines.append(figures))
    monkeypatch.setattr(Cloud, "of", lambda *_args, **_given: master)

    with pytest.raises(VirtError):
        run("hold", ["nobody", "web1", "web2"], max_parallel=1)

    details = [line["detail"].partition(",")[0] for line in lines if "VMs" in line["detail"]]
    assert details == ["1 of 2 VMs", "2 of 2 VMs"]


def test_a_failure_that_nobody_foresaw_is_a_row(orders, caplog):
    caplog.set_level(logging.CRITICAL)
    orders.answers["virt.hold", "web1"] = RuntimeError("broken")

    with pytest.raises(VirtError) as failed:
        run("hold", "web*")

    assert failed.value.table["vms"]["web1"]["error"] == "RuntimeError: broken"
    assert failed.value.table["vms"]["web2"]["error"] is None


def test_an_interruption_lets_the_vm_under_way_end_and_begins_no_other(orders, monkeypatch):
    goes_on, waits = threading.Event(), []

    def order(_cloud, host, fun, arg, kwarg, **_options):
        assert goes_on.wait(20)
        return orders.order(_cloud, host, fun, arg, kwarg)

    def wait(jobs):
        waits.append(jobs)
        if len(waits) == 1:
            raise KeyboardInterrupt
        goes_on.set()
        return futures.wait(jobs)

    monkeypatch.setattr(minions, "order", order)
    # Mocked: a signal would come at any time.
    monkeypatch.setattr(vmcommand, "wait", wait)

    with pytest.raises(VirtError, match="^interrupted; virt.hold failed for 1 of 2 VMs") as failed:
        run("hold", ["web1", "web2"], max_parallel=1)

    errors = {name: row["error"] for name, row in failed.value.table["vms"].items()}
    assert errors == {"web1": None, "web2": "not begun: the command was interrupted"}
    assert told(orders) == [("hyper1", "virt.hold", "web1")]


def test_a_glob_also_means_what_a_silent_host_had(orders, cloud):
    lastseen.record_move(cloud.opts, "web3", "hyper3")
    cloud.hosts.silence("hyper3")

    with pytest.raises(VirtError, match="failed for 1 of 3 VMs: web3") as failed:
        run("hold", "web*")

    assert "hyper3" in failed.value.table["vms"]["web3"]["error"]
    assert failed.value.table["unreachable"] == ["hyper3"]


def test_a_glob_that_matches_nothing_is_refused(orders, cloud):
    cloud.hosts.silence("hyper3")

    with pytest.raises(BadArgument, match=r"'mail\*' matches no VM; not asked: hyper3"):
        run("hold", "mail*")


def test_a_name_with_a_wildcard_is_that_vm(orders, cloud):
    cloud.hosts.put("hyper1", "web[1]")

    assert list(run("hold", "web[1]")["vms"]) == ["web[1]"]
    assert list(run("hold", "web[12]")["vms"]) == ["web1", "web2"]


def test_a_host_that_invents_names_does_not_make_the_master_work_without_end(orders, monkeypatch):
    monkeypatch.setattr(vmcommand, "_MOST_VMS", 2)

    with pytest.raises(BadArgument, match=r"name: 3 VMs match, and one command takes 2"):
        run("hold", "*")
    assert orders.given == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ([], "name: the list names no VM"),
        ([101], "name: 101 is not text; quote it"),
        (101, "name: 101 is not text; quote it"),
        (None, "name: None is not text"),
        ({"web1": None}, "name: .* is not text"),
    ],
)
def test_a_name_that_is_no_text_is_refused(orders, name, why):
    with pytest.raises(BadArgument, match=why):
        run("hold", name)


def test_a_text_with_commas_is_one_name(orders):
    """Salt's ACLs match a text by its beginning: ``web1`` must not open ``web1,db``."""
    with pytest.raises(BadArgument, match="'web1,db' has a comma: give several VMs as a list"):
        run("hold", "web1,db")
    with pytest.raises(VirtError, match="failed for 1 of 1 VM: web1,db"):
        run("hold", ["web1,db"])
    assert orders.given == []


@pytest.mark.parametrize("limit", [0, 65, "many", True])
def test_a_limit_that_is_none_is_refused(orders, limit):
    with pytest.raises(BadArgument, match="^max_parallel: "):
        run("hold", "web*", max_parallel=limit)


def test_devices_are_of_one_vm(orders):
    with pytest.raises(BadArgument, match="disks: is for one VM"):
        run("update", "web*", kwarg={"disks": []})


def test_a_command_that_takes_one_takes_a_glob_for_a_name(orders):
    with pytest.raises(NoSuchVm, match=r"no VM called 'web\*'"):
        run("undefine", "web*")
    with pytest.raises(BadArgument, match="is not text"):
        run("undefine", ["web1", "web2"])


def test_answers_are_of_the_vm_that_was_asked_about(orders):
    rows = [{"name": "s1", "created": "now", "running": True, "current": True}]
    orders.answers["virt.list_snapshots"] = {"web1": rows, "other": rows}

    assert run("list_snapshots", "web1") == {"hyper1": {"web1": rows}}


def test_a_vm_without_snapshots_has_an_empty_list(orders):
    orders.answers["virt.list_snapshots"] = {"web1": "N/A"}

    assert run("list_snapshots", "web1") == {"hyper1": {"web1": []}}


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("get_xml", 5),
        ("get_disks", "none"),
        ("get_macs", [1]),
        ("list_snapshots", []),
        ("vm_netstats", {"web1": 5}),
        ("vm_netstats", {"web1": {"rx_bytes": float("inf")}}),
        ("guest_info", None),
        ("update", True),
        ("get_disks", json.loads("[" * 900 + "]" * 900)),
    ],
)
def test_an_answer_of_another_type_is_an_error(orders, command, answer):
    orders.answers[f"virt.{command}"] = answer

    with pytest.raises(VirtError, match="hyper1"):
        run(command, "web1")


def test_what_a_guest_says_has_no_control_characters_and_keeps_its_lines(orders):
    said = {"exit_code": 0, "signal": None, "stdout": "a\nb\x1b[2J", "stderr": "", "truncated": []}
    orders.answers["virt.guest_exec"] = said

    answer = run("guest_exec", "web1", "ls")

    assert answer["hyper1"]["web1"]["stdout"] == "a\nb\\x1b[2J"


def test_keys_and_texts_of_a_host_are_one_line_each(orders):
    orders.answers["virt.get_disks"] = {"vd\na\x1b": {"file": "/a\nb\x07"}}

    ((name, disk),) = run("get_disks", "web1")["hyper1"]["web1"].items()

    assert "\n" not in name + disk["file"] and "\x1b" not in name and "\x07" not in disk["file"]


def test_a_command_that_fails_in_a_guest_fails_here_with_its_output(orders):
    said = {"exit_code": 3, "signal": None, "stdout": "so far", "stderr": "no", "truncated": []}
    orders.answers["virt.guest_exec"] = minions.Reply(
        minion="hyper1", value=said, error="exit code 1"
    )

    with pytest.raises(VirtError, match="'web1': its exit code is 3") as failed:
        run("guest_exec", "web1", "false")

    assert failed.value.table["vms"]["web1"]["outcome"] == said
    assert failed.value.table["vms"]["web1"]["host"] == "hyper1"


def test_a_guest_without_an_agent_is_an_error_without_an_answer(orders):
    error = {"error": "no agent answers", "kind": "NoAgent"}
    orders.answers["virt.guest_exec"] = minions.Reply(
        minion="hyper1", value=error, error="no agent answers"
    )

    with pytest.raises(VirtError, match="^hyper1: no agent answers") as failed:
        run("guest_exec", "web1", "true")
    assert not hasattr(failed.value, "table")


FILES = {
    "virt_act": [
        ("update", {"cpu": 2, "mem": "2g"}, [], {"cpu": 2, "mem": "2g"}),
        ("setmem", {"memory": 768, "config": True}, [768, True], {}),
        ("setvcpus", {"vcpus": 2}, [2, False], {}),
        ("set_autostart", {"state": "off"}, ["off"], {}),
        ("hold", {}, ["on"], {}),
        ("reboot", {}, [], {}),
        ("ctrl_alt_del", {}, [], {}),
        ("snapshot", {"vm_snapshot": "s1"}, ["s1", None, False, False], {}),
        ("undefine", {"snapshots": True}, [False, True], {}),
        ("migrate_cancel", {}, [], {}),
        ("migrate_start_postcopy", {}, [], {}),
    ],
    "virt_guest": [
        ("guest_info", {}, [], {}),
        ("guest_exec", {"timeout_s": 5}, [], {"timeout_s": 5}),
    ],
    "virt_device": [
        ("disk_add", {"disk": "d", "size": "1G", "pool": "p"}, ["d", "1G"], {"pool": "p"}),
        ("disk_grow", {"disk": "d", "size": "+1G"}, ["d", "+1G"], {}),
        ("disk_remove", {"disk": "d", "file": True}, ["d", True], {}),
        ("move_disk", {"disk": "d", "pool": "p"}, ["d", "p"], {"report": True}),
        ("nic_add", {"bridge": "br1", "live": False}, [None], {"bridge": "br1", "live": False}),
        ("nic_remove", {"nic": "eth0", "dry_run": True}, ["eth0"], {"test": True}),
        ("eject", {"test": True}, [None], {"test": True}),
        ("insert", {"medium": "/a.iso", "drive": "sda"}, ["/a.iso", "sda"], {}),
    ],
    "virt_details": [
        ("get_disks", {}, [], {}),
        ("vm_state", {}, [], {}),
        ("snapshots", {}, [], {}),
    ],
    "virt_files": [
        ("delete_snapshots", {"all": True}, [], {"all": True}),
        ("revert", {"vm_snapshot": "s1"}, ["s1"], {"cleanup": False}),
    ],
}
ANSWERS = {
    "virt.list_snapshots": {"web1": "N/A"},
    "virt.vm_state": {"web1": "running"},
    **{
        f"virt.{name}": {"name": "s1"}
        for name in "update snapshot guest_info guest_exec get_disks delete_snapshots "
        "revert_snapshot disk_add disk_grow disk_remove move_disk nic_add nic_remove eject "
        "insert".split()
    },
}


@pytest.mark.parametrize(
    ("file", "function", "given", "args", "kwarg"),
    [(file, *row) for file, rows in FILES.items() for row in rows],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_host_gets_what_the_runner_was_given(orders, cloud, file, function, given, args, kwarg):
    orders.answers |= ANSWERS
    runner = asloaded.module(f"_runners/{file}.py", **cloud.opts)
    runner.__opts__, runner.__context__ = cloud.opts, {}

    answer = getattr(runner, function)("web1", **given)

    assert "error" not in answer and list(answer) == ["hyper1"]
    ((host, _fun, got_args, got_kwarg),) = orders.given
    got_kwarg.pop("replies", None)
    assert (host, got_args, got_kwarg) == ("hyper1", ["web1", *args], kwarg)


@pytest.mark.parametrize(
    ("function", "state", "outcome"),
    [
        ("set_autostart", "on", "set to start with its host"),
        ("set_autostart", "off", "set not to start with its host"),
        ("hold", "on", "held"),
        ("hold", "off", "not held any more"),
    ],
)
def test_a_switch_says_which_way(orders, cloud, function, state, outcome):
    runner = asloaded.module("_runners/virt_act.py", **cloud.opts)
    runner.__opts__, runner.__context__ = cloud.opts, {}

    assert getattr(runner, function)("web1", state) == {"hyper1": {"web1": outcome}}
    dry = getattr(runner, function)("web1", state, dry_run=True)
    assert dry == {"hyper1": {"web1": f"would be {outcome}"}}
    assert getattr(runner, function)("web1", "maybe")["retcode"] == 1
