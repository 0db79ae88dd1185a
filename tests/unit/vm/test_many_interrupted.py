"""Many VMs at once, interrupted: what is being built comes to its end, no other begins."""

import os
import signal
import threading
import time

import pytest
from fleetkit import is_tidy
from saltvirt.cluster import minionkeys
from saltvirt.core import undo
from saltvirt.core.errors import MasterError
from saltvirt.vm.create.master.many import builds, run
from saltvirt.vm.create.master.many.manyrequest import NotAllBuilt
from test_many_run import built, failing


@pytest.fixture
def begun(cloud):
    """Set when a host has begun a build; each takes a moment."""
    event, usual = threading.Event(), cloud.hosts.build

    def build(host, name, *args, **kwargs):
        event.set()
        time.sleep(0.2)
        usual(host, name, *args, **kwargs)

    cloud.hosts.does["virt.init"] = build
    return event


@pytest.mark.parametrize(
    ("where", "name", "at", "count"),
    [
        pytest.param(builds, "wait", 1, 3, id="waiting"),
        pytest.param(builds.threads, "begin", 2, 1, id="beginning"),
    ],
)
def test_an_interruption_begins_no_more_and_says_which(
    cloud, monkeypatch, begun, where, name, at, count
):
    real, calls = getattr(where, name), []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == at:
            begun.wait()
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(where, name, interrupted)
    with pytest.raises(NotAllBuilt, match="the command was interrupted") as caught:
        built(cloud, count=12, per_host=1)

    table = caught.value.table
    assert len(table["built"]) == count
    assert len(table["failed"]) == 12 - count
    assert is_tidy(cloud)


@pytest.mark.parametrize(
    ("cut", "line"),
    [
        (KeyboardInterrupt(), "as the command was interrupted"),
        (MasterError("the Salt master does not answer: it is restarted"), "it is restarted"),
    ],
)
def test_whatever_ends_the_wait_it_is_said_what_is_built_and_who_has_answered(
    cloud, monkeypatch, cut, line
):
    def cut_off(_cloud, _until, out, **_options):
        out["web1"] = time.monotonic()
        raise cut

    monkeypatch.setattr(run.minionwait, "wait_for_minions", cut_off)
    with pytest.raises(NotAllBuilt, match=f"not waited for any longer.*{line}") as caught:
        built(cloud, count=2, wait=True)

    table = caught.value.table
    assert (sorted(table["built"]), list(table["failed"])) == (["web1", "web2"], ["web2"])
    assert list(table["seconds"]) == ["web1"]


def test_all_or_nothing_is_nothing_if_the_master_fails_while_minions_are_waited_for(
    cloud, monkeypatch
):
    def cut_off(*_args, **_options):
        raise MasterError("the Salt master does not answer")

    monkeypatch.setattr(run.minionwait, "wait_for_minions", cut_off)
    with pytest.raises(NotAllBuilt, match="2 VMs that this call had built are purged again"):
        built(cloud, count=2, wait=True, whole=True)

    assert cloud.hosts.where("web1") == cloud.hosts.where("web2") == []
    assert is_tidy(cloud)


def test_all_or_nothing_purges_all_that_it_has_built_whoever_interrupts_that(cloud):
    failing(cloud, "web3")
    usual = cloud.hosts.remove

    def remove(*args, **kwargs):
        # The first signal: nobody has interrupted the builds.
        os.kill(os.getpid(), signal.SIGTERM)
        usual(*args, **kwargs)

    cloud.hosts.does["virt.purge"] = remove
    with undo.on_signals(), pytest.raises(NotAllBuilt, match="purged again") as caught:
        built(cloud, count=4, whole=True)

    table = caught.value.table
    assert table["purged"] and table["built"] == {} and "left" not in table
    assert [cloud.hosts.where(f"web{n}") for n in range(1, 5)] == [[]] * 4
    assert is_tidy(cloud)


def test_all_or_nothing_says_what_is_left_though_the_masters_disk_is_full(cloud, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    failing(cloud, "web3")
    monkeypatch.setattr(minionkeys, "delete", full)

    with pytest.raises(NotAllBuilt, match=r"could not be purged again .*No space left") as caught:
        built(cloud, count=4, whole=True)

    table = caught.value.table
    assert table["left"] and not {*table["left"]} & {*table.get("purged", {})}
