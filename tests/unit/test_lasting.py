"""What of a network lasts over a reboot: kept with all it has, or refused before it changes."""

import contextlib
import subprocess
from dataclasses import replace

import netcases
import pytest
from saltvirt.errors import VirtError
from saltvirt.net import (
    filed,
    guard,
    keepers,
    lasting,
    links,
    netplan,
    networkmanager,
    persist,
    plan,
)
from test_net import BR0, KEPT, address, carried_out, link, route, same

GATEWAY = "10.0.0.1"
NM = "/etc/NetworkManager/system-connections"


def host(*addresses, routes=()):
    """Return the snapshot of a host with one link."""
    return {"links": {"eth0": link(addresses=list(addresses))}, "routes": list(routes)}


def kept(snapshot, **given):
    """Return what is kept of the bridge over its link."""
    wanted = plan.target(snapshot, replace(BR0, **given.pop("asked", {})))
    lasting.refuse_unkeepable(wanted, "br0", given.get("dhcp", False))
    return lasting.kept(wanted, "br0", ports=("eth0",), dns=(), **given)


def test_what_is_static_stays_beside_a_lease():
    snapshot = host(
        address("10.0.0.4/16", valid_s=3600), address("192.0.2.9/24"), address("fd00::4/64"),
        routes=[route("default", GATEWAY, "eth0", proto=16),
                route("default", "fd00::1", "eth0", family=10),
                route("10.9.0.0/16", "192.0.2.1", "eth0"), route("10.8.0.0/16", None, "eth0")],
    )  # fmt: skip
    made = kept(snapshot, dhcp=True, leased=["10.0.0.4"])

    assert made.addresses == ("192.0.2.9/24", "fd00::4/64")
    assert made.gateways == ("fd00::1",)
    assert made.routes == (("10.9.0.0/16", "192.0.2.1"), ("10.8.0.0/16", ""))
    text = persist.networkd(made)["/etc/systemd/network/05-salt-virt-br0.network"]
    for line in ("DHCP=yes", "Address=192.0.2.9/24", "Address=fd00::4/64", "Gateway=fd00::1",
                 "Destination=10.8.0.0/16"):  # fmt: skip
        assert line in text.splitlines()
    keyfile = persist.networkmanager(made)[f"{NM}/salt-virt-br0.nmconnection"]
    assert "[ipv4]\nmethod=auto\naddress1=192.0.2.9/24\nroute1=10.9.0.0/16,192.0.2.1\n" in keyfile
    assert "[ipv6]\nmethod=auto\naddress1=fd00::4/64\ngateway=fd00::1" in keyfile


def test_a_lease_without_an_end_is_a_lease_and_dhclients_route_is_its_own():
    made = kept(host(address("10.0.0.4/16"), routes=[route("default", GATEWAY, "eth0", proto=3)]),
                dhcp=True, leased=["10.0.0.4"])  # fmt: skip

    assert (made.addresses, made.gateways) == ((), ())


def test_dhcp_that_is_asked_for_takes_the_place_of_what_is_static():
    snapshot = host(address("10.0.0.4/16"), address("fd00::4/64"),
                    routes=[route("default", GATEWAY, "eth0")])  # fmt: skip
    made = kept(snapshot, dhcp=True, is_new_lease=True)

    assert (made.addresses, made.gateways) == (("fd00::4/64",), ())


def test_a_routers_advertisement_is_not_kept_as_a_static_route():
    snapshot = host(address("10.0.0.4/16"), address("fd00::4/64"),
                    routes=[route("default", "fe80::1", "eth0", family=10, proto=9)])  # fmt: skip
    made = kept(snapshot)

    assert made.gateways == () and made.ra
    text = persist.networkd(made)["/etc/systemd/network/05-salt-virt-br0.network"]
    assert "IPv6AcceptRA=yes" in text and "fe80" not in text
    keyfile = persist.networkmanager(made)[f"{NM}/salt-virt-br0.nmconnection"]
    assert "[ipv6]\nmethod=auto\naddress1=fd00::4/64" in keyfile


@pytest.mark.parametrize(("one", "why"), [
    (route("default", "172.31.1.1", "eth0", is_onlink=True), "gateway outside the subnet"),
    (route("10.9.0.0/16", "172.31.1.1", "eth0"), "gateway outside the subnet"),
    (route("default", None, "eth0"), "has no gateway"),
    (route("default", GATEWAY, "eth0", table=100), "is in table 100"),
    (route("default", GATEWAY, "eth0", metrics={"mtu": 1400}), r"has metrics \(mtu\)"),
])  # fmt: skip
def test_a_route_that_cannot_be_kept_is_refused(one, why):
    with pytest.raises(VirtError, match=f"{why}.*, which cannot be kept.*give persist=none"):
        kept(host(address("10.0.0.4/16"), routes=[one]))
    # One that a lease brought is made again by the lease.
    kept(host(address("10.0.0.4/16", valid_s=90), routes=[{**one, "proto": 16}]), dhcp=True,
         leased=["10.0.0.4"])  # fmt: skip


