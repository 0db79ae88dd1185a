"""What a VM is made of when it moves: all that another host must know to take it."""

import itertools
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, TypeVar

from saltvirt.config import HostSettings
from saltvirt.errors import NoSuchVm
from saltvirt.image import cache
from saltvirt.kvm import host, lifecycle, query, snapshots
from saltvirt.ops import storage
from saltvirt.ops.migration import ofhost, sharedfiles, startlock
from saltvirt.placement.answers import DiskFacts, FileFacts, ImageFacts, MigrationInfo
from saltvirt.xml import hostfiles, newer, pooldisk, read
from saltvirt.xml.snapshot import Snapshot

_T = TypeVar("_T")


class _Tags(TypedDict):
    """What libvirt says of all domains at once, and of the host."""

    snapshots: dict[str, list[Snapshot]]
    checkpoints: set[str]
    saved: set[str]
    active: set[str]
    autostart: set[str]
    host_cpu: str | None
    qemu: str
    nat: set[str]
    pools: dict[str, dict[str, Any]]


class _Cpu(TypedDict):
    """What a host must have so that the guest sees the same CPU there."""

    cpu: str | None
    host_cpu: str | None
    cpu_qemu: str | None


def gather(conn: Any, settings: HostSettings, name: str | None = None) -> dict[str, MigrationInfo]:
    """
    Return what another host must know to take VMs, by their names.

    name
        Only this one. If all, VMs of which only the definition was kept here are left out.
    """
    tags: _Tags = {
        "snapshots": snapshots.every(conn, name),
        "checkpoints": lifecycle.with_checkpoints(conn),
        "saved": lifecycle.saved(conn),
        "active": set(query.names(conn, active=True)),
        "autostart": lifecycle.autostarted(conn),
        "host_cpu": host.own_cpu(conn),
        "qemu": host.versions(conn)["qemu"],
        "pools": host.pools(conn),
        "nat": {one for one, it in host.networks(conn).items() if it["forward"] == "nat"},
    }
    out = {
        one.name: _facts(settings, one, tags)
        for one in query.definitions(conn, name, with_next=True)
        if name is not None or not read.ours(one.root)["moved_to"]
    }
    # One that vanishes while it is read is left out.
    if name is not None and name not in out:
        raise NoSuchVm(name)
    return out


def _facts(settings: HostSettings, vm: query.Definition, tags: _Tags) -> MigrationInfo:
    name, root = vm.name, vm.root
    # The definition goes too, and may differ from what runs: the target must know both.
    both = [root] if vm.next_root is None else [root, vm.next_root]
    vcpus, memory_mib = read.sizes(root)
    machines = [read.system(one).machine for one in both]
    is_running = vm.state in ("running", "paused")
    following = _following(both)
    sources = [one for one in read.disk_sources(root) if one["path"] is not None]
    disks = [_disk(settings, source, is_running, tags["pools"]) for source in sources]
    ours = read.ours(root)
    links, cpu = read.links(root), _cpu(root, tags, is_running)
    return MigrationInfo(
        name=name,
        uuid=read.uuid(root),
        state=vm.state,
        vcpus=vcpus,
        memory_mib=memory_mib,
        disks=disks,
        images=settings.images,
        affinity=ours["affinity"],
        anti_affinity=ours["anti_affinity"],
        stay=ours["stay"],
        domain_type=root.get("type", ""),
        arch=read.system(root).arch or "",
        machine=machines[0],
        next_machine=machines[-1] if machines[-1] != machines[0] else None,
        newer=_union(newer.newer(one) for one in both),
        cpu=cpu["cpu"],
        host_cpu=cpu["host_cpu"],
        cpu_qemu=cpu["cpu_qemu"],
        bridges=links["bridges"],
        networks=links["networks"],
        nat=[one for one in links["networks"] if one in tags["nat"]],
        links=links["links"],
        bridge_vlans=links["bridge_vlans"],
        obstacles=[
            *_obstacles(vm, tags, is_running=is_running),
            *_of_snapshots(tags["snapshots"].get(name, []), sources, is_running),
            *_unreadable(disks),
            *_not_running_with(settings, following, tags["pools"]),
            *ofhost.obstacles(settings, root, is_running=is_running),
        ],
        nvram=_firmware(settings, root, is_running),
        files=_union([*_host_files(both, is_running), _needed(settings, following, tags["pools"])]),
        autostart=name in tags["autostart"],
    )


def _union(lists: Iterable[Iterable[_T]]) -> list[_T]:
    """Return what is in any of the lists, once, in their order."""
    out = []
    for one in itertools.chain.from_iterable(lists):
        if one not in out:
            out.append(one)
    return out


