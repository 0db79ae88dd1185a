"""A disk goes to another pool while its guest runs or is off, and after each fault."""

import re

import pytest
from cloudkit import TINY, ticks, wait

FAST, IMAGES = "/srv/fast", "/srv/salt-images"
SYSTEM, DATA = "web1_system.qcow2", "web1_data.raw"
DISKS = 'disks=[{"name": "data", "size": 64, "format": "raw"}]'
INIT = ("virt.init", "web1", "1", "96", TINY, DISKS, "seed=False", "host=hyper1", "wait=False")
POOL = f"mkdir -p -m 711 {FAST}; virsh -q pool-create-as fast dir --target {FAST}"
NO_POOL = f"virsh -q pool-destroy fast || :; rm -rf {FAST}"
FAULTS = "/run/move-disk-faults"
POINTS = ("before-copying", "copying", "before-switching", "switching", "before-moved", "moved")


@pytest.fixture
def web1(clean):
    """A VM with an overlay and a raw disk with a hole, and another pool on its host."""
    clean.sh("hyper1", f"{NO_POOL}; {POOL}")
    done = clean.run(*INIT, "start=False")
    assert done.code == 0, done.out + done.err
    fill = f"dd if=/dev/urandom of={IMAGES}/{DATA} bs=1M count=1 seek=32 conv=notrunc,fsync"
    clean.sh("hyper1", fill)
    yield clean
    clean.purge_all()
    clean.sh("hyper1", f"{NO_POOL}; rm -f {FAULTS}*")
    clean.local("hyper1", "virt.trash_empty")


def start(cloud):
    """Start the VM, and wait until its guest counts anew."""
    begin = ticks(cloud, "hyper1", "web1")
    assert cloud.local("hyper1", "virt.start", "web1") is True
    wait("the guest", lambda: ticks(cloud, "hyper1", "web1") not in (0, begin))


def goes_on(cloud):
    """Wait until the guest counts further."""
    count = ticks(cloud, "hyper1", "web1")
    wait("the guest", lambda: ticks(cloud, "hyper1", "web1") > count)


def sums(cloud):
    """Return the digests that the guest has read from its disk."""
    return {*re.findall(r"SUM ([0-9a-f]{32})\b", cloud.console("hyper1", "web1"))}


def paths(cloud, *words):
    """Return the files of the disks, in the running VM or in its definition."""
    text = cloud.sh("hyper1", f"virsh dumpxml web1 {' '.join(words)}")
    return [path for path in re.findall(r"<source file='([^']*)'", text) if "web1_" in path]


def both(cloud, is_running):
    """Return the files of the disks, after a look that running VM and definition agree."""
    defined = paths(cloud, "--inactive")
    if is_running:
        assert paths(cloud) == defined
    return defined


def digest(cloud, path):
    """Return the digest of a file, or of what the trash has of it."""
    return cloud.sh("hyper1", f"sha256sum {path} | cut -d' ' -f1").strip()


def left(cloud):
    """Return the files of the VM in both folders, without those in the trash, and the records."""
    script = f"ls -A {IMAGES} {FAST} | grep -E '^(web1_|.salt-virt-[0-9a-f]{{12}}-)' || true"
    records = "ls /var/lib/salt-virt/records/diskmove 2>/dev/null || true"
    return sorted(cloud.sh("hyper1", script).split()), cloud.sh("hyper1", records).split()


