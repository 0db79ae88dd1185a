"""
What a host says to the master, signed with its minion key: what anybody else says is not heard.

Every minion may fire any event, also one that looks like the answer of another to a running job,
and guests are minions too. So hosts sign the job, the function and all of the answer as one text,
and the master reads nothing else.
"""

import base64
import json
import zlib
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from saltvirt import terminal, wire
from saltvirt.errors import VirtError

# Of what one host says at once; a host with 1,000 VMs needs less than 2 MiB.
MAX_BYTES, MOST_VALUES = 32 << 20, 2_000_000
# Salt cuts what is larger than max_event_size, a mebibyte, out of events, in the minion and in the
# master. So what is large is packed, which leaves a tenth of it; for a master that asks for it also
# what is worth it. What is signed is what is sent: nobody else has the master unpack anything.
_LARGE, _WORTH_IT, _PACKED = 512 << 10, 1 << 10, "zlib "
CUT = "VALUE_TRIMMED"
# How deep the whole is, of which the answer itself is a part.
_ABOVE = -1
_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)


class NotSigned(VirtError):
    """It was not said by the host that it claims to be from."""


class Cut(NotSigned):
    """Salt has left out what was said, as it was too large."""


class NotUnderstood(VirtError):
    """The host has said it, and it cannot be read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAnswer:
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


def pack(answer: SignedAnswer, private_pem: bytes, *, is_small: bool = False) -> dict[str, str]:
    """
    Return ``{"said": text, "signature": base64}``.

    is_small
        Whether the text is to be packed as soon as that is worth it: masters of earlier releases
        do not unpack it. Defaults to False, which leaves it to what Salt would not carry.
    """
    values = {field.name: getattr(answer, field.name) for field in fields(answer)}
    text = json.dumps(values, default=_plain, separators=(",", ":"))
    if len(text) > (_WORTH_IT if is_small else _LARGE):
        text = _PACKED + base64.b64encode(zlib.compress(text.encode(), 1)).decode()
    # Its own key, of its own disk: to prove that it is one takes longer than all the rest.
    key: Any = serialization.load_pem_private_key(
        private_pem, password=None, unsafe_skip_rsa_key_validation=True
    )
    signature = key.sign(text.encode(), _PSS, hashes.SHA256())
    return {"said": text, "signature": base64.b64encode(signature).decode()}


def _plain(value: object) -> object:
    """Return as plain data what JSON does not know; of most answers that is nothing."""
    # What Salt could carry and JSON cannot is an answer that the master would not understand.
    return wire.plain(value) if is_dataclass(value) else str(value)


def unpack(packed: object, public_pem: str, *, minion: str, about: str) -> SignedAnswer:
    """
    Return what a host said; raise NotSigned if another did, NotUnderstood if it makes no sense.

    packed
        What came, from whomever.
    public_pem
        The key that the master has accepted of ``minion``.
    about
        What it must be about.
    """
    text = _decompress(_verify(packed, public_pem))
    if terminal.most_values(text) > MOST_VALUES:
        raise NotUnderstood(f"it has more than {MOST_VALUES:,} values")
    try:
        answer: SignedAnswer = wire.read_recorded(SignedAnswer, terminal.read(text, _ABOVE))
    except (ValueError, RecursionError) as exc:
        raise NotUnderstood(str(exc)) from exc
    # A host may say again what it said of another job.
    if (answer.minion, answer.about) != (minion, about):
        raise NotSigned(f"it is of {answer.minion[:80]!r} about {answer.about[:80]!r}")
    return answer


def _verify(packed: object, public_pem: str) -> str:
    parts = packed if isinstance(packed, dict) else {}
    text, signature = parts.get("said"), parts.get("signature")
    if CUT in (text, packed):
        raise Cut("Salt has left it out, as it was larger than max_event_size")
    if not isinstance(text, str) or not isinstance(signature, str):
        raise NotSigned("it has no signature")
    try:
        key = serialization.load_pem_public_key(public_pem.encode())
        # Salt accepts what a minion has sent for one, of whatever kind.
        if not isinstance(key, rsa.RSAPublicKey):
            raise NotSigned("the key that was accepted of that minion is no RSA key")
        key.verify(base64.b64decode(signature), text.encode(), _PSS, hashes.SHA256())
    except (InvalidSignature, UnsupportedAlgorithm, ValueError) as exc:
        raise NotSigned("its signature is not of that minion's key") from exc
    return text


def _decompress(text: str) -> str:
    """Return what is in a text that was packed, and another as it is; refuse what has too much."""
    if text.startswith(_PACKED):
        try:
            packed = base64.b64decode(text.removeprefix(_PACKED))
            # What is packed may be a thousandth of that.
            text = zlib.decompressobj().decompress(packed, MAX_BYTES + 1).decode()
        except (zlib.error, ValueError) as exc:
            raise NotUnderstood(f"what it has packed cannot be unpacked: {exc}") from exc
    if len(text) > MAX_BYTES:
        raise NotUnderstood(f"it has more than {MAX_BYTES >> 20} MiB")
    return text
