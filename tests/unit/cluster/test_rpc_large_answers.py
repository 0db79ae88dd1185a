"""What a host with very many VMs says passes Salt's events, and what is too large is said."""

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
# Nothing makes it smaller.
DENSE = base64.b85encode(random.Random(1).randbytes(3 << 20)).decode()


def packed(value):
    """Return what a host answers, signed."""
    said = signed.SignedAnswer(minion="hyper1", about="1", fun="virt.x", value=value)
    return signed.pack(said, OWN[1].encode())


def by_hand(text):
    """Return a text that a host has signed, whatever it is."""
    usual = signed.pack(signed.SignedAnswer(minion="hyper1", about="1"), OWN[1].encode())
    key = signed.serialization.load_pem_private_key(OWN[1].encode(), password=None)
    made = key.sign(text.encode(), signed._PSS, signed.hashes.SHA256())
    return {**usual, "said": text, "signature": base64.b64encode(made).decode()}


def unpacked(data):
    """Return what the master takes of it."""
    return signed.unpack(data, OWN[0], minion="hyper1", about="1")


def over_the_bus(opts, answer):
    """Return an answer as it comes out of a bus of Salt's, that of minion or master."""
    data = salt.payload.dumps({"id": "hyper1", "return": answer}, use_bin_type=True)
    most = opts["max_event_size"]
    cut = salt.utils.dicttrim.trim_dict(data, most, is_msgpacked=True, use_bin_type=True)
    return salt.utils.event.SaltEvent.unpack(b"tag" + salt.utils.event.TAGEND.encode() + cut)[1]


@pytest.fixture
def reply(opts):
    """Return a function: the reply of a host whose answer comes over the buses."""
    minionkeys.accept(opts, "hyper1", OWN[0])
    known = MasterSettings(hypervisors="hyper1")
    cloud = Cloud(opts=opts, settings=known, progress=lambda *_a, **_k: None)

    def reply(answer):
        heard = replies.ReplyCollector(cloud, "1", ["hyper1"])
        heard.accept(over_the_bus(opts, answer))
        return heard.reply("hyper1")

    return reply


def test_a_large_answer_is_small_enough_for_an_event(reply):
    assert len(str(VMS)) > 1 << 20

    assert reply(packed(VMS)).value == VMS


def test_an_answer_is_packed_where_that_is_worth_it():
    some = dict([*VMS.items()][:50])
    data = packed(some)

    assert unpacked(data).value == some
    assert len(data["said"]) < len(json.dumps(some)) / 5
    assert packed({"a": 1})["said"].startswith("{")


def test_one_that_salt_has_left_out_is_no_forgery_and_it_is_said_what_helps(reply):
    said = reply(packed(DENSE))

    assert said.is_missing and said.error == (
        "hyper1 sent no signed answer (Salt has left it out, as it was larger than "
        "max_event_size): raise that option in its minion's configuration and in the master's, "
        "and restart both"
    )


def test_whoever_says_that_another_one_was_left_out_does_not_have_it_passed_over(opts, reply):
    heard = SimpleNamespace(replies=[])
    known = MasterSettings(hypervisors="hyper1")
    cloud = Cloud(opts=opts, settings=known, progress=print, on_reply=heard.replies.append)
    hearing_ = replies.ReplyCollector(cloud, "1", ["hyper1"])

    for forged in ("VALUE_TRIMMED", {"said": "VALUE_TRIMMED", "signature": "x"}):
        hearing_.accept({"id": "hyper1", "return": forged})
    assert hearing_.pending() == {"hyper1"}
    hearing_.accept({"id": "hyper1", "return": packed("true")})

    assert hearing_.reply("hyper1").value == "true" and len(heard.replies) == 1


@pytest.mark.parametrize(
    ("text", "why"),
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
def test_what_would_take_too_much_when_it_is_read_is_not_understood(text, why):
    with pytest.raises(signed.NotUnderstood, match=why):
        unpacked(by_hand(text))


def test_nothing_is_unpacked_that_its_host_has_not_signed(monkeypatch):
    monkeypatch.setattr(signed.zlib, "decompressobj", lambda: pytest.fail("it was unpacked"))
    data = packed(VMS)

    with pytest.raises(signed.NotSigned):
        unpacked({**data, "said": data["said"].replace("A", "B")})