def move(cloud, disk, pool):
    """Move a disk from the master; return the answer."""
    done = cloud.run("virt.move_disk", "web1", disk, f"pool={pool}")
    assert done.code == 0, done.out + done.err
    return done.data["hyper1"]["web1"]


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
def test_a_disk_goes_to_another_pool_and_back(web1, is_running):
    if is_running:
        start(web1)
    before, known = both(web1, is_running), sums(web1)
    content = digest(web1, f"{IMAGES}/{DATA}")

    would = web1.command(
        "salt-run", "virt.move_disk", "web1", "system", "pool=fast", "dry_run=True"
    )
    assert would.code == 0 and both(web1, is_running) == before
    state = "runs" if is_running else "is off"
    way = f"from {IMAGES}/{SYSTEM} to {FAST}/{SYSTEM}"
    shown = " ".join(would.out.split())
    assert f"web1 on hyper1: disk vda would be moved {way}" in shown
    assert shown.endswith(f"while the VM {state}")

    done = web1.command("salt-run", "virt.move_disk", "web1", "system", "pool=fast")
    assert done.code == 0, done.out + done.err
    assert "Copying (disk vda" in done.out
    data = move(web1, "data", "fast")

    assert both(web1, is_running) == [f"{FAST}/{SYSTEM}", f"{FAST}/{DATA}"]
    assert data["live"] is is_running and data["trash"]
    assert left(web1) == ([DATA, SYSTEM], [])
    assert digest(web1, f"{FAST}/{DATA}") == content
    size, blocks = map(int, web1.sh("hyper1", f"stat -c '%s %b' {FAST}/{DATA}").split())
    assert size == 64 << 20 and blocks * 512 <= 4 << 20, "its holes are no holes any more"
    info = web1.sh("hyper1", f"qemu-img info -U {FAST}/{SYSTEM}")
    assert f"backing file: {IMAGES}/base/" in info
    if is_running:
        goes_on(web1)
        assert web1.local("hyper1", "virt.stop", "web1") is True
    start(web1)
    assert sums(web1) == (known or sums(web1))
    assert len(sums(web1)) <= 1

    back = move(web1, "vda", IMAGES)
    assert back["file"] == f"{IMAGES}/{SYSTEM}" and back["live"] is True
    again = move(web1, "vda", IMAGES)
    assert again["outcome"].endswith("already; nothing was moved")
    goes_on(web1)
    assert web1.run("virt.doctor").data.get("leftovers", []) == []


@pytest.mark.nightly
@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
def test_a_move_that_dies_anywhere_is_settled(web1, is_running):
    if is_running:
        start(web1)
    content = digest(web1, f"{IMAGES}/{DATA}")
    for point in POINTS:
        command = "salt-call virt.move_disk web1 data pool=fast"
        script = f"echo diskmove.{point} kill >{FAULTS}; SALTVIRT_FAULTS={FAULTS} {command}; "
        web1.sh("hyper1", f"{script} test $? = 137; rm {FAULTS}.reached")

        is_moved = point in ("before-moved", "moved")
        mended = web1.run("virt.doctor", "fix=True")
        assert mended.code == 0, mended.out + mended.err

        folder = FAST if is_moved else IMAGES
        assert both(web1, is_running) == [f"{IMAGES}/{SYSTEM}", f"{folder}/{DATA}"], point
        assert left(web1) == ([DATA, SYSTEM], []), point
        assert digest(web1, f"{folder}/{DATA}") == content
        if is_running:
            goes_on(web1)
            job = web1.sh("hyper1", "virsh blockjob web1 vdb 2>&1 || true")
            assert "No current block job" in job, job
        move(web1, "data", "fast")
        move(web1, "data", IMAGES)


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["copying", "before-switching", "switching", "moved"])
def test_a_host_that_loses_its_power_has_the_disk(web1, point):
    start(web1)
    content = digest(web1, f"{IMAGES}/{DATA}")
    command = "salt-call virt.move_disk web1 data pool=fast"
    script = f"echo diskmove.{point} wait >{FAULTS}; SALTVIRT_FAULTS={FAULTS} {command} &"
    web1.sh(
        "hyper1", f"({script}) >/dev/null 2>&1; until test -e {FAULTS}.reached; do sleep 0.1; done"
    )

    web1.crash("hyper1")
    web1.sh("hyper1", "until virsh -q list --all >/dev/null 2>&1; do sleep 0.2; done")
    web1.sh("hyper1", f"virsh -q pool-info fast >/dev/null 2>&1 || {{ {POOL}; }}")
    mended = web1.run("virt.doctor", "fix=True")

    assert mended.code == 0, mended.out + mended.err
    (_system, path) = paths(web1, "--inactive")
    assert digest(web1, path) == content and left(web1) == ([DATA, SYSTEM], [])
    start(web1)
