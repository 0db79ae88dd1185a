"""
The bridge on a real systemd host: a Debian guest, over the only link that its minion has.

Its kernel has what this machine's may lack: VLAN filtering and bonds. Its network is kept by a
systemd-networkd that runs, with a lease.
"""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from cloudkit import wait
from labkit import mirror

pytestmark = pytest.mark.nightly
VM = "bridged"
DEBIAN = "salt://images/debian-minion.qcow2"


@pytest.fixture(scope="module")
def guest(cloud):
    """A Debian guest whose minion answers, with our modules and a bond of its own."""
    cloud.purge_all()
    done = cloud.run("virt.init", VM, "2", "1024", DEBIAN)
    assert done.code == 0, done.out
    try:
        # An emulated guest beside others may be slower than Salt waits for it.
        wait("our modules in it", lambda: cloud.salt(VM, "saltutil.sync_all").code == 0)
        install_pyroute2(cloud)
        bond = "modprobe bonding max_bonds=0; ip link add bond0 type bond; ip link set bond0 up"
        assert cloud.salt(VM, "cmd.run", bond).code == 0
        yield VM
    finally:
        cloud.purge_all()


def install_pyroute2(cloud):
    """Bring the guest's minion what changes links: it reaches its master alone."""
    wheel = next(mirror.pypi().glob("pyroute2-*.whl"))
    served, path = cloud.fileroot / wheel.name, f"/tmp/{wheel.name}"
    shutil.copy(wheel, served)
    try:
        assert cloud.salt(VM, "cp.get_file", f"salt://{wheel.name}", path).data == {VM: path}
        # It may have no pip, and a wheel is a zip.
        grains = cloud.salt(VM, "grains.item", "pythonexecutable", "saltpath").data[VM]
        argv = [grains["pythonexecutable"], "-m", "zipfile", "-e", path]
        argv.append(str(Path(grains["saltpath"]).parent))
        done = cloud.salt(VM, "cmd.run_all", shlex.join(argv)).data[VM]
        assert done["retcode"] == 0, done
    finally:
        served.unlink()


def bridge(cloud, *words):
    """Apply virt.bridge_present and return the state's result."""
    done = cloud.salt(
        VM,
        "state.single",
        "virt.bridge_present",
        "br0",
        "ports=[eth0, bond0]",
        "vlan_filtering=True",
        "vlans=[10, 20-22]",
        *words,
    )
    return next(iter(done.data[VM].values()))


def addresses(cloud):
    """Return the guest's global IPv4 addresses by link."""
    text = cloud.salt(VM, "cmd.run", "ip -j -4 address show scope global").data[VM]
    return {
        link["ifname"]: [a["local"] for a in link["addr_info"]]
        for link in json.loads(text)
        if link.get("addr_info")
    }


def test_a_leased_address_moves_and_stays_over_a_reboot(cloud, guest):
    before = addresses(cloud)
    assert list(before) == ["eth0"]

    done = bridge(cloud)

    assert done["result"] is True, done
    assert "/etc/systemd/network/05-salt-virt-br0.network" in done["changes"]
    assert addresses(cloud) == {"br0": before["eth0"]}
    vlans = json.loads(cloud.salt(VM, "cmd.run", "bridge -j vlan show").data[VM])
    passed = {row["ifname"]: {v["vlan"] for v in row["vlans"]} for row in vlans}
    assert passed["eth0"] >= {1, 10, 20} and passed["bond0"] >= {1, 10, 20}
    again = bridge(cloud)
    assert (again["result"], again["changes"]) == (True, {})

    (host,) = cloud.run("virt.vm_info", VM).data
    cloud.local(host, "virt.reset", VM)
    wait("the guest's end", lambda: cloud.salt(VM, "test.ping", "-t", "3").data.get(VM) is not True)
    wait("the guest", lambda: cloud.salt(VM, "test.ping").data.get(VM) is True, timeout_s=240)

    assert addresses(cloud) == {"br0": before["eth0"]}
    members = cloud.salt(VM, "cmd.run", "ls /sys/class/net/br0/brif").data[VM].split()
    assert members == ["eth0"]
