"""
Access a guest's root on this host: a folder, or a disk that the host's own kernel mounts.

The kernel resolves paths inside the root (chroot), so no link in it leads outside; no program of
the guest ever runs. A disk is attached by qemu-nbd and mounted in a mount namespace of this
process, so that the mount ends with the process in any case.
Source: qemu-nbd(8); mount(2), unshare(2).
"""

import ctypes
import errno
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import confined
import nbd
from confined import check
from identity import Refused

_GUARDED = 0x2 | 0x4 | 0x8  # MS_NOSUID, MS_NODEV, MS_NOEXEC
_ATTACH_S = 20
_READ_BYTES = 4 << 20  # the limit of a call of libguestfs
# File systems, and the root's subvolume in distributions that have one.
_KINDS = [
    ("ext4", b""),
    ("xfs", b""),
    ("btrfs", b"subvol=@rootfs"),
    ("btrfs", b"subvol=@"),
    ("btrfs", b"subvol=root"),
    ("btrfs", b""),
]
_libc = ctypes.CDLL(None, use_errno=True)


class Tree:
    """The files below this process's root, with libguestfs' names for the operations."""

    def is_file(self, path: str, followsymlinks: bool = False) -> bool:
        """Return whether a path is a regular file."""
        return self._is(path, stat.S_ISREG, followsymlinks)

    def is_dir(self, path: str) -> bool:
        """Return whether a path is a folder."""
        return self._is(path, stat.S_ISDIR, True)

    def _is(self, path: str, kind: Callable[[int], bool], follow: bool) -> bool:
        with suppress(OSError):
            return kind(os.stat(path, follow_symlinks=follow).st_mode)
        return False

    def is_symlink(self, path: str) -> bool:
        """Return whether a path is a symbolic link."""
        return Path(path).is_symlink()

    def read_file(self, path: str) -> bytes:
        """Return the content of a regular file, but not of a link."""
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as handle:
            data = handle.read(_READ_BYTES + 1)
        if len(data) > _READ_BYTES:
            raise Refused(f"its {path} has more than {_READ_BYTES >> 20} MiB")
        return data

    def exists(self, path: str) -> bool:
        """Return whether a path exists."""
        return os.path.exists(path)

    def mkdir_p(self, path: str) -> None:
        """Create a folder and its parents."""
        Path(path).mkdir(parents=True, exist_ok=True)

    def rm_f(self, path: str) -> None:
        """Remove a file or a link, if it exists."""
        with suppress(FileNotFoundError):
            Path(path).unlink()

    def write(self, path: str, data: bytes) -> None:
        """Write a new file."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o600), "wb") as out:
            out.write(data)
            os.fchmod(out.fileno(), 0o644)

    def chmod(self, mode: int, path: str) -> None:
        """Set the mode of a file or folder."""
        Path(path).chmod(mode)

    def chown(self, owner: int, group: int, path: str) -> None:
        """Set the owner and group of a file or folder."""
        os.chown(path, owner, group, follow_symlinks=False)

    def touch(self, path: str) -> None:
        """Create an empty file if there is none."""
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644))

    def ln_sf(self, target: str, path: str) -> None:
        """Create a symbolic link, in place of a former file."""
        self.rm_f(path)
        os.symlink(target, path)

    def glob_expand(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern."""
        return sorted(map(str, Path("/").glob(pattern.lstrip("/"))))


@contextmanager
def _chrooted(folder: str) -> Iterator[None]:
    """Have the kernel resolve all paths inside a folder during the block."""
    old_root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    finders, paths = sys.meta_path[:], sys.path[:]
    # Inside the root, an import would run the guest's code.
    sys.meta_path[:], sys.path[:] = [], []
    os.chdir(folder)
    os.chroot(".")
    try:
        yield
    finally:
        os.fchdir(old_root)
        os.chroot(".")
        os.close(old_root)
        sys.meta_path[:], sys.path[:] = finders, paths


def _refuse_what_needs_an_appliance(job: dict[str, Any]) -> None:
    if job["action"] == "build" or (job.get("install") or {}).get("kind", "boot") != "boot":
        raise Refused(
            "nothing is installed without an appliance; use seed_method=guestfs, or "
            "prep_install=True to have the guest do it when it boots"
        )


