"""How long the master waits for hosts with long jobs, on a fake clock."""

import pytest
import test_rpc_waits
from saltvirt.cluster.rpc import minions
from saltvirt.storage.master import images
from test_rpc_waits import HOSTS, Bus

cloud, messages, silent_bus = (
    test_rpc_waits.cloud,
    test_rpc_waits.messages,
    test_rpc_waits.bus,
)
LIMIT_S = 1800


class LongBus(Bus):
    """A bus with hosts that answer saltutil.find_job."""

    alive, busy = (*HOSTS,), (*HOSTS,)

    def pub(self, targets, fun, arg, **options):
        """Send a job; answers to saltutil.find_job come at once."""
        if not isinstance(arg[0], dict) or arg[0].get("fun") != "saltutil.find_job":
            return super().pub(targets, fun, arg, **options)
        saved = self.answers_s, self.value
        self.answers_s = dict.fromkeys(self.alive, 0.1)
        self.value = {host: {"jid": "0"} if host in self.busy else {} for host in HOSTS}
        try:
            return super().pub(targets, fun, arg, **options)
        finally:
            self.answers_s, self.value = saved


@pytest.fixture
def bus(silent_bus):
    """Three hosts that all work on their job."""
    silent_bus.__class__ = LongBus
    return silent_bus


def answering_hosts(master):
    """Return the hosts that answered a long job."""
    replies = minions.ask(master, HOSTS, "virt.load", [1], timeout_s=LIMIT_S, follow=True)
    return [host for host, reply in replies.items() if reply.ok]


def test_a_host_that_works_on_the_job_is_waited_for(bus, cloud):
    bus.answers_s = {"hyper1": 1, "hyper2": 900, "hyper3": 1700}

    assert answering_hosts(cloud(is_reading=False)) == HOSTS
    assert bus.now == pytest.approx(1700, abs=1)


def test_a_dead_host_does_not_delay_the_command(bus, cloud):
    bus.answers_s, bus.alive = {"hyper1": 1, "hyper2": 200}, HOSTS[:2]

    assert answering_hosts(cloud(is_reading=False)) == HOSTS[:2]
    assert bus.now == pytest.approx(200, abs=20)


def test_with_all_hosts_dead_the_wait_ends_within_a_minute(bus, cloud):
    bus.answers_s, bus.alive = {}, ()

    assert answering_hosts(cloud(is_reading=False)) == []
    assert bus.now <= 60


def test_a_host_that_no_longer_works_on_the_job_is_not_waited_for(bus, cloud):
    bus.answers_s, bus.busy = {"hyper1": 1, "hyper2": 1}, ()

    assert answering_hosts(cloud(is_reading=False)) == HOSTS[:2]
    assert bus.now <= 60


def test_a_host_that_never_finishes_has_the_agreed_time(bus, cloud):
    assert answering_hosts(cloud(is_reading=False)) == HOSTS[:2]
    assert bus.now == pytest.approx(LIMIT_S, abs=1)


def test_a_pull_of_an_image_names_dead_hosts_and_counts_the_others_once(bus, cloud, messages):
    bus.answers_s, bus.alive = {"hyper1": 1, "hyper2": 200}, HOSTS[:2]
    bus.value = dict.fromkeys(HOSTS, "d" * 64)
    listed = images.inventory.Survey
    answers = dict.fromkeys(HOSTS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            images, "survey_images", lambda *_: listed(answers=answers, failed={}, unreachable=[])
        )
        with pytest.raises(images.MasterError) as caught:
            images.pull(cloud(is_reading=False), "salt://a.qcow2", None, {})

    assert "hyper3: does not answer" in str(caught.value)
    assert set(caught.value.table["pulled"]) == set(HOSTS[:2])
    assert "1 of 3 hypervisors" in messages[0] and not any(
        "3 of 3" in message for message in messages
    )