def test_two_default_routes_are_refused_unless_one_is_asked_for():
    two = host(address("10.0.0.4/16"), routes=[
        route("default", GATEWAY, "eth0"), route("default", "10.0.0.2", "eth0", priority=50)])
    with pytest.raises(VirtError, match="2 default routes of IPv4 .* give gateway"):
        kept(two)

    assert kept(two, asked={"gateway": GATEWAY}).gateways == (GATEWAY,)


def test_what_ifupdown_itself_sets_is_no_reason_to_refuse():
    """It says onlink of every gateway, and a zeroconf route has none."""
    made = kept(host(address("10.0.0.4/16"), routes=[
        route("default", GATEWAY, "eth0", proto=3, is_onlink=True),
        route("169.254.0.0/16", None, "eth0", proto=3, scope=253, priority=1000)]))  # fmt: skip

    assert made.gateways == (GATEWAY,) and made.routes == (("169.254.0.0/16", ""),)


@pytest.mark.parametrize(("snapshot", "why"), [
    (host({**address("10.0.0.4/32"), "peer": "10.0.0.1"}), "has a peer"),
    (host(routes=[route("default", None, "eth0", strange="an encapsulation")]), "encapsulation"),
])  # fmt: skip
def test_what_cannot_be_moved_is_refused(snapshot, why):
    with pytest.raises(VirtError, match=why):
        plan.refuse_impossible(snapshot, BR0, [])


def test_a_gateway_comes_after_the_route_by_which_it_is_reached():
    cloud = host(address("10.128.0.5/32"), routes=[
        route("default", "10.128.0.1", "eth0"), route("10.9.0.0/16", "10.128.0.1", "eth0"),
        route("10.128.0.1/32", None, "eth0", scope=253)])  # fmt: skip
    steps = plan.operations(cloud, plan.target(cloud, BR0))

    order = [route_["dst"] for verb, _link, route_ in steps if verb == "route"]
    assert order == ["10.128.0.1/32", "10.9.0.0/16", "default"]
    there = carried_out(cloud, steps)
    assert same(carried_out(there, plan.operations(there, cloud)), cloud)


def test_an_address_that_the_kernel_takes_along_comes_back():
    two = host(address("10.0.0.4/16"), address("10.0.0.5/16"))
    there = carried_out(two, plan.operations(two, plan.target(two, BR0)))
    only = plan.target(there, replace(BR0, addresses=("10.0.0.5/16",)))

    assert ("add_address", "br0", address("10.0.0.5/16")) in plan.operations(there, only)


def test_on_the_way_back_every_step_is_tried(monkeypatch):
    done = []

    def fail(_ipr, name, value):
        done.append(value)
        raise OSError(101, "Network is unreachable")

    verbs = {"route": fail, "up": lambda _ipr, _name, value: done.append(value)}
    monkeypatch.setattr(links, "_VERBS", verbs)
    monkeypatch.setattr(links.pyroute2, "IPRoute", contextlib.nullcontext)

    with pytest.raises(links.LinkError, match="refused to route eth0"):
        links.put_back([("route", "eth0", 1), ("up", "eth0", 2), ("route", "eth0", 3)])
    assert done == [1, 2, 3]


