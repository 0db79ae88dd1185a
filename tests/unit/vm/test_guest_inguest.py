"""Who asks for an agent that is not there is told what is missing; what it answers is bounded."""

import faces
import pytest
from saltvirt.core.errors import BadArgument, GuestSilent, LibvirtRefused, VirtError
from saltvirt.libvirt.domains import guestagent, lifecycle
from saltvirt.vm.guest.host import inguest

VM = """<domain type='test'><name>{name}</name><memory>1024</memory><os><type>hvm</type></os>
<devices>{devices}</devices></domain>"""
CHANNEL = """<channel type='unix'>
<target type='virtio' name='org.qemu.guest_agent.0'{state}/></channel>"""


@pytest.mark.parametrize(
    ("devices", "runs", "error", "why"),
    [
        (CHANNEL, False, LibvirtRefused, "^VM 'g1' is not running"),
        ("", True, GuestSilent, "^VM 'g1' has no channel org.qemu.guest_agent.0"),
        (CHANNEL, True, GuestSilent, "install the package qemu-guest-agent in the guest"),
    ],
)
@pytest.mark.slow
def test_what_is_missing_is_said(conn, devices, runs, error, why):
    lifecycle.define(conn, VM.format(name="g1", devices=devices.format(state="")))
    if runs:
        conn.lookupByName("g1").create()

    with pytest.raises(error, match=why) as told:
        guestagent.Agent(conn, "g1")
    assert "\n" not in str(told.value)


class Said:
    """What the test driver does not say, as libvirt does: that somebody listens."""

    def __init__(self, domain):
        self._domain = domain

    def isActive(self):
        return True

    def XMLDesc(self, flags):
        return VM.format(name="g1", devices=CHANNEL.format(state=" state='connected'"))


@pytest.fixture
def agent(conn, monkeypatch):
    monkeypatch.setattr(guestagent, "domain", lambda _conn, name: Said(name))
    return guestagent.Agent(conn, "g1")


# A real libvirt says these only of a real guest: see tests/cloud/test_guest_agent.py.
@pytest.mark.parametrize(
    ("code", "error", "why"),
    [
        ("AGENT_UNRESPONSIVE", GuestSilent, "does not answer guest-info: no \\\\x1b.2J.*runs in"),
        ("AGENT_UNSYNCED", GuestSilent, "does not answer guest-info"),
        ("INTERNAL_ERROR", LibvirtRefused, "did not do guest-info: no \\\\x1b.2J"),
    ],
)
def test_libvirts_words_are_shown_without_what_steers_a_terminal(
    agent, monkeypatch, code, error, why
):
    libvirt = guestagent.libvirt

    class Refused(libvirt.libvirtError):
        def get_error_code(self):
            return getattr(libvirt, f"VIR_ERR_{code}")

    def refuse(*_given):
        raise Refused("no \x1b[2J\nhere")

    monkeypatch.setattr(guestagent.libvirt_qemu, "qemuAgentCommand", refuse)
    with pytest.raises(error, match=why) as told:
        agent.ask("guest-info")
    assert str(told.value).isprintable() and told.value.__suppress_context__


@pytest.mark.parametrize(
    ("words", "given", "why"),
    [
        ((), {}, "^command: is missing"),
        (([],), {}, "^command: is missing"),
        (("ls", True), {}, "True is not text; quote it"),
        (("ls", None), {}, "None is not text"),
        (("ls", "a\0b"), {}, "a character 0"),
        (("x" * 200_000,), {}, "at most 1024 arguments of"),
        (("ls",), {"stdin": 5}, "^stdin: is not a text of at most"),
        (("ls",), {"stdin": "x" * 2**21}, "^stdin: is not a text of at most"),
        (("ls",), {"timeout_s": 0}, "^timeout_s: 0 is out of range"),
        (("ls",), {"output_bytes": 2**22}, "^output_bytes"),
        (("ls",), {"shell": True}, "has no argument 'shell'"),
    ],
)
def test_a_command_that_cannot_be_is_refused(conn, words, given, why):
    with pytest.raises(BadArgument, match=why):
        faces.load("modules", "virt_guest", context={}).guest_exec("g1", *words, **given)


def test_a_command_is_a_list_or_words():
    usual = (None, 60, 65536)

    assert inguest.parse_command((["ls", "A=b", 1],), *usual) == inguest.parse_command(
        ("ls", "A=b", 1), *usual
    )
    assert inguest.parse_command(("ls", 1.5), *usual).words == ("ls", "1.5")


class Plays:
    """An agent whose command never ends, or that says what it is told."""

    def __init__(self, **said):
        self.said, self.asked = said, []

    def ask(self, command, arguments=None):
        self.asked.append((command, arguments))
        return self.said[command]


def test_a_command_that_does_not_end_is_given_up(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(inguest.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(inguest.time, "sleep", lambda _s: None)
    agent = Plays(**{"guest-exec": {"pid": 9}, "guest-exec-status": {"exited": False}})

    with pytest.raises(VirtError, match="within 5 s .*goes on in the guest as process 9"):
        inguest.run(agent, inguest.Command(words=("sleep", "9"), limit_s=5))


def test_a_command_goes_to_the_guest_as_a_list():
    agent = Plays(**{"guest-exec": {"pid": 9}, "guest-exec-status": {"exited": True}})

    inguest.run(agent, inguest.Command(words=("echo", "$(reboot)"), stdin="a"))

    assert agent.asked[0] == (
        "guest-exec",
        {"path": "echo", "arg": ["$(reboot)"], "capture-output": True, "input-data": "YQ=="},
    )
