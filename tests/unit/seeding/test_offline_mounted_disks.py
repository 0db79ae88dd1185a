"""The place of the QEMU of a mount, for real, with a program in QEMU's place."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import applianceuser
import pytest
from saltvirt.seeding.offline.worker import confined

WORKER = Path(confined.__file__).parent
BECOME = """
import json, sys
sys.path.insert(0, sys.argv[1])
import mounting
mounting.become_qemu(sys.argv[2], json.loads(sys.argv[3]))
"""
# What whoever has taken QEMU over tries.
TRIES = """
import json, os, sys
work, secret = sys.argv[1:]
made = work + "/libguestfsAbCdEf"
out = {}
def attempt(name, deed):
    try:
        deed()
        out[name] = "done"
    except OSError as exc:
        out[name] = type(exc).__name__
attempt("its overlay", lambda: open(made + "/overlay1.qcow2", "r+").write("written"))
attempt("a place", lambda: open(os.environ["TMPDIR"] + "/x", "w").write("x"))
attempt("a link", lambda: os.symlink(secret, made + "/readdir2"))
attempt("another folder", lambda: os.rename(made, made + "2"))
attempt("a folder", lambda: os.mkdir(work + "/libguestfs2"))
attempt("other rights", lambda: os.chmod(work, 0o777))
json.dump(out, sys.stdout)
"""


# What QEMU gets told that writes more than there is room for.
GROWS = """
import os, sys
disk = os.open(sys.argv[1], os.O_RDWR)
print(os.pwrite(disk, bytes(4096), 0))
try:
    os.pwrite(disk, b"x", 4096)
except OSError as exc:
    print(type(exc).__name__, exc.errno)
"""
MOUNTS = """
import contextlib, json, sys
sys.path.insert(0, sys.argv[1])
import confined, guestfstree, mounting
confined.built = lambda _path: contextlib.nullcontext(None)
guestfstree.search_path, guestfstree.default_qemu = lambda: [], lambda: "qemu"
sys.exit(mounting.mount(json.loads(sys.argv[2])))
"""


@pytest.fixture
def become(tmp_path):
    """Return a function: have what is to be QEMU do something with a disk; its output."""
    who, folder, disk = applianceuser.there(), tmp_path / "job", tmp_path / "disk"
    (folder / "work").mkdir(mode=0o700, parents=True)
    disk.touch()
    os.chown(disk, who.uid, -1)

    def become(program, *words, **more):
        confined_to = {"uid": who.uid, "gid": who.gid, "folder": str(folder)}
        job = {"path": str(disk), "is_read": True, "most_bytes": None, "confined": confined_to}
        job["qemu"] = "/usr/bin/python3"
        (folder / "job").write_text(json.dumps({**job, **more}))
        told = [str(WORKER), str(folder / "job"), json.dumps(["-c", program, *words])]
        return subprocess.run(
            [sys.executable, "-c", BECOME, *told],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "TMPDIR": str(folder / "work")},
        ).stdout

    become.folder, become.disk = folder, disk
    return become


def test_no_link_can_be_put_where_guestmount_writes_as_root(become):
    """From 1.50 on libguestfs writes what is in a folder to a file of its own, by its path."""
    made = become.folder / "work/libguestfsAbCdEf"
    made.mkdir()
    (made / "overlay1.qcow2").write_text("an overlay")
    (made / "overlay1.qcow2").chmod(0o600)

    said = json.loads(become(TRIES, str(become.folder / "work"), "/etc/hostname"))

    assert {name for name, what in said.items() if what == "done"} == {"its overlay", "a place"}


def test_a_disk_that_is_written_to_grows_as_far_as_it_may_and_qemu_goes_on(become):
    said = become(GROWS, str(become.disk), is_read=False, most_bytes=4096)

    assert said.splitlines() == ["4096", f"OSError {errno.EFBIG}"]
    assert become.disk.stat().st_size == 4096


def test_guestmounts_own_files_do_not_grow_as_an_appliance_likes(tmp_path):
    says = "import resource; print(resource.getrlimit(resource.RLIMIT_FSIZE))"
    job = {"confined": {"folder": str(tmp_path)}, "argv": [sys.executable, "-c", says]}

    said = subprocess.run(
        [sys.executable, "-c", MOUNTS, str(WORKER), json.dumps(job)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    # QEMU, which it starts, may have another.
    assert said.strip() == str((1 << 30, -1))
