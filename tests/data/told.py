"""What hosts say, read as the library reads it, out of as much plain data as a test cares for."""

from dataclasses import replace

from saltvirt.core import wire
from saltvirt.placement import brief
from saltvirt.placement.answers import HostInfo, Load, MigrationInfo

VM = {"state": "running", "vcpus": 1, "memory_mib": 1, "affinity": [], "anti_affinity": []}
COMING = {"vcpus": 1, "memory_mib": 1, "disk_mib": 0, "affinity": [], "anti_affinity": []}
DISK = {
    "target": "vda",
    "path": "/srv/vda.qcow2",
    "format": "qcow2",
    "device": "disk",
    "base": None,
    "image": None,
}
ABOUT = {
    "name": "m1",
    "uuid": "uuid of m1",
    "state": "running",
    "vcpus": 1,
    "memory_mib": 1,
    "disks": [],
    "stay": False,
    "affinity": [],
    "anti_affinity": [],
    "domain_type": "qemu",
    "arch": "x86_64",
    "bridges": [],
    "networks": [],
    "links": [],
    "obstacles": [],
}


def _whole(usual, given):
    return {name: {**usual, **one} for name, one in given.items()}


def info(said):
    """Return what a host says of itself; its VMs need not be whole."""
    more = {"vms": _whole(VM, said["vms"]), "coming": _whole(COMING, said.get("coming", {}))}
    return wire.read("a host", "virt.host_info", HostInfo, {**said, **more})


def placement_facts(host, said, about):
    """Return what a host answers to ``virt.placement_facts``, by its ``virt.host_info``."""
    wanted = wire.argument("about", brief.Query, about)
    short = brief.build_brief(wire.read(host, "virt.host_info", HostInfo, said), wanted)
    return wire.plain(short if wanted.is_for(host) else replace(short, offer=None))


def infos(said):
    """Return ``{host: info}``."""
    return {host: info(one) for host, one in said.items()}


def moving(**said):
    """Return what a host says of a VM that moves."""
    disks = [{**DISK, **disk} for disk in said.get("disks", ())]
    return wire.read(
        "a host", "virt.migration_info", MigrationInfo, {**ABOUT, **said, "disks": disks}
    )


def load(said):
    """Return what a host says of its load."""
    return wire.read("a host", "virt.load", Load, said)


def but(one, **changes):
    """Return an answer with some of it changed: what is a mapping by its names, else as a whole."""
    said = {**wire.plain(one)}
    for name, change in changes.items():
        is_part = isinstance(change, dict) and isinstance(said[name], dict)
        said[name] = {**said[name], **change} if is_part else change
    return moving(**said) if isinstance(one, MigrationInfo) else info(said)
