"""A hypervisor whose root has it answer with anything, signed: it harms its own VMs at most."""

import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.second

# Of all that have this function, Salt takes the first by its name.
MODULE = "var/cache/salt/minion/extmods/modules/virt_aa.py"
EVIL = Path(__file__).with_name("hostilemodule.py")
COMMANDS = [
    ("virt.query",),
    ("virt.list",),
    ("virt.host_info",),
    ("virt.next_host",),
    ("virt.images",),
    ("virt.vm_info", "t1"),
    ("virt.init", "x1", "1", "96", "salt://images/tiny.qcow2", "dry_run=True"),
    ("virt.migrate", "t1", "dry_run=True"),
    ("virt.maintenance", "hyper3", "off"),
    ("virt.evacuate", "hyper3", "dry_run=True"),
    ("virt.restore", "hyper3", "dry_run=True"),
    ("virt.rebalance", "dry_run=True", "window_s=1"),
]
# What is there before and after on the master, beside what it notes of its own work.
LISTED = (
    "find /etc /srv /tmp /root /home /opt/saltstack /usr/local -xdev -type f "
    "-not -name '*.pyc' -printf '%p %s %m\\n' | sort"
)


@pytest.fixture
def hostile(cloud, vm):
    """Hyper3 with a module of its root's; a VM t1 is on hyper1."""
    path = cloud.folder("hyper3") / MODULE

    def anew():
        cloud.service("hyper3", "salt-minion", "restart")
        cloud.ready(["hyper3"])

    path.write_text(EVIL.read_text())
    anew()
    yield cloud
    path.unlink()
    anew()
    assert set(cloud.run("virt.host_info").data) == set(cloud.hosts)


def _look(cloud, words):
    begin = time.monotonic()
    done = cloud.command("salt-run", *words, "--no-color")
    assert done.code in (0, 1), (words, done.out, done.err)
    text = done.out + done.err
    assert done.traceback == [], (words, text)
    assert all(one.isprintable() or one in "\n\t" for one in text), (words, text)
    # Who orders something of that host alone waits for it as long as it says that it is at it.
    assert time.monotonic() - begin < (300 if words[0] == "virt.maintenance" else 90), words


def _listed(cloud):
    return set(cloud.sh("master", LISTED).splitlines())


def _looked(cloud, rounds):
    before, keys = _listed(cloud), cloud.accepted()
    for _round in range(rounds):
        for words in COMMANDS:
            _look(cloud, words)
    assert _listed(cloud) ^ before == set() and cloud.accepted() == keys
    assert cloud.sh("hyper1", "virsh -q domstate t1").strip() == "running"
    assert "t1" not in cloud.sh("hyper3", "virsh -q list --all --name").split()


def test_whatever_a_host_answers_is_a_line_and_no_more(hostile):
    _looked(hostile, 1)

    shown = hostile.run("virt.query").data
    assert {"hyper1", "hyper2"} <= set(shown) or "hyper3" in shown["error"]


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_whatever_a_host_answers_for_long(hostile):
    _looked(hostile, 40)
