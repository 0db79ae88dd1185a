"""Reserve the user that an appliance runs as, and give it a job's folder, disk and copies."""

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

from saltvirt.core import locks
from saltvirt.core.errors import SeedError
from saltvirt.core.writelimit import OverLimit, Room
from saltvirt.seeding.offline.worker import confined
from saltvirt.seeding.offline.worker.confined import PLACE

USER = "salt-virt"
# One per appliance at a time: separate users cannot read each other's memory and disks.
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
    """Return the folder of the locks on users in use."""
    return Path(state_dir) / "appliance-users"


def accounts() -> list[Account]:
    """Return the appliances' users; raise SeedError if there is none, or if a uid is shared."""
    all_entries = pwd.getpwall()
    entries = [entry for entry in all_entries if entry.pw_name in USERS]
    if not entries:
        raise SeedError(
            f"the appliance's user {USERS[0]} is missing on this host; run: salt HOST "
            "state.apply hypervisor, or on the host: useradd --system --user-group --shell "
            f"/usr/sbin/nologin {USERS[0]}"
        )
    uids = [(entry.pw_name, entry.pw_uid) for entry in all_entries]
    for entry in entries:
        refuse_shared(entry.pw_name, entry.pw_uid, uids)
    entries.sort(key=lambda entry: USERS.index(entry.pw_name))
    return [Account(entry.pw_name, entry.pw_uid, entry.pw_gid) for entry in entries]


@contextmanager
def borrow_account(
    candidates: Sequence[Account], place: str | Path, limit_s: float
) -> Iterator[Account]:
    """Yield a user without another appliance; raise SeedError if none is free in time."""
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

    If there are several users, the first one is left for short jobs.
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
    """Clean up after a user's mount with a killed guestmount: end its QEMU, give its disk back."""
    end_all(account)
    for record in sorted(mounts_folder(Path(place).parent).glob("*.json")):
        # Another mount's record may vanish meanwhile.
        with suppress(OSError):
            mount_facts = json.loads(record.read_text())
            # A living mount would hold the user's lock.
            if mount_facts["user"] == account.name:
                confined.give_back(mount_facts["lent"])


def mounts_folder(state_dir: str | Path) -> Path:
    """Return the folder with the records of mounts."""
    return Path(state_dir) / "guests"


def end_all(account: Account) -> None:
    """
    End all processes of a user; raise SeedError if one does not end.

    A process that its guest has taken over, and that outlived its job, could read the next job's
    data. Processes of a container with the same uid are left alone.
    """
    deadline = time.monotonic() + _END_S
    while any([_is_killed(pid, account.uid) for pid in os.listdir("/proc") if pid.isdigit()]):
        if time.monotonic() > deadline:
            raise SeedError(f"a process of the appliance's user {account.name} does not end")
        time.sleep(_LOOK_S / 4)


def _is_killed(pid: str, uid: int) -> bool:
    """Kill a process if any of its uids is the user's; return whether it was killed."""
    try:
        # A process's name may contain bytes that are no text.
        rows = Path("/proc", pid, "status").read_text(errors="replace").splitlines()
        fields = dict(row.split(":", 1) for row in rows if row.startswith(("State:", "Uid:")))
        # A zombie is harmless.
        if str(uid) not in fields["Uid"].split() or fields["State"].split()[0] == "Z":
            return False
        if Path("/proc", pid, "ns/pid").readlink() != _OUR_PIDS.readlink():
            return False
        os.kill(int(pid), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return True


def refuse_shared(name: str, uid: int, all_users: Iterable[tuple[str, int]]) -> None:
    """Refuse a user that shares its uid with another, such as root or QEMU's user."""
    other_names = sorted(user for user, number in all_users if number == uid and user != name)
    if uid == 0 or other_names:
        raise SeedError(
            f"the appliance's user {name} is {' and '.join(other_names) or 'root'} too (uid "
            f"{uid}); give it a uid of its own"
        )


def prepare_job(job: dict[str, Any], folder: str, account: Account, room: Room) -> dict[str, Any]:
    """Return a job with paths of copies that the user can read; create its work folder."""
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
    """Copy a file that only root can read; return the copy's path as the appliance sees it."""
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
    Lend a disk to the user during the block; yield the argument for ``give_back``.

    limit_s
        How long to wait for another job on the disk, in seconds.
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
    Lend a disk to the user, as long as the handle is open; return the argument for ``give_back``.

    limit_s
        How long to wait for another job on the disk, in seconds. Defaults to 0.

    Returns None for a disk that is only read and that all users may read: several jobs may read it
    at once. Otherwise one job has the disk at a time. A disk that already belongs to an appliance's
    user was left by an interrupted job, and counts as root's.
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
    """Lock a disk; a mount, or a QEMU that a guest has taken over, may hold the lock for ever."""
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
            "when that is over, or guestfs.umount it"
        )
