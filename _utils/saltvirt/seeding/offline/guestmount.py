"""
Mount a disk below a folder through libguestfs' appliance, and unmount it again.

The host's kernel parses none of the disk. QEMU runs as one of the appliances' users, and has the
disk until the end; guestmount, which FUSE requires to be root's, holds the locks of both.
"""

import hashlib
import json
import logging
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from saltvirt.core import files, locks, mountinfo, undo, writelimit
from saltvirt.core.errors import BadArgument, SeedError, StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.seeding.offline import appliance, hostmount, lending
from saltvirt.seeding.offline.worker import confined

log = logging.getLogger(__name__)
_WORKER = Path(__file__).with_name("worker")
_ACCESS = ("rw", "ro")
# Types of guestmount's mounts in the kernel's list.
_KINDS = ("fuse", "fuse.guestmount")
_LIMIT_S = 300
_WAIT_S = 60
_MOST_OUTPUT_CHARS = 1 << 16


def mount(settings: HostSettings, location: str, fmt: str, access: str, root: str | None) -> str:
    """Mount all file systems of a disk below a folder, through the appliance; return the folder."""
    if access not in _ACCESS:
        raise BadArgument("access", f"{access!r}; rw or ro")
    flat = str(location).strip("/").replace("/", ".")
    folder = _resolve_folder(root or lending.mounts_folder(settings.state_dir) / flat)
    if _find_mounted_type(folder):
        raise StorageError(f"something is mounted at {folder}; guestfs.umount it, or give another")
    _settle_before(settings, folder)
    hostmount.refuse_others(folder)
    options = [f"--format={fmt}", "-a", location, "-i", f"--{access}"]
    with ExitStack() as handles, undo.on_failure() as steps:
        if not folder.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # In a folder like /tmp, another user may just have made this folder or a parent.
            hostmount.refuse_others(folder)
            steps.undo_with(folder.rmdir)
        if any(folder.iterdir()):
            raise StorageError(f"{folder} is not empty; give another root")
        job, kept_handles = _prepare_job(settings, location, access == "ro", handles, steps)
        record = _record_path(settings, folder)
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(record, json.dumps(job["confined"]).encode())
        steps.undo_with(record.unlink)
        job["argv"] = ["guestmount", *options, str(folder)]
        _launch(job, kept_handles)
    return str(folder)


def _settle_before(settings: HostSettings, folder: Path) -> None:
    """Give back the disk of a mount that was lost when the host went down."""
    record = _record_path(settings, folder)
    mount_facts = _read(record)
    if mount_facts:
        if locks.is_held(_lock_path(mount_facts)):
            raise StorageError(f"another job is mounting or unmounting {folder}; try again")
        _settle(settings, mount_facts)
        record.unlink(missing_ok=True)


def _prepare_job(
    settings: HostSettings, location: str, is_read: bool, handles: ExitStack, steps: undo.Steps
) -> tuple[dict[str, Any], list[int]]:
    """Return a mount's job (user, folder, disk), and the handles of their locks."""
    state, users = Path(settings.state_dir), lending.locks_folder(settings.state_dir)
    # Runs after the handles are closed; a sweep keeps the locks that guestmount holds.
    handles.callback(locks.sweep, users)
    account, user_handle = lending.reserve_account(lending.accounts(), users)
    handles.callback(os.close, user_handle)
    work = appliance.new_folder(state / "appliances").resolve()
    work_handle = locks.lock_for_program(work.with_suffix(".lock"))
    if work_handle is None:
        raise SeedError(f"{work} is in use; try again")
    handles.callback(os.close, work_handle)
    steps.undo_with(work.with_suffix(".lock").unlink)
    (work / "work").mkdir(mode=0o700, parents=True)
    steps.undo_with(shutil.rmtree, work)
    disk = lending.open_disk(location)
    handles.callback(os.close, disk)
    most_bytes = None if is_read else _most_bytes(settings, location, disk)
    lent_disk = lending.lend(disk, location, account, is_read=is_read)
    steps.undo_with(confined.give_back, lent_disk)
    confined_to = {"uid": account.uid, "gid": account.gid, "folder": str(work), "lent": lent_disk}
    confined_to["user"] = account.name
    job = {"path": location, "is_read": is_read, "confined": confined_to, "most_bytes": most_bytes}
    return job, [user_handle, work_handle, disk]


def _most_bytes(settings: HostSettings, location: str, disk: int) -> int | None:
    """
    Return the size limit of a writable disk, None for a device, with its fixed size.

    Refuses a disk in a folder that leaves VMs too little room.
    """
    disk_stat = os.fstat(disk)
    if not stat.S_ISREG(disk_stat.st_mode):
        return None
    meter = writelimit.from_settings(settings).meter(
        location, Path(os.path.realpath(location)).parent
    )
    meter.check(0)
    return disk_stat.st_size + meter.most_bytes()