def _cpu(root: ET.Element, tags: _Tags, is_running: bool) -> _Cpu:
    """
    Return what a host must have so that the guest sees the same CPU there.

    ``cpu_qemu`` is the QEMU all of whose CPU, emulated or the host's, a guest was started with: its
    features are nowhere in the XML, and an older QEMU would take them away under the running guest.
    """
    mode, cpu = read.cpu(root)
    is_emulated = root.get("type") == "qemu"
    # A stopped one gets what the target has, when it is started there.
    is_all = is_running and mode in ("maximum", "host-passthrough")
    is_hosts = is_all and not (mode == "maximum" and is_emulated)
    # libvirt starts one that is not to be checked anywhere, without what QEMU lacks.
    is_checked = is_running or read.is_cpu_checked(root)
    return {
        "cpu": cpu if mode == "custom" and is_checked else None,
        "host_cpu": tags["host_cpu"] if is_hosts else None,
        "cpu_qemu": (read.ours(root)["cpu_qemu"] or tags["qemu"]) if is_all else None,
    }


def _disk(
    settings: HostSettings,
    source: Mapping[str, Any],
    is_running: bool,
    pools: Mapping[str, Mapping[str, Any]],
) -> DiskFacts:
    """Return the facts of a disk that has a file, or another place where it is."""
    located = _located(source, pools)
    is_declared = storage.is_declared(settings, located)
    pool = None if is_declared else _pool_of_files(source, pools)
    out = DiskFacts(
        target=source["target"],
        path=source["path"] if pool is None else located,
        format=source["format"],
        device=source["device"],
        how="missing",
        base=None,
        image=None,
        pool=pool,
    )
    if is_declared or (source["type"] != "file" and pool is None):
        is_shared = is_declared or source["type"] == "network"
        number = sharedfiles.inode(located) if is_declared else None
        return replace(out, how="shared" if is_shared else "device", inode=number)
    is_written = source["device"] == "disk" and not source["is_readonly"]
    return _measured(settings, out, how="copy" if is_running and is_written else "push")


def _measured(settings: HostSettings, disk: DiskFacts, how: str) -> DiskFacts:
    """Return a disk that is a file with its sizes, and what is below it; as it is if it is gone."""
    sizes = storage.measure(disk.path, disk.format)
    if sizes is None:
        return disk
    if sizes["is_split"]:
        return replace(disk, how="split")
    base = cache.digest_of(settings, sizes["backing"])
    image = cache.note(settings, base)
    return replace(
        disk,
        how=how,
        virtual_bytes=sizes["virtual"],
        actual_bytes=sizes["actual"],
        base=base,
        image=ImageFacts(**image) if image else None,
        backing=sizes["backing"],
        size_bytes=os.path.getsize(disk.path),
    )


def _located(source: Mapping[str, Any], pools: Mapping[str, Mapping[str, Any]]) -> str:
    """Return where a disk is on this host, also if the definition names a pool's volume."""
    path: str = source["path"]
    pool, _slash, volume = path.partition("/")
    folder = pools.get(pool, {}).get("path") if source["type"] == "volume" else None
    return f"{folder}/{volume}" if folder else path


