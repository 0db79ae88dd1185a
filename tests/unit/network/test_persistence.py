"""What of a network lasts over a reboot: kept with all it has, or refused before it changes."""

import contextlib
import os
import subprocess
import time
from dataclasses import replace

import netcases
import pytest
from saltvirt.core.errors import VirtError
from saltvirt.network.bridge import bridgeplan, confirm, links
from saltvirt.network.managers import interfaces, linkconfig, managers, persistence
from snapshots import BR0, address, carried_out, link, route, same

GATEWAY = "10.0.0.1"
NM = "/etc/NetworkManager/system-connections"


def host(*addresses, routes=()):
    """Return the snapshot of a host with one link."""
    return {"links": {"eth0": link(addresses=list(addresses))}, "routes": list(routes)}


def config_of(snapshot, **given):
    """Return what is kept of the bridge over its link."""
    wanted = bridgeplan.target(snapshot, replace(BR0, **given.pop("asked", {})))
    persistence.refuse_unpersistable(wanted, "br0", given.get("dhcp", False))
    return persistence.link_config(wanted, "br0", ports=("eth0",), dns=(), **given)


def test_what_is_static_stays_beside_a_lease():
    snapshot = host(
        address("10.0.0.4/16", valid_s=3600),
        address("192.0.2.9/24"),
        address("fd00::4/64"),
        routes=[
            route("default", GATEWAY, "eth0", proto=16),
            route("default", "fd00::1", "eth0", family=10),
            route("10.9.0.0/16", "192.0.2.1", "eth0"),
            route("10.8.0.0/16", None, "eth0"),
        ],
    )
    made = config_of(snapshot, dhcp=True, leased=["10.0.0.4"])

    assert made.addresses == ("192.0.2.9/24", "fd00::4/64")
    assert made.gateways == ("fd00::1",)
    assert made.routes == (("10.9.0.0/16", "192.0.2.1"), ("10.8.0.0/16", ""))
    text = linkconfig.networkd(made)["/etc/systemd/network/05-salt-virt-br0.network"]
    for line in (
        "DHCP=yes",
        "Address=192.0.2.9/24",
        "Address=fd00::4/64",
        "Gateway=fd00::1",
        "Destination=10.8.0.0/16",
    ):
        assert line in text.splitlines()
    keyfile = linkconfig.networkmanager(made)[f"{NM}/salt-virt-br0.nmconnection"]
    assert "[ipv4]\nmethod=auto\naddress1=192.0.2.9/24\nroute1=10.9.0.0/16,192.0.2.1\n" in keyfile
    assert "[ipv6]\nmethod=auto\naddress1=fd00::4/64\ngateway=fd00::1" in keyfile


def test_a_lease_without_an_end_is_a_lease_and_dhclients_route_is_its_own():
    made = config_of(
        host(address("10.0.0.4/16"), routes=[route("default", GATEWAY, "eth0", proto=3)]),
        dhcp=True,
        leased=["10.0.0.4"],
    )

    assert (made.addresses, made.gateways) == ((), ())


def test_dhcp_that_is_asked_for_takes_the_place_of_what_is_static():
    snapshot = host(
        address("10.0.0.4/16"), address("fd00::4/64"), routes=[route("default", GATEWAY, "eth0")]
    )
    made = config_of(snapshot, dhcp=True, is_new_lease=True)

    assert (made.addresses, made.gateways) == (("fd00::4/64",), ())


def test_a_routers_advertisement_is_not_kept_as_a_static_route():
    snapshot = host(
        address("10.0.0.4/16"),
        address("fd00::4/64"),
        routes=[route("default", "fe80::1", "eth0", family=10, proto=9)],
    )
    made = config_of(snapshot)

    assert made.gateways == () and made.ra
    text = linkconfig.networkd(made)["/etc/systemd/network/05-salt-virt-br0.network"]
    assert "IPv6AcceptRA=yes" in text and "fe80" not in text
    keyfile = linkconfig.networkmanager(made)[f"{NM}/salt-virt-br0.nmconnection"]
    assert "[ipv6]\nmethod=auto\naddress1=fd00::4/64" in keyfile


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (route("default", "172.31.1.1", "eth0", is_onlink=True), "gateway outside the subnet"),
        (route("10.9.0.0/16", "172.31.1.1", "eth0"), "gateway outside the subnet"),
        (route("default", None, "eth0"), "has no gateway"),
        (route("default", GATEWAY, "eth0", table=100), "is in table 100"),
        (route("default", GATEWAY, "eth0", metrics={"mtu": 1400}), r"has metrics \(mtu\)"),
    ],
)
def test_a_route_that_cannot_be_kept_is_refused(one, why):
    with pytest.raises(VirtError, match=f"{why}.*, which cannot be kept.*give persist=none"):
        config_of(host(address("10.0.0.4/16"), routes=[one]))
    # One that a lease brought is made again by the lease.
    config_of(
        host(address("10.0.0.4/16", valid_s=90), routes=[{**one, "proto": 16}]),
        dhcp=True,
        leased=["10.0.0.4"],
    )


