"""A command on a VM's power says what it did, and whether the guest has obeyed."""

import pytest
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import minions
from saltvirt.core.errors import BadArgument, MasterError, VirtError
from saltvirt.vm.command.master import guestwait, vmcommand


class Power:
    """Hosts whose guests obey after some questions, and the clock that goes on meanwhile."""

    def __init__(self, cloud):
        self.cloud, self.now_s, self.asked, self.ordered = cloud, 1000.0, [], []
        # {VM: how many questions about states pass before it has its new state}
        self.obeys, self.becomes, self.progress, self.is_broken = {}, {}, [], False

    def put(self, name, host="hyper1", state="running", **more):
        """Have a VM on a host."""
        self.cloud.hosts.put(host, name, state, **more)

    def ask(self, cloud, targets, fun, arg=(), kwarg=None, **options):
        """Stand for ``minions.ask``."""
        hosts = sorted(targets)
        self.asked.append((fun, hosts))
        if fun != "virt.vm_state":
            return self.cloud.hosts.ask(cloud, hosts, fun, arg, kwarg, **options)
        if self.is_broken:
            raise MasterError("the Salt master does not answer")
        for _host, _fun, name in self.ordered:
            self.obeys[name] = self.obeys.get(name, 999) - 1
            if self.obeys[name] < 0:
                self.becomes.get(name, self.turn_off)(name)
        return {host: self._states(host) for host in hosts}

    def _states(self, host):
        if self.cloud.hosts.is_silent(host):
            return minions.Reply(minion=host, is_missing=True)
        rows = self.cloud.hosts._vms(host)
        return minions.Reply(minion=host, value={name: vm["state"] for name, vm in rows.items()})

    def turn_off(self, name):
        """Have a guest obey."""
        for host in self.cloud.hosts.where(name):
            self.put(name, host, "shutdown")

    def order(self, _cloud, host, fun, arg, kwarg, **_options):
        """Stand for ``minions.order``."""
        self.ordered.append((host, fun, arg[0]))
        return minions.Reply(minion=host, value=True)

    def sleep(self, seconds):
        """Stand for ``time.sleep``."""
        self.now_s += seconds


@pytest.fixture
def power(monkeypatch, cloud):
    """A cloud whose guests are asked without real seconds."""
    made = Power(cloud)
    master = cloud.master

    def progress(stage, **figures):
        made.progress.append(f"{stage} ({figures.get('detail')})")

    object.__setattr__(master, "progress", progress)
    # Mocked: unit tests have no minions, and no minutes.
    monkeypatch.setattr(minions, "ask", made.ask)
    monkeypatch.setattr(minions, "order", made.order)
    monkeypatch.setattr(guestwait.time, "monotonic", lambda: made.now_s)
    monkeypatch.setattr(guestwait.time, "sleep", made.sleep)
    monkeypatch.setattr(Cloud, "of", lambda *_args, **_given: master)
    return made


def run(command, name, **given):
    """Run a command."""
    return vmcommand.run({}, None, command, name, **given)


def shut_down(name, **given):
    """Run ``virt.shutdown`` as its runner function does."""
    return run("shutdown", name, **{"wait": True, "wait_s": 120, **given})


def test_a_guest_that_obeys_is_reported_with_its_time(power):
    power.put("web1")
    power.obeys["web1"] = 3

    assert shut_down("web1") == {"hyper1": {"web1": "shut down after 3 s"}}
    assert power.ordered == [("hyper1", "virt.shutdown", "web1")]
    assert power.progress[0] == "Waiting (for web1, at most 120 s)"


def test_a_guest_that_ignores_the_request_fails_the_command_and_the_cure_is_named(power):
    power.put("my web")

    with pytest.raises(VirtError, match="'my web' is still running after 120 s") as failed:
        shut_down("my web")

    assert "pull its plug: salt-run virt.stop 'my web'" in str(failed.value)
    row = failed.value.table["vms"]["my web"]
    assert (row["host"], row["outcome"]) == ("hyper1", "asked to shut down")
    assert 120 <= power.now_s - 1000 <= 126
    assert any("so far" in line for line in power.progress)


def test_without_a_wait_no_host_is_asked_again(power):
    power.put("web1")

    assert shut_down("web1", wait=False) == {"hyper1": {"web1": "asked to shut down"}}
    assert "virt.vm_state" not in dict(power.asked)


@pytest.mark.parametrize(
    ("given", "argument"),
    [({"wait": "maybe"}, "wait"), ({"wait_s": 0}, "wait_s"), ({"wait_s": "long"}, "wait_s")],
)
def test_a_wait_that_is_none_is_refused(power, given, argument):
    power.put("web1")

    with pytest.raises(BadArgument, match=f"^{argument}: "):
        shut_down("web1", **given)
    assert power.ordered == []


def test_a_dry_run_waits_for_no_guest(power):
    power.put("web1")

    answer = shut_down("web1", dry_run=True)

    assert answer == {"hyper1": {"web1": "would be asked to shut down"}}
    assert power.now_s == 1000


def test_all_guests_are_waited_for_by_one_question_at_a_time(power):
    power.put("web1")
    power.put("web2", "hyper2")
    power.put("web3", "hyper2", "shutdown")
    power.obeys |= {"web1": 1, "web2": 9}

    rows = shut_down("web*")["vms"]

    assert {name: row["outcome"] for name, row in rows.items()} == {
        "web1": "shut down after 1 s",
        "web2": "shut down after 9 s",
        "web3": "already off; nothing was done",
    }
    questions = [hosts for fun, hosts in power.asked if fun == "virt.vm_state"]
    assert len(questions) == 10
    # Hosts without pending guests are not asked any more.
    assert questions[0] == ["hyper1", "hyper2"] and questions[-1] == ["hyper2"]


