"""Read the key pair for a guest's minion: text, a file of the host, or sealed by the master."""

import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from saltvirt.core.crypto import keypair
from saltvirt.core.errors import SeedError


def _text(argument: str, value: object) -> str:
    if not isinstance(value, str):
        raise SeedError(f"{argument} is not text")  # do not show it: it may be secret
    if value.startswith("/"):
        try:
            return Path(value).read_text()
        except OSError as exc:
            raise SeedError(f"{argument} {value}: {exc.strerror} on this host") from exc
        except UnicodeDecodeError:
            raise SeedError(f"{argument} {value} is not a PEM file") from None
    return value


def read_key_pair(
    pub_key: str | None, priv_key: str | None, minion_pki: str
) -> tuple[str | None, str | None]:
    """
    Return ``(public, private)`` PEM texts, both None without keys.

    pub_key, priv_key
        PEM text, an absolute path on this host, or (private only) text sealed for this minion.
    minion_pki
        The folder with this minion's own ``minion.pem``.
    """
    if bool(pub_key) != bool(priv_key):
        raise SeedError("pub_key and priv_key go together: give both or neither")
    if not (pub_key and priv_key):
        return None, None
    if keypair.is_sealed(priv_key):
        minion_key = _text("this minion's key", os.path.join(minion_pki, "minion.pem"))
        priv_key = keypair.unseal(priv_key, minion_key)
    public, private = _text("pub_key", pub_key), _text("priv_key", priv_key)
    _refuse_mismatch(public, private)
    return public, private


def _refuse_mismatch(public: str, private: str) -> None:
    try:
        public_key = serialization.load_pem_public_key(public.strip().encode())
        # This key signs nothing here; the operator answers for its primes.
        derived = serialization.load_pem_private_key(
            private.encode(), password=None, unsafe_skip_rsa_key_validation=True
        ).public_key()
    except (ValueError, TypeError):
        raise SeedError("pub_key or priv_key is not a PEM key without a passphrase") from None
    plain = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if public_key.public_bytes(*plain) != derived.public_bytes(*plain):
        raise SeedError("pub_key is not the public half of priv_key")
