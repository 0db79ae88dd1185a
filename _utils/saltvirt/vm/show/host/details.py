"""What ``virt.vm_info`` shows of one VM beside its devices, by calls for that VM alone."""

import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from saltvirt.libvirt.domains import changing, snapshots
from saltvirt.xml.domain import memory, vcpu
from saltvirt.xml.edit import readdomain

# Where libvirt keeps the process ids of its QEMUs; a file is written when its domain starts.
_PIDS = Path("/run/libvirt/qemu")


def describe(conn: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return ``{autostart, machine, snapshots, affinity, anti_affinity, hold, created, uptime_s,
    pending}`` of a VM, from a row of :func:`saltvirt.vm.show.host.inspect.rows`.

    ``uptime_s`` counts from its start on this host, None if it is off or that is unknown;
    ``pending`` says in words what changes at its next start.
    """
    root, name = readdomain.domain(row["xml"]), row["name"]
    notes = readdomain.notes(root)
    return {
        "autostart": changing.autostarts(conn, name),
        "machine": readdomain.system(root).machine,
        "snapshots": snapshots.names(conn, name),
        "affinity": list(notes.affinity),
        "anti_affinity": list(notes.anti_affinity),
        "hold": notes.stay,
        "created": notes.created,
        "uptime_s": _read_uptime_s(name) if row["state"] in ("running", "paused") else None,
        "pending": [*list_pending(root, readdomain.domain(row["next_xml"]))]
        if row["next_xml"]
        else [],
    }


def _read_uptime_s(name: str) -> int | None:
    try:
        begun = (_PIDS / f"{name}.pid").stat().st_mtime
    except (OSError, ValueError):
        return None
    return max(0, int(time.time() - begun))


def list_pending(root: ET.Element, next_root: ET.Element) -> Iterator[str]:
    """Yield in words what a running domain has from its next start on."""
    cpus, next_cpus = vcpu.current(root), vcpu.current(next_root)
    if cpus != next_cpus:
        yield f"{next_cpus} CPUs"
    most, next_most = readdomain.sizes(root)[0], readdomain.sizes(next_root)[0]
    if most != next_most and next_most != next_cpus:
        yield f"at most {next_most} CPUs"
    mib, next_mib = (memory.current_kib(each) // 1024 for each in (root, next_root))
    if mib != next_mib:
        yield f"{next_mib} MiB of memory"
    machine, next_machine = readdomain.system(root).machine, readdomain.system(next_root).machine
    if machine != next_machine:
        yield f"machine type {next_machine}"
    yield from _list_devices("disk", _targets(root), _targets(next_root))
    yield from _list_devices("NIC", set(readdomain.macs(root)), set(readdomain.macs(next_root)))


def _targets(root: ET.Element) -> set[str]:
    return {disk.target["dev"] for disk in readdomain.disks(root)}


def _list_devices(kind: str, current: set[str], coming: set[str]) -> Iterator[str]:
    for device in sorted(coming - current):
        yield f"{kind} {device}"
    for device in sorted(current - coming):
        yield f"no {kind} {device}"
