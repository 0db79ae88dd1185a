"""The files of a bridge, and what other files give up for it and get back."""

import subprocess
from dataclasses import replace

import pytest
from netcases import CONFIG
from saltvirt.core.errors import VirtError
from saltvirt.network.managers import filemanagers, linkconfig, netplan, networkmanager

NM = "/etc/NetworkManager/system-connections"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Give the managers of networks a root of their own."""
    for module in (filemanagers, networkmanager):
        monkeypatch.setattr(module, "Path", lambda *parts: _below(tmp_path, *parts), raising=False)
    content = filemanagers.content
    monkeypatch.setattr(filemanagers, "content", lambda path: content(_below(tmp_path, path)))
    monkeypatch.setattr(filemanagers, "put", lambda path, data: _put(_below(tmp_path, path), data))
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


@pytest.mark.parametrize(
    ("manager", "folder"),
    [(filemanagers.Networkd(), "/etc/systemd/network"), (networkmanager.NetworkManager(), NM)],
)
def test_a_bridge_whose_name_begins_with_anothers_keeps_its_files(root, manager, folder):
    other_config = replace(CONFIG, name="lan-dmz", ports=("eth1",))
    manager.persisting(other_config)._write()
    other_files = names(root, folder)
    assert other_files and manager.files_of("lan") == []
    assert len(manager.files_of("lan-dmz")) == len(other_files)

    manager.persisting(replace(CONFIG, name="lan"))._write()
    manager.forgetting("lan", (), None)._write()
    assert names(root, folder) == other_files
    with pytest.raises(VirtError, match="lan-dmz.* keeps another bridge: give lan another name"):
        manager.pending(replace(CONFIG, name="lan", ports=("dmz",)))


@pytest.mark.parametrize("master", ["br0", "13bd3b7e-4b93-5a3c-9a65-1c5d5a7c7d0e"])
def test_a_port_that_networkmanager_saved_again_is_still_the_bridges(root, master):
    """Since 1.46 it writes controller and port-type, and may write the bridge's UUID."""
    manager = networkmanager.NetworkManager()
    manager.persisting(CONFIG)._write()
    port = root / f"{NM.lstrip('/')}/salt-virt-br0-eth0.nmconnection"
    text = port.read_text().replace("master=br0", f"controller={master}")
    port.write_text(text.replace("slave-type=", "port-type="))

    assert len(manager.files_of("br0")) == 2
    manager.forgetting("br0", ("eth0",), None)._write()
    assert names(root, NM) == []


def set_by_networkd(root, link, path, text):
    """Record that networkd sets a link by a file, as networkd does."""
    _put(root / f"sys/class/net/{link}/ifindex", b"7\n")
    _put(root / "run/systemd/netif/links/7", f"ADMIN_STATE=x\nNETWORK_FILE={path}\n".encode())
    _put(_below(root, path), text.encode())


VLANS = """[Match]
Name=eth0
[Network]
DHCP=yes
VLAN=mgmt
VLAN = lan7 lan8
[BridgeVLAN]
VLAN=5
"""


def test_vlans_that_networkd_makes_with_a_port_are_made_at_the_next_boot_too(root):
    manager, folder = filemanagers.Networkd(), "/etc/systemd/network"
    set_by_networkd(root, "eth0", f"{folder}/10-eth0.network", VLANS)
    _put(root / "etc/systemd/network/10-eth0.network.d/x.conf", b"[Network]\nMACVLAN=m0\n")
    bridge_file = f"{folder}/05-salt-virt-br0-eth0.network"

    text = manager.wanted(CONFIG)[bridge_file]
    assert text.partition("[Network]\n")[2] == (
        "Bridge=br0\nVLAN=mgmt\nVLAN=lan7\nVLAN=lan8\nMACVLAN=m0\n"
    )
    manager.persisting(CONFIG)._write()
    set_by_networkd(root, "eth0", bridge_file, text)
    assert manager.wanted(CONFIG)[bridge_file] == text


LEASED = """[Network]
DHCP=ipv4
[DHCPv4]
RouteMetric=300
UseRoutes=no
ClientIdentifier=mac
"""


