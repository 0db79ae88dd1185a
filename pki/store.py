"""
The CA's files on the master: each is replaced in one step, so a crash leaves old or new.

``cakey.pem`` and ``cacert.pem`` keep the names that older releases used, so theirs are adopted.
One small file per certificate issued, named by its serial: masters with many workers never
rewrite each other's state.
"""

import json
import os
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from saltvirt import locks
from saltvirt.pki import ca, crl

KEY, CERTIFICATE, REVOCATIONS = "cakey.pem", "cacert.pem", "cacrl.pem"


def write(path, data, mode=0o600, gid=None):
    """Replace a file in one step, on the disk when this returns; ``gid`` becomes its group."""
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(handle, "wb") as out:
        if gid is not None:
            os.fchown(handle, -1, gid)
        out.write(data)
        out.flush()
        os.fsync(handle)
    part.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Store:
    """The state of one CA in a folder."""

    def __init__(self, folder):
        self.folder = Path(folder)

    @contextmanager
    def _locked(self):
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locks.held(self.folder / "ca.lock"):
            yield

    def authority(self, now, **options):
        """Return the CA, made at the first call; an older release's is taken as it is."""
        if not (self.folder / CERTIFICATE).exists():
            with self._locked():
                if not (self.folder / CERTIFICATE).exists():
                    self._create(now, options)
        key, certificate = ((self.folder / name).read_bytes() for name in (KEY, CERTIFICATE))
        return ca.Authority.from_pem(key, certificate)

    def _create(self, now, options):
        if (self.folder / KEY).exists():
            # Interrupted between the two files: the key alone has signed nothing.
            (self.folder / KEY).unlink()
        made = ca.create("Salt Virt CA", now, **options)
        write(self.folder / KEY, ca.key_pem(made.key))
        write(self.folder / CERTIFICATE, ca.certificate_pem(made.certificate), 0o644)

    def note(self, host, purpose, certificate):
        """Note a certificate before it is handed out."""
        folder = self.folder / "issued"
        folder.mkdir(mode=0o700, exist_ok=True)
        entry = {
            "host": host,
            "purpose": purpose,
            "serial": f"{certificate.serial_number:032x}",
            "not_after": certificate.not_valid_after_utc.isoformat(),
        }
        write(folder / f"{entry['serial']}.json", json.dumps(entry).encode())

    def issued(self):
        """Return every certificate that was issued: ``{host, purpose, serial, not_after}``."""
        return [json.loads(path.read_text()) for path in (self.folder / "issued").glob("*.json")]

    def _revoked_dates(self):
        found = (self.folder / "revoked").glob("*")
        return {int(path.name, 16): datetime.fromisoformat(path.read_text()) for path in found}

    def revoked(self):
        """Return the serials that were revoked."""
        return {f"{serial:032x}" for serial in self._revoked_dates()}

    def revoke(self, serials, now):
        """Revoke certificates and write a new list; doing it again changes nothing."""
        authority = self.authority(now)
        with self._locked():
            folder = self.folder / "revoked"
            folder.mkdir(mode=0o700, exist_ok=True)
            for serial in serials:
                if not (folder / serial).exists():
                    write(folder / serial, now.isoformat().encode())
            self._write_list(authority, now)

    def _write_list(self, authority, now):
        number = int(now.timestamp() * 1000)
        listed = crl.build(authority, self._revoked_dates(), number, now)
        write(self.folder / REVOCATIONS, listed, 0o644)

    def revocations(self, now):
        """Return the revocation list as PEM text."""
        if not (self.folder / REVOCATIONS).exists():
            authority = self.authority(now)
            with self._locked():
                self._write_list(authority, now)
        return (self.folder / REVOCATIONS).read_text()


def read_all(folder):
    """Return every file of a CA's folder as ``{relative path: bytes}``, for a backup."""
    paths = [path for path in Path(folder).rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def restore(folder, files):
    """Lay a backup's files down in an empty folder; the certificate last: with it the CA exists."""
    folder = Path(folder)
    if (folder / CERTIFICATE).exists():
        raise ca.PkiError(f"there is a CA in {folder} already; move it away first")
    ca.Authority.from_pem(files.get(KEY, b""), files.get(CERTIFICATE, b""))
    for name in sorted(files, key=lambda name: name == CERTIFICATE):
        path = (folder / name).resolve()
        if folder.resolve() not in path.parents:
            raise ca.PkiError(f"the backup names a file outside the CA: {name!r}")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(path, files[name])


def utc_now():
    """Return the time, for the faces."""
    return datetime.now(timezone.utc)
