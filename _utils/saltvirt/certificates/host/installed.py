"""
A hypervisor's certificates: find those that are due, make keys, write files atomically.

Private keys never leave the host: only requests go to the master.
"""

import grp
import hashlib
import os
import pwd
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from saltvirt.ca import ca
from saltvirt.ca.answer import Answer
from saltvirt.ca.authorities import Trust
from saltvirt.core import files, locks
from saltvirt.core.errors import StorageError

_QEMU_GROUPS = ("libvirt-qemu", "qemu", "kvm")
_LOCKS = "/run/salt-virt/locks"
DEFAULT_PURPOSES = ("libvirt-server", "libvirt-client", "qemu-server", "qemu-client")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The paths of one purpose's key and certificate, its use, and the key's mode and group."""

    use: str
    key: Path
    certificate: Path
    mode: int
    group: str | None


def qemu_group() -> str | None:
    """Return the group that QEMU runs as on this host, None if it has none of the usual groups."""
    group_names = {entry.gr_name for entry in grp.getgrall()}
    return next((group for group in _QEMU_GROUPS if group in group_names), None)


def places(basepath: str | Path) -> dict[str, Place]:
    """Return ``{purpose: Place}`` as libvirt and QEMU look for them."""
    base, group = Path(basepath), qemu_group()
    out = {}
    for side in ("server", "client"):
        out[f"libvirt-{side}"] = Place(
            use="libvirt",
            key=base / "libvirt/private" / f"{side}key.pem",
            certificate=base / "libvirt" / f"{side}cert.pem",
            mode=0o600,
            group=None,
        )
        out[f"qemu-{side}"] = _qemu_place("qemu", base / "qemu", side, group)
    return {**out, "vnc-server": _qemu_place("vnc", base / "libvirt-vnc", "server", group)}


def _qemu_place(use: str, folder: Path, side: str, group: str | None) -> Place:
    return Place(
        use=use,
        key=folder / f"{side}-key.pem",
        certificate=folder / f"{side}-cert.pem",
        mode=0o640 if group else 0o600,
        group=group,
    )


def authorities(basepath: str | Path, uses: Iterable[str]) -> dict[str, tuple[Path, Path]]:
    """Return ``{use: (CA's certificate, revocation list)}`` as libvirt and QEMU look for them."""
    base = Path(basepath)
    paths_by_use = {
        "libvirt": (base / "CA/cacert.pem", base / "CA/cacrl.pem"),
        "qemu": (base / "qemu/ca-cert.pem", base / "qemu/ca-crl.pem"),
        "vnc": (base / "libvirt-vnc/ca-cert.pem", base / "libvirt-vnc/ca-crl.pem"),
    }
    return {use: paths_by_use[use] for use in dict.fromkeys(uses)}


def find_due_reason(place: Place, answer: Answer, now: datetime) -> str | None:
    """
    Return why a purpose needs a new certificate, or None if it is in order.

    answer
        What the master would write now.
    """
    try:
        certificate, key = _read(place)
    except FileNotFoundError as exc:
        return f"{exc.filename} is missing"
    except (ValueError, TypeError) as exc:
        return f"{place.certificate} or its key cannot be read: {exc}"
    if key.public_key() != certificate.public_key():
        return f"{place.key} is not the key of {place.certificate}"
    return (
        _stale_reason(certificate, answer, answer.trust[place.use], now)
        or _exposed_reason(place)
        or _unreadable_reason(place)
    )


def _read(place: Place) -> tuple[x509.Certificate, ca.PrivateKey]:
    certificate = x509.load_pem_x509_certificate(place.certificate.read_bytes())
    key: Any = serialization.load_pem_private_key(place.key.read_bytes(), password=None)
    return certificate, key


def find_reusable_key(place: Place, answer: Answer) -> ca.PrivateKey | None:
    """
    Return the private key that the next certificate may keep, None if it needs a new key.

    A daemon that reads the two files during a renewal must find a pair, so a renewal or a new CA
    changes the certificate alone. A key that was lost, exposed or revoked is replaced, and so is a
    key that this project did not make.
    """
    try:
        certificate, key = _read(place)
    except (OSError, ValueError, TypeError):
        return None
    is_ours = (
        isinstance(key, ec.EllipticCurvePrivateKey)
        and key.public_key() == certificate.public_key()
        and certificate.subject.rfc4514_string() == answer.subject
        and _is_known(certificate, answer.trust[place.use])
    )
    return key if is_ours and not _exposed_reason(place) else None


def _is_known(certificate: x509.Certificate, trust: Trust) -> bool:
    """Return whether a CA of the answer has signed a certificate, and not revoked it."""
    ca_certificates = x509.load_pem_x509_certificates(trust.ca.encode())
    return not _is_revoked(certificate, trust) and any(
        _is_signed_by(certificate, authority) for authority in ca_certificates
    )


def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # any error: it is not of this CA
        return False
    return True


def _is_revoked(certificate: x509.Certificate, trust: Trust) -> bool:
    # Each trusted CA has a list; during a rotation both have the same serials.
    serial = certificate.serial_number
    lists = revocation_lists(trust.crl)
    return any(
        revocation_list.get_revoked_certificate_by_serial_number(serial) is not None
        for revocation_list in lists
    )


def revocation_lists(text: str) -> list[x509.CertificateRevocationList]:
    """Return all revocation lists of a PEM text."""
    end = "-----END X509 CRL-----\n"
    parts = [part + end for part in text.split(end) if part.strip()]
    return [x509.load_pem_x509_crl(part.encode()) for part in parts]


def _stale_reason(
    certificate: x509.Certificate, answer: Answer, trust: Trust, now: datetime
) -> str | None:
    if not _is_signed_by(certificate, x509.load_pem_x509_certificate(trust.ca.encode())):
        return "it is not signed by the master's CA for this use"
    if _is_revoked(certificate, trust):
        return "it was revoked"
    if certificate.subject.rfc4514_string() != answer.subject:
        return f"its subject is not {answer.subject}"
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if (end - now) * 3 < end - begin:
        return f"less than a third of its life is left (until {end:%Y-%m-%d})"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    certificate_names = {
        *names.get_values_for_type(x509.DNSName),
        *map(str, names.get_values_for_type(x509.IPAddress)),
    }
    if certificate_names != {*answer.names, *answer.addresses}:
        return "the host's names or addresses have changed"
    return None


def _exposed_reason(place: Place) -> str | None:
    key_stat = place.key.stat()
    mode = stat.S_IMODE(key_stat.st_mode)
    if mode & ~place.mode:
        return f"{place.key} was readable by others (mode {mode:04o})"
    if key_stat.st_uid != os.geteuid():
        return f"{place.key} belonged to {_user(key_stat.st_uid)}, not to {_user(os.geteuid())}"
    if place.group and mode & stat.S_IRWXG and key_stat.st_gid != _gid(place.group):
        return f"{place.key} was readable by the group {_group(key_stat.st_gid)}"
    return None


def _gid(group: str) -> int:
    return grp.getgrnam(group).gr_gid


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"of gid {gid}"


def request(minion_id: str, key: ca.PrivateKey | None = None) -> tuple[ca.PrivateKey, str]:
    """Return ``(key, PEM text of a request)``, with a new key unless one is given."""
    key = key or ca.new_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, minion_id)])
    signing_request = (
        x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    )
    return key, signing_request.public_bytes(serialization.Encoding.PEM).decode()


