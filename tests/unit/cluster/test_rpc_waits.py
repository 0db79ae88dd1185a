"""How long silent hosts are waited for, on a clock that is set; and since when they are silent."""

import contextlib
import json
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace

import keypairs
import pytest
from salt.exceptions import SaltClientError
from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose
from saltvirt.cluster.rpc import eventbus, minions, replies, waits
from saltvirt.core.crypto import signed
from saltvirt.core.errors import NoSuchVm
from saltvirt.core.options.config import MasterSettings

HOSTS = ["hyper1", "hyper2", "hyper3"]
NOT_HERE = {"state": None, "building": False, "unfinished": False}
HERE = {"state": "running", "building": False, "unfinished": False, "uuid": "1"}


class Bus:
    """Stand for Salt's client: when a host answers cannot be had of a real one at will."""

    def __init__(self):
        self.event, self.now, self.asked, self.kept = self, 0.0, [], []
        # {host: seconds after a question}, nothing for never; the same of saltutil.find_job, with
        # whether the host is at the job.
        # After how many seconds one who has answered says that it is not at it any more.
        self.answers_s, self.at_it, self.done_s = {}, {}, None
        # How long the master takes to send a saltutil.find_job; who hears of none before when.
        self.sending_s, self.deaf_s = 0, {}
        self.value = {host: {} for host in HOSTS}
        self._coming = []

    def pub(self, targets, fun, arg, nocache=False, **_options):
        """Send a job; its answers come later."""
        self.kept.append(not nocache)
        jid = str(len(self.asked))
        self.asked.append((fun, targets))
        self.now += self.sending_s if fun == "saltutil.find_job" else 0
        for host in targets:
            if fun == "saltutil.find_job":
                late_s, said = self.at_it.get(host, (None, None))
                if self.now >= self.answers_s.get(host, 1e9):
                    late_s, said = self.done_s, {}
                if self.now < self.deaf_s.get(host, 0):
                    late_s = None
            else:
                late_s = self.answers_s.get(host)
                one = signed.SignedAnswer(minion=host, about=jid, value=self.value[host])
                said = signed.pack(one, keypairs.named(host)[1].encode())
            if late_s is not None:
                event = {"tag": f"salt/job/{jid}/ret/{host}", "data": {"id": host, "return": said}}
                self._coming.append((self.now + late_s, event))
        self._coming.sort(key=lambda one: one[0])
        return {"jid": jid, "minions": targets}

    def fire(self, at, event):
        """Have an event come, in the order of time."""
        self._coming.append((at, event))

    def get_event(self, wait, tag, **_options):
        """Return the next event that has come, or have the time pass."""
        until = self.now + wait
        while self._coming and self._coming[0][0] <= until:
            at, event = self._coming.pop(0)
            self.now = max(self.now, at)
            if event["tag"].startswith(tag):
                return event
        self.now = until
        return None

    def questions(self):
        """Return how often the hosts were asked, whatever Salt itself was."""
        return sum(fun == "virt.signed" for fun, _targets in self.asked)


@pytest.fixture
def bus(opts, monkeypatch):
    """Three hosts; the first two answer at once, the last never."""
    made = Bus()
    for host in HOSTS:
        minionkeys.accept(opts, host, keypairs.named(host)[0])
    made.answers_s = {"hyper1": 0.2, "hyper2": 0.3}
    monkeypatch.setattr(Cloud, "client", lambda _self: contextlib.nullcontext(made))
    clock = SimpleNamespace(monotonic=lambda: made.now, time=lambda: 1e9 + made.now)
    for module in (minions, replies, waits, inventory, eventbus):
        monkeypatch.setattr(module, "time", clock)
    return made


@pytest.fixture
def said():
    """What the user has read."""
    return []


@pytest.fixture
def cloud(opts, said):
    """A function that makes a command of a master."""

    def made(is_reading):
        def progress(_stage, detail=""):
            said.append(detail)

        settings = MasterSettings(timeout_s=10, hypervisors=HOSTS)
        return Cloud(opts=opts, settings=settings, progress=progress, is_reading=is_reading)

    return made


