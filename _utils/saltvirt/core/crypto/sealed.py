"""
Secrets on their way to one minion, sealed with that minion's own public key.

What the master publishes reaches the job cache and the event bus; only the hypervisor that a secret
is sealed for can read it there.
"""

import base64
import json
import os
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from saltvirt.core.errors import SeedError

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
