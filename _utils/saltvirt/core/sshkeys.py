"""OpenSSH's public keys from users: checked, and never repeated in a message."""

import base64
import binascii
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from saltvirt.core.errors import BadArgument

_LONGEST = 16 * 1024
_MOST = 100
# The types that cryptography loads; it checks at most the type of keys in security tokens.
_LOADED = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
)
_IN_TOKENS = ("sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com")
_SECRET = ("PRIVATE KEY", "PuTTY-User-Key-File", "Private-Lines:")


def read_keys(argument: str, value: Any) -> tuple[str, ...]:
    """
    Return public keys, one line each, from a list of texts or from one text with a key per line.

    Empty lines and comments (``#``) are left out. Options before a key are refused, and so is a
    private key. No message has the value: it may be secret.
    """
    if value is None:
        return ()
    lines = [line.strip() for text in _texts(argument, value) for line in text.splitlines()]
    key_lines = [line for line in lines if line and not line.startswith("#")]
    if isinstance(value, str) and not key_lines:
        # As from an empty file: a caller who gives keys expects to be let in.
        raise BadArgument(argument, "there is no key in it")
    if len(key_lines) > _MOST:
        raise BadArgument(argument, f"{len(key_lines)} keys; at most {_MOST}")
    return merge_keys(
        _check_key(argument, number, line) for number, line in enumerate(key_lines, 1)
    )


def _texts(argument: str, value: Any) -> Sequence[str]:
    """Return texts; refuse them if one has a private key."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(item, str) for item in texts):
        raise BadArgument(argument, "give a list of public keys, or a text with one in each line")
    if any(mark in text for text in texts for mark in _SECRET):
        raise BadArgument(
            argument,
            "that is a private key, which nobody else is to have; give its public half, the file "
            "that ends with .pub, and think of the private one as known",
        )
    return texts


def merge_keys(*keys: Iterable[str]) -> tuple[str, ...]:
    """Return keys in their order, each once, ignoring comments."""
    lines_by_key: dict[str, str] = {}
    for line in (key_line for group in keys for key_line in group):
        lines_by_key.setdefault(" ".join(line.split()[:2]), line)
    return tuple(lines_by_key.values())


def _check_key(argument: str, number: int, line: str) -> str:
    label = f"{argument}: key {number}"
    kind, _space, remainder = line.partition(" ")
    body, _space, comment = remainder.strip().partition(" ")
    if kind not in (*_LOADED, *_IN_TOKENS):
        known_types = ", ".join((*_LOADED, *_IN_TOKENS))
        raise BadArgument(
            label, f"does not begin with its type, without options; one of {known_types}"
        )
    if len(line) > _LONGEST or not line.isprintable():
        raise BadArgument(label, f"has control characters, or more than {_LONGEST} letters")
    if _type_of(body) != kind or not _loads(kind, body):
        raise BadArgument(label, f"is not a complete public key of the type {kind}")
    return " ".join(part for part in (kind, body, comment.strip()) if part)


def _type_of(body: str) -> str | None:
    """Return the type inside a key, None if the key is malformed."""
    try:
        raw = base64.b64decode(body, validate=True)
        (length,) = struct.unpack_from(">I", raw)
        return raw[4 : 4 + length].decode("ascii")
    except (binascii.Error, struct.error, ValueError):
        return None


def _loads(kind: str, body: str) -> bool:
    if kind in _IN_TOKENS:
        return True
    try:
        serialization.load_ssh_public_key(f"{kind} {body}".encode())
    except (ValueError, UnsupportedAlgorithm):
        return False
    return True
