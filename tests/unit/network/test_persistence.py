"""The parts of a network that survive a reboot: kept completely, or refused before a change."""

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


def config_of(snapshot, **options):
    """Return the configuration that is kept of the bridge over the host's link."""
    target_state = bridgeplan.target(snapshot, replace(BR0, **options.pop("asked", {})))
    persistence.refuse_unpersistable(target_state, "br0", options.get("dhcp", False))
    return persistence.link_config(target_state, "br0", ports=("eth0",), dns=(), **options)


def test_static_addresses_stay_beside_a_lease():
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
    config = config_of(snapshot, dhcp=True, leased=["10.0.0.4"])

    assert config.addresses == ("192.0.2.9/24", "fd00::4/64")
    assert config.gateways == ("fd00::1",)
    assert config.routes == (("10.9.0.0/16", "192.0.2.1"), ("10.8.0.0/16", ""))
    text = linkconfig.networkd(config)["/etc/systemd/network/05-salt-virt-br0.network"]
    for line in (
        "DHCP=yes",
        "Address=192.0.2.9/24",
        "Address=fd00::4/64",
        "Gateway=fd00::1",
        "Destination=10.8.0.0/16",
    ):
        assert line in text.splitlines()
    keyfile = linkconfig.networkmanager(config)[f"{NM}/salt-virt-br0.nmconnection"]
    assert "[ipv4]\nmethod=auto\naddress1=192.0.2.9/24\nroute1=10.9.0.0/16,192.0.2.1\n" in keyfile
    assert "[ipv6]\nmethod=auto\naddress1=fd00::4/64\ngateway=fd00::1" in keyfile


def test_a_lease_without_an_end_is_a_lease_and_dhclients_route_is_its_own():
    config = config_of(
        host(address("10.0.0.4/16"), routes=[route("default", GATEWAY, "eth0", proto=3)]),
        dhcp=True,
        leased=["10.0.0.4"],
    )

    assert (config.addresses, config.gateways) == ((), ())


def test_requested_dhcp_replaces_static_addresses():
    snapshot = host(
        address("10.0.0.4/16"), address("fd00::4/64"), routes=[route("default", GATEWAY, "eth0")]
    )
    config = config_of(snapshot, dhcp=True, is_new_lease=True)

    assert (config.addresses, config.gateways) == (("fd00::4/64",), ())


def test_a_routers_advertisement_is_not_kept_as_a_static_route():
    snapshot = host(
        address("10.0.0.4/16"),
        address("fd00::4/64"),
        routes=[route("default", "fe80::1", "eth0", family=10, proto=9)],
    )
    config = config_of(snapshot)

    assert config.gateways == () and config.ra
    text = linkconfig.networkd(config)["/etc/systemd/network/05-salt-virt-br0.network"]
    assert "IPv6AcceptRA=yes" in text and "fe80" not in text
    keyfile = linkconfig.networkmanager(config)[f"{NM}/salt-virt-br0.nmconnection"]
    assert "[ipv6]\nmethod=auto\naddress1=fd00::4/64" in keyfile


@pytest.mark.parametrize(
    ("bad_route", "reason"),
    [
        (route("default", "172.31.1.1", "eth0", is_onlink=True), "gateway outside the subnet"),
        (route("10.9.0.0/16", "172.31.1.1", "eth0"), "gateway outside the subnet"),
        (route("default", None, "eth0"), "has no gateway"),
        (route("default", GATEWAY, "eth0", table=100), "is in table 100"),
        (route("default", GATEWAY, "eth0", metrics={"mtu": 1400}), r"has metrics \(mtu\)"),
    ],
)
def test_a_route_that_cannot_be_kept_is_refused(bad_route, reason):
    with pytest.raises(VirtError, match=f"{reason}.*, which cannot be kept.*give persist=none"):
        config_of(host(address("10.0.0.4/16"), routes=[bad_route]))
    # The lease sets its own routes again.
    config_of(
        host(address("10.0.0.4/16", valid_s=90), routes=[{**bad_route, "proto": 16}]),
        dhcp=True,
        leased=["10.0.0.4"],
    )


def test_a_gateway_that_a_route_on_the_link_leads_to_can_be_kept():
    """Dhclient sets a cloud's classless routes beside a lease of /32."""
    cloud = host(
        address("10.128.0.5/32", valid_s=90),
        routes=[
            route("169.254.169.254/32", "10.128.0.1", "eth0", proto=3),
            route("default", "10.128.0.1", "eth0", proto=3),
            route("10.128.0.1/32", None, "eth0", proto=3, scope=253),
        ],
    )
    config = config_of(cloud, dhcp=True, leased=["10.128.0.5"])

    hooks = [line for line in interfaces.with_bridge("", config).splitlines() if "up ip" in line]
    assert [line.split()[4] for line in hooks] == ["10.128.0.1/32", "169.254.169.254/32"]


def test_two_default_routes_are_refused_unless_one_is_asked_for():
    snapshot = host(
        address("10.0.0.4/16"),
        routes=[
            route("default", GATEWAY, "eth0"),
            route("default", "10.0.0.2", "eth0", priority=50),
        ],
    )
    with pytest.raises(VirtError, match="2 default routes of IPv4 .* give the gateway"):
        config_of(snapshot)

    assert config_of(snapshot, asked={"gateway": GATEWAY}).gateways == (GATEWAY,)


