"""Addresses and users that guests report: wrong values are left out."""

import pytest
from saltvirt.core import guestaccess, terminal


def test_reachable_addresses_are_listed_ipv4_first():
    addresses = [
        "2001:db8::7",
        "127.0.0.1",
        "192.0.2.7",
        "fe80::1",
        "::1",
        "169.254.1.1",
        "192.0.2.7",
    ]

    assert guestaccess.addresses(addresses) == ["192.0.2.7", "2001:db8::7"]


def test_a_mapped_ipv4_address_is_shown_as_ipv4():
    assert guestaccess.addresses(["::ffff:192.0.2.7", "192.0.2.7"]) == ["192.0.2.7"]


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "x",
            "192.0.2.7; reboot",
            "2001:db8::1%$(reboot)",
            "0.0.0.0",
            "224.0.0.1",
            7,
            None,
            [],
        ),
        *("::ffff:127.0.0.1", "::ffff:0.0.0.0", "240.0.0.1", "0.1.2.3"),
    ],
)
def test_values_that_are_no_guest_addresses_are_left_out(value):
    assert guestaccess.addresses([value]) == []


def test_a_guest_with_a_million_addresses_shows_sixteen():
    addresses = (f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(1, 1 << 24))

    assert len(guestaccess.addresses(addresses)) == guestaccess.MOST
    assert next(addresses).startswith("10.0.3.")  # the remaining addresses were not read


@pytest.mark.parametrize(
    "value", ["-oProxyCommand=x", "a b", "ROOT;", "", None, 7, "a" * 33, "a\n"]
)
def test_impossible_user_names_are_left_out(value):
    assert guestaccess.ssh_user(value) is None


def test_the_login_command_has_user_and_first_address():
    assert guestaccess.ssh(["192.0.2.7", "2001:db8::7"], "debian") == "ssh debian@192.0.2.7"
    assert guestaccess.ssh(["192.0.2.7"], guestaccess.ssh_user("USER")) == (
        "ssh USER@192.0.2.7 (USER: the image's default user)"
    )
    assert guestaccess.ssh(["192.0.2.7"], None) is guestaccess.ssh([], None) is None


def test_without_an_address_the_login_command_has_a_placeholder():
    assert guestaccess.ssh([], "debian", host="hyper1", jump_networks=["192.168.122.0/24"]) == (
        "ssh debian@ADDRESS (ADDRESS: not known to its host yet)"
    )


@pytest.mark.parametrize(
    ("address", "behind", "jump"),
    [
        ("192.168.122.7", ["192.168.122.0/24"], "-J hyper1 "),
        ("192.0.2.7", ["192.168.122.0/24"], ""),
        ("2001:db8::7", ["192.168.122.0/24", "2001:db8::/64"], "-J hyper1 "),
        ("192.168.122.7", [7, None, "x", "192.168.122.1/24", []], ""),
        ("192.168.122.7", [], ""),
    ],
)
def test_behind_nat_the_way_leads_through_the_host(address, behind, jump):
    assert guestaccess.ssh([address], "debian", host="hyper1", jump_networks=behind) == (
        f"ssh {jump}debian@{address}"
    )


def test_a_host_of_any_name_is_one_word():
    command = guestaccess.ssh(
        ["192.0.2.7"], "root", host="a b;reboot", jump_networks=["192.0.2.0/24"]
    )

    assert command == "ssh -J 'a b;reboot' root@192.0.2.7"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("a\x1b[2Jb\tc\x07\x9b31md", "ab\tcd"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://evil\x1b\\x\x1b]8;;\x1b\\", "x"),
        ("\x1b(B\x1b[mok", "ok"),
        ("a\u202eb\u2028c", "abc"),
        ("\x1b", ""),
        ("\x1b]0;never ends", ""),
    ],
)
def test_control_characters_are_left_out(line, shown):
    assert terminal.printable(line) == shown


def test_a_tail_has_no_empty_lines_and_is_limited():
    text = "".join(f"line {n}\n\n \x1b[m\n" for n in range(20)) + "x" * 1000

    lines = terminal.tail(text, 3)

    assert lines[:2] == ["line 18", "line 19"]
    assert lines[2] == "x" * terminal.LONGEST + " …"
    assert terminal.tail("\n\n", 10) == []
