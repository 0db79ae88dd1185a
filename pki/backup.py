"""A backup of the CA that is of no use without its passphrase."""

import base64
import json
import os
from collections.abc import Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from saltvirt.pki.ca import PkiError

_MARK = "salt-virt-ca-backup:1"
MIN_PASSPHRASE = 12


def _key(passphrase: str, salt: bytes) -> bytes:
    # RFC 7914's figures for stored secrets: 128 MiB of memory and about half a second.
    return Scrypt(salt=salt, length=32, n=2**17, r=8, p=1).derive(passphrase.encode())


def pack(files: Mapping[str, bytes], passphrase: str) -> str:
    """Return ``{name: bytes}`` as one encrypted text."""
    if len(passphrase) < MIN_PASSPHRASE:
        raise PkiError(f"the passphrase is too short; at least {MIN_PASSPHRASE} characters")
    salt, nonce = os.urandom(16), os.urandom(12)
    plain = {name: base64.b64encode(data).decode() for name, data in files.items()}
    data = json.dumps(plain).encode()
    sealed = AESGCM(_key(passphrase, salt)).encrypt(nonce, data, _MARK.encode())
    parts = [base64.b64encode(part).decode() for part in (salt, nonce, sealed)]
    return "\n".join([_MARK, *parts]) + "\n"


def unpack(text: str, passphrase: str) -> dict[str, bytes]:
    """Return the files of a backup; raise PkiError for a wrong passphrase or a damaged file."""
    lines = text.split()
    if len(lines) != 4 or lines[0] != _MARK:
        raise PkiError("this is not a backup of a CA")
    try:
        salt, nonce, sealed = (base64.b64decode(line, validate=True) for line in lines[1:])
        plain = AESGCM(_key(passphrase, salt)).decrypt(nonce, sealed, _MARK.encode())
    except (InvalidTag, ValueError) as exc:
        raise PkiError("the passphrase is wrong, or the backup is damaged") from exc
    return {name: base64.b64decode(data) for name, data in json.loads(plain).items()}
