"""A lease that moves to a bridge: its client, the steps for its manager, and the way back."""

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
LEASES_BY_LINK = {"eth0": leases.Lease(address="10.0.0.4")}


def snapshot(valid_s, *names):
    """Return a snapshot of links, the first with an address."""
    leased_link = {
        "addresses": [
            {"address": "10.0.0.4/16", "valid_s": valid_s},
            {"address": "fd00::4/64", "valid_s": 90},
        ]
    }
    return {
        "links": {name: leased_link if name == names[0] else {"addresses": []} for name in names}
    }


def test_the_lease_of_each_dhcp_client_is_read():
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
def test_a_text_without_a_lease_is_none(text):
    assert leases.from_networkd(text) is None
    assert leases.from_networkmanager(text) is None
    assert leases.from_dhclient(text) is None


# Of systemd 262, which keeps no file of a lease; only the parts that are read.
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


def test_a_lease_is_read_from_networkctl():
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
    bridge_lease = leases.for_link(DHCLIENT, "br0")

    assert bridge_lease.count('interface "br0"') == 2 and "eth0" not in bridge_lease
    assert bridge_lease.splitlines()[0] == DHCLIENT.splitlines()[0]
    assert leases.for_link(bridge_lease, "eth0") == DHCLIENT


def test_a_lease_is_kept_unless_addresses_take_its_place():
    assert leases.is_any_leased(snapshot(90, "eth0"), {})
    assert leases.is_any_leased(
        snapshot(None, "eth0"), LEASES_BY_LINK
    )  # a lease that never ends is one too
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
    two_leases = {**LEASES_BY_LINK, "eth1": leases.Lease(address="10.0.0.5")}
    with pytest.raises(BadArgument, match="eth0 and eth1 have a lease each"):
        leases.refuse_foreign(snapshot(90, "eth0", "eth1"), two_leases, "br0", "netplan")

    leases.refuse_foreign(snapshot(90, "eth0"), LEASES_BY_LINK, "br0", "netplan")
    leases.refuse_foreign(snapshot(None, "eth0"), {}, "br0", "netplan")
    # A bridge of an earlier version: no client renews its lease.
    leases.refuse_foreign(snapshot(90, "br0", "eth0"), {}, "br0", "netplan")


def test_a_lease_is_refused_where_nothing_would_renew_it():
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
    mac_text = linkconfig.networkd(replace(LEASED, client_id="01520000000001"))[BRIDGE]
    assert "ClientIdentifier=mac" in mac_text and "IAID" not in mac_text

    files = linkconfig.networkmanager(replace(LEASED, client_id="01520000000001"))
    bridge = files["/etc/NetworkManager/system-connections/salt-virt-br0.nmconnection"]
    assert "[ipv4]\nmethod=auto\ndhcp-client-id=01:52:00:00:00:00:01\nroute1=10.9.0.0/16" in bridge

    drop_in = netplan.build_files(replace(LEASED, client_id=DUID), [])[
        "/etc/systemd/network/10-netplan-br0.network.d/salt-virt.conf"
    ]
    assert drop_in.startswith("[DHCPv4]\n") and f"IAID={0xF9F26F41}" in drop_in


@given(st.binary().map(bytes.hex))
def test_any_client_id_gives_files_with_dhcp(client_id):
    text = linkconfig.networkd(replace(LEASED, client_id=client_id))[BRIDGE]

    assert "DHCP=yes" in text and text.count("[DHCPv4]") == 1


def test_a_static_bridge_has_no_dhcp_in_its_files():
    assert "DHCPv4" not in linkconfig.networkd(netcases.CONFIG)[BRIDGE]
    assert list(netplan.build_files(netcases.CONFIG, [])) == ["/etc/netplan/90-salt-virt-br0.yaml"]


def test_ifupdowns_file_names_the_links_with_a_lease():
    text = "auto eth0\niface eth0 inet dhcp\niface eth0 inet6 auto\niface eth1 inet static\n"

    assert interfaces.is_leased(text, "eth0")
    assert not interfaces.is_leased(text, "eth1")
    assert not interfaces.is_leased(text, "eth")
    assert interfaces.names(text) == {"eth0", "eth1"}


