"""
The CA's files on the master: each is replaced in one step, so a crash leaves old or new.

``cakey.pem`` and ``cacert.pem`` keep the names that older releases used, so theirs are adopted.
One small file per certificate issued, named by its serial: masters with many workers never
rewrite each other's state.
"""

import itertools
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cryptography import x509
from saltvirt import locks
from saltvirt.files import replace, sweep, write
from saltvirt.pki import ca, crl

KEY, CERTIFICATE, REVOCATIONS = "cakey.pem", "cacert.pem", "cacrl.pem"
# Who is a hypervisor; see saltvirt.fleet.membership.
HYPERVISORS = "hypervisors.json"
# Folders that exist during a rotation only: the CA that will sign, and the one that did.
NEXT, PREVIOUS = "next", "previous"


def _close(key: Path) -> None:
    """Let nobody else read a key; an older release may have left it open."""
    # A link leads to a file of somebody else's, whose readers they know.
    if not key.is_symlink() and key.stat().st_mode & 0o077:
        # Another's, or on a mount that is read-only: it can be closed no more than it is.
        with suppress(OSError):
            key.chmod(0o600)


def _read(folder: Path) -> ca.Authority:
    _close(folder / KEY)
    key, certificate = ((folder / name).read_bytes() for name in (KEY, CERTIFICATE))
    return ca.Authority.from_pem(key, certificate)


def _is_there(path: Path) -> bool:
    """Return whether a file is there; raise if its folder cannot be entered."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def _names(folder: Path) -> list[str]:
    """Return the names in a folder, none if there is no folder; raise if it cannot be read."""
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except FileNotFoundError:
        return []


def _lay_down(folder: Path, authority: ca.Authority) -> None:
    certificate = ca.certificate_pem(authority.certificate)
    replace(
        [
            (folder / KEY, ca.key_pem(authority.key), 0o600, None),
            (folder / CERTIFICATE, certificate, 0o644, None),
        ]
    )


class Store:
    """The state of one CA in a folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of whoever changes the CA."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locks.held(self.folder / "ca.lock"):
            sweep(self.folder)
            yield

    def authority(self, now: datetime, **options: Any) -> ca.Authority:
        """Return the CA, made at the first call; an older release's is taken as it is."""
        if not _is_there(self.folder / CERTIFICATE):
            with self.locked():
                if not _is_there(self.folder / CERTIFICATE):
                    self._create(now, options)
        try:
            return _read(self.folder)
        except ca.PkiError:
            # In the middle of a rotation the two files are replaced one after the other.
            with self.locked():
                return _read(self.folder)

    def _create(self, now: datetime, options: Any) -> None:
        if self._was_there():
            raise ca.PkiError(
                f"{self.folder / CERTIFICATE} is lost, and its CA has been in use: put it back, or "
                f"import a backup (virt_pki.import); for a new CA move {self.folder} away"
            )
        # From a CA whose making was interrupted between the two files, or which came here in part.
        self.put_aside(b"")
        _lay_down(self.folder, ca.create("Salt Virt CA", now, **options))

    def _was_there(self) -> bool:
        """Return whether there was a CA; all that hosts trust would end with it."""
        rests = (
            self.folder / name
            for name in (REVOCATIONS, f"{NEXT}/{CERTIFICATE}", f"{PREVIOUS}/{CERTIFICATE}")
        )
        return (
            (self.folder / CERTIFICATE).is_symlink()
            or bool(_names(self.folder / "issued"))
            or any(map(_is_there, rests))
        )

    def put_aside(self, wanted: bytes) -> None:
        """Keep a key that is about to be replaced by another one: it may be all that is left."""
        key = self.folder / KEY
        if not _is_there(key) or key.read_bytes() == wanted:
            return
        _close(key)
        names = (f"{KEY}.{number}" for number in itertools.count(1))
        key.rename(next(self.folder / name for name in names if not _is_there(self.folder / name)))

    def begin_rotation(self, now: datetime, **options: Any) -> None:
        """Make the next CA, unless there is one: from now on every host is told to trust both."""
        self.authority(now)
        with self.locked():
            if not _is_there(self.folder / NEXT / CERTIFICATE) and not self._previous():
                (self.folder / NEXT).mkdir(mode=0o700, exist_ok=True)
                made = ca.create(f"Salt Virt CA {now:%Y-%m-%d}", now, **options)
                _lay_down(self.folder / NEXT, made)

    def promote(self, now: datetime) -> None:
        """Let the next CA sign from now on; the present one stays trusted. Can be run again."""
        with self.locked():
            if not _is_there(self.folder / NEXT / CERTIFICATE):
                return
            if not self._previous():
                (self.folder / PREVIOUS).mkdir(mode=0o700, exist_ok=True)
                _lay_down(self.folder / PREVIOUS, _read(self.folder))
            authority = _read(self.folder / NEXT)
            _lay_down(self.folder, authority)
            shutil.rmtree(self.folder / NEXT)
            self._write_list(authority, now)

    def finish_rotation(self, now: datetime) -> None:
        """Stop trusting the CA that was replaced."""
        authority = self.authority(now)
        with self.locked():
            with suppress(FileNotFoundError):
                shutil.rmtree(self.folder / PREVIOUS)
            self._write_list(authority, now)

    def _previous(self) -> bool:
        return _is_there(self.folder / PREVIOUS / CERTIFICATE)

    def bundle(self, now: datetime) -> str:
        """Return the certificates that hosts trust, the signing one first, as PEM text."""
        folders = [self.folder, self.folder / NEXT, self.folder / PREVIOUS]
        self.authority(now)
        found = [f / CERTIFICATE for f in folders if _is_there(f / CERTIFICATE)]
        return "".join(dict.fromkeys(path.read_text() for path in found))

    def note(self, minion_id: str, purpose: str, certificate: x509.Certificate) -> None:
        """Note a certificate before it is handed out."""
        folder = self.folder / "issued"
        folder.mkdir(mode=0o700, exist_ok=True)
        entry = {
            "host": minion_id,
            "purpose": purpose,
            "serial": f"{certificate.serial_number:032x}",
            "not_after": certificate.not_valid_after_utc.isoformat(),
        }
        write(folder / f"{entry['serial']}.json", json.dumps(entry).encode())

    def issued(self) -> list[dict[str, Any]]:
        """Return every certificate that was issued: ``{host, purpose, serial, not_after}``."""
        folder = self.folder / "issued"
        return [json.loads((folder / name).read_text()) for name in _names(folder)]

    def _revoked_dates(self) -> dict[int, datetime]:
        # A glob would pass over a folder that cannot be read, and nobody would be revoked.
        folder = self.folder / "revoked"
        return {
            int(name, 16): datetime.fromisoformat((folder / name).read_text())
            for name in _names(folder)
        }

    def revoked(self) -> set[str]:
        """Return the serials that were revoked."""
        return {f"{serial:032x}" for serial in self._revoked_dates()}

    def revoke(self, serials: Iterable[str], now: datetime) -> None:
        """Revoke certificates and write a new list; doing it again changes nothing."""
        authority = self.authority(now)
        with self.locked():
            folder = self.folder / "revoked"
            folder.mkdir(mode=0o700, exist_ok=True)
            for serial in serials:
                if not _is_there(folder / serial):
                    write(folder / serial, now.isoformat().encode())
            self._write_list(authority, now)

    def _write_list(self, authority: ca.Authority, now: datetime) -> None:
        number = int(now.timestamp() * 1000)
        authorities = [authority]
        if self._previous():
            authorities.append(_read(self.folder / PREVIOUS))
        dates = self._revoked_dates()
        listed = b"".join(crl.build(one, dates, number, now) for one in authorities)
        write(self.folder / REVOCATIONS, listed, 0o644)

    def revocations(self, now: datetime) -> str:
        """Return the revocation list as PEM text."""
        if not _is_there(self.folder / REVOCATIONS):
            authority = self.authority(now)
            with self.locked():
                self._write_list(authority, now)
        return (self.folder / REVOCATIONS).read_text()


