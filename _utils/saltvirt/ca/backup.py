"""Back up and restore the CAs, encrypted with a passphrase."""

import base64
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from saltvirt.ca.authorities import LIBVIRT, USES, Authorities
from saltvirt.ca.ca import Authority, PkiError
from saltvirt.ca.store import CERTIFICATE, HYPERVISORS, KEY, REVOCATIONS, exists
from saltvirt.core import files

_MARK = "salt-virt-ca-backup:1"
MIN_PASSPHRASE = 12
# Temporary files, and those that any minion can write on a master with Salt 3008.
_LEFT_OUT = (".lock", ".part", ".p")


def _key(passphrase: str, salt: bytes) -> bytes:
    # RFC 7914's figures for stored secrets: 128 MiB of memory and about half a second.
    return Scrypt(salt=salt, length=32, n=2**17, r=8, p=1).derive(passphrase.encode())


def pack(contents: Mapping[str, bytes], passphrase: str) -> str:
    """Return ``{name: bytes}`` as one encrypted text."""
    if len(passphrase) < MIN_PASSPHRASE:
        raise PkiError(f"the passphrase is too short; at least {MIN_PASSPHRASE} characters")
    salt, nonce = os.urandom(16), os.urandom(12)
    plain = {name: base64.b64encode(data).decode() for name, data in contents.items()}
    data = json.dumps(plain).encode()
    sealed_data = AESGCM(_key(passphrase, salt)).encrypt(nonce, data, _MARK.encode())
    parts = [base64.b64encode(part).decode() for part in (salt, nonce, sealed_data)]
    return "\n".join([_MARK, *parts]) + "\n"


def unpack(text: str, passphrase: str) -> dict[str, bytes]:
    """Return the files of a backup; raise PkiError for a wrong passphrase or a damaged file."""
    lines = text.split()
    if len(lines) != 4 or lines[0] != _MARK:
        raise PkiError("this is not a backup of a CA")
    try:
        salt, nonce, sealed_data = (base64.b64decode(line, validate=True) for line in lines[1:])
        plain = AESGCM(_key(passphrase, salt)).decrypt(nonce, sealed_data, _MARK.encode())
    except (InvalidTag, ValueError) as exc:
        raise PkiError("the passphrase is wrong, or the backup is damaged") from exc
    return {name: base64.b64decode(data) for name, data in json.loads(plain).items()}


def read_all(folder: str | Path) -> dict[str, bytes]:
    """Return every file of the CAs' folder as ``{relative path: bytes}``, for a backup."""
    folder = Path(folder)
    contents: dict[str, bytes] = {}
    if not exists(folder):
        return contents
    with Authorities(folder).locked():
        for root, _folders, names in os.walk(folder, onerror=_unless_missing):
            for path in (Path(root) / name for name in names):
                if path.suffix not in _LEFT_OUT and not _is_aside(path):
                    contents[str(path.relative_to(folder))] = path.read_bytes()
    return contents


def _is_aside(path: str | Path) -> bool:
    """Return whether a file is a key that was put aside, which belongs to no CA now."""
    return re.fullmatch(rf"{re.escape(KEY)}\.\d+", Path(path).name) is not None


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def restore(folder: str | Path, contents: Mapping[str, bytes]) -> None:
    """
    Restore a backup where no CA is; all files are on the disk before the first takes its place.

    The certificates come last, libvirt's at the end: with it the CAs exist. Requests of hosts wait
    meanwhile.
    """
    authorities = Authorities(folder)
    with authorities.locked():
        _refuse_another_ca(authorities, contents)
        _refuse_another_list(authorities.folder / HYPERVISORS, contents)
        Authority.from_pem(contents.get(KEY, b""), contents.get(CERTIFICATE, b""))
        # A backup may lack CAs, which are made when needed.
        pairs = [
            (f"{subfolder}/{KEY}", f"{subfolder}/{CERTIFICATE}")
            for subfolder, _name in USES.values()
        ]
        last_names = [str(Path(name)) for pair in reversed(pairs) for name in pair]
        # A key put aside may replace another one of this master's.
        names = [name for name in contents if name not in last_names and not _is_aside(name)]
        paths = {
            name: _path_inside(authorities.folder, name)
            for name in (*names, *last_names)
            if name in contents
        }
        for path in paths.values():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for ca_store in authorities.stores.values():
            ca_store.put_aside(
                contents.get(str((ca_store.folder / KEY).relative_to(authorities.folder)), b"")
            )
        files.replace([(path, contents[name], _mode(name), None) for name, path in paths.items()])


def _mode(name: str) -> int:
    return 0o644 if Path(name).name in (CERTIFICATE, REVOCATIONS) else 0o600


def _refuse_another_ca(authorities: Authorities, contents: Mapping[str, bytes]) -> None:
    """Refuse to replace a CA; other uses' CAs may be there if they equal the backup's."""
    for use, ca_store in authorities.stores.items():
        path = ca_store.folder / CERTIFICATE
        if path.is_symlink() or exists(path):
            name = str(path.relative_to(authorities.folder))
            if use == LIBVIRT or path.is_symlink() or path.read_bytes() != contents.get(name):
                raise PkiError(f"there is a CA in {ca_store.folder} already; move it away first")


def _refuse_another_list(path: Path, contents: Mapping[str, bytes]) -> None:
    """Refuse to replace a list of hypervisors that differs from the backup's."""
    if HYPERVISORS in contents and exists(path) and path.read_bytes() != contents[HYPERVISORS]:
        raise PkiError(
            f"{path} is another list of hypervisors than the backup's; move it away first, and see "
            "who lacks then: salt-run virt.allow"
        )


def _path_inside(folder: Path, name: str) -> Path:
    # The file itself may be a link, which is replaced.
    path = folder / name
    parent = path.parent.resolve()
    if path.name == ".." or folder.resolve() not in (parent, *parent.parents):
        raise PkiError(f"the backup names a file outside the CA: {name!r}")
    return parent / path.name
