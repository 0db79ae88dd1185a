"""Answers of hosts with very many VMs fit into Salt's events; too large ones are an error."""

import base64
import json
import random
import zlib
from types import SimpleNamespace

import keypairs
import pytest
import salt.payload
import salt.utils.dicttrim
import salt.utils.event
from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import replies
from saltvirt.core.crypto import signed
from saltvirt.core.options.config import MasterSettings

OWN = keypairs.named("hyper1")
VMS = {f"web{n}": {"state": "running", "disks": ["/srv/salt-images/x"] * 9} for n in range(8000)}
# It cannot be compressed.
DENSE = base64.b85encode(random.Random(1).randbytes(3 << 20)).decode()


def packed(value):
    """Return a signed answer of a host."""
    answer = signed.SignedAnswer(minion="hyper1", about="1", fun="virt.x", value=value)
    return signed.pack(answer, OWN[1].encode())


def signed_text(text):
    """Return any text with a host's signature."""
    packed_answer = signed.pack(signed.SignedAnswer(minion="hyper1", about="1"), OWN[1].encode())
    key = signed.serialization.load_pem_private_key(OWN[1].encode(), password=None)
    signature = key.sign(text.encode(), signed._PSS, signed.hashes.SHA256())
    return {**packed_answer, "said": text, "signature": base64.b64encode(signature).decode()}


def unpacked(data):
    """Return the answer as the master reads it."""
    return signed.unpack(data, OWN[0], minion="hyper1", about="1")


def over_the_bus(opts, answer):
    """Return an answer as it leaves Salt's event bus of a minion or a master."""
    data = salt.payload.dumps({"id": "hyper1", "return": answer}, use_bin_type=True)
    max_bytes = opts["max_event_size"]
    trimmed_data = salt.utils.dicttrim.trim_dict(
        data, max_bytes, is_msgpacked=True, use_bin_type=True
    )
    return salt.utils.event.SaltEvent.unpack(
        b"tag" + salt.utils.event.TAGEND.encode() + trimmed_data
    )[1]


@pytest.fixture
def reply(opts):
    """Return a function: the reply of a host after its answer has passed the buses."""
    minionkeys.accept(opts, "hyper1", OWN[0])
    settings = MasterSettings(hypervisors="hyper1")
    cloud = Cloud(opts=opts, settings=settings, progress=lambda *_a, **_k: None)

    def reply(answer):
        collector = replies.ReplyCollector(cloud, "1", ["hyper1"])
        collector.accept(over_the_bus(opts, answer))
        return collector.reply("hyper1")

    return reply


def test_a_large_answer_is_small_enough_for_an_event(reply):
    assert len(str(VMS)) > 1 << 20

    assert reply(packed(VMS)).value == VMS


def test_only_large_answers_are_compressed():
    vms = dict([*VMS.items()][:50])
    data = packed(vms)

    assert unpacked(data).value == vms
    assert len(data["said"]) < len(json.dumps(vms)) / 5
    assert packed({"a": 1})["said"].startswith("{")


def test_an_answer_that_salt_has_dropped_is_no_forgery_and_names_a_remedy(reply):
    reply_to_large_answer = reply(packed(DENSE))

    assert reply_to_large_answer.is_missing and reply_to_large_answer.error == (
        "hyper1 sent no signed answer (Salt has left it out, as it was larger than "
        "max_event_size): raise that option in its minion's configuration and in the master's, "
        "and restart both"
    )


def test_a_forged_note_of_a_dropped_answer_is_ignored(opts, reply):
    listener = SimpleNamespace(replies=[])
    settings = MasterSettings(hypervisors="hyper1")
    cloud = Cloud(opts=opts, settings=settings, progress=print, on_reply=listener.replies.append)
    collector = replies.ReplyCollector(cloud, "1", ["hyper1"])

    for forged in ("VALUE_TRIMMED", {"said": "VALUE_TRIMMED", "signature": "x"}):
        collector.accept({"id": "hyper1", "return": forged})
    assert collector.pending() == {"hyper1"}
    collector.accept({"id": "hyper1", "return": packed("true")})

    assert collector.reply("hyper1").value == "true" and len(listener.replies) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("zlib " + base64.b64encode(zlib.compress(bytes(64 << 20))).decode(), "more than 32 MiB"),
        ("zlib " + base64.b64encode(zlib.compress(b"\xff" * 9)).decode(), "cannot be unpacked"),
        ("zlib AAAA", "cannot be unpacked"),
        ("zlib ä", "cannot be unpacked"),
        ("zlib ", "Expecting value"),
        ("zlib " + base64.b64encode(zlib.compress(b"[1, 2]")[:-6]).decode(), "Expecting|expected"),
        ("[" + "[]," * 2_000_000 + "1]", "more than 2,000,000 values"),
    ],
)
def test_an_answer_that_would_take_too_much_memory_is_not_understood(text, reason):
    with pytest.raises(signed.NotUnderstood, match=reason):
        unpacked(signed_text(text))


def test_an_answer_without_a_valid_signature_is_not_unpacked(monkeypatch):
    monkeypatch.setattr(signed.zlib, "decompressobj", lambda: pytest.fail("it was unpacked"))
    data = packed(VMS)

    with pytest.raises(signed.NotSigned):
        unpacked({**data, "said": data["said"].replace("A", "B")})
