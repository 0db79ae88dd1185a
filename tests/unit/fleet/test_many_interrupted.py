"""Many VMs at once, interrupted: what is being built comes to its end, no other begins."""

import threading
import time

import pytest
from fleetkit import is_tidy
from saltvirt.fleet.many import builds
from saltvirt.fleet.many.outcome import NotAllBuilt
from test_init_many import built


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
