"""
guestmount, whose QEMU leaves root: the appliance's user, its own view of files, no network.

FUSE shows the files to whoever mounted them, so guestmount itself stays root's. libguestfs starts
what it is told is QEMU: a few lines that import this file, and become QEMU. As root guestmount goes
on writing to files below TMPDIR, one for each folder that is listed: those folders stay root's.
Source: guestmount(1), guestfs(3) on LIBGUESTFS_HV and fixed appliances.
"""

import functools
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import confined
import guestfstree
from confined import RUN

# root's are in a folder of their own in /tmp, whatever libguestfs is told.
_SOCKET = re.compile(r"socket,path=([^,]+/libguestfs[^/,]+/[^/,]+)(?:,|$)")
BESIDE_BYTES = 1 << 30
# Folders of a mount: guestmount's, and QEMU's own.
WORK, OWN = "work", "own"
_LAUNCHER = """#!{python} -IB
import sys
sys.path.insert(0, {worker!r})
import mounting
mounting.become_qemu({job!r}, sys.argv[1:])
"""


def mount(job: dict[str, Any]) -> int:
    """Run guestmount until its files are there, which then goes on by itself; return its code."""
    folder = job["confined"]["folder"]
    with confined.built(guestfstree.search_path()) as appliance:
        job["qemu"] = guestfstree.default_qemu()
        Path(folder, "job").write_text(json.dumps(job))
        launcher = Path(folder, "qemu")
        launcher.write_text(
            _LAUNCHER.format(
                python=sys.executable,
                worker=str(Path(__file__).resolve().parent),
                job=f"{folder}/job",
            )
        )
        launcher.chmod(0o700)
        env = {
            **os.environ,
            "LIBGUESTFS_CACHEDIR": f"{folder}/{WORK}",
            "LIBGUESTFS_HV": str(launcher),
            **({"LIBGUESTFS_PATH": appliance} if appliance else {}),
        }
        # What says that the mount lives, locks, has to live as long as guestmount. Its own files
        # grow as the appliance likes, which tells it what is in folders. QEMU, which it starts, has
        # another limit.
        limit_child = functools.partial(limit_files, BESIDE_BYTES, resource.RLIM_INFINITY)
        options: dict[str, Any] = {"close_fds": False, "check": False, "preexec_fn": limit_child}
        return subprocess.run(job["argv"], env=env, **options).returncode


def limit_files(most_bytes: int, most_later: int) -> None:
    """
    Have no file that this process, and those of its own, write become larger.

    most_later
        What they may have that limit raised to.
    """
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_later))


def become_qemu(path: str, argv: list[str]) -> None:
    """Become QEMU, as the appliance's user, who gets what libguestfs has made for it."""
    job = json.loads(Path(path).read_text())
    confinement, work_folder, own_folder = (
        job["confined"],
        *(Path(job["confined"]["folder"], n) for n in (WORK, OWN)),
    )
    # Without one it is only asked what it can do.
    sockets = [Path(match[1]) for word in argv if (match := _SOCKET.match(word))]
    for entry in (
        work_folder,
        *work_folder.rglob("*"),
        *sockets,
        *{socket.parent for socket in sockets},
    ):
        if entry.is_dir():
            # Whoever could put a link there would have root write to what it leads to.
            entry.chmod(0o711)
        else:
            os.chown(entry, confinement["uid"], confinement["gid"], follow_symlinks=False)
    own_folder.mkdir(mode=0o700, exist_ok=True)
    os.chown(own_folder, confinement["uid"], confinement["gid"])
    view([str(work_folder), str(own_folder), job["path"]])
    os.environ.update(dict.fromkeys(("TMPDIR", "XDG_RUNTIME_DIR", "HOME"), str(own_folder)))
    # What a guest writes to a disk that is only read is written beside it. QEMU is told that it is
    # at the limit by an error, as Python has switched off the signal.
    most_bytes = job["most_bytes"] or BESIDE_BYTES
    limit_files(most_bytes, most_bytes)
    confined.become(confinement["uid"], confinement["gid"], [])
    sandbox_args = ["-sandbox", confined.SANDBOX] if sockets else []
    os.execv(job["qemu"], [job["qemu"], *argv, *sandbox_args])


def view(paths: list[str]) -> None:
    """Hide /run, and open folders closed to others, which then have nothing but these paths."""
    confined.own_view(has_network=False)
    real_paths = [os.path.realpath(path) for path in paths]
    folders_by_path = {path: folder for path in real_paths if (folder := cover(path))}
    handles = {path: os.open(path, os.O_PATH) for path in folders_by_path}
    for folder in {RUN, *folders_by_path.values()}:
        confined.hide(folder)
    for path, handle in handles.items():
        Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        confined.show(f"/proc/self/fd/{handle}", Path(path))


def cover(path: str) -> str | None:
    """Return the highest folder above a path that is hidden or closed to others, None without."""
    folders = reversed(Path(path).parents)
    return next(
        (str(folder) for folder in folders if str(folder) == RUN or not folder.stat().st_mode & 1),
        None,
    )
