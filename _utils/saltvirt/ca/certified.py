"""
Records of certificates: one small file for each that was signed, and for each that was revoked.

Only files with names that this module gives are read. Others may write in the folder of a CA, such
as any minion of a master with Salt 3008 (files that end in ``.p``): :func:`find_strange_files`
names these files, and nothing else reads them.
"""

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from saltvirt.core import files

log = logging.getLogger(__name__)

ISSUED, REVOKED = "issued", "revoked"
_SERIAL = re.compile(r"[0-9a-f]{1,40}")
_END = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRecord:
    """
    The record of a certificate.

    not_after
        When it expires, as ISO 8601.
    names
        The names and addresses in it.
    authority
        The fingerprint of the CA's certificate that signed it.
    """

    host: str
    purpose: str
    serial: str
    not_after: str
    names: tuple[str, ...]
    authority: str


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, none if there is no folder; raise if it cannot be read."""
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except FileNotFoundError:
        return []


def _serials(folder: Path, end: str = "") -> list[str]:
    """Return the serials in the names of this module's files."""
    names = (name.removesuffix(end) for name in names_in(folder) if name.endswith(end))
    return [name for name in names if _SERIAL.fullmatch(name)]


def find_strange_files(folder: Path) -> list[Path]:
    """Return the files that are not records of this module, and the records that are damaged."""
    issued_folder, revoked_folder = folder / ISSUED, folder / REVOKED
    own_files = {issued_folder / f"{row['serial']}{_END}" for row in rows(folder)}
    own_files |= {revoked_folder / serial for serial in _serials(revoked_folder)}
    present_files = [
        place / name for place in (issued_folder, revoked_folder) for name in names_in(place)
    ]
    return sorted(set(present_files) - own_files)


def has_issued(folder: Path) -> bool:
    """Return whether a CA has signed certificates that are on record."""
    return bool(_serials(folder / ISSUED, _END))


def note(folder: Path, certificate: CertificateRecord) -> None:
    """Record a certificate before it is handed out."""
    (folder / ISSUED).mkdir(mode=0o700, exist_ok=True)
    path = folder / ISSUED / f"{certificate.serial}{_END}"
    files.write(path, json.dumps(asdict(certificate)).encode())


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return every record, as a mapping with the fields of :class:`CertificateRecord`."""
    return list(_rows(folder))


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    for serial in _serials(folder / ISSUED, _END):
        path = folder / ISSUED / f"{serial}{_END}"
        try:
            yield _parse_record(json.loads(path.read_bytes()), serial)
        except FileNotFoundError:
            continue  # pruned meanwhile
        except (ValueError, TypeError, KeyError) as error:
            log.warning("passed over the damaged record %s: %s", path, error)


def _parse_record(content: Any, serial: str) -> dict[str, Any]:
    record = CertificateRecord(
        host=content["host"],
        purpose=content["purpose"],
        serial=content["serial"],
        not_after=content["not_after"],
        names=tuple(map(str, content["names"])),
        authority=str(content["authority"]),
    )
    texts = (record.host, record.purpose, record.serial)
    if not all(isinstance(text, str) for text in texts) or record.serial != serial:
        raise ValueError("it does not say what a record says")
    if datetime.fromisoformat(record.not_after).tzinfo is None:
        raise ValueError("its time has no time zone")
    return asdict(record)


def revoked_dates(folder: Path) -> dict[int, datetime]:
    """Return ``{serial: when it was revoked}``."""
    out = {}
    for serial in _serials(folder / REVOKED):
        path = folder / REVOKED / serial
        with suppress(FileNotFoundError):  # pruned meanwhile
            out[int(serial, 16)] = _read_revocation_date(path)
    return out


def _read_revocation_date(path: Path) -> datetime:
    try:
        date = datetime.fromisoformat(path.read_text(encoding="ascii"))
    except ValueError:
        date = None
    if date is not None and date.tzinfo is not None:
        return date
    # A crash may leave the file empty: its name alone proves the revocation.
    return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)


def revoke(folder: Path, serials: Iterable[str], now: datetime) -> None:
    """Record that certificates are revoked; all records are on the disk when this returns."""
    place = folder / REVOKED
    place.mkdir(mode=0o700, exist_ok=True)
    present_names = set(names_in(place))
    new_paths = [place / serial for serial in dict.fromkeys(serials) if serial not in present_names]
    for path in new_paths:
        # Write all before the first is synced: of thousands, one at a time takes minutes.
        path.write_bytes(now.isoformat().encode())
        path.chmod(0o600)
    files.sync_files(new_paths)


def forget(folder: Path, serials: Iterable[str]) -> None:
    """Remove the records of certificates that no host trusts any more."""
    for serial in serials:
        files.unlink(folder / REVOKED / serial)
        files.unlink(folder / ISSUED / f"{serial}{_END}")
