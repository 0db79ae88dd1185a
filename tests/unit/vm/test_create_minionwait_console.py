"""While a minion is waited for, its VM's console is looked at: it may say that none will come."""

import fleetkit
import pytest
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import minions, unsignedreplies
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed
from saltvirt.core.errors import MasterError
from saltvirt.seeding.shared import minionpackages
from saltvirt.vm.create.master import deploy, minionwait

LINE = minionpackages.NO_MINION


@pytest.fixture
def cloud(monkeypatch, opts, tmp_path):
    """Hosts whose VM prints ``console`` and whose minion does not answer before ``answers_at``."""
    made = fleetkit.cloud(monkeypatch, opts, tmp_path)
    made.told, made.console, made.asked = [], "", []
    made.clock, made.answers_at = 0.0, 1e9
    usual = made.hosts.ask

    def ask(cloud, targets, fun, arg=(), *args, **_options):
        if fun != "virt.console_log":
            return usual(cloud, targets, fun, arg, *args)
        made.asked.append(made.clock)
        if isinstance(made.console, Exception):
            raise made.console
        return {host: minions.Reply(minion=host, value=made.console) for host in targets}

    class Time:
        """A clock that each question moves on by five seconds."""

        @staticmethod
        def monotonic():
            return made.clock

    class Played(unsignedreplies.Pings):
        def answered(self, wanted, *, now=False):
            made.clock += 5
            return set(wanted) if made.clock >= made.answers_at else set()

        def has_started(self, name):
            return False

    monkeypatch.setattr(minions, "ask", ask)
    monkeypatch.setattr(minionwait, "time", Time)
    monkeypatch.setattr(minionwait, "Pings", Played)
    progress = lambda stage, **figures: made.told.append((stage, figures.get("detail", "")))  # noqa: E731
    made.master = Cloud(opts=made.opts, settings=made.master.settings, progress=progress)
    return made


def deployed(cloud, **given):
    request = fleetkit.request(image="salt://a", wait=True, wait_s=300, **given)
    return deploy.deploy(cloud.master, request)


def waiting(cloud):
    """Return the lines of progress of the wait, without the first."""
    return [detail for stage, detail in cloud.told if stage == "Waiting"][1:]


@pytest.mark.parametrize("before", ["", "web login: ", "[   12.3] cloud-init[1]: "])
def test_a_guest_that_says_that_it_has_no_minion_is_not_waited_for(cloud, before):
    cloud.console = f"booting\n{before}{LINE}\nweb login: "

    with pytest.raises(
        HostCommandFailed, match="says that there is no salt-minion in its image"
    ) as why:
        deployed(cloud)

    assert cloud.clock < 60
    assert "runs on hyper1 and keeps its key" in str(why.value)
    assert "salt-run virt.purge web" in str(why.value)
    assert minionpackages.COMMAND in str(why.value)
    assert why.value.table["console"][0] == "booting"
    assert not any("virt.purge" in str(sent) for sent in cloud.hosts.sent), "nothing is removed"


@pytest.mark.parametrize(
    "line",
    [
        "salt-virt: there is no salt-minion in this image",
        "E: Unable to locate package salt-minion",
        LINE.replace("salt-virt", "salt"),
    ],
)
def test_no_other_line_ends_the_wait(cloud, line):
    cloud.console = line

    with pytest.raises(HostCommandFailed, match="does not answer after 300 s"):
        deployed(cloud)


def test_the_last_line_of_the_console_is_shown_twice_a_minute(cloud):
    cloud.console, cloud.answers_at = "first\n[ OK ] Reached target network.\n\n", 100

    assert deployed(cloud)["minion"] == "answers"

    assert cloud.asked == [30, 60, 90]
    assert waiting(cloud) == [
        f"{seconds} s so far; its console: [ OK ] Reached target network."
        for seconds in (30, 60, 90)
    ]


def test_what_a_guest_prints_steers_no_terminal_and_is_one_short_line(cloud):
    cloud.console, cloud.answers_at = f"\x1b]0;evil\x07\x1b[2J\rweb: Done\x1b[31m {'x' * 900}", 40

    deployed(cloud)

    (shown,) = waiting(cloud)
    assert shown.isprintable() and len(shown) < 150


@pytest.mark.parametrize("console", ["", "\n\n", MasterError("no answer")])
def test_a_console_that_says_nothing_keeps_no_one_from_waiting(cloud, console):
    cloud.console, cloud.answers_at = console, 40

    assert deployed(cloud)["minion"] == "answers"

    assert waiting(cloud) == ["30 s so far"]
