"""
The CA's files on the master, each replaced atomically.

``cakey.pem`` and ``cacert.pem`` have the names that Salt 3006 gave them, so its CA is adopted.
Each certificate has a small file, named by its serial (:mod:`saltvirt.ca.certified`): a master's
workers never rewrite each other's state.
"""

import itertools
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from saltvirt.ca import ca, certified
from saltvirt.ca.ca import Authority
from saltvirt.core import locks
from saltvirt.core.files import replace, sweep, write

# Long, because a list that has expired stops every connection: GnuTLS then trusts no peer.
_LIFE = timedelta(days=3650)


def build_crl(
    authority: Authority,
    revoked: Mapping[int, datetime],
    number: int,
    now: datetime,
) -> bytes:
    """
    Return a revocation list as PEM bytes.

    revoked
        ``{serial: datetime of the revocation}``.
    number
        Grows with every list.
    """
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(now - timedelta(minutes=5))
        .next_update(now + _LIFE)
        .add_extension(x509.CRLNumber(number), critical=False)
    )
    for serial, when in sorted(revoked.items()):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(when)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


KEY, CERTIFICATE, REVOCATIONS = "cakey.pem", "cacert.pem", "cacrl.pem"
# The list of hypervisors; see saltvirt.cluster.membership.
HYPERVISORS = "hypervisors.json"
# Folders that exist during a rotation only: the CA that will sign, and the one that did.
NEXT, PREVIOUS = "next", "previous"


# How long a record outlives its certificate, as a host's clock may be late.
_GRACE = timedelta(days=1)


def _restrict_key(key: Path) -> None:
    """Make a key private; Salt 3006 may have left it open."""
    # A link's target is not this project's file: its mode is not changed.
    if not key.is_symlink() and key.stat().st_mode & 0o077:
        # The file may be another user's, or on a read-only mount.
        with suppress(OSError):
            key.chmod(0o600)


def _read(folder: Path) -> ca.Authority:
    _restrict_key(folder / KEY)
    key, certificate = ((folder / name).read_bytes() for name in (KEY, CERTIFICATE))
    return ca.Authority.from_pem(key, certificate)


def _fingerprint(authority: ca.Authority) -> str:
    return ca.fingerprints(ca.certificate_pem(authority.certificate))[0]


