"""Any answer of a guest's agent is checked, bounded, and safe to show in a terminal."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saltvirt.core.errors import GuestAnswerRefused
from saltvirt.libvirt.domains import guestanswers

READERS = [
    guestanswers.commands,
    guestanswers.version,
    guestanswers.system,
    guestanswers.host_name,
    guestanswers.time_zone,
    guestanswers.users,
    guestanswers.file_systems,
    guestanswers.interfaces,
]
KEYS = [
    *("supported_commands", "name", "enabled", "version", "id", "host-name", "zone", "offset"),
    *("user", "domain", "login-time", "mountpoint", "type", "total-bytes", "used-bytes"),
    *("hardware-address", "ip-addresses", "ip-address", "prefix", "pid", "exited", "exitcode"),
    *("signal", "out-data", "err-data", "out-truncated"),
]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40)
ANSWERS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=30,
)


def texts(value):
    """Yield all texts in plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


@given(ANSWERS)
def test_no_answer_raises_or_steers_a_terminal(answer):
    for read in READERS:
        parsed = read(answer)

        json.dumps(parsed, allow_nan=False).encode()
        assert all(text.isprintable() for text in texts(parsed))


@given(ANSWERS)
def test_the_status_of_a_command_is_read_or_refused(answer):
    try:
        pid, status = guestanswers.process(answer), guestanswers.parse_exec_status(answer, 10)
    except GuestAnswerRefused as exc:
        assert "\n" not in str(exc)
        return
    assert isinstance(pid, int)
    assert status is None or isinstance(status.exit_code, int | None)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", '{"error": {}}', "[" * 100_000, '{"return": ' + "9" * 5000 + "}"]
)
def test_a_malformed_answer_is_refused(text):
    with pytest.raises(GuestAnswerRefused, match="^the guest's answer to guest-ping "):
        guestanswers.parse_return("guest-ping", text)


def test_an_answer_is_the_value_of_return():
    assert guestanswers.parse_return("guest-ping", '{"return": {}}') == {}


def test_texts_and_lists_are_cut_and_escaped():
    assert guestanswers.cut_text("a\x1b[2J\u202eb\ud800\n", 9) == "a\\x1b[2J\\u202eb\\ud800\\n"
    assert guestanswers.cut_text("x" * 20, 9) == "x" * 9 + " …"
    assert len(guestanswers.users([{"user": "a"}] * 1000)) == 256


def test_answers_of_a_real_agent_are_read():
    user = {"user": "root", "login-time": 1722522240.123, "domain": None}
    link = {
        "name": "eth0",
        "hardware-address": "52:54:00:00:00:01",
        "ip-addresses": [{"ip-address-type": "ipv4", "ip-address": "10.0.0.5", "prefix": 16}],
    }

    assert guestanswers.users([user]) == [{"name": "root", "domain": None, "login_s": 1722522240}]
    assert guestanswers.time_zone({"zone": "CET", "offset": 3600}) == {
        "name": "CET",
        "offset_s": 3600,
    }
    assert guestanswers.interfaces([link, "x"]) == [
        {
            "name": "eth0",
            "mac": "52:54:00:00:00:01",
            "addresses": [{"address": "10.0.0.5", "prefix": 16}],
        }
    ]
    assert guestanswers.commands(
        {
            "supported_commands": [
                {"name": "a", "enabled": True},
                {"name": "b", "enabled": False},
                {"name": ["c"], "enabled": True},
            ]
        }
    ) == {"a": True, "b": False}


def data(raw):
    return base64.b64encode(raw).decode()


def test_a_commands_output_is_bounded_and_escaped():
    answer = {"exited": True, "exitcode": 3, "out-data": data(b"a\tb\n\x1b[2J\xff" + b"x" * 50)}

    status = guestanswers.parse_exec_status(answer, 10)

    assert (status.exit_code, status.signal) == (3, None)
    assert status.stdout == "a\tb\n\\x1b[2J\\xffx" and status.is_cut
    assert guestanswers.parse_exec_status({"exited": True, "out-truncated": True}, 10).is_cut
    assert guestanswers.parse_exec_status({"exited": False}, 10) is None


@pytest.mark.parametrize("output", ["?", 5, ["x"], "YQ"])
def test_an_output_that_is_not_base64_is_refused(output):
    with pytest.raises(GuestAnswerRefused, match="not base64"):
        guestanswers.parse_exec_status({"exited": True, "err-data": output}, 10)