def test_the_last_netplan_file_names_the_renderer():
    networkd_text, manager_text = "network: {version: 2}", "network: {renderer: NetworkManager}"

    assert netplan.renderer(["", networkd_text]) == "networkd"
    assert netplan.renderer([manager_text, networkd_text]) == "NetworkManager"


class Manager:
    """A manager that records each call, with the content of its file at that time."""

    def __init__(self, path, *, gives_back_first):
        self.path, self.gives_back_first, self.told = path, gives_back_first, []

    def files_of(self, _name):
        return [str(self.path)] if "br0" in self.path.read_text() else []

    def holder(self, _link):
        return "uuid"

    def say(self, event):
        self.told.append((event, self.path.read_text()))

    def let_go(self, _change):
        self.say("let go")

    def take(self, _change):
        self.say("take")

    def give_back(self, _change):
        self.say("give back")


def events_of(tmp_path, *, gives_back_first, text, becomes, is_coming, back):
    """Return the calls of a manager for a change, or for its rollback."""
    path = tmp_path / "file"
    path.write_text(text)
    manager = Manager(path, gives_back_first=gives_back_first)
    new_change = change.Change(
        manager,
        "br0",
        ["eth0"],
        paths=[path],
        is_coming=is_coming,
        write=lambda: path.write_text(becomes),
    )
    new_change.before_links()
    manager.say("links")
    new_change.after_links()
    if back:
        manager.told.clear()
        new_change.before_links(is_rollback=True)
        manager.say("links")
        new_change.after_links(is_rollback=True)
        assert path.read_text() == text
    return manager.told


@pytest.mark.parametrize("gives_back_first", [True, False])
def test_a_manager_gets_a_new_bridge_after_the_links_and_gives_one_up_as_it_needs(
    tmp_path, gives_back_first
):
    creation = events_of(
        tmp_path,
        gives_back_first=gives_back_first,
        text="eth0",
        becomes="br0",
        is_coming=True,
        back=False,
    )
    removal = events_of(
        tmp_path,
        gives_back_first=gives_back_first,
        text="br0",
        becomes="eth0",
        is_coming=False,
        back=False,
    )

    assert creation == [("links", "eth0"), ("take", "br0")]
    early = [("let go", "br0"), ("give back", "eth0"), ("links", "eth0")]
    late = [("let go", "br0"), ("links", "br0"), ("give back", "eth0")]
    assert removal == (early if gives_back_first else late)


@pytest.mark.parametrize("gives_back_first", [True, False])
def test_a_rollback_goes_the_other_way_with_the_files_as_they_were(tmp_path, gives_back_first):
    creation = events_of(
        tmp_path,
        gives_back_first=gives_back_first,
        text="eth0",
        becomes="br0",
        is_coming=True,
        back=True,
    )
    removal = events_of(
        tmp_path,
        gives_back_first=gives_back_first,
        text="br0",
        becomes="eth0",
        is_coming=False,
        back=True,
    )
    addition = events_of(
        tmp_path,
        gives_back_first=gives_back_first,
        text="br0",
        becomes="br0 eth1",
        is_coming=True,
        back=True,
    )

    early = [("let go", "br0"), ("give back", "eth0"), ("links", "eth0")]
    late = [("let go", "br0"), ("links", "br0"), ("give back", "eth0")]
    assert creation == (early if gives_back_first else late)
    assert removal == [("links", "eth0"), ("take", "br0")]
    # Its manager keeps a bridge that existed before.
    assert addition == [("links", "br0 eth1"), ("take", "br0")]


def test_a_file_that_was_not_there_is_gone_after_a_rollback(tmp_path):
    path = tmp_path / "new/file"
    manager = Manager(tmp_path / "other", gives_back_first=True)
    manager.path.write_text("")
    new_change = change.Change(
        manager,
        "br0",
        ["eth0"],
        paths=[path],
        is_coming=True,
        write=lambda: change.put(str(path), b"br0"),
    )

    new_change.after_links()
    assert path.read_text() == "br0" and path.stat().st_mode & 0o777 == 0o644
    new_change.before_links(is_rollback=True)

    assert not path.exists()
