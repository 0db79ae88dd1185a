"""How long hosts that are at something long are waited for, on a clock that is set."""

import pytest
import test_rpc_waits
from saltvirt.cluster.rpc import minions
from saltvirt.storage.master import images
from test_rpc_waits import HOSTS, Bus

cloud, said, silent_bus = (
    test_rpc_waits.cloud,
    test_rpc_waits.said,
    test_rpc_waits.bus,
)
LIMIT_S = 1800


class LongBus(Bus):
    """A bus whose hosts, asked for it, say whether they are at their job."""

    alive, busy = (*HOSTS,), (*HOSTS,)

    def pub(self, targets, fun, arg, **options):
        """Send a job; of a question whether they are at one, the answers come at once."""
        if not isinstance(arg[0], dict) or arg[0].get("fun") != "saltutil.find_job":
            return super().pub(targets, fun, arg, **options)
        kept = self.answers_s, self.value
        self.answers_s = dict.fromkeys(self.alive, 0.1)
        self.value = {host: {"jid": "0"} if host in self.busy else {} for host in HOSTS}
        try:
            return super().pub(targets, fun, arg, **options)
        finally:
            self.answers_s, self.value = kept


@pytest.fixture
def bus(silent_bus):
    """Three hosts that all are at it."""
    silent_bus.__class__ = LongBus
    return silent_bus


def followed(master):
    """Return who answered what takes long."""
    found = minions.ask(master, HOSTS, "virt.load", [1], timeout_s=LIMIT_S, follow=True)
    return [host for host, reply in found.items() if reply.ok]


def test_who_says_that_it_is_at_it_is_waited_for(bus, cloud):
    bus.answers_s = {"hyper1": 1, "hyper2": 900, "hyper3": 1700}

    assert followed(cloud(is_reading=False)) == HOSTS
    assert bus.now == pytest.approx(1700, abs=1)


def test_who_has_died_holds_up_nobody(bus, cloud):
    bus.answers_s, bus.alive = {"hyper1": 1, "hyper2": 200}, HOSTS[:2]

    assert followed(cloud(is_reading=False)) == HOSTS[:2]
    assert bus.now == pytest.approx(200, abs=20)


def test_where_all_have_died_it_is_over_within_a_minute(bus, cloud):
    bus.answers_s, bus.alive = {}, ()

    assert followed(cloud(is_reading=False)) == []
    assert bus.now <= 60


def test_who_is_alive_and_not_at_it_any_more_is_given_up(bus, cloud):
    bus.answers_s, bus.busy = {"hyper1": 1, "hyper2": 1}, ()

    assert followed(cloud(is_reading=False)) == HOSTS[:2]
    assert bus.now <= 60


def test_who_is_at_it_for_ever_has_the_time_agreed(bus, cloud):
    assert followed(cloud(is_reading=False)) == HOSTS[:2]
    assert bus.now == pytest.approx(LIMIT_S, abs=1)


def test_of_an_image_it_is_said_who_has_died_and_the_others_are_counted_once(bus, cloud, said):
    bus.answers_s, bus.alive = {"hyper1": 1, "hyper2": 200}, HOSTS[:2]
    bus.value = dict.fromkeys(HOSTS, "d" * 64)
    listed = images.inventory.Survey
    told = dict.fromkeys(HOSTS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            images, "survey_images", lambda *_: listed(answers=told, failed={}, unreachable=[])
        )
        with pytest.raises(images.MasterError) as caught:
            images.pull(cloud(is_reading=False), "salt://a.qcow2", None, {})

    assert "hyper3: does not answer" in str(caught.value)
    assert set(caught.value.table["pulled"]) == set(HOSTS[:2])
    assert "1 of 3 hypervisors" in said[0] and not any("3 of 3" in one for one in said)