def lay_down(place: Place, key: ca.PrivateKey, certificate_pem: str) -> None:
    """Write a key and its certificate, each file atomically."""
    _folder(place.key.parent, 0o750 if place.group else 0o700, place.group)
    _folder(place.certificate.parent, 0o755, None)
    gid = _gid(place.group) if place.group else None
    for folder in (place.key.parent, place.certificate.parent):
        files.sweep(folder)
    certificate = (place.certificate, certificate_pem.encode(), 0o644, None)
    files.replace([(place.key, ca.key_pem(key), place.mode, gid), certificate])


def lay_down_authorities(
    paths: Mapping[str, tuple[Path, Path]],
    trust: Mapping[str, Trust],
    announce: Callable[[], None],
) -> list[str]:
    """
    Write CAs' certificates and revocation lists; return the files that changed.

    announce
        Called before any of them is written.
    """
    stale_files, group = list(_stale_files(paths, trust)), qemu_group()
    if stale_files:
        announce()
    for use, path, text in stale_files:
        if use == "libvirt":
            _folder(path.parent, 0o755, None)
        else:  # QEMU's keys are in the same folder
            _folder(path.parent, 0o750 if group else 0o700, group)
        files.write(path, text.encode(), 0o644)
    return [str(path) for _use, path, _text in stale_files]


