"""A lease that goes with a bridge: who holds it, what its manager is told, and the way back."""

import json
from dataclasses import replace

import netcases
import pytest
from hypothesis import given
from hypothesis import strategies as st
from saltvirt.core.errors import BadArgument
from saltvirt.network.bridge import leases
from saltvirt.network.managers import change, interfaces, linkconfig, netplan

DUID = "fff9f26f4100020000ab1194cf5a95f91e8269"
NETWORKD = f"""# This is private data. Do not parse.
ADDRESS=10.77.4.145
NETMASK=255.255.0.0
LIFETIME=120
HOSTNAME=vm
CLIENTID={DUID}
"""
NETWORKMANAGER = """DHCP4.OPTION[1]:broadcast_address = 10.77.255.255
DHCP4.OPTION[2]:dhcp_client_identifier = 01:52:00:00:77:00:01
DHCP4.OPTION[3]:dhcp_lease_time = 120
DHCP4.OPTION[8]:ip_address = 10.77.4.144
DHCP4.OPTION[9]:requested_ip_address = 1
"""
DHCLIENT = r"""default-duid "\000\001\000\0012\225\236>R\000\000w\000\004";
lease {
  interface "eth0";
  fixed-address 10.77.4.7;
  option dhcp-lease-time 3600;
}
lease {
  interface "eth0";
  fixed-address 10.77.4.147;
  option subnet-mask 255.255.0.0;
  option dhcp-lease-time 120;
  renew 0 2026/11/22 12:41:42;
}
"""
LEASED = replace(netcases.CONFIG, dhcp=True, addresses=(), gateways=())
BRIDGE = "/etc/systemd/network/05-salt-virt-br0.network"
HELD = {"eth0": leases.Lease(address="10.0.0.4")}


def snapshot(valid_s, *names):
    """Return a snapshot of links, the first with an address."""
    one = {
        "addresses": [
            {"address": "10.0.0.4/16", "valid_s": valid_s},
            {"address": "fd00::4/64", "valid_s": 90},
        ]
    }
    return {"links": {name: one if name == names[0] else {"addresses": []} for name in names}}


def test_each_client_of_dhcp_says_what_it_holds():
    assert leases.from_networkd(NETWORKD) == leases.Lease(
        address="10.77.4.145", client_id=DUID, lasts_s=120
    )
    assert leases.from_networkmanager(NETWORKMANAGER) == leases.Lease(
        address="10.77.4.144", client_id="01520000770001", lasts_s=120
    )
    assert leases.from_dhclient(DHCLIENT) == leases.Lease(address="10.77.4.147", lasts_s=120)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ADDRESS=\n",
        "lease {",
        "a\nb",
        "DHCP4.OPTION[1]:ip_address",
        "DHCP4.OPTION[1]:ip_address = 10.0.0.1; reboot",
    ],
)
def test_what_is_no_lease_is_none(text):
    assert leases.from_networkd(text) is None
    assert leases.from_networkmanager(text) is None
    assert leases.from_dhclient(text) is None


# Of systemd 262, which keeps no file of a lease; cut to what is read.
NETWORKCTL = {
    "DHCPv4Client": {
        "Lease": {
            "Message": {
                "yiaddr": "0a4d0101",
                "options": [{"tag": 1, "data": "ffff0000"}, {"tag": 51, "data": "00000078"}],
            }
        },
        "ClientIdentifier": list(bytes.fromhex(DUID)),
    },
    "Addresses": [
        {"AddressString": "fe80::1", "ConfigSource": "foreign"},
        {"AddressString": "10.77.1.1", "ConfigSource": "DHCPv4"},
    ],
}


def test_a_lease_is_read_as_networkctl_says_it():
    assert leases.from_networkctl(json.dumps(NETWORKCTL)) == leases.Lease(
        address="10.77.1.1", client_id=DUID, lasts_s=120
    )


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"DHCPv4Client": null, "Addresses": null}',
        '{"Addresses": [{"AddressString": "10.77.1.1"}]}',
    ],
)
def test_a_link_without_a_lease_has_none_for_networkctl(text):
    assert leases.from_networkctl(text) is None