def test_of_several_the_guests_that_do_not_obey_are_failures(power):
    power.put("web1")
    power.put("web2")
    power.obeys["web1"] = 1

    with pytest.raises(VirtError, match=r"virt.shutdown failed for 1 of 2 VMs: web2") as failed:
        shut_down("web*", wait_s=10)

    rows = failed.value.table["vms"]
    assert rows["web1"] == {"host": "hyper1", "outcome": "shut down after 1 s", "error": None}
    assert "still running after 10 s" in rows["web2"]["error"]


def test_what_happens_to_a_vm_meanwhile_is_told(power):
    def crash(name):
        power.put(name, "hyper1", "crashed")

    def vanish(name):
        (power.cloud.hosts.folder / "hyper1" / name).unlink(missing_ok=True)

    def move(name):
        power.put(name, "hyper1", "shutdown", moved_to="hyper2")

    def pause(name):
        power.put(name, "hyper1", "paused")

    power.becomes = {"crashes": crash, "vanishes": vanish, "moves": move, "pauses": pause}
    for name in power.becomes:
        power.put(name)
        power.obeys[name] = 1

    with pytest.raises(VirtError) as failed:
        shut_down([*power.becomes])

    errors = {name: row["error"] for name, row in failed.value.table["vms"].items()}
    assert "has crashed" in errors["crashes"] and "virt.stop crashes" in errors["crashes"]
    assert "is not on hyper1 any more" in errors["vanishes"]
    assert "has moved to hyper2 meanwhile" in errors["moves"]
    assert "salt-run virt.resume pauses" in errors["pauses"]


def test_a_host_that_falls_silent_leaves_the_outcome_unknown(power):
    power.put("web1")
    power.becomes["web1"] = lambda _name: power.cloud.hosts.silence("hyper1")
    power.obeys["web1"] = 1

    with pytest.raises(VirtError, match="not heard of: hyper1: does not answer"):
        shut_down("web1")


@pytest.mark.parametrize("name", ["web1", "web*"])
def test_an_interruption_ends_the_wait_and_says_what_is_under_way(power, monkeypatch, name):
    power.put("web1")

    def interrupt(_seconds):
        raise KeyboardInterrupt

    # Mocked: a signal would come at any time.
    monkeypatch.setattr(guestwait.time, "sleep", interrupt)
    with pytest.raises(VirtError) as failed:
        shut_down(name)

    (row,) = failed.value.table["vms"].values()
    assert row["outcome"] == "asked to shut down"
    assert "'web1' was asked to shut down; the wait was interrupted" in row["error"]


def test_a_master_that_fails_meanwhile_does_not_hide_what_was_asked(power):
    power.put("web1")
    power.is_broken = True

    with pytest.raises(
        VirtError, match="was asked to shut down; the Salt master does not"
    ) as failed:
        shut_down("web1")
    assert failed.value.table["vms"]["web1"]["host"] == "hyper1"


@pytest.mark.parametrize("is_dry", [False, True])
@pytest.mark.parametrize(
    ("command", "state", "words"),
    [
        ("start", "paused", "is paused; let it go on: salt-run virt.resume 'my web'"),
        ("start", "crashed", "end it: salt-run virt.stop 'my web'; then start it"),
        ("shutdown", "paused", "virt.resume 'my web'; or pull its plug: salt-run virt.stop"),
        ("reboot", "paused", "its guest cannot reboot; let it go on: salt-run virt.resume"),
        ("reboot", "shutdown", "is not running; start it: salt-run virt.start 'my web'"),
        ("reset", "shutdown", "is not running; start it: salt-run virt.start 'my web'"),
        ("pause", "shutdown", "is not running; start it"),
        ("resume", "shutdown", "is not running; start it"),
        ("resume", "crashed", "has crashed"),
        ("ctrl_alt_del", "paused", "its guest gets no keys; let it go on: salt-run virt.resume"),
    ],
)
def test_a_command_that_its_state_forbids_names_the_state_and_the_cure(
    power, command, state, words, is_dry
):
    power.put("my web", "hyper1", state)

    with pytest.raises(VirtError, match=words):
        run(command, "my web", dry_run=is_dry)
    assert power.ordered == []


@pytest.mark.parametrize(
    ("command", "state", "outcome", "would"),
    [
        ("stop", "running", "stopped at once, by pulling its plug", "would be stopped at once"),
        ("stop", "paused", "stopped at once, by pulling its plug", "would be stopped at once"),
        ("reset", "running", "reset at once, without asking its guest", "would be reset at once"),
        ("reboot", "running", "asked to reboot; its guest may", "would be asked to reboot"),
        ("reset", "paused", "it is paused all the same; let it go on: salt-run", "would be reset"),
    ],
)
def test_a_command_says_whether_the_guest_was_asked(power, command, state, outcome, would):
    power.put("web1", "hyper1", state)

    assert would in run(command, "web1", dry_run=True)["hyper1"]["web1"]
    assert outcome in run(command, "web1")["hyper1"]["web1"]


def test_a_state_that_has_changed_since_the_survey_counts(power, monkeypatch):
    power.put("web1", "hyper1", "paused")

    def ask(cloud, targets, fun, arg=(), kwarg=None, **options):
        if fun == "virt.presence":
            power.put("web1", "hyper1", "running")
        return power.ask(cloud, targets, fun, arg, kwarg, **options)

    monkeypatch.setattr(minions, "ask", ask)

    assert run("reboot", ["web1"])["vms"]["web1"]["error"] is None
