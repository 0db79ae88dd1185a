"""A submitted key of a minion that is no valid key is refused in one line."""

import base64

import pytest
from saltvirt.core.crypto import keypair
from saltvirt.core.errors import BadArgument

# A key of an algorithm (GOST R 34.10-2001) that the library does not know.
UNKNOWN = bytes.fromhex("300e300806062a85030202130302 0001")


def test_a_key_of_an_unknown_algorithm_is_refused():
    lines = ["-----BEGIN PUBLIC KEY-----", base64.b64encode(UNKNOWN).decode()]
    text = "\n".join([*lines, "-----END PUBLIC KEY-----", ""])

    with pytest.raises(BadArgument, match="what was submitted is not a public key in PEM"):
        keypair.public_key(text)
