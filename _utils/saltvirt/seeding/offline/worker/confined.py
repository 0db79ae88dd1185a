"""
Confine libguestfs and its QEMU: as their own user, in their own view of files, without a network.

The folder ``PLACE`` shows that process only its own files: its work folder, the copies for the
guest, the disk, and an appliance that root built, which no guest's kernel can change. The rest of
``/run``, with the sockets of the host's services, is hidden.
Source: unshare(2), mount(2), capabilities(7), supermin(1), guestfs(3) on fixed appliances.
"""

import ctypes
import errno
import fcntl
import functools
import os
import stat
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RUN = "/run"
PLACE = f"{RUN}/salt-virt-appliance"
CACHE = "/var/cache/salt-virt"
RESOLVERS = "/etc/resolv.conf"
_MOST_LINKS = 8
SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
_BUILT = ("README.fixed", "kernel", "initrd", "root")
_NEWNS, _NEWIPC, _NEWNET = 0x20000, 0x08000000, 0x40000000
_PRIVATE, _BIND, _MOVE = 0x4000 | 1 << 18, 0x1000, 0x2000  # MS_REC | MS_PRIVATE; MS_BIND; MS_MOVE
_NOSUID_NODEV_NOEXEC = 0x2 | 0x4 | 0x8
_NO_NEW_PRIVS = 38
# A file's permissions beside those of its owner and group; the owner may set them.
_ACL = "system.posix_acl_access"
_libc = ctypes.CDLL(None, use_errno=True)


def enter(job: dict[str, Any], search_path: Iterable[str]) -> None:
    """Drop root for good, and change the job's paths to those of the confined view."""
    confinement = job["confined"]
    groups = (
        [os.stat("/dev/kvm").st_gid]
        if confinement["use_kvm"] and os.path.exists("/dev/kvm")
        else []
    )
    Path(PLACE).mkdir(mode=0o711, exist_ok=True)
    with built(search_path) as appliance:
        _furnish(job, confinement["folder"], appliance)
    become(confinement["uid"], confinement["gid"], groups)
    work = f"{PLACE}/work"
    os.environ.update(
        TMPDIR=work,
        XDG_RUNTIME_DIR=work,
        LIBGUESTFS_CACHEDIR=work,
        HOME=work,
        **({"LIBGUESTFS_PATH": f"{PLACE}/appliance"} if appliance else {}),
    )
    os.chdir(work)


def _furnish(job: dict[str, Any], folder: str, appliance: str | None) -> None:
    """Set up the view of files, and the network, of this process and its children."""
    own_view(has_network=bool(job.get("network")))
    hide(PLACE)
    # Build the new /run beside the old one, as long as its sources are visible.
    place = Path(f"{PLACE}{PLACE.removeprefix(RUN)}")
    place.mkdir(mode=0o711)
    for name in ("work", "given"):
        show(f"{folder}/{name}", place / name)
    if appliance:
        # File by file, so that the view keeps them when another job rebuilds the appliance.
        (place / "appliance").mkdir(mode=0o755)
        for name in _BUILT:
            show(f"{appliance}/{name}", place / "appliance" / name)
    if not is_reachable(job["path"]):
        show(job["path"], place / "disk")
        job["path"] = f"{PLACE}/disk"
    if job.get("network"):
        _keep_resolvers(PLACE)
    check(_libc.mount(PLACE.encode(), RUN.encode(), None, _MOVE, None), f"mount {RUN}")


def own_view(*, has_network: bool) -> None:
    """Unshare this process's mounts, and its network unless it needs the host's."""
    own_mounts(_NEWIPC | (0 if has_network else _NEWNET))


def own_mounts(further_namespaces: int = 0) -> None:
    """Unshare this process's mounts, and maybe more; the mounts end with the process."""
    check(_libc.unshare(_NEWNS | further_namespaces), "unshare")
    check(_libc.mount(b"none", b"/", None, _PRIVATE, None), "a private mount")


def hide(folder: str) -> None:
    """Cover a folder with an empty one."""
    options = (b"tmpfs", folder.encode(), b"tmpfs", _NOSUID_NODEV_NOEXEC, b"mode=0755,size=1m")
    check(_libc.mount(*options), f"mount {folder}")