def read_all(folder: str | Path) -> dict[str, bytes]:
    """Return every file of a CA's folder as ``{relative path: bytes}``, for a backup."""
    folder = Path(folder)
    kept: dict[str, bytes] = {}
    if not _is_there(folder):
        return kept
    with Store(folder).locked():
        for root, _folders, names in os.walk(folder, onerror=_unless_missing):
            for path in (Path(root) / name for name in names):
                if path.suffix not in (".lock", ".part") and not _is_aside(path):
                    kept[str(path.relative_to(folder))] = path.read_bytes()
    return kept


def _is_aside(path: str | Path) -> bool:
    """Return whether it is a key that was put aside: of no CA, and another one elsewhere."""
    return re.fullmatch(rf"{re.escape(KEY)}\.\d+", Path(path).name) is not None


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def restore(folder: str | Path, files: Mapping[str, bytes]) -> None:
    """
    Lay a backup's files down where no CA is; all are on the disk before the first takes its place.

    The certificate comes last: with it the CA exists. A host that asks meanwhile waits.
    """
    place = Store(folder)
    with place.locked():
        path = place.folder / CERTIFICATE
        if _is_there(path) or path.is_symlink():
            raise ca.PkiError(f"there is a CA in {folder} already; move it away first")
        _refuse_another_list(place.folder / HYPERVISORS, files)
        ca.Authority.from_pem(files.get(KEY, b""), files.get(CERTIFICATE, b""))
        last = (KEY, CERTIFICATE)
        # An older backup may have keys put aside; in their place may be one of this master's.
        names = [*(n for n in files if n not in last and not _is_aside(n)), *last]
        paths = {name: _inside(place.folder, name) for name in names}
        for path in paths.values():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.put_aside(files[KEY])
        modes = {CERTIFICATE: 0o644, REVOCATIONS: 0o644}
        replace([(path, files[name], modes.get(name, 0o600), None) for name, path in paths.items()])


def _refuse_another_list(path: Path, files: Mapping[str, bytes]) -> None:
    """Let no backup say again who is a hypervisor, where the master has said it since."""
    if HYPERVISORS in files and _is_there(path) and path.read_bytes() != files[HYPERVISORS]:
        raise ca.PkiError(
            f"{path} is another list of hypervisors than the backup's; move it away first, and see "
            "who lacks then: salt-run virt.allow"
        )


def _inside(folder: Path, name: str) -> Path:
    # The file itself may be a link, which is replaced.
    path = folder / name
    parent = path.parent.resolve()
    if path.name == ".." or folder.resolve() not in (parent, *parent.parents):
        raise ca.PkiError(f"the backup names a file outside the CA: {name!r}")
    return parent / path.name


def utc_now() -> datetime:
    """Return the time, for the Salt modules."""
    return datetime.now(timezone.utc)
