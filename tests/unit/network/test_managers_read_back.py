"""Each manager of networks reads the files that are written for it."""

import subprocess

import netcases
import pytest
from saltvirt.network.managers import linkconfig, netplan

OLD = """network:
  version: 2
  ethernets:
    eth0: {addresses: [10.0.0.4/16], routes: [{to: default, via: 10.0.0.1}], wakeonlan: true}
    eth1: {dhcp4: true}
"""


@pytest.mark.parametrize("path", linkconfig.networkmanager(netcases.CONFIG))
def test_networkmanager_reads_every_keyfile(path):
    text = linkconfig.networkmanager(netcases.CONFIG)[path]

    argv = ["nmcli", "--offline", "connection", "modify", "connection.autoconnect", "yes"]
    process = subprocess.run(argv, capture_output=True, text=True, check=False, input=text)

    assert process.returncode == 0, process.stderr
    if "\ntype=bridge" in text:
        for part in (
            "address1=10.0.0.4/16,10.0.0.1",
            "dns=10.0.0.53;",
            "10.9.0.0/16,10.0.0.9",
            "interface-name=br0",
            "address1=fd00::4/64",
        ):
            assert part in process.stdout
    else:
        for part in ("interface-name=eth0", "master=br0", "slave-type=bridge"):
            assert part in process.stdout


def test_netplan_gives_the_addresses_to_the_bridge_alone(tmp_path):
    folder = tmp_path / "etc/netplan"
    folder.mkdir(parents=True)
    (folder / "50-cloud-init.yaml").write_text(netplan.without_ports(OLD, ["eth0"]))
    for path, text in netplan.build_files(netcases.CONFIG, [OLD]).items():
        (folder / path.rpartition("/")[2]).write_text(text)
    for path in folder.iterdir():
        path.chmod(0o600)

    argv = ["/usr/libexec/netplan/generate", "--root-dir", tmp_path]
    process = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert process.returncode == 0, process.stderr
    units = {p.name: p.read_text() for p in (tmp_path / "run/systemd/network").iterdir()}
    bridge, port = units["10-netplan-br0.network"], units["10-netplan-eth0.network"]
    assert "Address=10.0.0.4/16" in bridge and "Gateway=10.0.0.1" in bridge
    assert "Bridge=br0" in port and "\nAddress=" not in port and "Gateway" not in port
