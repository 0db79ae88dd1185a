"""Read the files of this master's CAs: their modes, ends, and what does not belong there."""

import contextlib
import itertools
import os
import pwd
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from saltvirt.ca import ca, certified, store
from saltvirt.ca.authorities import USES, Authorities
from saltvirt.cluster import membership

# Salt 3006's external pillar made these for each host, in a folder of its own.
_OLD_KEYS, _OLD_CERTIFICATES = (
    ("serverkey.pem", "clientkey.pem"),
    ("servercert.pem", "clientcert.pem"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A file or folder of the CAs."""

    path: str
    mode: int
    owner: str
    is_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OldKeysFacts:
    """
    A folder with one host's private keys, which Salt 3006 made and kept on the master.

    is_trusted
        Whether libvirt's present CA signed their certificates, or these cannot be read.
    """

    path: str
    is_trusted: bool


def find_strange_files(authorities: Authorities) -> Iterator[str]:
    """Yield files in the CAs' folders that a minion may have written, and damaged records."""
    yield from map(str, authorities.strange())
    ca_folders = [ca_store.folder for ca_store in authorities.stores.values()]
    for folder in (authorities.folder, *ca_folders):
        for subfolder in (".", "enrolled", store.NEXT, store.PREVIOUS):
            for name in filter(membership.may_be_planted, certified.names_in(folder / subfolder)):
                yield str(folder / subfolder / name)


def by_use(
    authorities: Authorities, read: Callable[[store.Store], Iterable[str]]
) -> dict[str, frozenset[str]]:
    """Return what ``read`` returns for the CA of each use."""
    return {use: frozenset(read(ca_store)) for use, ca_store in authorities.stores.items()}


def find_revoked_serials(ca_store: store.Store, now: datetime) -> set[str]:
    """Return the serials of revoked certificates that have not expired yet."""
    rows = ca_store.issued()
    return ca_store.revoked() - {
        row["serial"] for row in rows if datetime.fromisoformat(row["not_after"]) <= now
    }


def _certificate_paths(ca_store: store.Store) -> Iterator[Path]:
    for subfolder in (".", store.NEXT, store.PREVIOUS):
        path = ca_store.folder / subfolder / store.CERTIFICATE
        if store.exists(path):
            yield path


def read_fingerprints(ca_store: store.Store) -> Iterator[str]:
    """Yield the fingerprints of a CA's certificates: the present, the next and the previous."""
    for path in _certificate_paths(ca_store):
        yield from ca.fingerprints(path.read_bytes())


def read_ends(authorities: Authorities) -> Iterator[tuple[str, datetime]]:
    """Yield the path of each CA's certificate, and when it expires."""
    for ca_store in authorities.stores.values():
        for path in _certificate_paths(ca_store):
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
            yield str(path), certificate.not_valid_after_utc


def find_old_keys(libvirt_store: store.Store) -> Iterator[OldKeysFacts]:
    """Yield the subfolders of libvirt's CA folder that hold hosts' keys."""
    names = sorted(os.listdir(libvirt_store.folder)) if store.exists(libvirt_store.folder) else []
    for folder in (libvirt_store.folder / name for name in names):
        if any(os.path.exists(folder / key) for key in _OLD_KEYS):
            yield OldKeysFacts(path=str(folder), is_trusted=_is_trusted(libvirt_store, folder))


def _is_trusted(libvirt_store: store.Store, folder: Path) -> bool:
    try:
        signers = [
            x509.load_pem_x509_certificate(path.read_bytes())
            for path in _certificate_paths(libvirt_store)
        ]
        host_certificates = [
            x509.load_pem_x509_certificate((folder / name).read_bytes())
            for name in _OLD_CERTIFICATES
            if (folder / name).exists()
        ]
    except (OSError, ValueError):
        return True
    for signer, certificate in itertools.product(signers, host_certificates):
        with contextlib.suppress(ValueError, TypeError, InvalidSignature):
            certificate.verify_directly_issued_by(signer)
            return True
    return False


def read_files(authorities: Authorities) -> Iterator[FileFacts]:
    """Yield the CAs' folders and their entries, without the records in subfolders."""
    folders = {
        authorities.folder / use_folder / subfolder
        for use_folder, _name in USES.values()
        for subfolder in (".", store.NEXT, store.PREVIOUS)
    }
    for folder in sorted(folders):
        if store.exists(folder):
            yield _read_file(folder)
            paths = (folder / name for name in sorted(os.listdir(folder)))
            yield from (_read_file(path) for path in paths if path.is_file() or path.is_dir())


def _read_file(path: Path) -> FileFacts:
    status = path.stat()
    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = str(status.st_uid)
    is_key = path.name.startswith(store.KEY)
    return FileFacts(path=str(path), mode=stat.S_IMODE(status.st_mode), owner=owner, is_key=is_key)
