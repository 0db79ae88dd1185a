"""Clone a VM on the tests' host, and check the result."""

import json
import subprocess
from pathlib import Path

import keypairs
from saltvirt.libvirt.domains import lifecycle
from saltvirt.vm.clone.host import cloning
from saltvirt.xml import parse

PUBLIC, PRIVATE = keypairs.named("a clone")
FILES = ["db1_data.qcow2", "db1_seed.iso.qcow2", "db1_system.qcow2"]


def given(**more):
    """Return the other arguments of a call: the clone gets a key and a seed."""
    return {"seed_method": "nocloud", "pub_key": PUBLIC, "priv_key": PRIVATE, **more}


def cloned(hypervisor, source="web1", name="db1", **more):
    """Clone a VM as virt.clone does."""
    return cloning.create(hypervisor.context, source, name, given(**more))


def disk(hypervisor, name):
    """Return the path of a file in the image folder."""
    return Path(hypervisor.settings.images) / name


def write(path, byte):
    """Write a byte into a disk, as a guest does."""
    command = ["qemu-io", "-f", "qcow2", "-c", f"write -P {byte} 1M 64k", path]
    subprocess.run(command, check=True, capture_output=True)


def has(path, byte):
    """Return whether a disk has the written byte."""
    command = ["qemu-io", "-r", "-f", "qcow2", "-c", f"read -P {byte} 1M 64k", path]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    return "verification failed" not in process.stdout


def info(path):
    """Return qemu-img's facts about a disk."""
    process = subprocess.run(["qemu-img", "info", "--output=json", path], capture_output=True)
    return json.loads(process.stdout)


def definition(hypervisor, name):
    """Return the VM's definition."""
    return parse((hypervisor.definitions / f"{name}.xml").read_text())


def change(conn, name, change_xml):
    """Redefine a VM with changed XML."""
    lifecycle.define(conn, change_xml(lifecycle.secure_xml(conn, name)))


def nothing_of_it(hypervisor):
    """Return whether no part of a clone remains."""
    clone_files = [name for name in hypervisor.files() if name.startswith("db1")]
    return (clone_files, hypervisor.open_records(), "db1" in hypervisor.domains()) == (
        [],
        [],
        False,
    )
