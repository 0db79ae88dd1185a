"""Moves of several VMs, as the master leads them; hosts that fall silent are played."""

import pytest
from saltvirt.errors import NoHostFits, NoSuchVm
from saltvirt.fleet import deploy, evacuate, find, leftovers, migrate
from test_generation import USUAL
from test_generation import host as empty_host

SILENT = "{} does not answer; see: salt {} test.ping"


class Cloud:
    """Hosts that answer what real ones do; which call gets no answer, or a refusal, is set."""

    weights, timeout_s, deploy_timeout_s, hypervisors = {}, 1, 1, "*"

    def __init__(self, hosts):
        self.hosts = {name: {} for name in hosts}
        self.notes, self.silent, self.refuses, self.asked = {}, set(), {}, []

    def put(self, name, host, **about):
        """Have a VM on a host."""
        self.hosts[host][name] = {**USUAL, "name": name, "autostart": False, **about}

    def where(self, name):
        """Return the hosts that have a VM."""
        return [host for host, vms in self.hosts.items() if name in vms]

    def _info(self, host, moving):
        one = {"state": "running", "vcpus": 1, "memory_mib": 1, "affinity": [],
               "anti_affinity": []}  # fmt: skip
        info = {**empty_host(13), "vms": dict.fromkeys(self.hosts[host], one)}
        return {**info, "moving": self.hosts[host][moving]} if moving in info["vms"] else info

    def _answer(self, host, fun, arg, kwarg):
        self.asked.append((host, fun))
        if not {host, (host, fun)}.isdisjoint(self.silent):
            raise deploy.HostSilent(SILENT.format(host, host))
        vms = self.hosts[host]
        if fun == "virt.host_info":
            return self._info(host, kwarg.get("moving"))
        if fun == "virt.presence":
            state = "running" if arg[0] in vms else None
            return {"state": state, "building": False, "unfinished": False}
        if fun == "virt.migration_info":
            if arg and arg[0] not in vms:
                raise deploy.DeployError(f"{host}: {NoSuchVm(arg[0])}")
            return vms[arg[0]] if arg else vms
        if fun == "virt.evacuated":
            self.notes.update(arg[0] if arg else {})
            return {name: to for name, to in self.notes.items() if to}
        return self._moved(host, fun, kwarg)

    def _moved(self, host, fun, kwarg):
        vms, why = self.hosts[host], self.refuses.get(host, {})
        if fun == "virt.migrate_check":
            about = kwarg["about"]
            is_one = "disks" in about
            return why.get(about["name"], []) if is_one else {n: why[n] for n in about if n in why}
        if fun == "virt.load":
            used = {name: {"cpu": 0.0, "memory_mib": 100} for name in vms}
            return {"cpus": 8, "memory_mib": 1000, "vms": used}
        if fun == "virt.migrate_prepare":
            if kwarg["about"]["name"] in why:
                raise deploy.DeployError(f"{host}: {why[kwarg['about']['name']][0]}")
            return {"images": {}, "present": []}
        if fun == "virt.migrate":
            self.hosts[kwarg["target"]][kwarg["vm_"]] = vms.pop(kwarg["vm_"])
            if (host, "the answer") in self.silent:
                raise deploy.HostSilent(SILENT.format(host, host))
            return {"total_ms": 1}
        return True

    def act(self, _opts, _settings, host, fun, *args, kwarg=None, **_options):
        """Stand for ``deploy.act``."""
        return self._answer(host, fun, args, kwarg or {})

    def survey(self, _opts, _settings, targets, fun, arg=(), kwarg=None):
        """Stand for ``find.survey``."""
        answers, silent, failed = {}, [], {}
        for host in targets:
            try:
                answers[host] = self._answer(host, fun, arg, kwarg or {})
            except deploy.HostSilent:
                silent.append(host)
            except deploy.DeployError as error:
                failed[host] = str(error)
        return find.Survey(answers=answers, unreachable=silent, failed=failed)