def test_a_gateway_that_a_route_on_the_link_leads_to_can_be_kept():
    """A dhclient sets a cloud's classless routes beside a lease of /32, as anybody would."""
    cloud = host(
        address("10.128.0.5/32", valid_s=90),
        routes=[
            route("169.254.169.254/32", "10.128.0.1", "eth0", proto=3),
            route("default", "10.128.0.1", "eth0", proto=3),
            route("10.128.0.1/32", None, "eth0", proto=3, scope=253),
        ],
    )
    made = config_of(cloud, dhcp=True, leased=["10.128.0.5"])

    hooks = [line for line in interfaces.with_bridge("", made).splitlines() if "up ip" in line]
    assert [line.split()[4] for line in hooks] == ["10.128.0.1/32", "169.254.169.254/32"]


def test_two_default_routes_are_refused_unless_one_is_asked_for():
    two = host(
        address("10.0.0.4/16"),
        routes=[
            route("default", GATEWAY, "eth0"),
            route("default", "10.0.0.2", "eth0", priority=50),
        ],
    )
    with pytest.raises(VirtError, match="2 default routes of IPv4 .* give the gateway"):
        config_of(two)

    assert config_of(two, asked={"gateway": GATEWAY}).gateways == (GATEWAY,)


def test_what_ifupdown_itself_sets_is_no_reason_to_refuse():
    """It says onlink of every gateway, and a zeroconf route has none."""
    made = config_of(
        host(
            address("10.0.0.4/16"),
            routes=[
                route("default", GATEWAY, "eth0", proto=3, is_onlink=True),
                route("169.254.0.0/16", None, "eth0", proto=3, scope=253, priority=1000),
            ],
        )
    )

    assert made.gateways == (GATEWAY,) and made.routes == (("169.254.0.0/16", ""),)


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        (host({**address("10.0.0.4/32"), "peer": "10.0.0.1"}), "has a peer"),
        (
            host(routes=[route("default", None, "eth0", strange="an encapsulation")]),
            "encapsulation",
        ),
    ],
)
def test_what_cannot_be_moved_is_refused(snapshot, why):
    with pytest.raises(VirtError, match=why):
        bridgeplan.refuse_impossible(snapshot, BR0, [])


def test_a_gateway_comes_after_the_route_by_which_it_is_reached():
    cloud = host(
        address("10.128.0.5/32"),
        routes=[
            route("default", "10.128.0.1", "eth0"),
            route("10.9.0.0/16", "10.128.0.1", "eth0"),
            route("10.128.0.1/32", None, "eth0", scope=253),
        ],
    )
    steps = bridgeplan.operations(cloud, bridgeplan.target(cloud, BR0))

    order = [route_["dst"] for verb, _link, route_ in steps if verb == "route"]
    assert order == ["10.128.0.1/32", "10.9.0.0/16", "default"]
    there = carried_out(cloud, steps)
    assert same(carried_out(there, bridgeplan.operations(there, cloud)), cloud)


def test_an_address_that_the_kernel_takes_along_comes_back():
    two = host(address("10.0.0.4/16"), address("10.0.0.5/16"))
    there = carried_out(two, bridgeplan.operations(two, bridgeplan.target(two, BR0)))
    only = bridgeplan.target(there, replace(BR0, addresses=("10.0.0.5/16",)))

    assert ("add_address", "br0", address("10.0.0.5/16")) in bridgeplan.operations(there, only)


def test_in_a_rollback_every_step_is_tried(monkeypatch):
    done = []

    def fail(_ipr, name, value):
        done.append(value)
        raise OSError(101, "Network is unreachable") if value == 1 else KeyError("ours")

    verbs = {"route": fail, "up": lambda _ipr, _name, value: done.append(value)}
    monkeypatch.setattr(links, "_VERBS", verbs)
    monkeypatch.setattr(links.pyroute2, "IPRoute", contextlib.nullcontext)

    with pytest.raises(links.LinkError, match="refused to route eth0"):
        links.roll_back([("route", "eth0", 1), ("up", "eth0", 2), ("route", "eth0", 3)])
    assert done == [1, 2, 3]