def survey(master, **options):
    """Ask all hosts."""
    return inventory.survey(master, HOSTS, "virt.vm_state", **options)


def test_a_silent_host_costs_what_reads_two_seconds_more_than_the_others(bus, cloud):
    found = survey(cloud(is_reading=True))

    assert found.unreachable == ["hyper3"] and sorted(found.answers) == HOSTS[:2]
    assert 1.7 <= bus.now <= 2.1


def test_where_all_answer_nobody_is_waited_for(bus, cloud):
    bus.answers_s["hyper3"] = 0.1

    assert survey(cloud(is_reading=True)).unreachable == []
    assert bus.now == pytest.approx(0.3, abs=0.11) and bus.questions() == len(bus.asked) == 1


def test_a_slow_host_that_says_it_is_at_it_is_waited_for_by_what_reads_too(bus, cloud):
    bus.answers_s["hyper3"], bus.at_it["hyper3"] = 7, (0.3, {"jid": "0"})

    found = survey(cloud(is_reading=True))

    assert found.unreachable == [] and sorted(found.answers) == HOSTS
    # Those that have answered say whether one could.
    assert bus.asked[-1] == ("saltutil.find_job", HOSTS)


def test_as_long_as_nobody_has_answered_nobody_is_asked_what_keeps_him_from_it(bus, cloud):
    """As where many hosts begin at once, on few processors: it would take them longer still."""
    bus.answers_s = {"hyper1": 2.3, "hyper2": 2.6, "hyper3": 2.9}

    assert survey(cloud(is_reading=True)).unreachable == []
    assert bus.now == pytest.approx(2.9, abs=0.11) and len(bus.asked) == 1


@pytest.mark.parametrize(("done_s", "waited_s"), [(0.1, 6 + 1.5), (0.8, 6 + 1.5), (None, 6 + 6)])
def test_where_answers_take_long_those_who_gave_them_say_how_long_a_silent_one_may(
    bus, cloud, done_s, waited_s
):
    bus.answers_s = {"hyper1": 5.9, "hyper2": 6}
    bus.done_s = done_s
    patient = MasterSettings(timeout_s=20, hypervisors=HOSTS)

    found = survey(replace(cloud(is_reading=True), settings=patient))

    assert found.unreachable == ["hyper3"] and sorted(found.answers) == HOSTS[:2]
    assert waited_s <= bus.now <= waited_s + 0.3
    # Before anybody had answered, and after.
    assert [fun for fun, _targets in bus.asked].count("saltutil.find_job") == 2


def test_that_they_were_at_it_says_nothing_of_how_soon_others_could(bus, cloud):
    bus.answers_s = {"hyper1": 3.9, "hyper2": 4, "hyper3": 7}
    # Asked once more, now that they have answered, they do not say that they are done.
    bus.at_it = {host: (2 + n, {"jid": "0"}) for n, host in enumerate(HOSTS[:2])}

    assert survey(cloud(is_reading=True)).unreachable == []


def test_answers_that_come_after_the_last_question_have_others_waited_for(bus, cloud):
    bus.answers_s = {"hyper1": 1.4, "hyper2": 2.7, "hyper3": 4.0}
    bus.at_it, bus.done_s = {"hyper1": (0.3, {"jid": "0"})}, 0.1

    assert survey(cloud(is_reading=True)).unreachable == []


def test_where_the_master_is_slow_to_ask_a_host_has_its_time_to_say_that_it_is_at_it(bus, cloud):
    bus.answers_s = {"hyper1": 3, "hyper2": 3.2, "hyper3": 6.2}
    bus.at_it, bus.deaf_s = {"hyper3": (0.4, {"jid": "0"})}, {"hyper3": 3}
    bus.done_s, bus.sending_s = 0.1, 1.9

    assert survey(cloud(is_reading=True)).unreachable == []


@pytest.mark.parametrize("stamp", ["+00:00", ""])
def test_where_events_of_others_never_end_a_silent_host_costs_no_more(bus, cloud, stamp):
    """As while all guests of a cloud apply their states; 3006 stamps events without a zone."""
    for n in range(4000):
        at = n / 200
        fired = (
            datetime.fromtimestamp(1e9 + at, timezone.utc).replace(tzinfo=None).isoformat() + stamp
        )
        bus.fire(at, {"tag": "salt/job/9/prog/guest", "data": {"_stamp": fired}})

    assert survey(cloud(is_reading=True)).unreachable == ["hyper3"]
    assert 1.7 <= bus.now <= 2.1


