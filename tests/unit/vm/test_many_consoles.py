"""While many minions are waited for, the VMs' consoles are read, some at a time, in turn."""

import collections

import pytest
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import minions, unsignedreplies
from saltvirt.core.errors import MasterError
from saltvirt.seeding.shared import minionpackages
from saltvirt.vm.create.master import minionwait
from saltvirt.vm.create.master.many import run
from saltvirt.vm.create.master.many.manyrequest import NotAllBuilt
from test_many_run import call

LINE = minionpackages.NO_MINION


@pytest.fixture
def played(cloud, monkeypatch):
    """VMs that print ``consoles``; the minions in ``answers`` answer at that second."""
    cloud.told, cloud.consoles, cloud.answers = [], {}, {}
    cloud.read, cloud.clock = collections.Counter(), 0.0
    usual = minions.ask

    def ask(cloud_, targets, fun, arg=(), *args, **options):
        if fun != "virt.console_log":
            return usual(cloud_, targets, fun, arg, *args, **options)
        cloud.read[arg[0]] += 1
        text = cloud.consoles.get(arg[0], "")
        if isinstance(text, Exception):
            raise text
        return {host: minions.Reply(minion=host, value=text) for host in targets}

    class Time:
        """A clock that each question moves on by five seconds."""

        @staticmethod
        def monotonic():
            return cloud.clock

        @staticmethod
        def sleep(_seconds):
            """The question has taken all of the time."""

    class Played(unsignedreplies.Pings):
        def answered(self, wanted, *, now=False):
            cloud.clock += 5
            return {name for name in wanted if cloud.answers.get(name, 1e9) <= cloud.clock}

    monkeypatch.setattr(minions, "ask", ask)
    monkeypatch.setattr(minionwait, "time", Time)
    monkeypatch.setattr(run, "time", Time)
    monkeypatch.setattr(minionwait, "Pings", Played)
    progress = lambda stage, **figures: cloud.told.append((stage, figures.get("detail", "")))  # noqa: E731
    cloud.master = Cloud(opts=cloud.opts, settings=cloud.master.settings, progress=progress)
    monkeypatch.setattr("saltvirt.vm.create.master.many.builds.time", Time)
    return cloud


def failed(cloud, **given):
    """Return the reasons of the VMs that failed, and the VMs that answered."""
    with pytest.raises(NotAllBuilt) as caught:
        run.deploy_many(cloud.master, call(wait=True, wait_s=300, **given))
    return caught.value.table["failed"], caught.value.table.get("seconds", {})


def waiting(cloud):
    """Return the lines of progress of the wait, without the first."""
    return [detail for stage, detail in cloud.told if stage == "Waiting"][1:]


def test_guests_that_say_that_they_have_no_minion_are_not_waited_for(played):
    played.consoles = {"web1": f"booting\n[ 12.3] {LINE}\n", "web2": "login: "}
    played.answers = {"web2": 100, "web3": 10}

    reasons, seconds = failed(played, count=3)

    assert set(reasons) == {"web1"} and set(seconds) == {"web2", "web3"}
    assert "it is built on" in reasons["web1"] and minionpackages.COMMAND in reasons["web1"]
    assert "says that there is no salt-minion" in reasons["web1"]
    assert played.clock < 150, "the others were waited for, and this one was not"


def test_the_others_that_say_so_are_found_at_once(played):
    count = 3 * minionwait._CONSOLES_AT_ONCE
    played.consoles = {f"web{n}": LINE for n in range(1, count + 1)}

    reasons, _seconds = failed(played, count=count, per_host=8)

    assert len(reasons) == count
    assert played.clock < 60


def test_one_line_is_shown_twice_a_minute(played):
    played.consoles = {"web1": "first\n\x1b[2J[ OK ] Reached target network.\n\n"}
    played.answers = {"web1": 70, "web2": 5}

    assert run.deploy_many(played.master, call(wait=True, wait_s=300, count=2))["seconds"]

    assert [line.partition(";")[0] for line in waiting(played)] == [
        "for 1 minion more, 30 s so far",
        "for 1 minion more, 60 s so far",
    ]
    assert all("console of web1: " in line and line.isprintable() for line in waiting(played))
    assert played.read == {"web1": 2}


def test_of_very_many_only_some_are_read_at_a_time_and_each_in_its_turn(played):
    count = minionwait._CONSOLES_AT_ONCE + 2
    played.answers = {f"web{n}": 70 for n in range(1, count + 1)}

    run.deploy_many(played.master, call(wait=True, wait_s=300, count=count, per_host=8))

    assert len(played.read) == count and sum(played.read.values()) == 32


def test_a_console_that_cannot_be_read_keeps_no_one_from_waiting(played):
    played.consoles = {"web1": MasterError("no answer")}
    played.answers = {"web1": 40}

    done = run.deploy_many(played.master, call(wait=True, wait_s=300, count=1))

    assert done["built"].keys() == {"web1"}
    assert waiting(played) == ["for 1 minion more, 30 s so far"]