def test_a_client_id_that_is_no_hex_is_left_out():
    text = NETWORKMANAGER.replace("01:52:00:00:77:00:01", "x\nmethod=shared")

    assert leases.from_networkmanager(text).client_id is None


def test_dhclients_file_goes_to_another_link_with_its_duid_and_all():
    moved = leases.for_link(DHCLIENT, "br0")

    assert moved.count('interface "br0"') == 2 and "eth0" not in moved
    assert moved.splitlines()[0] == DHCLIENT.splitlines()[0]
    assert leases.for_link(moved, "eth0") == DHCLIENT


def test_a_lease_is_kept_unless_addresses_take_its_place():
    assert leases.is_any_leased(snapshot(90, "eth0"), {})
    assert leases.is_any_leased(snapshot(None, "eth0"), HELD)  # a lease that never ends is one too
    assert not leases.is_any_leased(snapshot(None, "eth0"), {})
    assert leases.uses_dhcp(None, None, True) is True
    assert leases.uses_dhcp(None, ("10.0.0.4/16",), True) is False
    assert leases.uses_dhcp(False, ("10.0.0.4/16",), True) is False
    assert leases.uses_dhcp(True, None, False) is True
    with pytest.raises(BadArgument, match="dhcp: False on a host whose address is leased"):
        leases.uses_dhcp(False, None, True)


def test_a_lease_that_others_renew_is_refused():
    with pytest.raises(BadArgument, match="10.0.0.4/16 is leased, and netplan does not renew"):
        leases.refuse_foreign(snapshot(90, "eth0"), {}, "br0", "netplan")
    two = {**HELD, "eth1": leases.Lease(address="10.0.0.5")}
    with pytest.raises(BadArgument, match="eth0 and eth1 have a lease each"):
        leases.refuse_foreign(snapshot(90, "eth0", "eth1"), two, "br0", "netplan")

    leases.refuse_foreign(snapshot(90, "eth0"), HELD, "br0", "netplan")
    leases.refuse_foreign(snapshot(None, "eth0"), {}, "br0", "netplan")
    # What an earlier version has left: nobody renews the lease of the bridge.
    leases.refuse_foreign(snapshot(90, "br0", "eth0"), {}, "br0", "netplan")


def test_a_lease_is_refused_where_nobody_would_renew_it():
    with pytest.raises(BadArgument, match="netplan does not run here, so nobody would renew"):
        leases.refuse_idle(True, False, "netplan")

    leases.refuse_idle(True, True, "netplan")
    with pytest.raises(BadArgument, match="netplan does not run here, so nobody would bring up"):
        leases.refuse_idle(False, False, "netplan")


def test_the_bridge_is_the_client_that_its_port_was():
    text = linkconfig.networkd(replace(LEASED, client_id=DUID))[BRIDGE]
    for line in (
        "DHCP=yes",
        "SendRelease=no",
        "ClientIdentifier=duid",
        f"IAID={0xF9F26F41}",
        "DUIDType=vendor",
        "DUIDRawData=00:00:ab:11:94:cf:5a:95:f9:1e:82:69",
    ):
        assert line in text.splitlines()
    by_mac = linkconfig.networkd(replace(LEASED, client_id="01520000000001"))[BRIDGE]
    assert "ClientIdentifier=mac" in by_mac and "IAID" not in by_mac

    files = linkconfig.networkmanager(replace(LEASED, client_id="01520000000001"))
    bridge = files["/etc/NetworkManager/system-connections/salt-virt-br0.nmconnection"]
    assert "[ipv4]\nmethod=auto\ndhcp-client-id=01:52:00:00:00:00:01\nroute1=10.9.0.0/16" in bridge

    beside = netplan.build_files(replace(LEASED, client_id=DUID), [])[
        "/etc/systemd/network/10-netplan-br0.network.d/salt-virt.conf"
    ]
    assert beside.startswith("[DHCPv4]\n") and f"IAID={0xF9F26F41}" in beside


@given(st.binary().map(bytes.hex))
def test_any_client_id_gives_files_that_say_dhcp(client_id):
    text = linkconfig.networkd(replace(LEASED, client_id=client_id))[BRIDGE]

    assert "DHCP=yes" in text and text.count("[DHCPv4]") == 1


