"""The real confinement of a mount's QEMU, with a program in QEMU's place."""

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
# What an attacker who controls QEMU tries.
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


# QEMU writes more than its limit.
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
    """A function that runs a program in QEMU's place, with a disk; it returns the output."""
    user, folder, disk = applianceuser.there(), tmp_path / "job", tmp_path / "disk"
    (folder / "work").mkdir(mode=0o700, parents=True)
    disk.touch()
    os.chown(disk, user.uid, -1)

    def become(program, *words, **job_options):
        confined_to = {"uid": user.uid, "gid": user.gid, "folder": str(folder)}
        job = {"path": str(disk), "is_read": True, "most_bytes": None, "confined": confined_to}
        job["qemu"] = "/usr/bin/python3"
        (folder / "job").write_text(json.dumps({**job, **job_options}))
        arguments = [str(WORKER), str(folder / "job"), json.dumps(["-c", program, *words])]
        return subprocess.run(
            [sys.executable, "-c", BECOME, *arguments],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "TMPDIR": str(folder / "work")},
        ).stdout

    become.folder, become.disk = folder, disk
    return become


def test_no_link_can_be_put_where_guestmount_writes_as_root(become):
    """Libguestfs from 1.50 on writes the content of a folder to a file there, by its path."""
    folder = become.folder / "work/libguestfsAbCdEf"
    folder.mkdir()
    (folder / "overlay1.qcow2").write_text("an overlay")
    (folder / "overlay1.qcow2").chmod(0o600)

    outcomes = json.loads(become(TRIES, str(become.folder / "work"), "/etc/hostname"))

    assert {name for name, outcome in outcomes.items() if outcome == "done"} == {
        "its overlay",
        "a place",
    }


def test_a_writable_disk_grows_up_to_its_limit_and_qemu_goes_on(become):
    output = become(GROWS, str(become.disk), is_read=False, most_bytes=4096)

    assert output.splitlines() == ["4096", f"OSError {errno.EFBIG}"]
    assert become.disk.stat().st_size == 4096


def test_guestmounts_own_files_have_a_fixed_limit(tmp_path):
    script = "import resource; print(resource.getrlimit(resource.RLIMIT_FSIZE))"
    job = {"confined": {"folder": str(tmp_path)}, "argv": [sys.executable, "-c", script]}

    output = subprocess.run(
        [sys.executable, "-c", MOUNTS, str(WORKER), json.dumps(job)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    # QEMU, which guestmount starts, may have another limit.
    assert output.strip() == str((1 << 30, -1))
