"""Minion key pairs as PEM texts, and secrets that only the owner of a pair reads."""

import base64
import json
import os
from typing import Any

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from saltvirt.core.errors import BadArgument, SeedError

_BITS = 2048  # as salt-key's own default


def generate() -> tuple[str, str]:
    """Return a new key pair as ``(public, private)`` PEM texts."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    secret = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    return _text(private.public_key()), secret.decode()


def public_key(text: object) -> str:
    """Return a public key in its usual form; raise BadArgument if it is not one."""
    try:
        key = serialization.load_pem_public_key(str(text).strip().encode())
    except (ValueError, UnsupportedAlgorithm):
        raise BadArgument("key", "what was submitted is not a public key in PEM") from None
    if not isinstance(key, rsa.RSAPublicKey):
        raise BadArgument("key", "what was submitted is not an RSA key, and minions have no other")
    return _text(key)


def _text(key: rsa.RSAPublicKey) -> str:
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    ).decode()


_MARK = "salt-virt-sealed:1:"
_OAEP = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), label=None)


def is_sealed(text: object) -> bool:
    """Return whether a text was made by :func:`seal`."""
    return isinstance(text, str) and text.startswith(_MARK)


def seal(secret: str, public_pem: str) -> str:
    """Return a secret text, sealed: only the holder of the private key can read it."""
    public: Any = serialization.load_pem_public_key(public_pem.encode())
    key, nonce = AESGCM.generate_key(256), os.urandom(12)
    fields = {
        "key": public.encrypt(key, _OAEP),
        "nonce": nonce,
        "data": AESGCM(key).encrypt(nonce, secret.encode(), _MARK.encode()),
    }
    encoded_fields = {name: base64.b64encode(value).decode() for name, value in fields.items()}
    return _MARK + base64.b64encode(json.dumps(encoded_fields).encode()).decode()


def unseal(text: str, private_pem: str) -> str:
    """Return the secret; raise SeedError if it was sealed for another key, or is damaged."""
    private: Any = serialization.load_pem_private_key(
        private_pem.encode(), password=None, unsafe_skip_rsa_key_validation=True
    )
    try:
        box = json.loads(base64.b64decode(text.removeprefix(_MARK)))
        parts = {name: base64.b64decode(value) for name, value in box.items()}
        key = private.decrypt(parts["key"], _OAEP)
        return AESGCM(key).decrypt(parts["nonce"], parts["data"], _MARK.encode()).decode()
    except (ValueError, KeyError, InvalidTag) as exc:
        raise SeedError("priv_key: it was sealed for another minion, or arrived damaged") from exc