@contextmanager
def entered(job: dict[str, Any]) -> Iterator[tuple[Tree, dict[str, Any]]]:
    """Yield a folder of the host as the root of a guest."""
    _refuse_what_needs_an_appliance(job)
    ways_out = _ways_out(job["path"])
    with _chrooted(job["path"]):
        tree = Tree()
        is_root = tree.is_dir("/etc")
        if is_root and ways_out:
            raise Refused(
                f"{ways_out[0]} shows this host's processes, by which a link in the guest leads "
                f"out of it; run: umount {ways_out[0]}"
            )
        yield (
            tree,
            {"root": job["path"] if is_root else None, "os": "some system", "arch": "unknown"},
        )


def _ways_out(folder: str) -> list[str]:
    """Return the mounts of proc below a folder: their links lead out of a chroot."""
    root = os.path.realpath(folder)
    text = Path("/proc/self/mountinfo").read_bytes().decode(errors="surrogateescape")
    places = []
    # Like the library's mountinfo.py, which a worker cannot import.
    for line in filter(None, text.split("\n")):
        head, _, tail = line.partition(" - ")
        if tail.split(" ")[0] == "proc":
            escaped_path = head.split(" ")[4]
            places.append(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), escaped_path))
    return [place for place in places if place.startswith(f"{root}/")]


@contextmanager
def attached(job: dict[str, Any]) -> Iterator[tuple[Tree, dict[str, Any]]]:
    """Yield a disk's root, mounted by this host's kernel, and detach the disk afterwards."""
    _refuse_what_needs_an_appliance(job)
    confined.own_mounts()
    place = f"{os.environ['TMPDIR']}/root"
    Path(place).mkdir(0o700)
    with _attach_device(job) as device:
        source = _mount_root(device, place)
        try:
            with _chrooted(place):
                yield Tree(), {"root": source, "os": "some system", "arch": "unknown"}
        finally:
            if source:
                check(_libc.umount2(place.encode(), 0), f"umount {source}")


@contextmanager
def _attach_device(job: dict[str, Any]) -> Iterator[str]:
    """Yield a block device that shows the disk."""
    with nbd.free() as device:
        # With --verbose qemu-nbd stays in this session, and ends with it.
        argv = [
            "qemu-nbd",
            "--verbose",
            f"--connect={device}",
            f"--format={job['format']}",
            job["path"],
        ]
        try:
            server = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except FileNotFoundError:
            raise Refused("qemu-nbd is missing on this host; install qemu-utils") from None
        try:
            nbd.wait_attached(device, lambda: _find_exit_reason(server))
            yield device
        finally:
            _detach(device, server)


def _find_exit_reason(server: subprocess.Popen[str]) -> str | None:
    if server.poll() is None:
        return None
    output = server.stderr.read() if server.stderr else ""
    return (output.strip().splitlines() or ["it ended"])[-1]


def _detach(device: str, server: subprocess.Popen[str]) -> None:
    """Detach a device, and wait until all written data is in the disk's file."""
    subprocess.run(["qemu-nbd", "--disconnect", device], capture_output=True, check=False)
    try:
        server.wait(_ATTACH_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _mount_root(device: str, place: str) -> str | None:
    """Mount the partition, or the whole disk, with a root; return it, None if there is none."""
    for source in nbd.parts(device):
        if _is_lvm(source):
            raise Refused(
                "its root may be on LVM, which is not opened on a host; use " "seed_method guestfs"
            )
        for kind, options in _KINDS:
            if _libc.mount(source.encode(), place.encode(), kind.encode(), _GUARDED, options):
                if ctypes.get_errno() in (errno.EINVAL, errno.ENODEV, errno.ENOENT):
                    continue
                check(-1, f"mount {source}")
            with _chrooted(place):
                tree = Tree()
                if tree.is_dir("/etc") and os.path.lexists("/sbin/init"):
                    return source
            check(_libc.umount2(place.encode(), 0), f"umount {source}")
    return None


def _is_lvm(source: str) -> bool:
    with open(source, "rb") as handle:
        return b"LVM2 001" in handle.read(4 * 512)
