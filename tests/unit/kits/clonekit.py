"""Clone a VM of the host that the tests have, and look at what has come of it."""

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
    """Return where a file of the image folder is."""
    return Path(hypervisor.settings.images) / name


def write(path, byte):
    """Write something into a disk, as a guest does."""
    command = ["qemu-io", "-f", "qcow2", "-c", f"write -P {byte} 1M 64k", path]
    subprocess.run(command, check=True, capture_output=True)


def has(path, byte):
    """Return whether a disk has what was written."""
    command = ["qemu-io", "-r", "-f", "qcow2", "-c", f"read -P {byte} 1M 64k", path]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    return "verification failed" not in process.stdout


def info(path):
    """Return what qemu-img says of a disk."""
    process = subprocess.run(["qemu-img", "info", "--output=json", path], capture_output=True)
    return json.loads(process.stdout)


def definition(hypervisor, name):
    """Return what is defined."""
    return parse((hypervisor.definitions / f"{name}.xml").read_text())


def change(conn, name, change_xml):
    """Define a VM anew with XML that is changed."""
    lifecycle.define(conn, change_xml(lifecycle.secure_xml(conn, name)))


def nothing_of_it(hypervisor):
    """Return whether nothing of a clone is left."""
    clone_files = [name for name in hypervisor.files() if name.startswith("db1")]
    return (clone_files, hypervisor.open_records(), "db1" in hypervisor.domains()) == (
        [],
        [],
        False,
    )
