"""
Show a disk below a folder for whoever asks, through libguestfs' appliance, and take it away again.

The host's kernel parses none of it. QEMU runs as one of the appliances' users until the end, which
has the disk that long; guestmount, which FUSE wants to be root's, holds the locks that say so.
"""

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from saltvirt import files, locks, undo
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument, SeedError, StorageError
from saltvirt.seed import appliance, hostmount, lending
from saltvirt.seed.worker import confined

_WORKER = Path(__file__).with_name("worker")
_ACCESS = ("rw", "ro")
_LIMIT_S = 300
_WAIT_S = 60
_SAID_MOST = 1 << 16


def mount(settings: HostSettings, location: str, fmt: str, access: str, root: str | None) -> str:
    """Mount all file systems of a disk below a folder, through the appliance; return the folder."""
    if access not in _ACCESS:
        raise BadArgument("access", f"{access!r}; rw or ro")
    flat = str(location).strip("/").replace("/", ".")
    folder = Path(root or Path(settings.state_dir, "guests", flat))
    is_new = not folder.exists()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise StorageError(
            f"{folder} is not empty; something is mounted there, or give another root"
        )
    options = [f"--format={fmt}", "-a", location, "-i", f"--{access}"]
    with ExitStack() as handles, undo.on_failure() as steps:
        if is_new:
            steps.undo_with(folder.rmdir)
        job, kept = _furnished(settings, location, access == "ro", handles, steps)
        record = _record(settings, folder)
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(record, json.dumps(job["confined"]).encode())
        steps.undo_with(record.unlink)
        job["argv"] = ["guestmount", *options, str(folder)]
        _launch(job, kept)
    return str(folder)


def _furnished(
    settings: HostSettings, location: str, is_read: bool, handles: ExitStack, steps: undo.Steps
) -> tuple[dict[str, Any], list[int]]:
    """Return the job of a mount: a user, a folder, the disk; and the handles that keep them."""
    state, users = Path(settings.state_dir), lending.place(settings.state_dir)
    # Once the handles are closed: it leaves what guestmount holds.
    handles.callback(locks.sweep, users)
    who, user_lock = lending.kept(lending.accounts(), users)
    handles.callback(os.close, user_lock)
    work = appliance.new_folder(state / "appliances").resolve()
    work_lock = locks.kept(work.with_suffix(".lock"))
    if work_lock is None:
        raise SeedError(f"{work} is in use; try again")
    handles.callback(os.close, work_lock)
    steps.undo_with(work.with_suffix(".lock").unlink)
    (work / "work").mkdir(mode=0o700, parents=True)
    steps.undo_with(shutil.rmtree, work)
    disk = lending.opened(location)
    handles.callback(os.close, disk)
    lent = lending.lend(disk, location, who, is_read=is_read, wait=False)
    steps.undo_with(confined.give_back, lent)
    confined_to = {"uid": who.uid, "gid": who.gid, "folder": str(work), "lent": lent}
    return {"path": location, "confined": confined_to}, [user_lock, work_lock, disk]


def _launch(job: dict[str, Any], kept: list[int]) -> None:
    """Have guestmount run until the files are there; raise SeedError if they are not."""
    location = job["path"]
    # Not a pipe: whoever has taken QEMU over could keep it open.
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        program = subprocess.Popen(
            [appliance.PYTHON, "-I", "-B", str(_WORKER), "--mount"],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            text=True,
            env=appliance.environment(f"{job['confined']['folder']}/work", use_kvm=False),
            pass_fds=kept,
            start_new_session=True,
        )
        try:
            program.communicate(json.dumps(job), timeout=_LIMIT_S)
        except BaseException as exc:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            if isinstance(exc, subprocess.TimeoutExpired):
                raise SeedError(f"{location} was not mounted within {_LIMIT_S} s") from exc
            raise
        said.seek(0)
        lines = said.read(_SAID_MOST).strip().splitlines()
    if program.returncode:
        # After the cause comes advice of many lines.
        causes = [line for line in lines if "error:" in line or "guestmount:" in line] or lines
        raise SeedError(f"{location} cannot be mounted: {causes[0] if causes else 'no reason'}")


def umount(settings: HostSettings, name: str) -> bool:
    """Take a guest's file systems away, and give its disk back; return True."""
    record = _record(settings, name)
    known = json.loads(record.read_text()) if record.exists() else None
    is_mounted = os.path.ismount(name) or _is_abandoned(name)
    if not is_mounted and known is None:
        raise BadArgument("name", f"nothing is mounted at {name}")
    if is_mounted:
        hostmount.run(["guestunmount", name], f"{name} cannot be unmounted")
    if known:
        _settle(known)
        locks.sweep(lending.place(settings.state_dir))
        record.unlink(missing_ok=True)
    if Path(name).is_relative_to(Path(settings.state_dir, "guests")):
        with suppress(OSError):
            Path(name).rmdir()
    return True


def _is_abandoned(name: str) -> bool:
    """Return whether a mount is there whose guestmount is gone."""
    try:
        os.stat(name)
    except OSError as exc:
        return exc.errno == errno.ENOTCONN
    return False


def _settle(known: dict[str, Any]) -> None:
    """Give a disk back once guestmount is gone: only then is everything written."""
    lock = Path(known["folder"]).with_suffix(".lock")
    deadline = time.monotonic() + _WAIT_S
    while locks.is_held(lock):
        if time.monotonic() > deadline:
            raise SeedError(f"guestmount, which holds {lock}, did not end within {_WAIT_S} s")
        time.sleep(0.1)
    with suppress(FileNotFoundError):
        confined.give_back(known["lent"])
    shutil.rmtree(known["folder"], ignore_errors=True)
    lock.unlink(missing_ok=True)


def _record(settings: HostSettings, root: str | Path) -> Path:
    name = hashlib.sha256(os.path.realpath(root).encode()).hexdigest()[:16]
    return Path(settings.state_dir, "guests", f"{name}.json")
