"""One run of a bridge: refusals before any change, and the change under the watchdog."""

import contextlib
from dataclasses import replace

import asloaded
import pytest
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.network.bridge import absent, confirm, links, present
from saltvirt.network.managers import managers
from snapshots import BR0, address, link, route

HOST = {
    "links": {"eth0": link(addresses=[address("10.0.0.4/16")])},
    "routes": [route("default", "10.0.0.1", "eth0")],
}


class Manager(managers.NoManager):
    """A manager that has a bridge in its files, and holds no lease."""

    title, writes_heir = "systemd-networkd", False

    def __init__(self, *, runs=True):
        self.is_running, self.told = runs, []

    def runs(self):
        """Return whether it runs."""
        return self.is_running

    def files_of(self, name):
        """Return one file."""
        return [f"/etc/{name}"]

    def holder(self, _link):
        """Return nothing."""
        return

    def give_back(self, _change):
        """Note it."""
        self.told.append("given back")


@pytest.fixture
def host(monkeypatch):
    """A host with a network and its manager; calls of the watchdog are recorded."""
    host = {"seen": HOST, "manager": Manager(), "name": "networkd", "watched": []}

    @contextlib.contextmanager
    def safely(_before, names, _change, _limit_s):
        host["watched"].append(names)
        yield

    monkeypatch.setattr(links, "refuse_if_impossible", lambda: None)
    monkeypatch.setattr(links, "names", lambda: ["eth0"])
    monkeypatch.setattr(links, "ports_of", lambda _bridge: [])
    monkeypatch.setattr(links, "read", lambda _names: host["seen"])
    monkeypatch.setattr(managers, "find", lambda *_args: (host["name"], host["manager"]))
    monkeypatch.setattr(confirm, "watch_change", safely)
    return host


def look():
    """Return the decision for one bridge over the host's link."""
    return present.decide(present.Request(bridge=BR0))


GIVEN = {
    **dict.fromkeys(("addresses", "gateway", "dhcp", "dns", "mtu")),
    **{"stp": False, "forward_delay": 0, "vlan_filtering": False, "vlans": ()},
    **{"persist": "auto", "confirm_timeout": 30},
}


@pytest.mark.parametrize(
    ("options", "delay_cs"),
    [({}, 0), ({"stp": True}, 200), ({"stp": True, "forward_delay": 4}, 400)],
)
def test_with_stp_the_delay_is_the_kernels_minimum(options, delay_cs):
    """The kernel refuses less than 2 s (br_set_forward_delay)."""
    module = asloaded.module("_states/virt_network.py")

    request = module._request("br0", ["eth0"], {**GIVEN, **options})
    assert request.bridge.options["forward_delay_cs"] == delay_cs


@pytest.mark.parametrize(
    ("opts", "expected"),
    [
        ({"file_client": "local"}, "set up; this minion has no master"),
        ({"master_uri": "tcp://10.0.0.9:4506"}, "set up, and the master was reached over it"),
    ],
)
def test_a_master_that_was_not_asked_is_not_reported_as_reached(monkeypatch, opts, expected):
    module = asloaded.module("_states/virt_network.py", **opts)
    monkeypatch.setattr(present, "make", lambda *_args, **_options: {"br0": ["created"]})
    module.__salt__ = {"saltutil.refresh_grains": lambda: None}

    assert expected in module.bridge_present("br0", ["eth0"])["comment"]


def test_a_manager_that_does_not_run_is_refused_for_a_static_address_too(host):
    host["manager"] = Manager(runs=False)
    with pytest.raises(BadArgument, match="systemd-networkd does not run here, so nobody would"):
        look()

    host.update(manager=managers.NoManager(), name="none")
    assert look().config.addresses == ("10.0.0.4/16",)


def test_a_gateway_that_would_displace_another_links_default_route_is_refused(host, monkeypatch):
    """The rollback would not restore that route: it knows only the links of the change."""
    routes_by_link = {"eth9": [route("default", "192.0.2.1", "eth9")], "eth0": []}
    monkeypatch.setattr(links, "names", lambda: list(routes_by_link))
    monkeypatch.setattr(
        links,
        "read",
        lambda names: {
            **HOST,
            "routes": [r for name in names for r in routes_by_link.get(name, ())],
        },
    )
    request = present.Request(bridge=replace(BR0, gateway="10.0.0.1"))
    with pytest.raises(VirtError, match=r"route via 192.0.2.1 over eth9 would be lost to the gate"):
        present.decide(request)
    look()

    routes_by_link["eth9"] = [route("default", "192.0.2.1", "eth9", priority=100)]
    present.decide(request)
    routes_by_link["eth9"] = [route("default", "fe80::1", "eth9", family=10, priority=1024)]
    present.decide(request)
    with pytest.raises(VirtError, match="fe80::1 over eth9 would be lost"):
        present.decide(present.Request(bridge=replace(BR0, gateway="fd00::1")))


def test_a_route_that_cannot_be_kept_does_not_matter_without_a_manager(host):
    outside = route("default", "172.31.1.1", "eth0", is_onlink=True)
    host["seen"] = {**HOST, "routes": [outside]}
    with pytest.raises(VirtError, match="gateway outside the subnet"):
        look()

    host.update(manager=managers.NoManager(), name="none")
    look()


def test_files_of_a_bridge_that_is_not_there_are_removed_under_the_watchdog_too(host):
    host["seen"] = {"links": {}, "routes": []}

    def remove(*, is_test):
        return absent.remove(
            {"file_client": "local"}, "br0", confirm_timeout_s=1, persist_by="auto", is_test=is_test
        )

    assert remove(is_test=True) == {"/etc/br0": "removed"} and not host["watched"]
    assert remove(is_test=False) == {"/etc/br0": "removed"}
    assert host["watched"] == [("br0",)] and host["manager"].told == ["given back"]


@pytest.mark.parametrize(("port", "kind"), [("vnet3", None), ("tap0", None), ("web1-lan", "tun")])
def test_a_bridge_that_vms_use_stays_whatever_their_links_are_called(host, monkeypatch, port, kind):
    bridge = {"br0": link(kind="bridge"), port: link(kind=kind, master="br0")}
    host["seen"] = {"links": bridge, "routes": []}
    monkeypatch.setattr(links, "ports_of", lambda _bridge: [port])

    with pytest.raises(VirtError, match=f"^VMs use 'br0' \\({port}\\); stop them first"):
        absent.remove(
            {"file_client": "local"}, "br0", confirm_timeout_s=1, persist_by="auto", is_test=True
        )


def test_search_domains_are_found_where_the_name_servers_are(tmp_path, monkeypatch):
    path = tmp_path / "resolv.conf"
    path.write_text("# x\nnameserver 10.0.0.53\nsearch . corp.example b\nnameserver fd00::53\n")
    with path.open("a") as file:
        file.write("nameserver fe80::1%2\nnameserver fe80::1%eth0\n")
    monkeypatch.setattr(present, "_PATHS", (str(path),))

    assert present.read_resolver() == (("10.0.0.53", "fd00::53"), ("corp.example", "b"))
    path.write_text("search .\n")
    assert present.read_resolver() == ((), ())
