"""A long answer is deflated before it is signed, and inflated once its signature is right."""

import base64
import tracemalloc
import zlib

import keypairs
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from saltvirt import signed

OWN, EVIL = keypairs.named("hyper1"), keypairs.named("evil")
LONG = ["wéb1", "\x1b[2J"] * 500


def packed(key=OWN, *, value=LONG, is_small=True):
    """Return what a host says, signed."""
    said = signed.Said(minion="hyper1", about="1", fun="virt.x", value=value)
    return signed.pack(said, key[1].encode(), is_small=is_small)


def heard(data):
    """Return what the master takes of it."""
    return signed.unpack(data, OWN[0], minion="hyper1", about="1")


def test_a_long_answer_is_deflated_for_who_takes_it_so():
    plain, small = packed(is_small=False), packed()

    assert heard(small) == heard(plain)
    assert "said" not in small
    assert len(str(small)) < len(str(plain)) / 5
    assert packed(value=LONG[:2]).keys() == {"said", "signature"}


FORGED = {
    "another's": packed(EVIL),
    "deflated anew": {**packed(), "deflated": packed(value=[*LONG, "x"])["deflated"]},
    "of numbers": {"deflated": 1, "signature": "AAAA"},
    "a text that was not deflated": {
        "deflated": packed(is_small=False)["said"],
        "signature": "AAAA",
    },
}


@pytest.mark.parametrize("name", FORGED)
def test_what_another_deflates_is_not_heard(name):
    with pytest.raises(signed.NotSigned):
        heard(FORGED[name])


@pytest.mark.slow
def test_an_answer_that_is_so_long_when_it_is_inflated_is_not_inflated_to_its_end():
    bomb = packed(value="x" * (3 * signed.MAX_BYTES))
    assert len(bomb["deflated"]) < 1 << 20

    tracemalloc.start()
    try:
        with pytest.raises(signed.NotUnderstood, match="more than 32 MiB, which is the most"):
            heard(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 3 * signed.MAX_BYTES


def by_its_key(deflated):
    """Return what a host signs that deflates something else than an answer."""
    key = serialization.load_pem_private_key(OWN[1].encode(), password=None)
    text = base64.b64encode(deflated).decode() if isinstance(deflated, bytes) else deflated
    signature = key.sign(text.encode(), signed._PSS, hashes.SHA256())
    return {"deflated": text, "signature": base64.b64encode(signature).decode()}


@pytest.mark.parametrize(
    "deflated",
    [
        *("", "AAAA", "A", "ä", "[]", b"x" * 50, zlib.compress(b"\xff\xfe")),
        *(zlib.compress(b"{" * 99)[:-3], zlib.compress(b"{"), zlib.compress(b"\xe2\x82")),
    ],
)
def test_what_cannot_be_inflated_is_an_error_of_that_host(deflated):
    with pytest.raises(signed.NotUnderstood):
        heard(by_its_key(deflated))