def _keep_resolvers(new_run: str) -> None:
    """Keep resolv.conf for QEMU's network: on many hosts it is a link, or two, into /run."""
    path, links = Path(RESOLVERS), 0
    while path.is_symlink() and links < _MOST_LINKS:
        path, links = Path(os.path.normpath(path.parent / path.readlink())), links + 1
        if path.is_relative_to(RUN):
            target = Path(new_run, path.relative_to(RUN))
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if path.is_symlink():
                target.symlink_to(path.readlink())
            elif path.is_file():
                target.write_text(path.read_text())
                target.chmod(0o644)


def is_reachable(path: str) -> bool:
    """Return whether all users can reach a file by its path, outside /run."""
    real_path = Path(path).resolve()
    return not real_path.is_relative_to(RUN) and all(
        parent.stat().st_mode & 0o001 for parent in real_path.parents
    )


def others(disk: str | int) -> str:
    """Return a file's ACL, as its file system has it, in hex; empty if there is none."""
    try:
        return os.getxattr(disk, _ACL).hex()
    except OSError:
        return ""


def give_back(lent: list[Any] | None) -> None:
    """
    Give a disk back; ``lent`` is ``[path or handle, uid, mode, ACL, [user, inode]]``.

    A disk that has got another owner since, usually by libvirt, keeps it. Raises FileNotFoundError
    if the path is gone, FileExistsError if it is a link or another file: a user with write access
    to that folder may have put it there, to be given the link's target.
    """
    if lent:
        disk, uid, mode, acl, (user, inode) = lent
        if isinstance(disk, int):
            _give(disk, uid, mode, acl)
            return
        handle = os.open(disk, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            disk_stat = os.fstat(handle)
            if disk_stat.st_ino != inode or stat.S_ISLNK(disk_stat.st_mode):
                raise FileExistsError(errno.EEXIST, "is not the file any more that was lent", disk)
            if disk_stat.st_uid == user:
                _give(f"/proc/self/fd/{handle}", uid, mode, acl)
        finally:
            os.close(handle)


def _give(disk: str | int, uid: int, mode: int, acl: str) -> None:
    os.chown(disk, uid, -1)
    # The borrowing user may have added an ACL entry, which would stay.
    if acl:
        os.setxattr(disk, _ACL, bytes.fromhex(acl))
    elif others(disk):
        os.removexattr(disk, _ACL)
    os.chmod(disk, mode)  # noqa: PTH101 - it may be a handle


def show(source: str, target: Path) -> None:
    """Bind a file or folder to a new path."""
    if Path(source).is_dir():
        target.mkdir(mode=0o755)
    else:
        target.touch()
    check(_libc.mount(source.encode(), os.fsencode(target), None, _BIND, None), f"bind {source}")


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Become a user for good, without any capability."""
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    check(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


@contextmanager
def built(search_path: Iterable[str]) -> Iterator[str | None]:
    """
    Yield the folder of the appliance, rebuilt if the host's packages have changed.

    None if the distribution has one that is not built on the host. Root builds it: a user that a
    guest has taken over could change it for all later guests, and only root can read Ubuntu's
    kernel.
    """
    parts = next(
        (
            f"{candidate}/supermin.d"
            for candidate in search_path
            if Path(candidate, "supermin.d").is_dir()
        ),
        "",
    )
    if not parts:
        yield None
        return
    Path(CACHE).mkdir(mode=0o755, parents=True, exist_ok=True)
    folder = Path(CACHE, "appliance")
    argv = [
        "supermin",
        "--build",
        "--if-newer",
        "--copy-kernel",
        "-f",
        "ext2",
        "--host-cpu",
        os.uname().machine,
        parts,
        "-o",
        str(folder),
    ]
    # A private lock, not supermin's own: a user who may read a lock file can hold the lock.
    private_opener = functools.partial(os.open, mode=0o600)
    with open(f"{CACHE}/build.lock", "w", opener=private_opener) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = subprocess.run(argv, capture_output=True, text=True, check=False)
        if result.returncode:
            lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
            raise RuntimeError(f"supermin cannot build the appliance: {lines[-1]}")
        (folder / "README.fixed").touch()
        folder.chmod(0o755)
        for name in _BUILT:
            (folder / name).chmod(0o644)
        # The kernel keeps its package's date, older than others': supermin would always rebuild.
        date = (folder / "root").stat().st_mtime_ns
        os.utime(folder / "kernel", ns=(date, date))
        yield str(folder)


def check(result: int, operation: str) -> None:
    """Raise OSError with the operation's name if a call of the C library failed."""
    if result:
        code = ctypes.get_errno()
        raise OSError(code, f"{operation}: {os.strerror(code)}")