def test_links_that_cannot_all_be_put_back_do_not_keep_the_manager_from_it(monkeypatch):
    told = []

    class Told:
        def before_links(self, **_words):
            told.append("before")

        def after_links(self, **_words):
            told.append("after")

    def fail(_names):
        raise links.LinkError("no")

    monkeypatch.setattr(guard.links, "read", fail)
    monkeypatch.setattr(guard.time, "sleep", lambda _s: None)
    with pytest.raises(links.LinkError):
        guard.put_back({"links": {}, "routes": []}, ("br0",), Told())
    assert told == ["before", "after"]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Give the managers of networks a root of their own."""
    for module in (filed, networkmanager):
        monkeypatch.setattr(module, "Path", lambda *parts: _below(tmp_path, *parts), raising=False)
    content = filed.content
    monkeypatch.setattr(filed, "content", lambda path: content(_below(tmp_path, path)))
    monkeypatch.setattr(filed, "put", lambda path, data: _put(_below(tmp_path, path), data))
    return tmp_path


def _below(folder, path):
    text = str(path)
    return type(folder)(text if text.startswith(str(folder)) else f"{folder}{text}")


def _put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True) if data is None else path.write_bytes(data)


def names(root, folder):
    """Return the names of the files in a folder."""
    return sorted(path.name for path in (root / folder.lstrip("/")).iterdir())


@pytest.mark.parametrize(("keeper", "folder"), [
    (filed.Networkd(), "/etc/systemd/network"), (networkmanager.NetworkManager(), NM)])  # fmt: skip
def test_a_bridge_whose_name_begins_with_anothers_keeps_its_files(root, keeper, folder):
    other = replace(KEPT, name="lan-dmz", ports=("eth1",))
    keeper.keeping(other)._write()
    there = names(root, folder)
    assert there and keeper.kept_in("lan") == []
    assert len(keeper.kept_in("lan-dmz")) == len(there)

    keeper.keeping(replace(KEPT, name="lan"))._write()
    keeper.forgetting("lan", (), None)._write()
    assert names(root, folder) == there
    with pytest.raises(VirtError, match="lan-dmz.* keeps another bridge: give lan another name"):
        keeper.pending(replace(KEPT, name="lan", ports=("dmz",)))


SITE = """# The site's.
network:
  version: 2
  ethernets:
    eth0: {addresses: [10.0.0.4/16], routes: [{to: default, via: 10.0.0.1}], wakeonlan: true,
           nameservers: {addresses: [10.0.0.53], search: [corp.example]}}
    eth1: {addresses: [10.1.0.4/16]}
"""


@pytest.fixture
def site(root):
    """The file of netplan that a site has written."""
    path = root / "etc/netplan/01.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(SITE)
    return path


def test_each_bridge_gives_back_what_its_own_port_gave_up(site):
    keeper = filed.Netplan()
    keeper.keeping(KEPT)._write()
    other = replace(KEPT, name="br1", ports=("eth1",), addresses=("10.1.0.4/16",))
    keeper.keeping(other)._write()
    assert "10.0.0.4" not in site.read_text() and "10.1.0.4" not in site.read_text()

    keeper.forgetting("br0", ("eth0",), None)._write()
    assert "10.0.0.4/16" in site.read_text() and "10.1.0.4" not in site.read_text()
    keeper.forgetting("br1", ("eth1",), None)._write()
    assert netplan.yaml.safe_load(site.read_text()) == netplan.yaml.safe_load(SITE)
    assert [path.name for path in site.parent.iterdir()] == ["01.yaml"]


def test_one_bridge_and_back_is_the_file_as_it_was_and_what_others_add_stays(site):
    keeper = filed.Netplan()
    keeper.keeping(KEPT)._write()
    assert keeper.pending(KEPT) == {}
    keeper.forgetting("br0", ("eth0",), None)._write()
    assert site.read_text() == SITE

    keeper.keeping(KEPT)._write()
    site.write_text(site.read_text().replace("    eth1:", "    eth2: {dhcp4: true}\n    eth1:"))
    keeper.forgetting("br0", (), None)._write()
    assert "eth2" in site.read_text() and "10.0.0.4/16" in site.read_text()


def test_a_port_more_does_not_lose_what_the_first_gave_up(site):
    keeper = filed.Netplan()
    keeper.keeping(KEPT)._write()
    keeper.keeping(replace(KEPT, ports=("eth0", "eth1")))._write()
    keeper.forgetting("br0", ("eth0", "eth1"), None)._write()

    assert site.read_text() == SITE


def test_search_domains_go_with_the_bridge():
    found = replace(KEPT, search=("corp.example",))
    text = netplan.written(replace(KEPT, dns=()), [SITE])["/etc/netplan/90-salt-virt-br0.yaml"]
    bridge = netplan.yaml.safe_load(text)["network"]["bridges"]["br0"]
    assert bridge["nameservers"] == {"addresses": ["10.0.0.53"], "search": ["corp.example"]}

    network = persist.networkd(found)["/etc/systemd/network/05-salt-virt-br0.network"]
    assert "Domains=corp.example" in network.splitlines()
    assert "dns-search=corp.example;" in persist.networkmanager(found)[
        f"{NM}/salt-virt-br0.nmconnection"]  # fmt: skip


CALLED = """network:
  version: 2
  ethernets:
    lan: {match: {macaddress: "52:00:00:00:00:01"}, set-name: eth0, addresses: [10.0.0.4/16],
          routes: [{to: default, via: 10.0.0.1}]}
"""
MANY = "network: {version: 2, ethernets: {all: {match: {name: 'e*'}, dhcp4: true}}}"
BOND = """network:
  version: 2
  ethernets: {eth1: {}, eth2: {}}
  bonds: {bond0: {interfaces: [eth1, eth2], addresses: [10.0.0.4/16]}}