def _launch(job: dict[str, Any], kept_handles: list[int]) -> None:
    """Run guestmount until the files are there; raise SeedError if it fails."""
    location = job["path"]
    # A file, not a pipe: a QEMU that a guest has taken over could keep a pipe open.
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        program = subprocess.Popen(
            [appliance.PYTHON, "-I", "-B", str(_WORKER), "--mount"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            text=True,
            env=appliance.environment(f"{job['confined']['folder']}/work", use_kvm=False),
            pass_fds=kept_handles,
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
        output.seek(0)
        lines = output.read(_MOST_OUTPUT_CHARS).strip().splitlines()
    if program.returncode:
        # Many lines of advice follow the cause.
        causes = [line for line in lines if "error:" in line or "guestmount:" in line] or lines
        raise SeedError(f"{location} cannot be mounted: {causes[0] if causes else 'no reason'}")


def umount(settings: HostSettings, name: str, *, force: bool = False) -> bool:
    """
    Unmount a guest's file systems, and give its disk back; return True.

    force
        End the appliance first; data that it has not written is lost. The appliance serves all
        calls on the folder, and may hang: so this function makes none, not even a stat.
    """
    folder = _resolve_folder(name)
    record, kind = _record_path(settings, folder), _find_mounted_type(folder)
    mount_facts = _read(record)
    if not kind and mount_facts is None:
        raise BadArgument("name", f"nothing is mounted at {name}")
    if kind and kind not in _KINDS:
        raise BadArgument("name", f"what is mounted at {name} is {kind}, and not a guest's disk")
    if force and mount_facts and locks.is_held(_lock_path(mount_facts)):
        # While the mount's lock is held, no other job has this user.
        lending.end_all(_account(mount_facts))
    if kind:
        failure = f"{name} cannot be unmounted (force=True ends an appliance that does not answer)"
        hostmount.run(["guestunmount", str(folder)], failure)
    if mount_facts:
        _settle(settings, mount_facts)
        record.unlink(missing_ok=True)
    if folder.is_relative_to(lending.mounts_folder(os.path.realpath(settings.state_dir))):
        with suppress(OSError):
            folder.rmdir()
    return True


def _settle(settings: HostSettings, mount_facts: dict[str, Any]) -> None:
    """Give a disk back once guestmount has ended: only then all data is written."""
    lock, users = _lock_path(mount_facts), lending.locks_folder(settings.state_dir)
    deadline = time.monotonic() + _WAIT_S
    while locks.is_held(lock):
        if time.monotonic() > deadline:
            raise SeedError(
                f"what was mounted is still being written after {_WAIT_S} s; call guestfs.umount "
                "again later, or with force=True, which loses what is not written yet"
            )
        time.sleep(0.1)
    # A killed guestmount may leave its QEMU; another job that has the user has ended that QEMU.
    with locks.hold_lock(users / f"{mount_facts['user']}.lock", wait=False) as handle:
        if handle:
            lending.end_all(_account(mount_facts))
    _give_back(mount_facts["lent"])
    shutil.rmtree(mount_facts["folder"], ignore_errors=True)
    lock.unlink(missing_ok=True)
    locks.sweep(users)


def _give_back(lent_disk: list[Any] | None) -> None:
    try:
        confined.give_back(lent_disk)
    except FileNotFoundError:
        pass
    except FileExistsError as exc:
        log.warning("%s; the one that was has to be given back by chown", exc)


def _resolve_folder(root: str | Path) -> Path:
    """Return a folder's resolved path, without any call to a file system mounted there."""
    path = Path(root).absolute()
    place = Path(os.path.realpath(path.parent), path.name)
    return place if _find_mounted_type(place) else Path(os.path.realpath(place))


def _find_mounted_type(folder: Path) -> str | None:
    """Return the type of the mount at a folder, None if there is none."""
    kinds = [mount.kind for mount in mountinfo.mounts() if mount.folder == str(folder)]
    return kinds[-1] if kinds else None


def _account(mount_facts: dict[str, Any]) -> lending.Account:
    return lending.Account(mount_facts["user"], mount_facts["uid"], mount_facts["gid"])


def _lock_path(mount_facts: dict[str, Any]) -> Path:
    return Path(mount_facts["folder"]).with_suffix(".lock")


def _read(record: Path) -> dict[str, Any] | None:
    return json.loads(record.read_text()) if record.exists() else None


def _record_path(settings: HostSettings, folder: Path) -> Path:
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return lending.mounts_folder(settings.state_dir) / f"{name}.json"
