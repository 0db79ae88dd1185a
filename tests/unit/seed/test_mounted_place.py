"""The place of the QEMU of a mount, for real, with a program in QEMU's place."""

import json
import os
import subprocess
import sys
from pathlib import Path

import applianceuser
from saltvirt.seed.worker import confined

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


def test_no_link_can_be_put_where_guestmount_writes_as_root(tmp_path):
    """From 1.50 on libguestfs writes what is in a folder to a file of its own, by its path."""
    who, folder = applianceuser.there(), tmp_path / "job"
    made = folder / "work/libguestfsAbCdEf"
    made.mkdir(parents=True)
    (folder / "work").chmod(0o700)
    (made / "overlay1.qcow2").write_text("an overlay")
    (made / "overlay1.qcow2").chmod(0o600)
    disk = tmp_path / "disk"
    disk.touch()
    confined_to = {"uid": who.uid, "gid": who.gid, "folder": str(folder)}
    job = {"path": str(disk), "is_read": True, "confined": confined_to, "qemu": "/usr/bin/python3"}
    (folder / "job").write_text(json.dumps(job))
    argv = ["-c", TRIES, str(folder / "work"), "/etc/hostname"]
    told = [str(WORKER), str(folder / "job"), json.dumps(argv)]

    done = subprocess.run(
        [sys.executable, "-c", BECOME, *told],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(folder / "work")},
    )

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert {name for name, what in said.items() if what == "done"} == {"its overlay", "a place"}