@pytest.fixture
def cloud(monkeypatch):
    """A function that makes a cloud of so many hosts, h1 to hN."""

    def make(count):
        made = Cloud([f"h{n}" for n in range(1, count + 1)])
        monkeypatch.setattr(find, "every", lambda _opts, _settings: list(made.hosts))
        monkeypatch.setattr(find, "survey", made.survey)
        monkeypatch.setattr(leftovers, "forget", lambda *_args: True)
        for module in (evacuate, migrate):
            monkeypatch.setattr(module, "act", made.act)
        return made

    return make


@pytest.fixture
def run(opts):
    """A function that calls one of the fleet's, with progress that nobody looks at."""

    def call(function, cloud, *args, **kwargs):
        return function(opts, cloud, *args, say=lambda *_args, **_figures: None, **kwargs)

    return call


BOTH = {"max_parallel": 2}


def test_a_vm_that_has_moved_but_does_not_start_with_its_host_has_moved(cloud, run):
    three = cloud(3)
    three.put("web1", "h3", autostart=True)
    three.silent |= {("h1", "virt.set_autostart"), ("h2", "virt.set_autostart")}

    done = run(evacuate.evacuate, three, "h3", **BOTH, with_stopped=True)

    (there,) = three.where("web1")
    assert done["moved"] == {"web1": there} == three.notes and done["failed"] == {}
    assert f"'web1' is on {there}, but does not start with that host (" in done["warnings"]["web1"]
    assert f"salt {there} virt.set_autostart web1 on" in done["warnings"]["web1"]


