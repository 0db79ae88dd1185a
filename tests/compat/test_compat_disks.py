"""New and existing disks, in pools of every type, and remote media, are as with Salt 3006."""

import json
import os
import subprocess

import pytest
from compatkit import CHECKOUT, HERE

FILE = "a disk in a pool of files is the file: overlays, moves; virt.get_disks says POOL/VOLUME"
DEVICE = "libvirt starts no VM with volumes of multipath pools: it is given the device"
# 3006 wrote the format None for pools whose format libvirt does not report; libvirt refused that.
RAW = {"format": "raw"}
NAME = "a new disk's file in a pool says its format"


def case(pool=None, existing_volume=None, differs=None, **disk):
    """Return a case: its disk, and how ours differs, with the reason."""
    given = {"name": "data", "size": 8, **({"pool": "p"} if pool else {}), **disk}
    return {"disk": given, "pool": pool, "there": existing_volume, "differs": differs or {}}


def medium(url):
    """Return a case of a cdrom."""
    return case(name="cd", device="cdrom", source_file=url)


CASES = {
    "file": case(),
    "fileraw": case(format="raw"),
    "oldfile": case(existing_volume="oldfile_data.qcow2"),
    "dir": case("dir", differs={"type": FILE, "source": FILE, "files": NAME}),
    "olddir": case("dir", "olddir_data", differs={"type": FILE, "source": FILE}),
    "lvm": case("logical"),
    "lvmqcow2": case("logical", format="qcow2"),
    "oldlvm": case("logical", "oldlvm_data"),
    "part": case("disk"),
    "nextpart": case("disk", "sda1"),
    "oldpart": case("disk", "sda1", source_file="sda1"),
    "zfs": case("zfs", **RAW),
    "oldzfs": case("zfs", "oldzfs_data", **RAW),
    "iscsi": case("iscsi", "unit:0:0:1", source_file="unit:0:0:1", **RAW),
    "scsi": case("scsi", "unit:0:0:1", source_file="unit:0:0:1", **RAW),
    "rbd": case("rbd"),
    "oldrbd": case("rbd", "oldrbd_data"),
    "gluster": case("gluster", "gluster_data", format="raw"),
    "mpath": case("mpath", "mpath_data", differs={"type": DEVICE, "source": DEVICE}, **RAW),
    "http": medium("http://web.example/iso/x.iso"),
    "https": medium("https://web.example:8443/x.iso?a=1&b=2"),
    "ftp": medium("ftp://web.example/x.iso"),
    "ftps": medium("ftps://web.example/x.iso"),
    "tftp": medium("tftp://web.example/x.iso"),
}


def side(folder, line, is_ours):
    """Return ``{VM: outcome}`` of one side."""
    folder.mkdir()
    job = {"folder": str(folder), "ours": is_ours and str(CHECKOUT), "cases": CASES}
    done = subprocess.run(
        [f"/opt/salt-{line}/bin/python3", HERE / "diskside.py"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{CHECKOUT}/_utils" if is_ours else ""},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.replace(str(folder), "/FOLDER"))


@pytest.fixture(scope="session")
def sides(tmp_path_factory):
    """What both sides make of all cases."""
    folder = tmp_path_factory.mktemp("disks")
    salt_3006 = side(folder / "theirs", "3006", False)
    return salt_3006, [side(folder / f"ours-{line}", line, True) for line in ("3006", "3008")]


@pytest.mark.parametrize("name", CASES)
def test_a_disk_is_as_3006_made_it(sides, name):
    salt_3006, ours_by_line = sides
    their_outcome = salt_3006[name]
    for our_outcomes in ours_by_line:
        our_outcome = our_outcomes[name]
        keys = their_outcome | our_outcome
        changed = {key for key in keys if their_outcome.get(key) != our_outcome.get(key)}
        assert changed == set(CASES[name]["differs"]), (their_outcome, our_outcome)
        assert our_outcome.get("kept", True), "the existing volume or file is unchanged"
