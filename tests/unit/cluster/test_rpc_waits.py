"""How long the master waits for silent hosts, on a fake clock, and since when they are silent."""

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
    """Stand for Salt's client: no real host answers at a chosen time."""

    def __init__(self):
        self.event, self.now, self.calls, self.is_cached = self, 0.0, [], []
        # answers_s: {host: seconds after a question}, without a host that never answers.
        # jobs: the same for saltutil.find_job, with its answer.
        # done_s: seconds after which a host that has answered reports the end of its job.
        self.answers_s, self.jobs, self.done_s = {}, {}, None
        # sending_s: how long the master takes to send a saltutil.find_job.
        # deaf_s: {host: time before which it gets none}.
        self.sending_s, self.deaf_s = 0, {}
        self.value = {host: {} for host in HOSTS}
        self._coming = []

    def pub(self, targets, fun, arg, nocache=False, **_options):
        """Send a job; its answers come later."""
        self.is_cached.append(not nocache)
        jid = str(len(self.calls))
        self.calls.append((fun, targets))
        self.now += self.sending_s if fun == "saltutil.find_job" else 0
        for host in targets:
            if fun == "saltutil.find_job":
                delay_s, packed_answer = self.jobs.get(host, (None, None))
                if self.now >= self.answers_s.get(host, 1e9):
                    delay_s, packed_answer = self.done_s, {}
                if self.now < self.deaf_s.get(host, 0):
                    delay_s = None
            else:
                delay_s = self.answers_s.get(host)
                answer = signed.SignedAnswer(minion=host, about=jid, value=self.value[host])
                packed_answer = signed.pack(answer, keypairs.named(host)[1].encode())
            if delay_s is not None:
                event = {
                    "tag": f"salt/job/{jid}/ret/{host}",
                    "data": {"id": host, "return": packed_answer},
                }
                self._coming.append((self.now + delay_s, event))
        self._coming.sort(key=lambda answer: answer[0])
        return {"jid": jid, "minions": targets}

    def fire(self, at, event):
        """Add an event; events are added in the order of time."""
        self._coming.append((at, event))

    def get_event(self, wait, tag, **_options):
        """Return the next event that has come, or let the time pass."""
        until = self.now + wait
        while self._coming and self._coming[0][0] <= until:
            at, event = self._coming.pop(0)
            self.now = max(self.now, at)
            if event["tag"].startswith(tag):
                return event
        self.now = until
        return None

    def questions(self):
        """Return the number of questions to the hosts, without Salt's own."""
        return sum(fun == "virt.signed" for fun, _targets in self.calls)


@pytest.fixture
def bus(opts, monkeypatch):
    """Three hosts; the first two answer at once, the last never."""
    new_bus = Bus()
    for host in HOSTS:
        minionkeys.accept(opts, host, keypairs.named(host)[0])
    new_bus.answers_s = {"hyper1": 0.2, "hyper2": 0.3}
    monkeypatch.setattr(Cloud, "client", lambda _self: contextlib.nullcontext(new_bus))
    clock = SimpleNamespace(monotonic=lambda: new_bus.now, time=lambda: 1e9 + new_bus.now)
    for module in (minions, replies, waits, inventory, eventbus):
        monkeypatch.setattr(module, "time", clock)
    return new_bus


@pytest.fixture
def messages():
    """The messages that the user has read."""
    return []


@pytest.fixture
def cloud(opts, messages):
    """A function that returns a command of a master."""

    def made(is_reading):
        def progress(_stage, detail=""):
            messages.append(detail)

        settings = MasterSettings(timeout_s=10, hypervisors=HOSTS)
        return Cloud(opts=opts, settings=settings, progress=progress, is_reading=is_reading)

    return made


def survey(master, **options):
    """Ask all hosts."""
    return inventory.survey(master, HOSTS, "virt.vm_state", **options)


def test_a_silent_host_delays_a_reading_command_by_two_seconds(bus, cloud):
    answers = survey(cloud(is_reading=True))

    assert answers.unreachable == ["hyper3"] and sorted(answers.answers) == HOSTS[:2]
    assert 1.7 <= bus.now <= 2.1


def test_with_all_answers_there_is_no_wait(bus, cloud):
    bus.answers_s["hyper3"] = 0.1

    assert survey(cloud(is_reading=True)).unreachable == []
    assert bus.now == pytest.approx(0.3, abs=0.11) and bus.questions() == len(bus.calls) == 1


def test_a_reading_command_waits_for_a_slow_host_that_works_on_the_job(bus, cloud):
    bus.answers_s["hyper3"], bus.jobs["hyper3"] = 7, (0.3, {"jid": "0"})

    answers = survey(cloud(is_reading=True))

    assert answers.unreachable == [] and sorted(answers.answers) == HOSTS
    # The hosts that have answered are asked about the end of their jobs, too.
    assert bus.calls[-1] == ("saltutil.find_job", HOSTS)


