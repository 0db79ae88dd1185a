"""Finding: force, beside a host that answers and says that it is at the order."""

import contextlib

import pytest
from saltvirt.errors import VirtError
from saltvirt.fleet import minions
from saltvirt.fleet.hosts import HostSilent


def test_force_does_not_pass_over_a_host_that_says_it_is_at_it(cloud, monkeypatch):
    cloud.hosts.is_queueing("virt.init")
    monkeypatch.setattr(minions, "refuse", lambda *_args: minions.RUNNING)
    with pytest.raises(HostSilent):
        cloud.init(host="hyper1")
    cloud.hosts.queues = None

    with contextlib.suppress(VirtError):
        cloud.init(host="hyper2", force=True)
    # It answers all the while, and had begun it: now it has its record, and its VM.
    cloud.hosts.late()

    assert cloud.hosts.where("web") == ["hyper1"]
