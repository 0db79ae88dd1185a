"""Started as soon as they are seeded, many times: no disk is locked, none is seen unseeded."""

import base64
import json
import re

import pytest
from cloudkit import TINY, wait

pytestmark = pytest.mark.nightly
STARTS = 20
DEBIAN = "salt://images/debian-minion.qcow2"
# Run by libvirt right before QEMU: keeps what the guest is about to see.
HOOK = """#!/bin/sh
[ "$2" = start ] || exit 0
mkdir -p "/srv/seen/$1"
cat > "/srv/seen/$1/xml"
grep -o "file='/[^']*'" "/srv/seen/$1/xml" | cut -d"'" -f2 | grep -v /base/ |
    while read -r file; do cp "$file" "/srv/seen/$1/"; done
"""
READ = """
import glob, guestfs, json
g = guestfs.GuestFS(python_return_dict=True)
paths = sorted(glob.glob("/srv/seen/*/*_system.qcow2"))
for path in paths:
    g.add_drive_opts(path, format="qcow2", readonly=True)
g.launch()
out = {}
for path, device in zip(paths, g.list_devices()):
    g.mount_ro(device + "1", "/")
    key = g.statns("/etc/salt/pki/minion/minion.pem")
    out[path.split("/")[3]] = [g.cat("/etc/salt/minion_id").strip(), key["st_size"] > 1000]
    g.umount_all()
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def watched(cloud):
    """The lab, with a hook on hyper1 that keeps the disks as they are when QEMU starts."""
    folder = cloud.folder("hyper1") / "etc/libvirt/hooks"
    folder.mkdir(exist_ok=True)
    (folder / "qemu").write_text(HOOK)
    (folder / "qemu").chmod(0o755)
    restart(cloud)
    yield cloud
    (folder / "qemu").unlink()
    restart(cloud)


def restart(cloud):
    """Restart libvirtd, which looks for hooks only then."""
    for action in ("stop", "start"):
        cloud.service("hyper1", "libvirtd", action)


def disks(cloud):
    """Return ``{name: [id, has a key]}`` as guests' own disks have it."""
    script = cloud.folder("hyper1") / "srv/read.py"
    script.write_text(READ)
    said = cloud.sh(
        "hyper1",
        "LIBGUESTFS_BACKEND=direct LIBGUESTFS_BACKEND_SETTINGS=force_tcg "
        "/usr/bin/python3 /srv/read.py; rm /srv/read.py",
    )
    return json.loads(said)


def beside(cloud, pattern):
    """Return ``{name: [id, has a key]}`` as what lies beside the disks has it."""
    out = {}
    for path in (cloud.folder("hyper1") / "srv/seen").glob(f"*/{pattern}"):
        name, text = path.parent.name, path.read_bytes()
        lines = [line for line in text.split(b"\n") if line.startswith(b"f+~ ")]
        text += b"".join(base64.b64decode(line.split()[-1]) for line in lines)
        if re.search(rb"\bid: %s(\n|\\n)" % name.encode(), text):  # in a script, or in JSON
            out[name] = [name, b"PRIVATE" in text]
    return out


@pytest.mark.parametrize(
    ("method", "image", "seen"),
    [
        ("nocloud", TINY, lambda cloud: beside(cloud, "*_seed.iso.qcow2")),
        ("credentials", DEBIAN, lambda cloud: beside(cloud, "*")),
        ("guestfs", DEBIAN, disks),
    ],
)
def test_twenty_starts_in_a_row(watched, method, image, seen):
    names = [f"r{number}" for number in range(STARTS)]
    watched.purge_all()
    watched.sh("hyper1", "rm -rf /srv/seen")
    try:
        for name in names:
            done = watched.run(
                "virt.init",
                name,
                "1",
                "256",
                image,
                "host=hyper1",
                f"seed_method={method}",
                "wait=False",
            )
            assert done.code == 0, done.out + done.err
            wait("its console", lambda name=name: watched.console("hyper1", name))
            assert watched.run("virt.purge", name).code == 0

        assert seen(watched) == {name: [name, True] for name in names}
    finally:
        watched.purge_all()
        watched.sh("hyper1", "rm -rf /srv/seen")
