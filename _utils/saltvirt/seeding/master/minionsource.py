"""Fetch Salt's minion for guests from a site laid out as Salt's own, or from a folder."""

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from saltvirt.core import files
from saltvirt.core.arguments import hide_credentials
from saltvirt.core.errors import ImageError, MasterError
from saltvirt.core.http import web
from saltvirt.core.units import MIB, human
from saltvirt.core.writelimit import Meter, OverLimit, Room, read_space
from saltvirt.seeding.shared.minionpackages import DEB, ONEDIR, RPM

# Salt's public site. Its server makes a checksum file for each file. Source: Salt's install guide,
# and the site's own folders.
PUBLIC = "https://packages.broadcom.com/artifactory"
# Far more than a onedir tarball takes.
MOST_BYTES, LIMIT_S = 1024 * MIB, 3600
_SUM_BYTES, _CHUNK = 64 * 1024, 1 << 20
_SHA256 = re.compile(rb"(?<![0-9A-Fa-f])[0-9A-Fa-f]{64}(?![0-9A-Fa-f])")
_WEB = ("https://", "http://")


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a source has the files of a kind, their names, and their first bytes."""

    folder: str
    names: tuple[str, ...]
    arches: dict[str, str]
    magic: bytes


_DEB_ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}
_LAYOUTS = {
    ONEDIR: _Layout(
        "saltproject-generic/onedir/{version}",
        ("salt-{version}-onedir-linux-{arch}.tar.xz",),
        {"x86_64": "x86_64", "aarch64": "arm64"},
        b"\xfd7zXZ\0",
    ),
    DEB: _Layout(
        "saltproject-deb/pool",
        ("salt-common_{version}_{arch}.deb", "salt-minion_{version}_{arch}.deb"),
        _DEB_ARCHES,
        b"!<arch>\n",
    ),
    RPM: _Layout(
        "saltproject-rpm",
        ("salt-{version}-0.{arch}.rpm", "salt-minion-{version}-0.{arch}.rpm"),
        {"x86_64": "x86_64", "aarch64": "aarch64"},
        b"\xed\xab\xee\xdb",
    ),
}
# Dependencies of Salt's packages, for images without them; a folder may have these.
_DEPENDENCY_PATTERNS = {DEB: ("*_{arch}.deb", "*_all.deb"), RPM: ("*.{arch}.rpm", "*.noarch.rpm")}


class _Limit(Meter):
    """The limits of one file, with messages of their own."""

    def __init__(self, folder: Path, description: str) -> None:
        room = Room(max_bytes=MOST_BYTES, reserve_bytes=0, limit_s=LIMIT_S)
        super().__init__(room, description, folder)

    @property
    def late(self) -> str:
        """The time limit in words."""
        return f"within {LIMIT_S} s"

    def expect(self, size_bytes: int, written_bytes: int = 0) -> None:
        """Raise OverLimit if a file is too large, or has no room."""
        if size_bytes > MOST_BYTES:
            raise OverLimit(f"{self._image} has more than {human(MOST_BYTES)}, and is no minion")
        free = read_space(self._folder)[1]
        if size_bytes - written_bytes > free:
            raise OverLimit(f"no room for {self._image} in {self._folder}: {human(free)} are free")

    def check(self, written_bytes: int) -> None:
        """Raise OverLimit if a file has become too large, or takes too long."""
        self.expect(written_bytes, written_bytes)
        if self.left_s <= 0:
            raise OverLimit(f"{self._image} did not arrive {self.late}")


@dataclass(frozen=True, slots=True)
class Site:
    """
    A source of minions.

    location
        A URL with the layout of Salt's own site, or the path of a folder with that layout, or with
        all files directly in it; each file has ``FILE.sha256`` beside it.
    """

    location: str

    @property
    def is_folder(self) -> bool:
        """Whether the source is a folder of this machine."""
        return not self.location.startswith(_WEB)

    def names(self, kind: str, version: str, arch: str) -> list[str]:
        """Return the names of the files that a guest with this processor needs."""
        layout = _LAYOUTS[kind]
        site_arch = layout.arches[arch]
        salt_names = [name.format(version=version, arch=site_arch) for name in layout.names]
        return salt_names + (self._further(kind, site_arch) if self.is_folder else [])

    def _further(self, kind: str, arch: str) -> list[str]:
        patterns = [pattern.format(arch=arch) for pattern in _DEPENDENCY_PATTERNS.get(kind, ())]
        names = {path.name for pattern in patterns for path in Path(self.location).glob(pattern)}
        return sorted(name for name in names if not name.startswith("salt"))

    def digest(self, kind: str, version: str, name: str) -> str:
        """Return the SHA-256 that the source states for a file."""
        place = f"{self._place(kind, version, name)}.sha256"
        if self.is_folder:
            with _open_regular(place) as handle:
                content = handle.read(_SUM_BYTES)
        else:
            try:
                content = web.fetch_small(place, _SUM_BYTES, _Limit(Path("/"), place))
            except ImageError as exc:
                raise MasterError(f"{hide_credentials(place)} cannot be fetched: {exc}") from exc
        match = _SHA256.search(content)
        if not match:
            raise MasterError(
                f"{hide_credentials(place)} has no SHA-256 in it; {_describe_content(content)}"
            )
        return match[0].decode().lower()

    def bring(
        self, kind: str, version: str, name: str, part: Path, progress: Callable[..., None]
    ) -> None:
        """Fetch a file to ``part``; raise MasterError if its first bytes do not fit its kind."""
        place = self._place(kind, version, name)
        meter = _Limit(part.parent, hide_credentials(place))
        try:
            if self.is_folder:
                _copy(place, part, meter.counting(progress))
            else:
                web.fetch(place, part, progress, None, meter)
        except OverLimit as exc:
            raise MasterError(str(exc)) from exc
        except ImageError as exc:
            # Drop the hint that a retry goes on where this stopped: nothing is kept here.
            reason, advice, _tail = str(exc).removeprefix("image ").partition("; try again")
            raise MasterError(f"{reason}{advice}") from exc
        with open(part, "rb") as handle:
            begin = handle.read(512)
        if not begin.startswith(_LAYOUTS[kind].magic):
            raise MasterError(
                f"{hide_credentials(place)} is no {Path(name).suffix} file; "
                f"{_describe_content(begin)}"
            )

    def _place(self, kind: str, version: str, name: str) -> str:
        folder = _LAYOUTS[kind].folder.format(version=version)
        laid_out = f"{self.location.rstrip('/')}/{folder}/{name}"
        flat = Path(self.location, name)
        return str(flat) if self.is_folder and not Path(laid_out).exists() else laid_out


def _describe_content(content: bytes) -> str:
    if content.lstrip().startswith(b"<"):
        return "it is a web page, as a proxy may put in a file's place"
    return "see what the server, or the folder, has there"


@contextmanager
def _open_regular(path: str) -> Iterator[BinaryIO]:
    """Open a regular file for reading."""
    try:
        handle = open(path, "rb", opener=_open_nonblocking)  # noqa: SIM115 (it is closed below)
    except OSError as exc:
        raise MasterError(f"{path} cannot be read: {exc.strerror}") from exc
    with handle:
        if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
            raise MasterError(f"{path} is not a regular file")
        yield handle


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _copy(path: str, part: Path, progress: Callable[..., None]) -> None:
    with _open_regular(path) as source, open(part, "wb", opener=files.private) as out:
        done_bytes, total_bytes = 0, os.fstat(source.fileno()).st_size
        progress(done_bytes, total_bytes)
        while chunk := source.read(_CHUNK):
            out.write(chunk)
            done_bytes += len(chunk)
            progress(done_bytes, total_bytes)
