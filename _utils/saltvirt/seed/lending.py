"""Who an appliance runs as, and what that user gets for a job: a folder, a disk, copies."""

import fcntl
import json
import os
import pwd
import shutil
import signal
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt import locks
from saltvirt.errors import SeedError
from saltvirt.room import OverLimit, Room
from saltvirt.seed.worker import confined
from saltvirt.seed.worker.confined import PLACE

USER = "salt-virt"
# One for each appliance at a time: users cannot look into each other's memory and disks.
USERS = (USER, *(f"{USER}{number}" for number in range(2, 5)))
_LOOK_S = 0.2
_END_S = 10
_OUR_PIDS = Path("/proc/self/ns/pid")


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this host."""

    name: str
    uid: int
    gid: int


def locks_folder(state_dir: str | Path) -> Path:
    """Return the folder in which it is locked who is in use."""
    return Path(state_dir) / "appliance-users"


def accounts(names: Iterable[str] = USERS) -> list[Account]:
    """Return the appliances' users; raise SeedError if this host has none, or not of their own."""
    all_entries, wanted_names = pwd.getpwall(), list(names)
    entries = [entry for entry in all_entries if entry.pw_name in wanted_names]
    if not entries:
        raise SeedError(
            f"the appliance's user {wanted_names[0]} is missing on this host; run: salt HOST "
            "state.apply "
            f"hypervisor, or on the host: useradd --system --user-group --shell "
            f"/usr/sbin/nologin {wanted_names[0]}"
        )
    uids = [(entry.pw_name, entry.pw_uid) for entry in all_entries]
    for entry in entries:
        refuse_shared(entry.pw_name, entry.pw_uid, uids)
    entries.sort(key=lambda entry: wanted_names.index(entry.pw_name))
    return [Account(entry.pw_name, entry.pw_uid, entry.pw_gid) for entry in entries]


@contextmanager
def borrow_account(
    candidates: Sequence[Account], place: str | Path, limit_s: float
) -> Iterator[Account]:
    """Yield a user that no other appliance has, waiting for one; raise SeedError if none comes."""
    deadline = time.monotonic() + limit_s
    while True:
        for account in candidates:
            with locks.hold_lock(Path(place) / f"{account.name}.lock", wait=False) as handle:
                if handle is not None:
                    _clear(account, place)
                    yield account
                    return
        if time.monotonic() > deadline:
            names = ", ".join(account.name for account in candidates)
            raise SeedError(
                f"the users of appliances ({names}) were in use by other jobs for {limit_s:g} s; "
                "try again, or raise virt:seed:limit_s"
            )
        time.sleep(_LOOK_S)


def reserve_account(candidates: Sequence[Account], place: str | Path) -> tuple[Account, int]:
    """
    Return a user for a mount, and the handle of its lock; raise SeedError if none is free.

    The first user is left to jobs that come and go, where there is another.
    """
    for account in candidates[1:] or candidates:
        handle = locks.lock_for_program(Path(place) / f"{account.name}.lock")
        if handle is not None:
            try:
                _clear(account, place)
            except BaseException:
                os.close(handle)
                raise
            return account, handle
    raise SeedError(
        "all users of appliances for mounts are in use; guestfs.umount what is mounted, or try "
        "again when seeding is done"
    )


def _clear(account: Account, place: str | Path) -> None:
    """Take from a user what a mount has left whose guestmount was killed: a QEMU, a disk."""
    end_all(account)
    for record in sorted(mounts_folder(Path(place).parent).glob("*.json")):
        # Another mount's may be gone by now.
        with suppress(OSError):
            mount_facts = json.loads(record.read_text())
            # One that lives would have the user's lock.
            if mount_facts["user"] == account.name:
                confined.give_back(mount_facts["lent"])


def mounts_folder(state_dir: str | Path) -> Path:
    """Return the folder in which it is noted what is mounted."""
    return Path(state_dir) / "guests"


def end_all(account: Account) -> None:
    """
    End all processes of a user; raise SeedError if one does not end.

    One that its guest has taken over, and that has outlived its job, could otherwise look into what
    the next job is given. Processes of a container that has a user of the same number are others.
    """
    deadline = time.monotonic() + _END_S
    while any([_is_killed(pid, account.uid) for pid in os.listdir("/proc") if pid.isdigit()]):
        if time.monotonic() > deadline:
            raise SeedError(f"a process of the appliance's user {account.name} does not end")
        time.sleep(_LOOK_S / 4)