def test_before_the_first_answer_hosts_are_not_asked_about_their_jobs(bus, cloud):
    """Many hosts that start at once on few processors would take longer still."""
    bus.answers_s = {"hyper1": 2.3, "hyper2": 2.6, "hyper3": 2.9}

    assert survey(cloud(is_reading=True)).unreachable == []
    assert bus.now == pytest.approx(2.9, abs=0.11) and len(bus.calls) == 1


@pytest.mark.parametrize(("done_s", "waited_s"), [(0.1, 6 + 1.5), (0.8, 6 + 1.5), (None, 6 + 6)])
def test_the_time_of_slow_answers_sets_the_wait_for_a_silent_host(bus, cloud, done_s, waited_s):
    bus.answers_s = {"hyper1": 5.9, "hyper2": 6}
    bus.done_s = done_s
    patient = MasterSettings(timeout_s=20, hypervisors=HOSTS)

    answers = survey(replace(cloud(is_reading=True), settings=patient))

    assert answers.unreachable == ["hyper3"] and sorted(answers.answers) == HOSTS[:2]
    assert waited_s <= bus.now <= waited_s + 0.3
    # Once before the first answer, and once after it.
    assert [fun for fun, _targets in bus.calls].count("saltutil.find_job") == 2


def test_a_running_job_does_not_shorten_the_wait_for_others(bus, cloud):
    bus.answers_s = {"hyper1": 3.9, "hyper2": 4, "hyper3": 7}
    # Asked again after their answers, they do not report that their jobs have ended.
    bus.jobs = {host: (2 + n, {"jid": "0"}) for n, host in enumerate(HOSTS[:2])}

    assert survey(cloud(is_reading=True)).unreachable == []


def test_late_answers_extend_the_wait_for_others(bus, cloud):
    bus.answers_s = {"hyper1": 1.4, "hyper2": 2.7, "hyper3": 4.0}
    bus.jobs, bus.done_s = {"hyper1": (0.3, {"jid": "0"})}, 0.1

    assert survey(cloud(is_reading=True)).unreachable == []


def test_a_host_has_its_full_time_to_answer_a_slow_master(bus, cloud):
    bus.answers_s = {"hyper1": 3, "hyper2": 3.2, "hyper3": 6.2}
    bus.jobs, bus.deaf_s = {"hyper3": (0.4, {"jid": "0"})}, {"hyper3": 3}
    bus.done_s, bus.sending_s = 0.1, 1.9

    assert survey(cloud(is_reading=True)).unreachable == []


@pytest.mark.parametrize("stamp", ["+00:00", ""])
def test_a_flood_of_foreign_events_does_not_extend_the_wait(bus, cloud, stamp):
    """So it is while all guests of a cloud apply states; 3006 stamps events without a zone."""
    for n in range(4000):
        at = n / 200
        event_times = (
            datetime.fromtimestamp(1e9 + at, timezone.utc).replace(tzinfo=None).isoformat() + stamp
        )
        bus.fire(at, {"tag": "salt/job/9/prog/guest", "data": {"_stamp": event_times}})

    assert survey(cloud(is_reading=True)).unreachable == ["hyper3"]
    assert 1.7 <= bus.now <= 2.1


def test_a_master_that_cannot_send_find_job_still_has_the_answers(bus, cloud, monkeypatch):
    sent = bus.pub

    def pub(targets, fun, *args, **options):
        if fun == "saltutil.find_job":
            raise SaltClientError("the master is busy")
        return sent(targets, fun, *args, **options)

    monkeypatch.setattr(bus, "pub", pub)

    answers = survey(cloud(is_reading=True))

    assert answers.unreachable == ["hyper3"] and sorted(answers.answers) == HOSTS[:2]


def test_a_host_that_never_finishes_its_job_is_waited_for_the_agreed_time(bus, cloud):
    bus.jobs["hyper3"] = (0.3, {"jid": "0"})
    # Another host is silent, and a guest's minion answers in the host's name.
    del bus.answers_s["hyper2"]
    bus.fire(1.7, {"tag": "salt/job/1/ret/hyper3", "data": {"id": "hyper3", "return": {}}})

    assert survey(cloud(is_reading=True)).unreachable == HOSTS[1:]
    assert 10 <= bus.now <= 10.2


def test_an_idle_host_has_two_seconds_to_answer(bus, cloud):
    bus.jobs["hyper3"] = (0.5, {})
    bus.answers_s["hyper3"] = 2

    assert survey(cloud(is_reading=True)).unreachable == []


def test_a_steady_stream_of_answers_is_read_to_its_end(bus, cloud):
    bus.answers_s = {"hyper1": 1.9, "hyper2": 3.8, "hyper3": 5.7}

    assert survey(cloud(is_reading=True)).unreachable == []


def test_with_slow_hosts_the_last_has_twice_the_time_of_the_others(bus, cloud):
    bus.answers_s = {"hyper1": 3, "hyper2": 3.5, "hyper3": 6.8}

    assert survey(cloud(is_reading=True)).unreachable == []


def test_until_the_first_answer_all_hosts_have_the_whole_time(bus, cloud):
    bus.answers_s = {"hyper2": 9}

    assert sorted(survey(cloud(is_reading=True)).answers) == ["hyper2"]
    assert 10 <= bus.now <= 10.2