def test_a_static_bridge_says_nothing_of_dhcp():
    assert "DHCPv4" not in linkconfig.networkd(netcases.CONFIG)[BRIDGE]
    assert list(netplan.build_files(netcases.CONFIG, [])) == ["/etc/netplan/90-salt-virt-br0.yaml"]


def test_ifupdowns_file_says_who_has_a_lease():
    text = "auto eth0\niface eth0 inet dhcp\niface eth0 inet6 auto\niface eth1 inet static\n"

    assert interfaces.is_leased(text, "eth0")
    assert not interfaces.is_leased(text, "eth1")
    assert not interfaces.is_leased(text, "eth")
    assert interfaces.names(text) == {"eth0", "eth1"}


def test_the_last_file_of_netplans_says_who_it_is_for():
    one, other = "network: {version: 2}", "network: {renderer: NetworkManager}"

    assert netplan.renderer(["", one]) == "networkd"
    assert netplan.renderer([other, one]) == "NetworkManager"


class Manager:
    """A manager that writes down what it is told, and what its file said then."""

    def __init__(self, path, *, gives_back_first):
        self.path, self.gives_back_first, self.told = path, gives_back_first, []

    def files_of(self, _name):
        return [str(self.path)] if "br0" in self.path.read_text() else []

    def holder(self, _link):
        return "uuid"

    def say(self, what):
        self.told.append((what, self.path.read_text()))

    def let_go(self, _change):
        self.say("let go")

    def take(self, _change):
        self.say("take")

    def give_back(self, _change):
        self.say("give back")


def told(tmp_path, *, first, text, becomes, is_coming, back):
    """Return what a manager is told on the way there, and on the way back if it is gone."""
    path = tmp_path / "file"
    path.write_text(text)
    manager = Manager(path, gives_back_first=first)
    made = change.Change(
        manager,
        "br0",
        ["eth0"],
        paths=[path],
        is_coming=is_coming,
        write=lambda: path.write_text(becomes),
    )
    made.before_links()
    manager.say("links")
    made.after_links()
    if back:
        manager.told.clear()
        made.before_links(is_rollback=True)
        manager.say("links")
        made.after_links(is_rollback=True)
        assert path.read_text() == text
    return manager.told


@pytest.mark.parametrize("first", [True, False])
def test_a_bridge_that_comes_is_told_of_after_the_links_and_one_that_goes_as_its_manager_needs(
    tmp_path, first
):
    there = told(tmp_path, first=first, text="eth0", becomes="br0", is_coming=True, back=False)
    gone = told(tmp_path, first=first, text="br0", becomes="eth0", is_coming=False, back=False)

    assert there == [("links", "eth0"), ("take", "br0")]
    early = [("let go", "br0"), ("give back", "eth0"), ("links", "eth0")]
    late = [("let go", "br0"), ("links", "br0"), ("give back", "eth0")]
    assert gone == (early if first else late)


@pytest.mark.parametrize("first", [True, False])
def test_a_rollback_goes_the_other_way_with_the_files_as_they_were(tmp_path, first):
    there = told(tmp_path, first=first, text="eth0", becomes="br0", is_coming=True, back=True)
    gone = told(tmp_path, first=first, text="br0", becomes="eth0", is_coming=False, back=True)
    more = told(tmp_path, first=first, text="br0", becomes="br0 eth1", is_coming=True, back=True)

    early = [("let go", "br0"), ("give back", "eth0"), ("links", "eth0")]
    late = [("let go", "br0"), ("links", "br0"), ("give back", "eth0")]
    assert there == (early if first else late)
    assert gone == [("links", "eth0"), ("take", "br0")]
    # A bridge that was there before stays in its manager's hands.
    assert more == [("links", "br0 eth1"), ("take", "br0")]


def test_a_file_that_was_not_there_is_gone_after_a_rollback(tmp_path):
    path = tmp_path / "new/file"
    manager = Manager(tmp_path / "other", gives_back_first=True)
    manager.path.write_text("")
    made = change.Change(
        manager,
        "br0",
        ["eth0"],
        paths=[path],
        is_coming=True,
        write=lambda: change.put(str(path), b"br0"),
    )

    made.after_links()
    assert path.read_text() == "br0" and path.stat().st_mode & 0o777 == 0o644
    made.before_links(is_rollback=True)

    assert not path.exists()