def _is_killed(pid: str, uid: int) -> bool:
    """Kill a process if it is this user's, in any of the ways in which it can be."""
    try:
        # Each user of the host may call a process of theirs by bytes that are no text.
        rows = Path("/proc", pid, "status").read_text(errors="replace").splitlines()
        fields = dict(row.split(":", 1) for row in rows if row.startswith(("State:", "Uid:")))
        # One that has ended, and that nobody has waited for, is harmless.
        if str(uid) not in fields["Uid"].split() or fields["State"].split()[0] == "Z":
            return False
        if Path("/proc", pid, "ns/pid").readlink() != _OUR_PIDS.readlink():
            return False
        os.kill(int(pid), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return True


def refuse_shared(name: str, uid: int, all_users: Iterable[tuple[str, int]]) -> None:
    """Refuse a user that is another one too: root, QEMU's, nobody."""
    other_names = sorted(user for user, number in all_users if number == uid and user != name)
    if uid == 0 or other_names:
        raise SeedError(
            f"the appliance's user {name} is {' and '.join(other_names) or 'root'} too (uid "
            f"{uid}); "
            "give it a uid of its own"
        )


def prepare_job(job: dict[str, Any], folder: str, account: Account, room: Room) -> dict[str, Any]:
    """Return a job whose files are copies that the user can read, in a folder that it can use."""
    work, copies_folder = Path(folder, "work"), Path(folder, "given")
    work.mkdir(mode=0o700)
    os.chown(work, account.uid, account.gid)
    copies_folder.mkdir(mode=0o755)
    copies_folder.chmod(0o755)
    out = dict(job)
    if job.get("install") and job["install"].get("files"):
        files = [
            (_copy_file(path, copies_folder, room), name) for path, name in job["install"]["files"]
        ]
        out["install"] = {**job["install"], "files": files}
    if job.get("uploads"):
        out["uploads"] = [
            (inside, _copy_file(path, copies_folder, room), mode)
            for inside, path, mode in job["uploads"]
        ]
    return out


def _copy_file(path: str, copies_folder: Path, room: Room) -> str:
    """Copy a file that root alone reads; return the path that the appliance's process sees."""
    target = copies_folder / str(len(list(copies_folder.iterdir())))
    try:
        room.meter(Path(path).name, copies_folder).expect(os.stat(path).st_size)
        shutil.copyfile(path, target)
        target.chmod(0o644)
    except OverLimit as exc:
        raise SeedError(str(exc)) from exc
    except OSError as exc:
        raise SeedError(f"{path} cannot be brought to the appliance: {exc.strerror}") from exc
    return f"{PLACE}/given/{target.name}"


@contextmanager
def lend_during(
    path: str, account: Account, *, is_read: bool, limit_s: float
) -> Iterator[list[Any] | None]:
    """
    Have a disk belong to the user while the block runs; yield what ``give_back`` needs.

    limit_s
        How long another job of the disk is waited for, in seconds.
    """
    handle = open_disk(path)
    try:
        lent_disk = lend(handle, path, account, is_read=is_read, limit_s=limit_s)
        try:
            yield lent_disk
        finally:
            if lent_disk:
                with suppress(OSError):
                    confined.give_back([handle, *lent_disk[1:]])
    finally:
        os.close(handle)


def open_disk(path: str) -> int:
    """Return a handle of a disk; raise SeedError if there is none."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
        raise SeedError(f"{path} cannot be opened: {exc.strerror}") from exc


def lend(
    handle: int, path: str, account: Account, *, is_read: bool, limit_s: float = 0
) -> list[Any] | None:
    """
    Have a disk belong to the user, as long as the handle is open; return what ``give_back`` needs.

    limit_s
        How long another job of the disk is waited for, in seconds. Defaults to 0.

    None if everybody may read the disk and it is only read: several may look at it at once. Else
    one job has it at a time. What belongs to such a user before is left by a job that was cut off:
    it is root's.
    """
    if is_read and os.fstat(handle).st_mode & 0o004:
        return None
    _lock(handle, path, limit_s)
    disk_stat = os.fstat(handle)
    mode = stat.S_IMODE(disk_stat.st_mode)
    own_uids = {entry.pw_uid for entry in pwd.getpwall() if entry.pw_name in USERS} | {account.uid}
    owner = 0 if disk_stat.st_uid in own_uids else disk_stat.st_uid
    acl = confined.others(handle)
    lent_disk = [os.path.realpath(path), owner, mode, acl, [account.uid, disk_stat.st_ino]]
    try:
        os.fchown(handle, account.uid, -1)
    except OSError as exc:
        raise SeedError(
            f"{path} cannot be lent to the appliance's user {account.name}: {exc.strerror}; put it "
            "on a file system where root may change owners"
        ) from exc
    return lent_disk


def _lock(handle: int, path: str, limit_s: float) -> None:
    """Have a disk to ourselves; a mount may have it for ever, and so may a QEMU taken over."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(_LOOK_S)
                continue
        waited_text = f", for {limit_s:g} s" if limit_s else ""
        raise SeedError(
            f"{path} is in use by another job of this host, or mounted{waited_text}; try again "
            "when "
            "that is over, or guestfs.umount it"
        )