def _pool_of_files(source: Mapping[str, Any], pools: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the pool of which a disk is a volume that is a file; None if it is none."""
    name = source["path"].partition("/")[0] if source["type"] == "volume" else ""
    return name if pools.get(name, {}).get("type") in pooldisk.FILES else None


def _obstacles(vm: query.Definition, tags: _Tags, *, is_running: bool) -> Iterator[str]:
    """Yield why a VM cannot be moved to any host."""
    name, root = vm.name, vm.root
    if not is_running and name in tags["active"]:
        yield (
            f"it has crashed, and its QEMU is still there; stop it first (virt.stop {name})"
            if vm.state == "crashed"
            else "it is being shut down at this moment; try again when it is off"
        )
    if name in tags["checkpoints"]:
        # libvirt would not let go of its definition here either.
        yield (
            "it has checkpoints, which libvirt does not move; remove them first (virsh "
            f"checkpoint-list {name}), and begin its backups again afterwards"
        )
    if name in tags["saved"]:
        # It would stay here, and be resumed over changed disks when the VM comes back.
        yield (
            "it has a saved state, which libvirt does not move; start it, or drop that state "
            f"with virsh managedsave-remove {name}"
        )
    moved_to = read.ours(root)["moved_to"]
    if moved_to is not None:
        yield startlock.kept(moved_to, name)
    if read.was_given_file(root):
        yield (
            "it runs for the first time since it was seeded by credentials, which are on this "
            "host; stop and start it once"
        )


def _of_snapshots(
    found: Sequence[Snapshot], disks: Iterable[Mapping[str, Any]], is_running: bool
) -> Iterator[str]:
    """Yield why a VM cannot be moved with its snapshots: those in its disks go when it is off."""
    external = sorted(one.name for one in found if one.is_external)
    if external:
        yield (
            f"it has external snapshots ({', '.join(external)}), which do not move; remove them "
            "first, and have each disk go on in one file (virsh blockcommit, and never without "
            "--shallow, or the image below it is written to)"
        )
    elif found and is_running:
        yield (
            "it has snapshots, which libvirt does not move while a VM runs; stop it, or remove "
            "them first"
        )
    paths = {disk["path"] for disk in disks}
    for one in found:
        yield from (
            f"its snapshot {one.name} is in {path} too, which is not a disk of it any more; "
            "remove that snapshot first"
            for path in one.files
            if path not in paths
        )


def _unreadable(disks: Iterable[DiskFacts]) -> Iterator[str]:
    for disk in disks:
        if disk.how == "missing":
            yield f"its disk {disk.path} is missing or cannot be read"
        elif disk.how == "split":
            yield (
                f"its disk {disk.path} has its content in a data file of its own, which does not "
                "move; make it one file (qemu-img convert -O qcow2)"
            )
        elif disk.how == "device":
            yield (
                f"its disk {disk.path} is a device of this host, or a volume of a pool; declare "
                "where that is (/dev/GROUP, a folder) in virt:shared_paths if every host has it"
            )
        elif disk.backing and not disk.base:
            yield (
                f"its disk {disk.path} is based on {disk.backing}, which is not a cached "
                "image; declare its folder in virt:shared_paths, or flatten the disk"
            )


def _following(both: Sequence[ET.Element]) -> list[dict[str, Any]]:
    """Return the disks that a VM does not run with, and has from its next start on."""
    now = {disk["path"] for disk in read.disk_sources(both[0])}
    found = [disk for one in both[1:] for disk in read.disk_sources(one)]
    return [disk for disk in found if disk["path"] and disk["path"] not in now]


def _needed(
    settings: HostSettings,
    following: Iterable[Mapping[str, Any]],
    pools: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """Return which of such disks, media and shared ones, the other host must have already."""
    paths = [disk["path"] for disk in following if not _stays_behind(settings, disk, pools)]
    return [path for path in paths if path.startswith("/")]


def _stays_behind(
    settings: HostSettings, disk: Mapping[str, Any], pools: Mapping[str, Mapping[str, Any]]
) -> bool:
    is_here = disk["type"] in ("file", "block", "volume") and disk["device"] == "disk"
    return is_here and not storage.is_declared(settings, _located(disk, pools))


def _not_running_with(
    settings: HostSettings,
    following: Iterable[Mapping[str, Any]],
    pools: Mapping[str, Mapping[str, Any]],
) -> Iterator[str]:
    for disk in following:
        if _stays_behind(settings, disk, pools):
            yield (
                f"its definition has the disk {disk['path']}, without which it runs; attach that, "
                "or take it out of the definition"
            )


def _host_files(both: Sequence[ET.Element], is_running: bool) -> Iterator[list[str]]:
    """Yield what the other host must have of what definitions name beside disks."""
    for root in both:
        yield read.boot_files(root)
        yield hostfiles.needed(root)
        template = _template(root, is_running)
        # libvirt makes the variables anew for a guest that runs. It names the template of a stopped
        # VM too, which may be missing here as well.
        is_needed = template is not None and (is_running or os.path.exists(template))
        yield [template] if template is not None and is_needed else []


def _template(root: ET.Element, is_running: bool) -> str | None:
    """Return what the firmware's variables are made of, unless their file is sent as it is."""
    variables = read.firmware_variables(root)
    is_sent = not is_running and variables is not None and os.path.isfile(variables)
    return None if is_sent else hostfiles.template(root)


def _firmware(settings: HostSettings, root: ET.Element, is_running: bool) -> list[FileFacts]:
    """Return the files with the firmware's variables of a VM; of a running one QEMU sends them."""
    path = read.firmware_variables(root)
    if path is None or storage.is_declared(settings, path) or not os.path.isfile(path):
        return []
    stat = os.stat(path)
    return [
        FileFacts(
            path=path,
            how="copy" if is_running else "push",
            size_bytes=stat.st_size,
            actual_bytes=stat.st_blocks * 512,
        )
    ]
