"""
Run guestmount with a QEMU that drops root: the appliance's user, its own view of files, no network.

FUSE shows the files only to the user who mounted them, so guestmount itself stays root's. Instead
of QEMU, libguestfs starts a few lines that import this file, and become QEMU. guestmount, as root,
keeps writing to files below TMPDIR, one per listed folder: those folders stay root's.
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

# Root's sockets are in a folder of their own in /tmp, regardless of libguestfs' settings.
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
    """Run guestmount until its files are there and it goes to the background; return its code."""
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
        # guestmount inherits the locks' handles, which show that the mount lives. The appliance
        # controls the growth of guestmount's own files, as it reports the content of folders; hence
        # the limit. QEMU, its child, sets another limit.
        limit_child = functools.partial(limit_files, BESIDE_BYTES, resource.RLIM_INFINITY)
        options: dict[str, Any] = {"close_fds": False, "check": False, "preexec_fn": limit_child}
        return subprocess.run(job["argv"], env=env, **options).returncode


def limit_files(most_bytes: int, most_later: int) -> None:
    """
    Limit the size of the files that this process and its children write.

    most_later
        The limit to which they may raise that.
    """
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_later))


def become_qemu(path: str, argv: list[str]) -> None:
    """Become QEMU, as the appliance's user, and give that user libguestfs' files for QEMU."""
    job = json.loads(Path(path).read_text())
    confinement, work_folder, own_folder = (
        job["confined"],
        *(Path(job["confined"]["folder"], n) for n in (WORK, OWN)),
    )
    # Without a socket, libguestfs only asks QEMU for its features.
    sockets = [Path(match[1]) for word in argv if (match := _SOCKET.match(word))]
    for entry in (
        work_folder,
        *work_folder.rglob("*"),
        *sockets,
        *{socket.parent for socket in sockets},
    ):
        if entry.is_dir():
            # A user who could put a link there would make root write to the link's target.
            entry.chmod(0o711)
        else:
            os.chown(entry, confinement["uid"], confinement["gid"], follow_symlinks=False)
    own_folder.mkdir(mode=0o700, exist_ok=True)
    os.chown(own_folder, confinement["uid"], confinement["gid"])
    view([str(work_folder), str(own_folder), job["path"]])
    os.environ.update(dict.fromkeys(("TMPDIR", "XDG_RUNTIME_DIR", "HOME"), str(own_folder)))
    # A guest's writes to a disk that is only read go to a file beside it. At the limit QEMU gets an
    # error, as Python has switched off the signal.
    most_bytes = job["most_bytes"] or BESIDE_BYTES
    limit_files(most_bytes, most_bytes)
    confined.become(confinement["uid"], confinement["gid"], [])
    sandbox_args = ["-sandbox", confined.SANDBOX] if sockets else []
    os.execv(job["qemu"], [job["qemu"], *argv, *sandbox_args])


def view(paths: list[str]) -> None:
    """Hide /run, and of each folder closed to other users all but these paths."""
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
    """Return a path's highest parent that is hidden or closed to other users, else None."""
    folders = reversed(Path(path).parents)
    return next(
        (str(folder) for folder in folders if str(folder) == RUN or not folder.stat().st_mode & 1),
        None,
    )