def test_routes_that_ifupdown_sets_are_not_refused():
    """It sets onlink for every gateway, and a zeroconf route has no gateway."""
    config = config_of(
        host(
            address("10.0.0.4/16"),
            routes=[
                route("default", GATEWAY, "eth0", proto=3, is_onlink=True),
                route("169.254.0.0/16", None, "eth0", proto=3, scope=253, priority=1000),
            ],
        )
    )

    assert config.gateways == (GATEWAY,) and config.routes == (("169.254.0.0/16", ""),)


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (host({**address("10.0.0.4/32"), "peer": "10.0.0.1"}), "has a peer"),
        (
            host(routes=[route("default", None, "eth0", strange="an encapsulation")]),
            "encapsulation",
        ),
    ],
)
def test_an_address_or_route_that_cannot_be_moved_is_refused(snapshot, reason):
    with pytest.raises(VirtError, match=reason):
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
    new_state = carried_out(cloud, steps)
    assert same(carried_out(new_state, bridgeplan.operations(new_state, cloud)), cloud)


def test_an_address_that_the_kernel_takes_along_comes_back():
    old_state = host(address("10.0.0.4/16"), address("10.0.0.5/16"))
    new_state = carried_out(
        old_state, bridgeplan.operations(old_state, bridgeplan.target(old_state, BR0))
    )
    target_state = bridgeplan.target(new_state, replace(BR0, addresses=("10.0.0.5/16",)))

    assert ("add_address", "br0", address("10.0.0.5/16")) in bridgeplan.operations(
        new_state, target_state
    )


def test_a_rollback_tries_every_step(monkeypatch):
    values = []

    def fail(_ipr, name, value):
        values.append(value)
        raise OSError(101, "Network is unreachable") if value == 1 else KeyError("ours")

    verbs = {"route": fail, "up": lambda _ipr, _name, value: values.append(value)}
    monkeypatch.setattr(links, "_VERBS", verbs)
    monkeypatch.setattr(links.pyroute2, "IPRoute", contextlib.nullcontext)

    with pytest.raises(links.LinkError, match="refused to route eth0"):
        links.roll_back([("route", "eth0", 1), ("up", "eth0", 2), ("route", "eth0", 3)])
    assert values == [1, 2, 3]


@pytest.mark.parametrize(
    "ask", [links.names, lambda: links.ports_of("br0"), lambda: links.read(("br0",))]
)
def test_a_kernel_that_does_not_list_its_links_is_one_line_of_error(monkeypatch, ask):
    # Faked: the kernel does so if links change while they are listed.
    class Interrupted(contextlib.nullcontext):
        def get_links(self):
            raise links.pyroute2.NetlinkError(4, "interrupted")

    monkeypatch.setattr(links.pyroute2, "IPRoute", lambda: Interrupted(Interrupted()))

    with pytest.raises(links.LinkError, match="does not say which links there are"):
        ask()


def test_the_watchdog_retries_after_any_error(monkeypatch, tmp_path):
    attempts = tmp_path / "tries"

    def roll_back(*_rollback):
        before = attempts.read_text() if attempts.exists() else ""
        attempts.write_text(f"{before}x")
        if len(before) < 2:
            raise links.pyroute2.NetlinkError(16, "busy")
        attempts.rename(tmp_path / "done")

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


def test_links_that_cannot_all_be_restored_do_not_stop_the_managers_rollback(monkeypatch):
    calls = []

    class Manager:
        def before_links(self, **_options):
            calls.append("before")

        def after_links(self, **_options):
            calls.append("after")

    def fail(_names):
        raise links.LinkError("no")

    monkeypatch.setattr(confirm.links, "read", fail)
    monkeypatch.setattr(confirm.time, "sleep", lambda _s: None)
    with pytest.raises(links.LinkError):
        confirm.roll_back({"links": {}, "routes": []}, ("br0",), Manager())
    assert calls == ["before", "after"]


@pytest.mark.parametrize(
    "config",
    [
        replace(netcases.CONFIG, dhcp=True, search=("corp.example",), ra=True),
        replace(
            netcases.CONFIG, routes=(("10.9.0.0/16", ""), ("fd09::/64", "")), search=("a.b", "c")
        ),
        replace(netcases.CONFIG, dhcp=True, addresses=(), gateways=("192.0.2.1", "fe80::1")),
    ],
    ids=["beside", "on link", "gateways alone"],
)
def test_networkmanager_reads_static_settings_beside_a_lease(config):
    text = linkconfig.networkmanager(config)[f"{NM}/salt-virt-br0.nmconnection"]
    argv = ["nmcli", "--offline", "connection", "modify", "connection.autoconnect", "yes"]
    process = subprocess.run(argv, capture_output=True, text=True, check=False, input=text)

    assert process.returncode == 0 and not process.stderr, process.stderr
    for interface_address in config.addresses:
        assert f"={interface_address}" in process.stdout
    for part in [*config.gateways, *(dst for dst, _via in config.routes)]:
        assert part in process.stdout
    for domain in config.search:
        assert f"{domain};" in process.stdout


class Manager:
    """A manager that is installed."""

    def __init__(self, *, runs, lease=None, claims=False):
        self.runs, self.lease = lambda: runs, lambda _link: lease
        self.claims = lambda _links: claims


@pytest.mark.parametrize(
    ("managers_by_name", "expected"),
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
def test_the_manager_that_has_the_link_is_chosen(managers_by_name, expected):
    assert managers._choose(managers_by_name, ["br0", "eth0"]) == expected


@pytest.mark.parametrize("name", ["nobody", ["none"], {"none": None}, None])
def test_an_unknown_manager_is_refused(name):
    with pytest.raises(VirtError, match="^persist: .*; one of auto, netplan, networkmanager"):
        managers.find(name)