def test_the_bridge_uses_its_lease_as_its_port_did(root):
    """Otherwise a second link with a lease would get a default route that it did not have."""
    manager, config = filemanagers.Networkd(), replace(CONFIG, dhcp=True, addresses=(), gateways=())
    bridge_file = "/etc/systemd/network/05-salt-virt-br0.network"
    set_by_networkd(root, "eth0", "/etc/systemd/network/10-eth0.network", LEASED)
    text = manager.wanted(config)[bridge_file]
    assert "[DHCPv4]\nSendRelease=no\nRouteMetric=300\nUseRoutes=no\n" in text
    set_by_networkd(root, "br0", bridge_file, text)
    (root / "sys/class/net/eth0/ifindex").unlink()
    assert manager.wanted(config)[bridge_file] == text
    assert "UseRoutes" not in manager.wanted(CONFIG)[bridge_file]

    netplan_text = (
        "network: {ethernets: {eth0: {dhcp4: true, dhcp4-overrides: {route-metric: 300}}}}"
    )
    text = netplan.build_files(config, [netplan_text])["/etc/netplan/90-salt-virt-br0.yaml"]
    bridge = netplan.yaml.safe_load(text)["network"]["bridges"]["br0"]
    assert bridge["dhcp4-overrides"] == {"route-metric": 300}


def test_a_file_of_networkds_that_comes_before_ours_is_refused(root):
    path = "/etc/systemd/network/00-eth0.network"
    set_by_networkd(root, "eth0", path, VLANS)

    with pytest.raises(VirtError, match=f"{path} sets eth0, and comes before the 05-salt-virt-br0"):
        filemanagers.Networkd().pending(CONFIG)


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
    manager = filemanagers.Netplan()
    manager.persisting(CONFIG)._write()
    other_config = replace(CONFIG, name="br1", ports=("eth1",), addresses=("10.1.0.4/16",))
    manager.persisting(other_config)._write()
    assert "10.0.0.4" not in site.read_text() and "10.1.0.4" not in site.read_text()

    manager.forgetting("br0", ("eth0",), None)._write()
    assert "10.0.0.4/16" in site.read_text() and "10.1.0.4" not in site.read_text()
    manager.forgetting("br1", ("eth1",), None)._write()
    assert netplan.yaml.safe_load(site.read_text()) == netplan.yaml.safe_load(SITE)
    assert [path.name for path in site.parent.iterdir()] == ["01.yaml"]


def test_the_file_is_restored_after_a_bridge_with_other_changes_kept(site):
    manager = filemanagers.Netplan()
    manager.persisting(CONFIG)._write()
    assert manager.pending(CONFIG) == {}
    manager.forgetting("br0", ("eth0",), None)._write()
    assert site.read_text() == SITE

    manager.persisting(CONFIG)._write()
    site.write_text(site.read_text().replace("    eth1:", "    eth2: {dhcp4: true}\n    eth1:"))
    manager.forgetting("br0", (), None)._write()
    assert "eth2" in site.read_text() and "10.0.0.4/16" in site.read_text()


def test_a_missing_file_is_restored_only_with_what_the_port_gave_up(site):
    manager = filemanagers.Netplan()
    manager.persisting(CONFIG)._write()
    site.unlink()
    manager.forgetting("br0", ("eth0",), None)._write()
    assert "10.0.0.4/16" in site.read_text() and "eth1" not in site.read_text()

    site.write_text("")
    _put(site.with_name("01.yaml.before-salt-virt-br0"), b"network: {version: 2}\n")
    site.unlink()
    manager.forgetting("br0", (), None)._write()
    assert list(site.parent.iterdir()) == []


def test_a_port_more_does_not_lose_what_the_first_gave_up(site):
    manager = filemanagers.Netplan()
    manager.persisting(CONFIG)._write()
    manager.persisting(replace(CONFIG, ports=("eth0", "eth1")))._write()
    manager.forgetting("br0", ("eth0", "eth1"), None)._write()

    assert site.read_text() == SITE


def test_a_port_that_is_not_asked_for_any_more_stays(site):
    manager = filemanagers.Netplan()
    two_ports = replace(CONFIG, ports=("eth0", "eth1"))
    manager.persisting(two_ports)._write()
    bridge_file = site.with_name("90-salt-virt-br0.yaml")
    content = netplan.yaml.safe_load(bridge_file.read_text())

    assert manager.pending(CONFIG) == {}
    manager.persisting(replace(CONFIG, mtu=1400))._write()
    content["network"]["bridges"]["br0"]["mtu"] = 1400
    assert netplan.yaml.safe_load(bridge_file.read_text()) == content
    manager.forgetting("br0", ("eth0", "eth1"), None)._write()
    assert site.read_text() == SITE


