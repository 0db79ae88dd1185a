"""
The answers of hosts to the master, signed with their minion keys; all else is ignored.

Any minion may fire any event, also one that looks like the reply of another to a running job, and
guests are minions, too. So hosts sign the job, the function and all of the answer as one text, and
the master reads nothing else.
"""

import base64
import json
import zlib
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from saltvirt.core import terminal, wire
from saltvirt.core.errors import VirtError

# The limits of one answer; a host with 1,000 VMs needs less than 2 MiB.
MAX_BYTES, MOST_VALUES = 32 << 20, 2_000_000
# Salt cuts values over max_event_size, a mebibyte, out of events, in the minion and in the master.
# So an answer is compressed, to about a tenth, unless it is short. The signature is over the text
# that is sent: the master decompresses nothing else.
_WORTH_IT, _PACKED = 1 << 10, "zlib "
CUT = "VALUE_TRIMMED"
# The depth of the whole text, so that the answer in it is at depth 0.
_ABOVE = -1
_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)


class NotSigned(VirtError):
    """The answer is not from the host that it claims to be from."""


class Cut(NotSigned):
    """Salt has left the answer out, as it was too large."""


class NotUnderstood(VirtError):
    """The answer is from the host, and cannot be read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAnswer:
    """
    One answer or event of a host.

    minion
        Its id.
    about
        The subject: a job's id, or an event's tag.
    fun
        The requested function; empty in an event.
    value
        The answer; plain data.
    why
        The error, in Salt's words; None without one.
    kind
        The error's class; empty if unknown.
    retcode
        The exit code that Salt would give the job.
    """

    minion: str
    about: str
    fun: str = ""
    value: Any = None
    why: str | None = None
    kind: str = ""
    retcode: int = 0


def pack(answer: SignedAnswer, private_pem: bytes) -> dict[str, str]:
    """Return ``{"said": text, "signature": base64}``."""
    values = {field.name: getattr(answer, field.name) for field in fields(answer)}
    text = json.dumps(values, default=_plain, separators=(",", ":"))
    if len(text) > _WORTH_IT:
        text = _PACKED + base64.b64encode(zlib.compress(text.encode(), 1)).decode()
    # The host's own key, from its own disk: validating it takes longer than all the rest.
    key: Any = serialization.load_pem_private_key(
        private_pem, password=None, unsafe_skip_rsa_key_validation=True
    )
    signature = key.sign(text.encode(), _PSS, hashes.SHA256())
    return {"said": text, "signature": base64.b64encode(signature).decode()}


def _plain(value: object) -> object:
    """Return a value that JSON does not know as plain data; most answers have none."""
    # Salt could send more types than JSON, but the master would not understand them.
    return wire.plain(value) if is_dataclass(value) else str(value)


def unpack(packed: object, public_pem: str, *, minion: str, about: str) -> SignedAnswer:
    """
    Return a host's answer; raise NotSigned if it is another's, NotUnderstood if it is malformed.

    packed
        The data that came, from an unknown sender.
    public_pem
        The key that the master has accepted for ``minion``.
    about
        The expected subject.
    """
    text = _decompress(_verify(packed, public_pem))
    if terminal.most_values(text) > MOST_VALUES:
        raise NotUnderstood(f"it has more than {MOST_VALUES:,} values")
    try:
        answer: SignedAnswer = wire.read_recorded(SignedAnswer, terminal.read(text, _ABOVE))
    except (ValueError, RecursionError) as exc:
        raise NotUnderstood(str(exc)) from exc
    # An answer of the host to another job may be replayed.
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
        # Salt accepts any text that a minion sends as its key.
        if not isinstance(key, rsa.RSAPublicKey):
            raise NotSigned("the key that was accepted of that minion is no RSA key")
        key.verify(base64.b64decode(signature), text.encode(), _PSS, hashes.SHA256())
    except (InvalidSignature, UnsupportedAlgorithm, ValueError) as exc:
        raise NotSigned("its signature is not of that minion's key") from exc
    return text


def _decompress(text: str) -> str:
    """Return a text, decompressed if it is compressed; refuse one that is too large."""
    if text.startswith(_PACKED):
        try:
            packed = base64.b64decode(text.removeprefix(_PACKED))
            # Compressed data may be a thousandth of its content.
            text = zlib.decompressobj().decompress(packed, MAX_BYTES + 1).decode()
        except (zlib.error, ValueError) as exc:
            raise NotUnderstood(f"what it has packed cannot be unpacked: {exc}") from exc
    if len(text) > MAX_BYTES:
        raise NotUnderstood(f"it has more than {MAX_BYTES >> 20} MiB")
    return text