def exists(path: Path) -> bool:
    """Return whether a file is there; raise if its folder cannot be entered."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def _write_authority(folder: Path, authority: ca.Authority) -> None:
    certificate = ca.certificate_pem(authority.certificate)
    replace(
        [
            (folder / KEY, ca.key_pem(authority.key), 0o600, None),
            (folder / CERTIFICATE, certificate, 0o644, None),
        ]
    )


class Store:
    """The state of one CA in a folder."""

    def __init__(self, folder: str | Path, name: str = "Salt Virt CA") -> None:
        self.folder, self.name = Path(folder), name

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock for changes of the CA."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locks.hold_lock(self.folder / "ca.lock"):
            sweep(self.folder)
            yield

    def authority(self, now: datetime, **options: Any) -> ca.Authority:
        """Return the CA, made at the first call; Salt 3006's CA is adopted."""
        if not exists(self.folder / CERTIFICATE):
            with self.locked():
                if not exists(self.folder / CERTIFICATE):
                    self._create(now, options)
        try:
            return _read(self.folder)
        except ca.PkiError:
            # A rotation replaces the two files one after the other; the lock waits for it.
            with self.locked():
                return _read(self.folder)

    def _create(self, now: datetime, options: Any) -> None:
        if self._was_there():
            raise ca.PkiError(
                f"{self.folder / CERTIFICATE} is lost, and its CA has been in use: put it back, or "
                f"import a backup (virt_pki.import); for a new CA move {self.folder} away"
            )
        # A key without a certificate, of a CA that was made or copied only in part.
        self.put_aside(b"")
        _write_authority(self.folder, ca.create(self.name, now, **options))

    def _was_there(self) -> bool:
        """Return whether there was a CA before: a new CA would break all hosts' trust."""
        remaining_files = (
            self.folder / name
            for name in (REVOCATIONS, f"{NEXT}/{CERTIFICATE}", f"{PREVIOUS}/{CERTIFICATE}")
        )
        return (
            (self.folder / CERTIFICATE).is_symlink()
            or certified.has_issued(self.folder)
            or any(map(exists, remaining_files))
        )

    def put_aside(self, new_key: bytes) -> None:
        """Rename a key that another is about to replace: it may be all that is left of its CA."""
        key = self.folder / KEY
        if not exists(key) or key.read_bytes() == new_key:
            return
        _restrict_key(key)
        names = (f"{KEY}.{number}" for number in itertools.count(1))
        key.rename(next(self.folder / name for name in names if not exists(self.folder / name)))

    def begin_rotation(self, now: datetime, **options: Any) -> None:
        """Make the next CA, unless there is one; from now on every host gets both CAs to trust."""
        self.authority(now)
        with self.locked():
            if not exists(self.folder / NEXT / CERTIFICATE) and not self._previous():
                (self.folder / NEXT).mkdir(mode=0o700, exist_ok=True)
                next_authority = ca.create(f"{self.name} {now:%Y-%m-%d}", now, **options)
                _write_authority(self.folder / NEXT, next_authority)

    def promote(self, now: datetime) -> None:
        """Let the next CA sign from now on; the present one stays trusted. Can be run again."""
        with self.locked():
            if not exists(self.folder / NEXT / CERTIFICATE):
                return
            if not self._previous():
                (self.folder / PREVIOUS).mkdir(mode=0o700, exist_ok=True)
                _write_authority(self.folder / PREVIOUS, _read(self.folder))
            authority = _read(self.folder / NEXT)
            _write_authority(self.folder, authority)
            shutil.rmtree(self.folder / NEXT)
            self._write_list(authority, now)

    def finish_rotation(self, now: datetime) -> None:
        """Stop trusting the CA that was replaced, and remove the records of its certificates."""
        authority = self.authority(now)
        with self.locked():
            old_fingerprint = (
                _fingerprint(_read(self.folder / PREVIOUS)) if self._previous() else ""
            )
            with suppress(FileNotFoundError):
                shutil.rmtree(self.folder / PREVIOUS)
            # Only now: while the old CA is trusted, its list must have its revoked certificates.
            rows = self.issued() if old_fingerprint else []
            serials = [row["serial"] for row in rows if row["authority"] == old_fingerprint]
            certified.forget(self.folder, serials)
            self._write_list(authority, now)

    def _previous(self) -> bool:
        return exists(self.folder / PREVIOUS / CERTIFICATE)

    def bundle(self, now: datetime) -> str:
        """Return the certificates that hosts trust, the signing one first, as PEM text."""
        folders = [self.folder, self.folder / NEXT, self.folder / PREVIOUS]
        self.authority(now)
        paths = [f / CERTIFICATE for f in folders if exists(f / CERTIFICATE)]
        return "".join(dict.fromkeys(path.read_text() for path in paths))

    def note(
        self,
        minion_id: str,
        purpose: str,
        certificate: x509.Certificate,
        names: Iterable[str],
        signer: ca.Authority,
    ) -> None:
        """Record a certificate with these names and addresses before it is handed out."""
        certified.note(
            self.folder,
            certified.CertificateRecord(
                host=minion_id,
                purpose=purpose,
                serial=f"{certificate.serial_number:032x}",
                not_after=certificate.not_valid_after_utc.isoformat(),
                names=tuple(names),
                authority=_fingerprint(signer),
            ),
        )

    def issued(self) -> list[dict[str, Any]]:
        """Return every certificate on record; see :func:`saltvirt.ca.certified.rows`."""
        return certified.rows(self.folder)

    def revoked(self) -> set[str]:
        """Return the serials that were revoked."""
        return {f"{serial:032x}" for serial in certified.revoked_dates(self.folder)}

    def revoke(self, serials: Iterable[str], now: datetime) -> None:
        """
        Revoke certificates and write a new list; doing it again changes nothing.

        They are recorded first: if the list cannot be written now, the next one has them.
        """
        with self.locked():
            certified.revoke(self.folder, serials, now)
        authority = self.authority(now)
        with self.locked():
            self._write_list(authority, now)

    def _write_list(self, authority: ca.Authority, now: datetime) -> None:
        number = int(now.timestamp() * 1000)
        authorities = [authority]
        if self._previous():
            authorities.append(_read(self.folder / PREVIOUS))
        dates = certified.revoked_dates(self.folder)
        crl_pem = b"".join(build_crl(signer, dates, number, now) for signer in authorities)
        write(self.folder / REVOCATIONS, crl_pem, 0o644)

    def prune(self, now: datetime) -> None:
        """Remove the records of certificates that expired more than a day ago."""
        with self.locked():
            serials = (
                row["serial"]
                for row in self.issued()
                if datetime.fromisoformat(row["not_after"]) + _GRACE < now
            )
            certified.forget(self.folder, serials)

    def revocations(self, now: datetime) -> str:
        """Return the revocation list as PEM text."""
        if not exists(self.folder / REVOCATIONS):
            authority = self.authority(now)
            with self.locked():
                self._write_list(authority, now)
        return (self.folder / REVOCATIONS).read_text()


def utc_now() -> datetime:
    """Return the present time."""
    return datetime.now(timezone.utc)