def test_search_domains_go_with_the_bridge():
    config = replace(CONFIG, search=("corp.example",))
    text = netplan.build_files(replace(CONFIG, dns=()), [SITE])[
        "/etc/netplan/90-salt-virt-br0.yaml"
    ]
    bridge = netplan.yaml.safe_load(text)["network"]["bridges"]["br0"]
    assert bridge["nameservers"] == {"addresses": ["10.0.0.53"], "search": ["corp.example"]}

    network = linkconfig.networkd(config)["/etc/systemd/network/05-salt-virt-br0.network"]
    assert "Domains=corp.example" in network.splitlines()
    assert (
        "dns-search=corp.example;"
        in linkconfig.networkmanager(config)[f"{NM}/salt-virt-br0.nmconnection"]
    )


RENAMED = """network:
  version: 2
  ethernets:
    lan: {match: {macaddress: "52:00:00:00:00:01"}, set-name: eth0, addresses: [10.0.0.4/16],
          routes: [{to: default, via: 10.0.0.1}]}
"""
MATCHING = "network: {version: 2, ethernets: {all: {match: {name: 'e*'}, dhcp4: true}}}"
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


@pytest.mark.parametrize(
    ("text", "port", "file"),
    [
        (RENAMED, "eth0", "10-netplan-lan.network"),
        (MATCHING, "eth0", "10-netplan-00-salt-virt-eth0.network"),
        (BOND, "bond0", "10-netplan-bond0.network"),
        (VLAN, "lan10", "10-netplan-lan10.network"),
    ],
    ids=["set-name", "many", "bond", "vlan"],
)
def test_netplan_finds_the_port_by_its_name_there(tmp_path, text, port, file):
    config = replace(CONFIG, ports=(port,), routes=(("10.9.0.0/16", ""),))
    ids = netplan.ids(config.ports, [text])
    folder = tmp_path / "etc/netplan"
    folder.mkdir(parents=True)
    (folder / "01.yaml").write_text(netplan.without_ports(text, ids) or text)
    for path, file_text in netplan.build_files(config, [text]).items():
        (folder / path.rpartition("/")[2]).write_text(file_text)
    for path in folder.iterdir():
        path.chmod(0o600)

    argv = ["/usr/libexec/netplan/generate", "--root-dir", tmp_path]
    process = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert process.returncode == 0 and not process.stderr, process.stderr
    units = {p.name: p.read_text() for p in (tmp_path / "run/systemd/network").iterdir()}
    assert "Bridge=br0" in units[file] and "Address=" not in units[file].replace("MACAddress=", "")
    # networkd takes the first file that fits, by its name.
    assert (
        sorted(
            name
            for name in units
            if name.endswith(".network") and ("Name=e*" in units[name] or "Bridge=" in units[name])
        )[0]
        == file
    )
    assert "Destination=10.9.0.0/16" in units["10-netplan-br0.network"]
    assert netplan.yaml.safe_load(
        netplan.restore_ports(netplan.without_ports(text, ids) or text, text, ids)
    ) == netplan.yaml.safe_load(text)


def test_a_name_that_netplan_gives_to_another_link_is_refused():
    text = RENAMED.replace("lan:", "eth0:").replace("set-name: eth0", "set-name: wan")

    with pytest.raises(VirtError, match="netplan calls another link 'eth0'"):
        netplan.ids(["eth0"], [text])


def test_the_renderer_key_of_a_kind_is_no_link():
    text = "network: {version: 2, ethernets: {renderer: networkd, eth0: {dhcp4: true}, eth1: }}"
    ids = netplan.ids(["eth0"], [text])

    assert netplan.build_files(CONFIG, [text]) and list(ids) == ["eth0"]
    changed = netplan.without_ports(text, ids)
    assert "renderer: networkd" in changed and "dhcp4" not in changed
    assert netplan.restore_ports(changed, text, ids) == text


@pytest.mark.parametrize(
    "manager", [filemanagers.Networkd(), filemanagers.Netplan(), networkmanager.NetworkManager()]
)
def test_a_router_that_is_away_changes_no_file(root, monkeypatch, manager):
    monkeypatch.setattr(manager, "files_of", lambda _name: [])
    monkeypatch.setattr(filemanagers, "_OURS", ("none of ours",))
    manager.persisting(replace(CONFIG, ra=True))._write()

    assert manager.pending(replace(CONFIG, ra=True)) == manager.pending(CONFIG) == {}
    assert names(root, "/etc")
