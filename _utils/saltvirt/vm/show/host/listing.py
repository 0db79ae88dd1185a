"""The VMs of a host as lines of a list: from libvirt's own data, without asking a QEMU."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any

from saltvirt.core import guestaccess, vmfilter
from saltvirt.core.units import MIB
from saltvirt.core.vmfilter import VmFilter
from saltvirt.libvirt import networks
from saltvirt.libvirt.domains import query
from saltvirt.placement.shownvms import ListedVm
from saltvirt.storage import diskpaths
from saltvirt.xml.domain import memory, vcpu
from saltvirt.xml.edit import readdomain


def rows(conn: Any, vm_filter: VmFilter) -> dict[str, ListedVm]:
    """
    Return the VMs that a filter takes, each as a line of a list.

    libvirt's own data are enough: no QEMU is asked, and no file is read if a VM has our notes, so
    that a guest that hangs does not hold up the others.
    """
    definitions = [
        (definition, readdomain.notes(definition.root)) for definition in query.definitions(conn)
    ]
    taken = [
        (definition, notes)
        for definition, notes in definitions
        if vm_filter.takes(
            definition.name,
            definition.state,
            vmfilter.tags(readdomain.describe_notes(definition.root)) if vm_filter.tag else (),
        )
    ]
    running = [definition for definition, _notes in taken if definition.state == "running"]
    network_names = {
        name for row in running for name in readdomain.links(row.root)["networks"] if name
    }
    leased = networks.read_leased_addresses(conn, network_names)
    return {
        definition.name: ListedVm(
            state=definition.state,
            cpu=vcpu.current(definition.root),
            mem_mib=memory.current_kib(definition.root) // 1024,
            disk_mib=notes.disk_mib or _sum_disks_mib(definition.root),
            address=_leased_address(definition, leased),
            created=notes.created,
        )
        for definition, notes in taken
    }


def _leased_address(
    definition: query.Definition, leased: Mapping[str, Sequence[str]]
) -> str | None:
    if definition.state != "running" or not leased:
        return None
    found = (address for mac in readdomain.macs(definition.root) for address in leased.get(mac, ()))
    return next(iter(guestaccess.addresses(found)), None)


def _sum_disks_mib(root: ET.Element) -> int | None:
    """Return the full size of the disks that are files; None if one of them is unknown."""
    sizes = [
        diskpaths.measure(disk["path"], disk["format"]) if disk["type"] == "file" else None
        for disk in readdomain.disk_sources(root)
        if disk["device"] == "disk"
    ]
    return None if None in sizes else sum(size["virtual"] for size in sizes if size) // MIB
