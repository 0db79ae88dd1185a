"""A VM that is undefined and made again has its disks, bit by bit, whoever dies over it."""

import json

import faultkit as kit
import pytest
from cloudkit import TINY, wait

pytestmark = pytest.mark.second

FOLDER = "/srv/existing"
IMAGES = "/srv/salt-images"
FILE = f"{IMAGES}/t1_system.qcow2"
VOLUME = f"{FOLDER}/t1_data"


@pytest.fixture
def pool(clean):
    """A hypervisor with a pool of files, ``p9``."""
    call = ("state.single", "virt.pool_running", "p9", "ptype=dir", f"target={FOLDER}")
    assert next(iter(clean.local("hyper1", *call).values()))["result"] is True
    yield clean
    clean.sh(
        "hyper1", f"virsh pool-destroy p9; virsh pool-undefine p9; rm -rf {FOLDER}; rm -f {FILE}"
    )


DISKS = [{"name": "system", "image": TINY}, {"name": "data", "size": 8, "pool": "p9"}]


def state(cloud, *words):
    """Apply virt.defined of t1; return its answer."""
    asked = (f"disks={json.dumps(DISKS)}", "cpu=1", "mem=96", "seed=False", *words)
    done = cloud.call("hyper1", "state.single", "virt.defined", "t1", *asked)
    return next(iter(done.data["local"].values()))


def mark(cloud):
    """Write into both disks as a guest would, and return what is in them."""
    for path in (FILE, VOLUME):
        cloud.sh("hyper1", f"qemu-io -f qcow2 -c 'write -P 7 4M 64k' {path}")
    return content(cloud)


def content(cloud):
    """Return the digests of what guests see in both disks."""
    out = []
    for path in (FILE, VOLUME):
        out.append(cloud.sh("hyper1", f"qemu-img convert -O raw {path} /run/x && sha256sum /run/x"))
    cloud.sh("hyper1", "rm /run/x")
    return out


def made_as_3006_did(cloud):
    """Make t1, forget it, and give its volume the name that 3006 gave it; return the content."""
    assert state(cloud)["result"] is True
    assert cloud.local("hyper1", "virt.undefine", "t1") is True
    cloud.sh("hyper1", f"mv {VOLUME}.qcow2 {VOLUME}; virsh pool-refresh p9")
    return mark(cloud)


def test_a_vm_that_is_made_again_has_its_file_and_its_volume(pool):
    had = made_as_3006_did(pool)

    would = state(pool, "test=True")
    done = state(pool)

    assert (would["result"], done["result"]) == (None, True), done
    assert would["changes"] == done["changes"]
    assert state(pool)["changes"] == {} and content(pool) == had
    found = pool.local("hyper1", "virt.get_disks", "t1")
    assert [one["file"] for one in found.values()] == [FILE, "p9/t1_data"]
    assert pool.local("hyper1", "virt.start", "t1") is True
    # They go with their VM.
    assert pool.local("hyper1", "virt.purge", "t1") is True
    assert pool.sh("hyper1", f"ls {FOLDER}; ls {FILE} 2>/dev/null || true").split() == []


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["making", "before-defining", "defining", "before-complete"])
def test_a_builder_that_dies_leaves_them(pool, point):
    had = made_as_3006_did(pool)
    words = ("virt.init", "t1", "1", "96", f"disks={json.dumps(DISKS)}", "seed=False")
    with kit.told(pool, ["hyper1"]):
        kit.tell(pool, "hyper1", f"build.{point}", "kill")
        assert pool.command("salt", "--async", "hyper1", *words, "start=False").code == 0
        wait(point, lambda: pool.sh("hyper1", f"ls {kit.FAULTS}.reached 2>/dev/null || true"))

    # Whoever comes by settles it.
    other = ("virt.init", "t2", "1", "64", "seed=False", "start=False")
    assert pool.local("hyper1", *other) is True
    assert content(pool) == had
    assert pool.local("hyper1", "virt.purge", "t2") is True
    if "t1" not in pool.local("hyper1", "virt.list_domains"):
        assert state(pool)["result"] is True
    assert pool.local("hyper1", "virt.purge", "t1") is True
