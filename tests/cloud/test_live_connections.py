"""A running VM's memory goes over two connections; over one, the target's QEMU takes no AES."""

import threading

import pytest
from cloudkit import TINY, ticks, wait
from movekit import move, where

VARIABLE = "GNUTLS_SYSTEM_PRIORITY_FILE=/etc/pki/qemu/salt-virt-gnutls.conf"
# QEMU's ports for moves.
PORTS = "'( dport >= :49152 and dport <= :49215 )'"
# So that a move is long enough to be looked at, in MiB/s.
SLOW = "max_bandwidth=16"


@pytest.fixture
def m2(cloud3):
    """A VM that runs on hyper1 and can move to all others: its CPU is a model, its disk small."""
    cloud3.purge_all()
    cpu = "{maximum: 1, model: qemu64}"
    done = cloud3.run("virt.init", "m1", cpu, "256", TINY, "seed=False", "host=hyper1")
    assert done.code == 0, done.out
    wait("the guest's counter", lambda: ticks(cloud3, "hyper1", "m1") > 2)
    yield "m1"
    cloud3.purge_all()


class Connections(threading.Thread):
    """How many connections to QEMU's ports a host has at most while the block runs."""

    def __init__(self, cloud, host):
        super().__init__()
        self._cloud, self._host = cloud, host
        self._end, self.most = threading.Event(), 0

    def run(self):
        """Look again and again."""
        while not self._end.is_set():
            lines = self._cloud.sh(self._host, f"ss -Htn state established {PORTS}").splitlines()
            self.most = max(self.most, len(lines))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_error):
        self._end.set()
        self.join()


def refuses_aes(cloud, host):
    """Return whether the QEMU of the VM was told to."""
    found = cloud.sh(host, "tr '\\0' '\\n' </proc/$(cat /run/libvirt/qemu/m1.pid)/environ")
    return VARIABLE in found.splitlines()


def moved(cloud, target, *words):
    """Move the VM, slowly; return the most connections, and whether the target refuses AES."""
    (source,) = where(cloud)
    at = ticks(cloud, source, "m1")
    with Connections(cloud, source) as seen:
        move(cloud, target, SLOW, *words)
    wait("the counter", lambda: ticks(cloud, target, "m1") > at)
    assert "GNUTLS" not in cloud.sh(target, "virsh -q dumpxml --inactive m1")
    return seen.most, refuses_aes(cloud, target)


def test_memory_goes_over_two_connections_and_over_one_without_aes(cloud3, m2):
    # Beside those for memory there is QEMU's own, and while disks are copied, theirs.
    most, refuses = moved(cloud3, "hyper2")
    assert most >= 3 and not refuses

    most, refuses = moved(cloud3, "hyper3", "parallel_connections=1")
    assert most <= 2 and refuses

    # It takes the variable along, and has it once.
    most, refuses = moved(cloud3, "hyper1", "parallel_connections=0")
    assert most <= 2 and refuses
    assert cloud3.sh("hyper1", "virsh -q dumpxml m1").count("GNUTLS_SYSTEM_PRIORITY_FILE") == 1


@pytest.mark.nightly
def test_post_copy_goes_over_one_connection_without_aes(cloud3, m2):
    most, refuses = moved(cloud3, "hyper3", "live=True", "postcopy_after=1")

    assert most <= 2 and refuses
