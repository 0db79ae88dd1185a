"""What a guest says by its agent, and what it is told to run; it is hostile (agentkit.py)."""

import agentkit
import pytest
from cloudkit import TINY

pytestmark = pytest.mark.nightly  # the examples of both functions ask such a guest in make test
VM = "agent1"


@pytest.fixture(scope="module")
def guest(cloud):
    """A cloud with a guest whose agent listens."""
    agentkit.boot(cloud, "hyper1", VM)
    yield cloud
    cloud.local("hyper1", "virt.purge", VM)
    agentkit.forget(cloud, "hyper1")


def test_a_guest_says_what_it_is_and_steers_no_terminal(guest):
    said = guest.local("hyper1", "virt.guest_info", VM)

    assert said["hostname"] == "evil\\x1b[2J\\u202e../../etc"
    assert said["agent"] == "0 of a test"
    assert said["os"]["id"] == "busybox" and said["os"]["kernel_release"].endswith("cloud-amd64")
    assert said["users"] is None and said["interfaces"] is None
    assert said["unavailable"]["users"] == "the agent has switched off guest-get-users"
    assert said["unavailable"]["interfaces"].endswith("does not know guest-network-get-interfaces")
    shown = guest.command("salt", "hyper1", "virt.guest_info", VM)
    assert "\x1b[2J" not in shown.out and "\u202e" not in shown.out


def test_a_command_runs_in_the_guest(guest):
    done = guest.call("hyper1", "virt.guest_exec", VM, "/bin/sed", "s/a/b/", "stdin=abc")

    assert done.code == 0, done.out + done.err
    assert done.data["local"] == {
        "exit_code": 0,
        "signal": None,
        "stdout": "bbc",
        "stderr": "",
        "truncated": False,
    }
    cut = guest.local("hyper1", "virt.guest_exec", VM, "cat", "/bin/busybox", "output_bytes=6")
    assert (cut["stdout"], cut["truncated"]) == ("\\x7fELF\\x02\\x01", True)


def test_a_command_that_fails_there_fails_here(guest):
    done = guest.call("hyper1", "virt.guest_exec", VM, "[ls, -l, /nowhere]")

    assert done.code == 1 and done.data["local"]["exit_code"] == 1


def test_a_guest_without_an_agent_is_one_line(guest):
    guest.local("hyper1", "virt.init", "mute1", "1", "96", TINY, "seed=False")
    try:
        done = guest.call("hyper1", "virt.guest_info", "mute1")
    finally:
        guest.local("hyper1", "virt.purge", "mute1")

    assert done.code == 1 and done.traceback == []
    assert (
        "no guest agent listens in VM 'mute1' on its channel org.qemu.guest_agent.0: install the "
        "package qemu-guest-agent in the guest, and start it"
    ) in " ".join((done.out + done.err).split())


def test_an_agent_that_goes_quiet_holds_up_nobody(guest):
    done = guest.call("hyper1", "virt.guest_exec", VM, "hang")

    assert done.code == 1 and "does not answer guest-exec: " in done.out + done.err
    guest.local("hyper1", "virt.purge", VM)
    agentkit.boot(guest, "hyper1", VM)