def test_a_master_that_cannot_ask_who_is_at_it_has_the_answers_all_the_same(
    bus, cloud, monkeypatch
):
    sent = bus.pub

    def pub(targets, fun, *given, **options):
        if fun == "saltutil.find_job":
            raise SaltClientError("the master is busy")
        return sent(targets, fun, *given, **options)

    monkeypatch.setattr(bus, "pub", pub)

    found = survey(cloud(is_reading=True))

    assert found.unreachable == ["hyper3"] and sorted(found.answers) == HOSTS[:2]


def test_one_that_says_it_is_at_it_and_never_answers_is_waited_for_no_longer_than_agreed(
    bus, cloud
):
    bus.at_it["hyper3"] = (0.3, {"jid": "0"})
    # One more is silent, and a guest's minion takes that back in the host's name.
    del bus.answers_s["hyper2"]
    bus.fire(1.7, {"tag": "salt/job/1/ret/hyper3", "data": {"id": "hyper3", "return": {}}})

    assert survey(cloud(is_reading=True)).unreachable == HOSTS[1:]
    assert 10 <= bus.now <= 10.2


def test_one_that_is_alive_and_not_at_it_has_two_seconds_to_be_heard(bus, cloud):
    bus.at_it["hyper3"] = (0.5, {})
    bus.answers_s["hyper3"] = 2

    assert survey(cloud(is_reading=True)).unreachable == []


def test_answers_that_go_on_coming_are_all_heard(bus, cloud):
    bus.answers_s = {"hyper1": 1.9, "hyper2": 3.8, "hyper3": 5.7}

    assert survey(cloud(is_reading=True)).unreachable == []


def test_where_all_are_slow_the_last_has_as_long_again_as_the_others(bus, cloud):
    bus.answers_s = {"hyper1": 3, "hyper2": 3.5, "hyper3": 6.8}

    assert survey(cloud(is_reading=True)).unreachable == []


def test_until_anybody_answers_all_have_the_whole_time(bus, cloud):
    bus.answers_s = {"hyper2": 9}

    assert sorted(survey(cloud(is_reading=True)).answers) == ["hyper2"]
    assert 10 <= bus.now <= 10.2


def test_what_changes_something_waits_once_for_all_its_surveys(bus, cloud):
    master = cloud(is_reading=False)

    assert survey(master).unreachable == ["hyper3"] and 10 <= bus.now <= 10.2
    begun = bus.now
    assert [survey(master).unreachable for _again in range(3)] == [["hyper3"]] * 3
    assert bus.now - begun < 1.2


def test_one_that_is_back_is_heard_and_waited_for_again(bus, cloud):
    master = cloud(is_reading=False)
    survey(master)
    bus.answers_s["hyper3"] = 0.1

    assert survey(master).unreachable == []
    bus.answers_s["hyper3"] = 5
    assert survey(master).unreachable == []


def test_after_a_minute_one_that_was_silent_is_waited_for_briefly(bus, cloud):
    master = cloud(is_reading=False)
    survey(master)
    for _second in range(8):
        bus.now += 10
        survey(master)
    begun = bus.now
    bus.now += 61
    bus.answers_s["hyper3"] = 1.5

    assert survey(master).unreachable == [] and bus.now - begun < 64


def test_a_slow_host_is_not_dead_to_what_changes_something(bus, cloud):
    bus.answers_s["hyper3"] = 9

    assert survey(cloud(is_reading=False)).unreachable == []


@pytest.mark.parametrize(("is_hinted", "least_s", "most_s"), [(False, 1.5, 2.5), (True, 10, 11)])
def test_to_find_a_vm_a_host_that_may_have_it_too_is_waited_for_long(
    bus, cloud, opts, is_hinted, least_s, most_s
):
    bus.value = {"hyper1": HERE, "hyper2": NOT_HERE, "hyper3": NOT_HERE}
    if is_hinted:
        lastseen.record_move(opts, "web", "hyper3")

    assert locate(cloud(is_reading=False), "web", Purpose.ACT).host == "hyper1"
    assert least_s <= bus.now <= most_s


