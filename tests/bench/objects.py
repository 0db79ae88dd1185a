"""Have this host have N volumes in a pool, M networks and V running VMs, all called bench…."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import asminion  # noqa: F401 (where saltvirt is)
from saltvirt.core.options import config
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import lifecycle, query
from saltvirt.vm import spec
from saltvirt.xml.domain import domain

FOLDER = Path("/srv/salt-images/bench-objects")
POOL, MEMORY_MIB = "bench", 16
_POOL = f"<pool type='dir'><name>{POOL}</name><target><path>{FOLDER}</path></target></pool>"


def volumes(conn, count):
    """Have a pool with so many volumes, or none."""
    for pool in conn.listAllStoragePools():
        if pool.name() == POOL:
            pool.destroy()
            pool.undefine()
    shutil.rmtree(FOLDER, ignore_errors=True)
    if not count:
        return
    FOLDER.mkdir(parents=True)
    for number in range(count):
        with (FOLDER / f"volume{number}.raw").open("wb") as handle:
            handle.truncate(1 << 20)
    conn.storagePoolDefineXML(_POOL)
    conn.storagePoolLookupByName(POOL).create()


def networks(conn, count):
    """Have so many networks defined, or none."""
    for network in conn.listAllNetworks():
        if network.name().startswith("bench"):
            network.undefine()
    for number in range(count):
        conn.networkDefineXML(f"<network><name>bench{number}</name></network>")


def vms(conn, count):
    """Have so many VMs run, which have nothing to boot, or none."""
    for name in query.names(conn):
        if name.startswith("bench"):
            lifecycle.destroy(conn, name)
            lifecycle.undefine(conn, name)
    given = {"disk": None, "nic": None}
    settings = config.HostSettings(console_log=False)
    for number in range(1, count + 1):
        vm = spec.deployment(settings, f"bench{number}", 1, MEMORY_MIB, given).vm
        text = domain.build(replace(vm, domain_type="qemu", arch="x86_64"))
        lifecycle.start(conn, lifecycle.define(conn, text))


def main(*counts):
    """Make them; three zeros leave nothing."""
    with connect.open_connection(config.HostSettings(), readonly=False) as conn:
        for make, count in zip((volumes, networks, vms), map(int, counts), strict=True):
            make(conn, count)
    print(json.dumps({"made": counts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