def stale_authorities(
    paths: Mapping[str, tuple[Path, Path]], trust: Mapping[str, Trust]
) -> list[str]:
    """Return the files of CAs that would be written."""
    return [str(path) for _use, path, _text in _stale_files(paths, trust)]


def _stale_files(
    paths: Mapping[str, tuple[Path, Path]], trust: Mapping[str, Trust]
) -> Iterator[tuple[str, Path, str]]:
    for use, pair in paths.items():
        for path, text in zip(pair, (trust[use].ca, trust[use].crl), strict=True):
            # As bytes: a file of another program may have any encoding.
            if not path.exists() or path.read_bytes() != text.encode():
                yield use, path, text


def _unreadable_reason(place: Place) -> str | None:
    if place.group is None:
        return None
    folder = place.key.parent
    closed_folders = [path for path in (folder.parent, folder) if not _can_enter(path, place.group)]
    if closed_folders:
        return f"{closed_folders[0]} cannot be entered by QEMU's group {place.group}"
    if not place.key.stat().st_mode & stat.S_IRGRP:
        return f"{place.key} cannot be read by QEMU's group {place.group}"
    return None


def find_closed_parents(key_places: Iterable[Place]) -> list[str]:
    """
    Return a warning for each folder above those of keys that QEMU's group cannot enter.

    These folders are not ours, and QEMU may enter them by another of its groups, an ACL or as root.
    """
    out: list[str] = []
    for place in key_places:
        if place.group:
            out += _closed_warnings(place.key.parent.parent.resolve().parents, place.group)
    return list(dict.fromkeys(out))


def _closed_warnings(parents: Sequence[Path], group: str) -> list[str]:
    return [
        f"{folder} cannot be entered by QEMU's group {group}, which has its keys below "
        f"it; if QEMU does not read them, run: chmod o+x {shlex.quote(str(folder))}"
        for folder in reversed(parents)
        if not _can_enter(folder, group)
    ]


def _can_enter(folder: Path, group: str) -> bool:
    folder_stat = folder.stat()
    return bool(
        folder_stat.st_mode & (stat.S_IXGRP if folder_stat.st_gid == _gid(group) else stat.S_IXOTH)
    )


@contextmanager
def lock_basepath(basepath: str | Path) -> Iterator[None]:
    """
    Hold the lock of a basepath, for one run at a time.

    The lock is in another folder, as a run that the master refuses makes nothing there; and in one
    that other users cannot read, as they could hold the lock and keep revocations from this host.
    """
    lock_name = hashlib.sha256(os.path.realpath(basepath).encode()).hexdigest()[:16]
    with locks.hold_lock(Path(_LOCKS) / f"{lock_name}.lock"):
        yield


def write_marker(path: Path) -> None:
    """Write an empty file, on the disk when this returns."""
    _folder(path.parent, 0o755, None)
    files.write(path, b"")


def _folder(path: Path, mode: int, group: str | None) -> None:
    try:
        _make_folder(path, mode)
        if group:
            _let_group_in(path, group)
    except OSError as exc:
        raise StorageError(f"cannot make the folder {path}: {exc.strerror}") from exc


def _make_folder(path: Path, mode: int) -> None:
    """Make a folder and its parents with their modes, even if the umask is narrower."""
    if path.is_dir():
        return
    _make_folder(path.parent, 0o755)
    path.mkdir(mode=mode, exist_ok=True)
    path.chmod(mode)


def _let_group_in(path: Path, group: str) -> None:
    """Let a group enter a folder of keys, and pass its parent, which is ours, too."""
    if not _can_enter(path.parent, group):
        path.parent.chmod(stat.S_IMODE(path.parent.stat().st_mode) | stat.S_IXGRP | stat.S_IXOTH)
    if not _can_enter(path, group):
        os.chown(path, -1, _gid(group))
        mode = stat.S_IMODE(path.stat().st_mode) & ~stat.S_IWGRP
        path.chmod(mode | stat.S_IRGRP | stat.S_IXGRP)