def test_a_changing_command_waits_once_for_all_its_surveys(bus, cloud):
    master = cloud(is_reading=False)

    assert survey(master).unreachable == ["hyper3"] and 10 <= bus.now <= 10.2
    begun = bus.now
    assert [survey(master).unreachable for _number in range(3)] == [["hyper3"]] * 3
    assert bus.now - begun < 1.2


def test_a_host_that_answers_again_is_waited_for_again(bus, cloud):
    master = cloud(is_reading=False)
    survey(master)
    bus.answers_s["hyper3"] = 0.1

    assert survey(master).unreachable == []
    bus.answers_s["hyper3"] = 5
    assert survey(master).unreachable == []


def test_after_a_minute_a_silent_host_is_waited_for_briefly(bus, cloud):
    master = cloud(is_reading=False)
    survey(master)
    for _second in range(8):
        bus.now += 10
        survey(master)
    begun = bus.now
    bus.now += 61
    bus.answers_s["hyper3"] = 1.5

    assert survey(master).unreachable == [] and bus.now - begun < 64


def test_a_changing_command_waits_for_a_slow_host(bus, cloud):
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
def test_a_vm_that_no_host_has_may_be_on_the_silent_host(bus, cloud, is_reading, most_s):
    bus.value = dict.fromkeys(HOSTS, NOT_HERE)

    with pytest.raises(NoSuchVm, match="not asked: hyper3"):
        locate(cloud(is_reading), "web", Purpose.ACT)
    assert most_s - 1.5 <= bus.now <= most_s


def test_a_changing_command_finds_a_vm_on_a_slow_host(bus, cloud):
    bus.value = {"hyper1": NOT_HERE, "hyper2": NOT_HERE, "hyper3": HERE}
    bus.answers_s["hyper3"] = 8

    assert locate(cloud(is_reading=False), "web", Purpose.ACT).host == "hyper3"


def test_a_silent_host_is_reported_once_with_its_time(bus, cloud, messages):
    survey(cloud(is_reading=True))
    bus.now += 3 * 3600
    master = cloud(is_reading=True)
    survey(master)
    survey(master)

    assert messages == [
        "2 of 3 answered; silent: hyper3",
        "2 of 3 answered; silent: hyper3 (for 3 h)",
    ]


def test_progress_counts_the_answers_of_many_hosts(bus, cloud, messages, monkeypatch):
    monkeypatch.setattr(replies, "_MANY", 3)
    bus.answers_s = {"hyper1": 0.5, "hyper2": 3.5, "hyper3": 4}

    survey(cloud(is_reading=False))
    assert messages == ["2 of 3 answered"]

    # A caller that takes each reply reports its progress itself.
    replies_taken = []
    survey(replace(cloud(is_reading=False), on_reply=replies_taken.append))
    assert [reply.minion for reply in replies_taken] == HOSTS and len(messages) == 1


def test_after_ten_seconds_progress_names_the_missing_hosts(bus, cloud, messages):
    minions.ask(cloud(is_reading=False), HOSTS, "virt.vm_state", timeout_s=40)

    assert messages == ["for hyper3, at most 30 s more"]
    assert 40 <= bus.now <= 41


def test_answering_and_removed_hosts_are_no_longer_recorded_as_silent(bus, cloud, opts):
    survey(cloud(is_reading=True))
    path = waits._file(opts).path
    assert list(json.loads(path.read_text())["since"]) == ["hyper3"]
    bus.answers_s["hyper3"] = 0.1

    survey(cloud(is_reading=True))

    assert json.loads(path.read_text())["since"] == {}
    silent_hosts = waits.record_silence(opts, ["old"], ["old"], lambda _host: True)
    assert list(silent_hosts) == ["old"]
    assert waits.record_silence(opts, HOSTS, ["hyper1"], HOSTS.__contains__).keys() == {"hyper1"}


def test_a_line_of_many_names_some_and_counts_the_others():
    silent_hosts = [f"h{n:04}" for n in range(1013)]

    line = waits.silence_line(2000, silent_hosts, {}, 0)

    assert line.startswith("987 of 2,000 answered; silent: h0000, h0001, ")
    assert line.endswith("h0009 and 1,003 more")


def test_an_unreadable_file_is_replaced(opts, caplog):
    path = waits._file(opts).path
    path.parent.mkdir(parents=True)
    path.write_text("{")

    assert waits.record_silence(opts, HOSTS, ["hyper1"], HOSTS.__contains__).keys() == {"hyper1"}
    assert "is written anew" in caplog.text and json.loads(path.read_text())["version"] == 1


def test_the_job_cache_keeps_answers_of_orders_but_not_of_questions(bus, cloud):
    survey(cloud(is_reading=True))
    assert [fun for fun, _targets in bus.calls] == ["virt.signed", "saltutil.find_job"]

    assert minions.order(cloud(is_reading=False), "hyper1", "virt.start", ["web1"], {}).ok

    assert bus.is_cached == [False, False, True]
