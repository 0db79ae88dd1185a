"""Minion key pairs as PEM texts."""

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from saltvirt.core.errors import BadArgument

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
