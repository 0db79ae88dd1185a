"""Checks on the target that it can take a VM that moves."""

import functools
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from saltvirt.core import terminal
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.domains import lifecycle
from saltvirt.libvirt.storage import pools, volumes
from saltvirt.placement import fit, generation, whatif
from saltvirt.placement.answers import DiskFacts, HostInfo, MigrationInfo, Versions
from saltvirt.placement.generation import Generation
from saltvirt.storage import diskpaths
from saltvirt.vm import spec
from saltvirt.vm.show.host import inspect, migrationinfo
from saltvirt.xml import parse
from saltvirt.xml.storage import storagepool
from saltvirt.xml.storage.poolsource import clean

# libvirt's own folder for firmware variables.
_NVRAM = "/var/lib/libvirt/qemu/nvram"
# The folder of the console logs, which every VM that virt.init makes has; virtlogd writes there.
_LOGS = posixpath.dirname(spec.console_log("any"))
# Where packages put UEFI firmware; libvirt lists these files to any read-only client.
_FIRMWARE = ("/usr/share/OVMF", "/usr/share/AAVMF", "/usr/share/edk2", "/usr/share/qemu")


def check(
    conn: Any,
    settings: HostSettings,
    moving: MigrationInfo,
    info: HostInfo | None = None,
    *,
    may_tell_paths: bool = True,
) -> list[str]:
    """
    Return why this host cannot take a VM; empty if it can. Nothing is changed.

    info
        From :func:`saltvirt.vm.show.host.inspect.host_info`. Defaults to calling it.
    may_tell_paths
        Whether the caller may learn which files exist on this host. If not, only files in folders
        for VMs are checked. Defaults to True.
    """
    info = info or inspect.host_info(conn, settings)
    reasons = list(fit.reasons(info, whatif.needs_of_move(moving)))
    if moving.images is not None and clean(settings.images) != clean(moving.images):
        reasons.append(
            f"its image folder is {settings.images}, not {moving.images}; VMs move only "
            "between hosts with the same virt:images"
        )
    reasons += _uuid_reasons(conn, moving)
    reasons += _libvirts_reasons(conn, moving, generation.for_host(info))
    if not may_tell_paths:
        moving, untold_reasons = _among_known_places(conn, settings, moving)
        reasons += untold_reasons
    reasons += _missing_path_reasons(moving.files)
    for disk in moving.disks:
        reasons += [*_disk_reasons(settings, disk), *_volume_reasons(conn, settings, disk)]
    reasons += [*migrationinfo.find_different(moving), *_pool_reasons(conn, moving)]
    pushed_paths = [file.path for file in moving.nvram if file.how == "push"]
    return reasons + [
        f"a file {path} is there already" for path in pushed_paths if Path(path).exists()
    ]


def _missing_path_reasons(paths: Iterable[str]) -> Iterator[str]:
    """Yield a reason for each missing file or folder that a VM names beside its disks."""
    for path in paths:
        if not Path(path).exists():
            kind = "folder" if path.endswith("/") else "file"
            yield f"there is no {kind} {path.rstrip('/') or path} there"


def _uuid_reasons(conn: Any, moving: MigrationInfo) -> Iterator[str]:
    """Yield a reason if another VM here has the moving VM's UUID, libvirt's identity of a VM."""
    other_name = lifecycle.name_of(conn, moving.uuid)
    # Another check reports a VM with the same name.
    if other_name not in (None, moving.name):
        yield (
            f"VM {other_name!r} there has its UUID {moving.uuid}; if it is a copy, give it a UUID "
            "of its own, or remove its definition (virt.undefine), which leaves its disks"
        )


def _libvirts_reasons(
    conn: Any, moving: MigrationInfo, host_generation: Generation
) -> Iterator[str]:
    """Yield reasons from libvirt itself about machine type and CPU, which HostInfo lacks."""
    unknown_machines = [
        machine
        for machine in (moving.machine, moving.next_machine)
        if machine and not hostfacts.has_machine(conn, moving.arch, machine, moving.domain_type)
    ]
    if not unknown_machines:
        cpu_reason = hostfacts.why_not_cpu(
            conn,
            moving.arch,
            moving.machine,
            moving.domain_type,
            cpu=moving.cpu,
            host_cpu=moving.host_cpu,
        )
        yield from [cpu_reason] if cpu_reason else []
    elif not list(generation.machine_reasons(host_generation, whatif.needs_of_move(moving))):
        yield (
            f"its machine type {unknown_machines[0]} is not known there "
            f"(QEMU {hostfacts.versions(conn)['qemu']})"
        )


def unfit_reasons(conn: Any, moving: MigrationInfo) -> list[str]:
    """Return why libvirt and QEMU behind a connection, even a remote one, cannot take a VM."""
    capabilities = hostfacts.capabilities(conn)
    host_generation = Generation(
        arch=capabilities["arch"],
        versions=Versions(**hostfacts.versions(conn)),
        machines=generation.summarize_machines(capabilities["guests"], capabilities["arch"]),
    )
    return [
        *_uuid_reasons(conn, moving),
        *generation.reasons(host_generation, whatif.needs_of_move(moving)),
        *_libvirts_reasons(conn, moving, host_generation),
    ]