"""
VLAN = """network:
  version: 2
  ethernets: {eth1: {}}
  vlans: {lan10: {id: 10, link: eth1, addresses: [10.0.0.4/16]}}
"""


@pytest.mark.parametrize(("text", "port", "file"), [
    (CALLED, "eth0", "10-netplan-lan.network"),
    (MANY, "eth0", "10-netplan-00-salt-virt-eth0.network"),
    (BOND, "bond0", "10-netplan-bond0.network"),
    (VLAN, "lan10", "10-netplan-lan10.network"),
], ids=["set-name", "many", "bond", "vlan"])  # fmt: skip
def test_netplan_knows_the_port_by_what_it_calls_it(tmp_path, text, port, file):
    one = replace(KEPT, ports=(port,), routes=(("10.9.0.0/16", ""),))
    ids = netplan.ids(one.ports, [text])
    folder = tmp_path / "etc/netplan"
    folder.mkdir(parents=True)
    (folder / "01.yaml").write_text(netplan.freed(text, ids) or text)
    for path, own in netplan.written(one, [text]).items():
        (folder / path.rpartition("/")[2]).write_text(own)
    for path in folder.iterdir():
        path.chmod(0o600)

    argv = ["/usr/libexec/netplan/generate", "--root-dir", tmp_path]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.returncode == 0 and not done.stderr, done.stderr
    made = {p.name: p.read_text() for p in (tmp_path / "run/systemd/network").iterdir()}
    assert "Bridge=br0" in made[file] and "Address=" not in made[file].replace("MACAddress=", "")
    # networkd takes the first file that fits, by its name.
    assert sorted(name for name in made if name.endswith(".network")
                  and ("Name=e*" in made[name] or "Bridge=" in made[name]))[0] == file  # fmt: skip
    assert "Destination=10.9.0.0/16" in made["10-netplan-br0.network"]
    assert netplan.yaml.safe_load(netplan.restored(netplan.freed(text, ids) or text, text, ids)
                                  ) == netplan.yaml.safe_load(text)  # fmt: skip


def test_a_name_by_which_netplan_means_another_link_is_refused():
    text = CALLED.replace("lan:", "eth0:").replace("set-name: eth0", "set-name: wan")

    with pytest.raises(VirtError, match="netplan calls another link 'eth0'"):
        netplan.ids(["eth0"], [text])


@pytest.mark.parametrize("one", [
    replace(netcases.KEPT, dhcp=True, search=("corp.example",), ra=True),
    replace(netcases.KEPT, routes=(("10.9.0.0/16", ""), ("fd09::/64", "")), search=("a.b", "c")),
    replace(netcases.KEPT, dhcp=True, addresses=(), gateways=("192.0.2.1", "fe80::1")),
], ids=["beside", "on link", "gateways alone"])  # fmt: skip
def test_networkmanager_reads_what_is_beside_a_lease(one):
    text = persist.networkmanager(one)[f"{NM}/salt-virt-br0.nmconnection"]
    argv = ["nmcli", "--offline", "connection", "modify", "connection.autoconnect", "yes"]
    read = subprocess.run(argv, capture_output=True, text=True, check=False, input=text)

    assert read.returncode == 0 and not read.stderr, read.stderr
    for a in one.addresses:
        assert f"={a}" in read.stdout
    for part in [*one.gateways, *(dst for dst, _via in one.routes)]:
        assert part in read.stdout
    for domain in one.search:
        assert f"{domain};" in read.stdout


class Keeper:
    """A manager that is there."""

    def __init__(self, *, runs, lease=None, stanza=False):
        self.runs, self.lease = lambda: runs, lambda _link: lease
        self.stanza = lambda _links: stanza


@pytest.mark.parametrize(("found", "chosen"), [
    ({"networkmanager": Keeper(runs=False), "ifupdown": Keeper(runs=True)}, "ifupdown"),
    ({"networkmanager": Keeper(runs=True), "ifupdown": Keeper(runs=True, stanza=True)}, "ifupdown"),
    ({"networkmanager": Keeper(runs=True), "ifupdown": Keeper(runs=True)}, "networkmanager"),
    ({"networkd": Keeper(runs=True), "ifupdown": Keeper(runs=False, stanza=True)}, "networkd"),
    ({"networkd": Keeper(runs=True, lease=1), "ifupdown": Keeper(runs=True, stanza=True)},
     "networkd"),
    ({"networkd": Keeper(runs=False)}, "networkd"),
])  # fmt: skip
def test_of_several_managers_the_one_that_has_the_link_is_chosen(found, chosen):
    assert keepers._chosen(found, ["br0", "eth0"]) == chosen