@pytest.mark.parametrize(("is_reading", "most_s"), [(True, 3), (False, 13)])
def test_a_vm_that_nobody_has_may_be_on_the_silent_one(bus, cloud, is_reading, most_s):
    bus.value = dict.fromkeys(HOSTS, NOT_HERE)

    with pytest.raises(NoSuchVm, match="not asked: hyper3"):
        locate(cloud(is_reading), "web", Purpose.ACT)
    assert most_s - 1.5 <= bus.now <= most_s


def test_a_vm_on_a_host_that_is_slow_is_found_by_what_changes_it(bus, cloud):
    bus.value = {"hyper1": NOT_HERE, "hyper2": NOT_HERE, "hyper3": HERE}
    bus.answers_s["hyper3"] = 8

    assert locate(cloud(is_reading=False), "web", Purpose.ACT).host == "hyper3"


def test_who_is_silent_is_said_once_with_for_how_long(bus, cloud, said):
    survey(cloud(is_reading=True))
    bus.now += 3 * 3600
    master = cloud(is_reading=True)
    survey(master)
    survey(master)

    assert said == [
        "2 of 3 answered; silent: hyper3",
        "2 of 3 answered; silent: hyper3 (for 3 h)",
    ]


def test_while_many_answer_it_is_said_how_many_have(bus, cloud, said, monkeypatch):
    monkeypatch.setattr(replies, "_MANY", 3)
    bus.answers_s = {"hyper1": 0.5, "hyper2": 3.5, "hyper3": 4}

    survey(cloud(is_reading=False))
    assert said == ["2 of 3 answered"]

    # Whoever takes each answer says it itself.
    taken = []
    survey(replace(cloud(is_reading=False), on_reply=taken.append))
    assert [reply.minion for reply in taken] == HOSTS and len(said) == 1


def test_after_ten_seconds_it_is_said_who_is_waited_for(bus, cloud, said):
    minions.ask(cloud(is_reading=False), HOSTS, "virt.vm_state", timeout_s=40)

    assert said == ["for hyper3, at most 30 s more"]
    assert 40 <= bus.now <= 41


def test_who_answers_again_and_who_is_not_a_host_any_more_is_forgotten(bus, cloud, opts):
    survey(cloud(is_reading=True))
    path = waits._file(opts).path
    assert list(json.loads(path.read_text())["since"]) == ["hyper3"]
    bus.answers_s["hyper3"] = 0.1

    survey(cloud(is_reading=True))

    assert json.loads(path.read_text())["since"] == {}
    asked = waits.record_silence(opts, ["old"], ["old"], lambda _host: True)
    assert list(asked) == ["old"]
    assert waits.record_silence(opts, HOSTS, ["hyper1"], HOSTS.__contains__).keys() == {"hyper1"}


def test_a_line_of_many_names_some_and_counts_the_others():
    silent = [f"h{n:04}" for n in range(1013)]

    line = waits.silence_line(2000, silent, {}, 0)

    assert line.startswith("987 of 2,000 answered; silent: h0000, h0001, ")
    assert line.endswith("h0009 and 1,003 more")


def test_a_file_that_cannot_be_read_is_written_anew(opts, caplog):
    path = waits._file(opts).path
    path.parent.mkdir(parents=True)
    path.write_text("{")

    assert waits.record_silence(opts, HOSTS, ["hyper1"], HOSTS.__contains__).keys() == {"hyper1"}
    assert "is written anew" in caplog.text and json.loads(path.read_text())["version"] == 1


def test_of_questions_the_job_cache_keeps_no_answer_and_of_orders_it_does(bus, cloud):
    survey(cloud(is_reading=True))
    assert [fun for fun, _targets in bus.asked] == ["virt.signed", "saltutil.find_job"]

    assert minions.order(cloud(is_reading=False), "hyper1", "virt.start", ["web1"], {}).ok

    assert bus.kept == [False, False, True]