def _among_known_places(
    conn: Any, settings: HostSettings, moving: MigrationInfo
) -> tuple[MigrationInfo, list[str]]:
    """Return a VM's facts without paths outside folders for VMs, and a reason naming those."""
    places = [os.path.realpath(place) for place in _places(conn, settings)]
    is_known = functools.partial(_is_below, places)
    strange_paths = sorted({path for path in _paths(moving) if not is_known(path)})
    if not strange_paths:
        return moving, []
    known_info = replace(
        moving,
        files=[path for path in moving.files if is_known(path)],
        disks=[disk for disk in moving.disks if is_known(disk.path)],
        nvram=[file for file in moving.nvram if is_known(file.path)],
    )
    return known_info, [
        f"whether {terminal.join_some(strange_paths)} is there is told to the master's runner "
        "alone: salt-run virt.migrate VM dry_run=True"
    ]


def _paths(moving: MigrationInfo) -> Iterator[str]:
    yield from moving.files
    yield from (disk.path for disk in moving.disks)
    yield from (file.path for file in moving.nvram)


def _is_below(places: list[str], path: str) -> bool:
    """Return whether a path, links resolved, is in any of the folders, or is a volume's name."""
    real_path = Path(os.path.realpath(path))
    return not path.startswith("/") or any(map(real_path.is_relative_to, places))


def _places(conn: Any, settings: HostSettings) -> Iterator[str]:
    """Yield the folders in which this host's VMs have files."""
    yield from (settings.images, _NVRAM, _LOGS, *_FIRMWARE)
    yield from (*settings.shared_paths, *settings.backing_paths)
    folders = (storagepool.folder(parse(pool.XMLDesc(0))) for pool in conn.listAllStoragePools())
    yield from filter(None, folders)


def check_all(
    conn: Any,
    settings: HostSettings,
    vms: Mapping[str, MigrationInfo],
    *,
    may_tell_paths: bool = True,
) -> dict[str, list[str]]:
    """
    Return ``{name: reasons}`` of the VMs that this host cannot take.

    may_tell_paths
        See :func:`check`.
    """
    info = inspect.host_info(conn, settings)
    reasons_by_vm = {
        name: check(conn, settings, moving, info, may_tell_paths=may_tell_paths)
        for name, moving in vms.items()
    }
    return {name: reasons for name, reasons in reasons_by_vm.items() if reasons}


def _disk_reasons(settings: HostSettings, disk: DiskFacts) -> Iterator[str]:
    path = Path(disk.path)
    if disk.how == "shared":
        if disk.path.startswith("/") and not path.exists():
            yield f"the shared disk {path} is not there"
        # The source may reach the disk through a link that is missing here; this path may then be
        # an old local file.
        elif disk.path.startswith("/") and not diskpaths.is_declared(settings, disk.path):
            yield _undeclared_message(disk.path)
    elif path.exists() and not is_medium(disk):
        yield f"a file {path} is there already"
    elif not path.parent.is_dir() and path.parent != Path(settings.images):
        yield f"there is no folder {path.parent} there"


def _volume_reasons(conn: Any, settings: HostSettings, disk: DiskFacts) -> Iterator[str]:
    """Yield why a shared disk that the definition names as POOL/VOLUME is missing here."""
    # Paths begin with a slash, network disks with their protocol.
    if disk.how != "shared" or disk.path.startswith("/") or ":" in disk.path.partition("/")[0]:
        return
    name, _slash, volume = disk.path.partition("/")
    if _find_running_pool(conn, name) is None:
        yield _no_pool_message(name)
    elif volume not in volumes.names(conn, name):
        yield f"there is no volume {volume} in pool {name} there; virt.pool_refresh looks again"
    elif not diskpaths.is_declared(settings, volumes.lookup(conn, name, volume).path()):
        yield _undeclared_message(disk.path)


def _find_running_pool(conn: Any, name: str) -> Any:
    pool = pools.find(conn, name)
    return pool if pool is not None and pool.isActive() else None


def _no_pool_message(name: str) -> str:
    return f"there is no pool {name} there, or it does not run"


def _undeclared_message(path: str) -> str:
    return f"the disk {path} is shared, and virt:shared_paths there does not have it"


def _pool_reasons(conn: Any, moving: MigrationInfo) -> Iterator[str]:
    """Yield why a VM's files would not be volumes of their pools here."""
    folders: dict[str, set[str]] = {}
    for disk in moving.disks:
        if disk.pool is not None:
            folders.setdefault(disk.pool, set()).add(posixpath.dirname(disk.path))
    for name, expected_folders in folders.items():
        pool = _find_running_pool(conn, name)
        if pool is None:
            yield _no_pool_message(name)
            continue
        actual_folder = storagepool.folder(parse(pool.XMLDesc(0)))
        if {actual_folder} != expected_folders:
            yield (
                f"its pool {name} has the folder {actual_folder} there, not "
                f"{', '.join(sorted(expected_folders))}"
            )


def is_medium(disk: DiskFacts) -> bool:
    """Return whether a disk is a cdrom or floppy image, which both hosts may have already."""
    return disk.device in ("cdrom", "floppy")
