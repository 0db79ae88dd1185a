"""
What a host says to the master, signed with its minion key: what anybody else says is not heard.

Every minion may fire any event, also one that looks like the answer of another to a running job,
and guests are minions too. So hosts sign the job, the function and all of the answer as one text,
and the master reads nothing else.
"""

import base64
import json
import zlib
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding

from saltvirt import terminal, wire
from saltvirt.errors import VirtError

# Of what one host says at once; a host with 1,000 VMs needs less than 2 MiB.
MAX_BYTES = 32 << 20
# What is shorter is hardly less when it is deflated. How hard that is tried: it is the host's time.
_SHORT, _LEVEL = 1024, 1
# How deep the whole is, of which the answer itself is a part.
_ABOVE = -1
_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)


class NotSigned(VirtError):
    """It was not said by the host that it claims to be from."""


class NotUnderstood(VirtError):
    """The host has said it, and it cannot be read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """
    One thing that a host says.

    minion
        Its id.
    about
        What it is about: a job's id, or an event's tag.
    fun
        The function that was asked for; empty in an event.
    value
        The answer; plain data.
    why
        What went wrong, in Salt's words; None if nothing did.
    retcode
        The exit code that Salt would give the job.
    """

    minion: str
    about: str
    fun: str = ""
    value: Any = None
    why: str | None = None
    retcode: int = 0


def pack(said: Said, private_pem: bytes, *, is_small: bool = False) -> dict[str, str]:
    """
    Return ``{"said": text, "signature": base64}``.

    is_small
        Whoever reads it takes ``{"deflated": base64, "signature": base64}`` as well, which is what
        a longer text becomes: all that a host has is a tenth as much.
    """
    # What Salt could carry and JSON cannot is an answer that the master would not understand.
    text = json.dumps(wire.plain(said), default=str, separators=(",", ":"))
    key_of_text = "said"
    if is_small and len(text) >= _SHORT:
        # As text: who watches the master's events as JSON is to see it too.
        text = base64.b64encode(zlib.compress(text.encode(), _LEVEL)).decode()
        key_of_text = "deflated"
    # Its own key, of its own disk: to prove that it is one takes longer than all the rest.
    key: Any = serialization.load_pem_private_key(
        private_pem, password=None, unsafe_skip_rsa_key_validation=True
    )
    signature = key.sign(text.encode(), _PSS, hashes.SHA256())
    return {key_of_text: text, "signature": base64.b64encode(signature).decode()}


def unpack(packed: object, public_pem: str, *, minion: str, about: str) -> Said:
    """
    Return what a host said; raise NotSigned if another did, NotUnderstood if it makes no sense.

    packed
        What came, from whomever.
    public_pem
        The key that the master has accepted of ``minion``.
    about
        What it must be about.
    """
    text = _verified(packed, public_pem)
    if len(text) > MAX_BYTES:
        raise NotUnderstood(f"it has more than {MAX_BYTES >> 20} MiB, which is the most")
    try:
        said: Said = wire.recorded(Said, terminal.read(text, _ABOVE))
    except (ValueError, RecursionError) as wrong:
        raise NotUnderstood(str(wrong)) from wrong
    # A host may say again what it said of another job.
    if (said.minion, said.about) != (minion, about):
        raise NotSigned(f"it is of {said.minion[:80]!r} about {said.about[:80]!r}")
    return said


def _verified(packed: object, public_pem: str) -> str:
    parts = packed if isinstance(packed, dict) else {}
    is_deflated = "deflated" in parts
    text, signature = parts.get("deflated" if is_deflated else "said"), parts.get("signature")
    if not isinstance(text, str) or not isinstance(signature, str):
        raise NotSigned("it has no signature")
    try:
        key: Any = serialization.load_pem_public_key(public_pem.encode())
        key.verify(base64.b64decode(signature), text.encode(), _PSS, hashes.SHA256())
    except (InvalidSignature, ValueError) as wrong:
        raise NotSigned("its signature is not of that minion's key") from wrong
    return _inflated(text) if is_deflated else text


def _inflated(text: str) -> str:
    """Return a text that was deflated; raise NotUnderstood if it would be too long, or is none."""
    inflating = zlib.decompressobj()
    try:
        raw = inflating.decompress(base64.b64decode(text), MAX_BYTES + 1)
        out = raw.decode()
    except (zlib.error, ValueError) as wrong:
        raise NotUnderstood(f"it cannot be inflated: {wrong}") from wrong
    if len(raw) <= MAX_BYTES and not inflating.eof:
        raise NotUnderstood("it cannot be inflated: its end is missing")
    return out
