"""Bring this host to N defined VMs called bench1 … benchN, each with an overlay disk."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import asminion  # noqa: F401 (where saltvirt is)
from saltvirt.core.options import config
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import lifecycle, query
from saltvirt.vm import spec
from saltvirt.xml.domain import domain

FOLDER = Path("/srv/salt-images/bench")


def make(conn, name):
    """Define one VM with a qcow2 overlay."""
    disk_path = FOLDER / f"{name}.qcow2"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", "base.qcow2", "-F", "qcow2", disk_path]
    subprocess.run(argv, check=True)
    vm = spec.deployment(config.HostSettings(), name, 1, 128, {}).vm
    disks = tuple(replace(disk, path=str(disk_path), format="qcow2") for disk in vm.disks)
    vm = replace(vm, disks=disks, domain_type="qemu", arch="x86_64")
    lifecycle.define(conn, domain.build(vm))


def main(count):
    """Define what is missing, undefine what is too much; none leave nothing."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not (FOLDER / "base.qcow2").exists():
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", FOLDER / "base.qcow2", "1G"]
        subprocess.run(argv, check=True)
    with connect.open_connection(config.HostSettings(), readonly=False) as conn:
        there = {name for name in query.names(conn) if name.startswith("bench")}
        wanted = {f"bench{n}" for n in range(1, count + 1)}
        for name in sorted(there - wanted):
            lifecycle.undefine(conn, name)
            (FOLDER / f"{name}.qcow2").unlink()
        for name in sorted(wanted - there):
            make(conn, name)
    if not count:
        shutil.rmtree(FOLDER)
    print(json.dumps({"vms": count}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