@pytest.mark.parametrize(
    "ask", [links.names, lambda: links.ports_of("br0"), lambda: links.read(("br0",))]
)
def test_a_kernel_that_does_not_say_which_links_there_are_is_one_line(monkeypatch, ask):
    # Faked: it happens when others change links while they are listed.
    class Interrupted(contextlib.nullcontext):
        def get_links(self):
            raise links.pyroute2.NetlinkError(4, "interrupted")

    monkeypatch.setattr(links.pyroute2, "IPRoute", lambda: Interrupted(Interrupted()))

    with pytest.raises(links.LinkError, match="does not say which links there are"):
        ask()


def test_the_watchdog_tries_again_whatever_went_wrong(monkeypatch, tmp_path):
    tries = tmp_path / "tries"

    def roll_back(*_rollback):
        before = tries.read_text() if tries.exists() else ""
        tries.write_text(f"{before}x")
        if len(before) < 2:
            raise links.pyroute2.NetlinkError(16, "busy")
        tries.rename(tmp_path / "done")

    monkeypatch.setattr(confirm, "roll_back", roll_back)
    monkeypatch.setattr(confirm, "_AGAIN_S", 0.01)
    inbox, outbox = os.pipe()
    confirm._spawn(inbox, outbox, 0.01, ((), (), None))
    deadline = time.monotonic() + 10
    while not (tmp_path / "done").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.close(inbox)
    os.close(outbox)

    assert (tmp_path / "done").read_text() == "xxx"


def test_links_that_cannot_all_be_put_back_do_not_keep_the_manager_from_it(monkeypatch):
    told = []

    class Told:
        def before_links(self, **_words):
            told.append("before")

        def after_links(self, **_words):
            told.append("after")

    def fail(_names):
        raise links.LinkError("no")

    monkeypatch.setattr(confirm.links, "read", fail)
    monkeypatch.setattr(confirm.time, "sleep", lambda _s: None)
    with pytest.raises(links.LinkError):
        confirm.roll_back({"links": {}, "routes": []}, ("br0",), Told())
    assert told == ["before", "after"]


@pytest.mark.parametrize(
    "one",
    [
        replace(netcases.CONFIG, dhcp=True, search=("corp.example",), ra=True),
        replace(
            netcases.CONFIG, routes=(("10.9.0.0/16", ""), ("fd09::/64", "")), search=("a.b", "c")
        ),
        replace(netcases.CONFIG, dhcp=True, addresses=(), gateways=("192.0.2.1", "fe80::1")),
    ],
    ids=["beside", "on link", "gateways alone"],
)
def test_networkmanager_reads_what_is_beside_a_lease(one):
    text = linkconfig.networkmanager(one)[f"{NM}/salt-virt-br0.nmconnection"]
    argv = ["nmcli", "--offline", "connection", "modify", "connection.autoconnect", "yes"]
    read = subprocess.run(argv, capture_output=True, text=True, check=False, input=text)

    assert read.returncode == 0 and not read.stderr, read.stderr
    for a in one.addresses:
        assert f"={a}" in read.stdout
    for part in [*one.gateways, *(dst for dst, _via in one.routes)]:
        assert part in read.stdout
    for domain in one.search:
        assert f"{domain};" in read.stdout


class Manager:
    """A manager that is there."""

    def __init__(self, *, runs, lease=None, claims=False):
        self.runs, self.lease = lambda: runs, lambda _link: lease
        self.claims = lambda _links: claims


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        ({"networkmanager": Manager(runs=False), "ifupdown": Manager(runs=True)}, "ifupdown"),
        (
            {"networkmanager": Manager(runs=True), "ifupdown": Manager(runs=True, claims=True)},
            "ifupdown",
        ),
        ({"networkmanager": Manager(runs=True), "ifupdown": Manager(runs=True)}, "networkmanager"),
        (
            {"networkd": Manager(runs=True), "ifupdown": Manager(runs=False, claims=True)},
            "networkd",
        ),
        (
            {"networkd": Manager(runs=True, lease=1), "ifupdown": Manager(runs=True, claims=True)},
            "networkd",
        ),
        ({"networkd": Manager(runs=False)}, "networkd"),
    ],
)
def test_of_several_managers_the_one_that_has_the_link_is_chosen(found, chosen):
    assert managers._choose(found, ["br0", "eth0"]) == chosen


@pytest.mark.parametrize("wanted", ["nobody", ["none"], {"none": None}, None])
def test_a_manager_that_there_is_not_is_named(wanted):
    with pytest.raises(VirtError, match="^persist: .*; one of auto, netplan, networkmanager"):
        managers.find(wanted)