def test_a_vm_whose_move_was_not_heard_of_is_looked_for_before_it_is_moved_again(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.silent.add(("h3", "the answer"))

    done = run(evacuate.evacuate, three, "h3", **BOTH, with_stopped=True)

    (there,) = three.where("web1")
    assert done["moved"] == {"web1": there} == three.notes and done["failed"] == {}
    assert f"it is on {there}, though its move seemed to fail" in done["warnings"]["web1"]
    assert three.asked.count(("h3", "virt.migrate")) == 1


def test_nobody_guesses_where_a_vm_is_while_its_host_is_silent(cloud, run):
    three = cloud(3)
    three.put("web1", "h1")
    three.silent.add("h3")

    assert evacuate._arrived({}, three, "web1", "h3") is None
    assert evacuate._arrived({}, three, "web1", "h2") == "h1"
    assert evacuate._arrived({}, three, "web1", "h1") is None
    assert evacuate._arrived({}, three, "web1", None) is None


def test_a_move_that_cannot_be_noted_is_no_failure_of_all(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.silent.add(("h3", "virt.evacuated"))

    done = run(evacuate.evacuate, three, "h3", **BOTH, with_stopped=True)

    assert done["moved"] == {"web1": three.where("web1")[0]} and done["failed"] == {}
    assert "it has moved, but that was not noted: h3 does not answer" in done["warnings"]["web1"]


def test_a_restore_brings_back_only_what_is_still_where_the_evacuation_left_it(cloud, run):
    four = cloud(4)
    four.notes = {"back": "h1", "there": "h1", "onwards": "h1", "gone": "h2"}
    for name, host in (("back", "h3"), ("there", "h1"), ("onwards", "h2")):
        four.put(name, host)

    done = run(evacuate.restore, four, "h3", **BOTH)

    assert done == {"host": "h3", "moved": {"there": "h3"}, "failed": {}, "gone": ["gone"],
                    "elsewhere": {"onwards": "h2"}}  # fmt: skip
    assert four.where("onwards") == ["h2"] and set(four.notes.values()) == {None}
    again = run(evacuate.restore, four, "h3", **BOTH)
    assert again == {"host": "h3", "moved": {}, "failed": {}, "gone": [], "elsewhere": {}}


def test_a_restore_forgets_nothing_that_may_be_on_a_silent_host(cloud, run):
    three = cloud(3)
    three.notes = {"web1": "h1", "web2": "h2"}
    three.put("web1", "h1")
    three.put("web2", "h2")
    three.silent.add("h1")

    with pytest.raises(evacuate.NotEmpty, match="web1 did not come back to h3") as caught:
        run(evacuate.restore, three, "h3", **BOTH)

    assert caught.value.table["moved"] == {"web2": "h3"}
    assert "not asked: h1" in caught.value.table["failed"]["web1"]
    assert three.notes == {"web1": "h1", "web2": None}


def test_a_plan_is_not_made_of_hosts_that_have_not_been_asked(cloud, run):
    nine = cloud(9)
    for name in ("web1", "web2"):
        nine.put(name, "h9")
    why = ["its CPU does not suffice"]
    nine.refuses = {host: {"web1": why} for host in nine.hosts}

    plan = run(evacuate.dry_run, nine, "h9", True)

    assert list(plan["moves"]) == ["web2"]
    assert plan["stays"]["web1"].count(why[0]) == 8
    checks = [host for host, fun in nine.asked if fun == "virt.migrate_check"]
    assert len(checks) <= 2 * 8 and set(checks) == set(nine.hosts) - {"h9"}


def test_the_last_host_that_takes_a_vm_is_found(cloud, run):
    nine = cloud(9)
    nine.put("web1", "h9")
    nine.refuses = {f"h{n}": {"web1": ["its CPU does not suffice"]} for n in range(1, 8)}

    assert run(evacuate.dry_run, nine, "h9", True)["moves"] == {"web1": "h8"}


def test_a_dry_run_goes_on_when_the_best_host_has_fallen_silent(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.silent.add(("h1", "virt.migrate_check"))

    assert run(migrate.dry_run, three, "web1", None)["to"] == "h2"
    three.refuses["h2"] = {"web1": ["a file is there already"]}
    with pytest.raises(NoHostFits) as caught:
        run(migrate.dry_run, three, "web1", None)
    assert caught.value.reasons["h1"] == SILENT.format("h1", "h1")


@pytest.mark.parametrize("target", ["", None])
def test_no_target_is_3006s_empty_one(cloud, run, target):
    three = cloud(3)
    three.put("web1", "h3")

    assert run(migrate.dry_run, three, "web1", target)["to"] == "h1"
    assert run(migrate.migrate, three, "web1", target, {})["to"] == "h1"


def test_silent_hosts_are_named_where_a_vm_must_stay(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.put("web2", "h3", obstacles=["it has snapshots"])
    three.silent |= {"h1", "h2"}

    stays = run(evacuate.dry_run, three, "h3", True)["stays"]

    assert stays == {"web1": "h1: does not answer; h2: does not answer",
                     "web2": "it has snapshots"}  # fmt: skip
    alone = cloud(1)
    alone.put("web1", "h1")
    assert run(evacuate.dry_run, alone, "h1", True)["stays"] == {
        "web1": "there is no other hypervisor"}  # fmt: skip


@pytest.fixture
def lopsided(cloud):
    """A cloud of three hosts, of which the first has four VMs."""
    made = cloud(3)
    for name in ("web1", "web2", "web3", "web4"):
        made.put(name, "h1")
    return made


EVEN = {"max_moves": 5, "threshold": 0.02}


def test_a_rebalance_that_fails_says_what_it_has_moved(lopsided, run):
    planned = run(evacuate.balance, lopsided, is_dry=True, **EVEN)["moves"]
    (first, second, *rest), move = planned, migrate.migrate

    def fails(opts, settings, name, *args):
        if name == second["name"]:
            raise migrate.MoveFailed(f"VM {name!r} stays where it is: disk full")
        return move(opts, settings, name, *args)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(evacuate.NotEven) as caught:
        patch.setattr(migrate, "migrate", fails)
        run(evacuate.balance, lopsided, is_dry=False, **EVEN)

    assert "stays where it is: disk full" in str(caught.value)
    assert f"moved before: {first['name']} to {first['to']}" in str(caught.value)
    assert caught.value.table["moves"] == [first]
    assert caught.value.table["stays"] == {
        second["name"]: f"VM {second['name']!r} stays where it is: disk full",
        **{step["name"]: "not begun, as a move before it failed" for step in rest}}  # fmt: skip


@pytest.mark.parametrize("fun", ["virt.load", "virt.host_info", "virt.migration_info"])
def test_a_host_that_cannot_say_all_of_it_is_named_by_a_rebalance(lopsided, run, fun):
    lopsided.silent.add(("h3", fun))

    done = run(evacuate.balance, lopsided, is_dry=True, **EVEN)

    assert done["unreachable"] == ["h3"] and "failed" not in done
    assert {step["to"] for step in done["moves"]} == {"h2"}
