"""Resolve a call's disks on this host: existing files and volumes, and new ones."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saltvirt.core.errors import BadArgument, StorageError
from saltvirt.core.model import Deployment, Disk, Vm
from saltvirt.core.salt.context import Context
from saltvirt.core.units import MIB, human
from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.domains import changing
from saltvirt.libvirt.storage import diskvolumes, volumes
from saltvirt.placement.answers import DomainTypes
from saltvirt.storage import diskpaths, ownermark
from saltvirt.storage.images import cache
from saltvirt.vm.create.host import buildfacts, plandisks
from saltvirt.vm.update.host import disks, listed, live
from saltvirt.vm.update.host.request import Request
from saltvirt.xml.domain import disk
from saltvirt.xml.edit import amend, devicematch, readdomain

# A partition, or a volume of extents, may be slightly smaller than requested.
_ROUNDING = 1.01
# A pool may round a volume up by one extent, which is seldom larger than this.
_EXTENT = 32 * MIB
_NO_DOMAIN_TYPES = DomainTypes(default=None, usable=[], why="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """
    A call's disks.

    elements
        The <disk> elements of the new definition, in the call's order; None if the call lists no
        disks.
    files
        The files to be made.
    existing
        Existing files that are new to the VM.
    volumes
        Volumes that are new to the VM, in pools that are no folders.
    growth
        ``{target: new bytes}`` of the disks to be grown.
    places
        ``{target: (path, format)}`` of the disks that are files of this host.
    growth_mib
        ``{target: MiB}`` that the grown disks may take in addition.
    more_mib
        The MiB that new files may take.
    small
        Messages about disks that are to grow, but cannot be grown here.
    """

    elements: list[ET.Element] | None = None
    files: tuple[plandisks.DiskFile, ...] = ()
    existing: tuple[plandisks.ExistingFile, ...] = ()
    volumes: tuple[plandisks.DiskVolume, ...] = ()
    growth: Mapping[str, int] = field(default_factory=dict)
    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    growth_mib: Mapping[str, int] = field(default_factory=dict)
    more_mib: int = 0
    small: tuple[str, ...] = ()


def find(
    context: Context, conn: Any, request: Request, root: ET.Element, running_root: ET.Element | None
) -> Disks:
    """
    Return a call's disks; fetch images unless it is a test.

    root, running_root
        The VM's definition, and its running <domain>, None if it is stopped.
    """
    if request.disks is None:
        return Disks()
    disk_elements, candidates = amend.devices(root, "disk"), list_candidates(root, running_root)
    matcher = make_matcher(context, conn, root, candidates, request.with_bus)
    pools = matcher.pools
    if request.single is None:
        pairs = matcher.pair(request.disks, candidates)
        other_elements = [element for element in disk_elements if devicematch.is_seed(element)]
    else:
        pairs = [
            disks.Pair(requested=requested, element=_find_element(root, request.single.name))
            for requested in request.disks
        ]
        # The running VM may have a disk that the definition has not: its target is taken, too.
        running_elements = [] if running_root is None else amend.devices(running_root, "disk")
        other_elements = [*disk_elements, *running_elements]
    disk_files = _decide_disks(context, conn, request, pairs, pools)
    other_targets = set(map(listed.target_of, other_elements))
    targets = disks.assign_targets(pairs, request.with_bus, other_targets)
    rows = zip(pairs, disk_files, targets, strict=True)
    elements = [
        disks.build_element(pair, resolved_disk, target, pair.requested.name in request.with_bus)
        for pair, (resolved_disk, _file), target in rows
    ]
    if request.single is not None:
        elements = _with_others(disk_elements, elements, request.single.name)
    places = _find_files(pairs, pools)
    file_sizes = _measure_files(pairs, places)
    if not request.is_3006:
        disks.refuse_smaller(pairs, file_sizes, request.with_size)
    guest_sizes = _guest_sizes(conn, request, pairs, file_sizes, running_root)
    growth = disks.growth(pairs, guest_sizes)
    files = plandisks.select(disk_files, plandisks.DiskFile)
    return Disks(
        elements=elements,
        files=files,
        existing=plandisks.select(disk_files, plandisks.ExistingFile),
        volumes=plandisks.select(disk_files, plandisks.DiskVolume),
        growth=growth,
        places=places,
        growth_mib={
            grown_target: (size - guest_sizes[grown_target]) // MIB
            for grown_target, size in growth.items()
        },
        more_mib=sum(file.layout["size_bytes"] // MIB for file in files),
        small=tuple(_undersized_messages(conn, request, pairs, places, running_root)),
    )


def list_candidates(root: ET.Element, running_root: ET.Element | None) -> list[ET.Element]:
    """Return the disks that a call can mean: those of the definition, and of the running VM."""
    disk_elements = amend.devices(root, "disk")
    return [*disk_elements, *_read_running_only(disk_elements, running_root)]


def make_matcher(
    context: Context,
    conn: Any,
    root: ET.Element,
    candidates: Sequence[ET.Element],
    with_bus: frozenset[str] = frozenset(),
) -> disks.Matcher:
    """Return what tells which of some disks of a VM a call means."""
    return disks.Matcher(
        vm=readdomain.name(root),
        with_bus=with_bus,
        pools=hostfacts.pools(conn),
        default_pool=context.settings.disk_pool,
        backing_by_path=_find_backing(candidates),
        former_names=readdomain.notes(root).former,
        owners_by_path=_find_owners(candidates, readdomain.uuid(root)),
    )


def _find_element(root: ET.Element, target: str) -> ET.Element | None:
    """Return the <disk> at a target; None if there is none."""
    return listed.DISK.by_name(root).get(target)


def _with_others(
    disk_elements: Sequence[ET.Element], new_elements: Sequence[ET.Element], target: str
) -> list[ET.Element]:
    """Return a VM's disks, without the seed, with the one at a target replaced by new ones."""
    kept_elements = [
        element
        for element in disk_elements
        if not devicematch.is_seed(element) and listed.target_of(element) != target
    ]
    return [*kept_elements, *new_elements]


def measure_disk(
    conn: Any,
    vm: str,
    element: ET.Element,
    pools: Mapping[str, Mapping[str, Any]],
    running_root: ET.Element | None,
) -> int | None:
    """Return the bytes of a VM's disk as its guest sees them; None if this host cannot tell."""
    vm_disk = disk.read(element)
    sized = Disk(name="", target="", is_sized_by_user=True)
    pairs = [disks.Pair(requested=sized, element=element)]
    sizes = list(_measure_files(pairs, _find_files(pairs, pools)).values())
    if not sizes and vm_disk.type != "file":
        sizes += [size for size in [_find_volume(conn, vm_disk)[1]] if size]
    running_target = live.find_target(running_root, vm_disk) if sizes else None
    if running_target:
        sizes.append(changing.disk_size(conn, vm, running_target))
    return max(sizes, default=None)


def _find_owners(elements: Sequence[ET.Element], uuid: str) -> dict[str, str]:
    """Return ``{a disk's file: the VM's name in its owner mark}`` of files of the VM's UUID."""
    paths = [path for path in (disk.read(element).path for element in elements) if path]
    owners = ((path, ownermark.read_owner(path)) for path in paths if path.startswith("/"))
    return {path: owner.vm for path, owner in owners if owner is not None and owner.uuid == uuid}


def _find_backing(elements: Sequence[ET.Element]) -> dict[str, list[str]]:
    """Return ``{a disk's file: files of its backing chain in the same folder}``."""
    out = {}
    for vm_disk in map(disk.read, elements):
        # Do not probe: a guest may have written an overlay's header into a raw disk.
        if vm_disk.path and vm_disk.type == "file" and vm_disk.format == "qcow2":
            folder = Path(vm_disk.path).parent
            backing_paths = diskpaths.chain_below(vm_disk.path)
            out[vm_disk.path] = [path for path in backing_paths if Path(path).parent == folder]
    return out


def _undersized_messages(
    conn: Any,
    request: Request,
    pairs: Sequence[disks.Pair],
    places: Mapping[str, tuple[str, str]],
    running_root: ET.Element | None,
) -> Iterator[str]:
    """Yield messages about volumes, not files, that are smaller than requested."""
    for pair in pairs:
        vm_disk, requested_bytes = pair.now, _requested_bytes(pair.requested)
        if vm_disk is None or vm_disk.type == "file" or pair.target in places:
            continue
        volume_place, size = _find_volume(conn, vm_disk) if requested_bytes else (("", ""), 0)
        running_target = live.find_target(running_root, vm_disk) if size else None
        _refuse_smaller(request, pair.requested, size)
        if running_target:
            size = max(size, changing.disk_size(conn, request.name, running_target))
        if size and requested_bytes > size * _ROUNDING:
            yield (
                f"disk {pair.requested.name!r} has {human(size)}, and the call gives "
                f"{human(requested_bytes)}: a volume such as {'/'.join(volume_place)} is not grown "
                f"here; grow it by virt.volume_resize {' '.join(volume_place)} "
                f"{pair.requested.size_mib}, or where it is served, and then virt.pool_refresh "
                f"{volume_place[0]}"
            )


def _refuse_smaller(request: Request, requested: Disk, size: int) -> None:
    """Raise BadArgument if a volume is larger than requested, beyond its pool's rounding."""
    has_size = requested.name in request.with_size and not request.is_3006
    if has_size and size and _requested_bytes(requested) * _ROUNDING + _EXTENT < size:
        raise BadArgument("disks", disks.describe_too_large(requested, size))


def _requested_bytes(requested: Disk) -> int:
    """Return a disk's requested size in bytes, 0 if the call gives none."""
    is_sized = requested.is_sized_by_user and requested.device == "disk"
    return (requested.size_mib or 0) * MIB if is_sized else 0


def _find_volume(conn: Any, vm_disk: disk.Disk) -> tuple[tuple[str, str], int]:
    """Return ``((pool, volume), bytes)`` of a disk; 0 bytes if unknown."""
    # libvirt reports no volumes of an inactive pool.
    with suppress(StorageError):
        location = diskvolumes.find(conn, vm_disk)
        volume = volumes.find(conn, location.pool, location.volume) if location else None
        if location is not None and volume is not None:
            return (location.pool, location.volume), volume.capacity
    return ("", ""), 0


def _read_running_only(
    defined_elements: Sequence[ET.Element], running_root: ET.Element | None
) -> list[ET.Element]:
    """
    Return the disks that only the running VM has, in persistent form.

    These were removed from the definition, but not yet from the guest; a call that lists one
    means that disk. A disk is left out if another disk has its target by now.
    """
    defined_disks = [disk.read(element) for element in defined_elements]
    names = {vm_disk.target.get("dev") for vm_disk in defined_disks}
    contents = [devicematch.content(vm_disk) for vm_disk in defined_disks]
    running_disks = map(
        disk.read, () if running_root is None else amend.devices(running_root, "disk")
    )
    return [
        disk.build(replace(vm_disk, backing=None, source=devicematch.persistent_source(vm_disk)))
        for vm_disk in running_disks
        if vm_disk.target.get("dev") not in names and devicematch.content(vm_disk) not in contents
    ]


def _decide_disks(
    context: Context,
    conn: Any,
    request: Request,
    pairs: Sequence[disks.Pair],
    pools: Mapping[str, Any],
) -> plandisks.PlannedDisks:
    """Return the disks with their paths, each with its file or volume if it is new."""
    open_disks = [pair.requested for pair in pairs if not pair.is_decided]
    planned_disks = iter(
        _plan_new_disks(context, conn, request, open_disks, pools) if open_disks else ()
    )
    return [(pair.requested, None) if pair.is_decided else next(planned_disks) for pair in pairs]


def _plan_new_disks(
    context: Context,
    conn: Any,
    request: Request,
    open_disks: Sequence[Disk],
    pools: Mapping[str, Any],
) -> plandisks.PlannedDisks:
    deployment = _deployment(request.name, open_disks)
    host_facts = buildfacts.HostFacts(arch="", domain_types=_NO_DOMAIN_TYPES, qemu="", pools=pools)
    content = buildfacts.gather_content(
        context, conn, deployment, host_facts, None, is_dry=request.test, is_new=False
    )
    out = []
    for requested, file in plandisks.plan_disks(deployment, content):
        # An existing disk is taken, except with an image: it may be half a copy that an
        # interrupted update left.
        is_copy = file is not None and file.how == "existing" and requested.image is not None
        if file is not None and (is_copy or file.path in content.taken_paths):
            location = requested.volume or file.path
            raise StorageError(
                f"disk {requested.name!r}: {location} is there already, but VM {request.name!r} "
                "does not have it; give it as source_file if it is to, else remove it"
            )
        is_unfetched = requested.path is None and requested.image is not None
        folder_prefix = f"{content.places[requested.name].folder}/" if is_unfetched else ""
        name = f"{request.name}_{requested.name}.{requested.format or 'qcow2'}"
        out.append(
            (replace(requested, path=folder_prefix + name) if is_unfetched else requested, file)
        )
    return out


def boot_files(context: Context, request: Request, boot: Mapping[str, str]) -> dict[str, str]:
    """
    Return ``{kernel | initrd | loader: path}`` of a VM's boot files; fetch URLs.

    A test fetches nothing: a URL that is not cached stays as it is.
    """
    deployment = _deployment(request.name, (), dict(boot))
    paths_by_key = buildfacts.boot_files(context, deployment, is_dry=request.test)
    return {key: path or _cached_path(context, boot[key]) for key, path in paths_by_key.items()}


def _cached_path(context: Context, url: str) -> str:
    cached_image = cache.peek(url, "base", context.settings, context.opts)
    return cached_image.path if cached_image else url


def _deployment(
    name: str, new_disks: Sequence[Disk], boot: dict[str, Any] | None = None
) -> Deployment:
    """Return a deployment of only these disks and boot files, for functions of the build."""
    return Deployment(
        vm=Vm(name=name, cpu=1, vcpus=1, memory=1, memory_mib=1, disks=tuple(new_disks), boot=boot),
        start=False,
        saltenv="base",
        seed=False,
        seed_cmd="",
        seed_method=None,
        install=False,
        install_from=None,
        user_data=None,
        config={},
        enable_qcow=None,
        pub_key=None,
        priv_key=None,
    )


def _find_files(
    pairs: Sequence[disks.Pair], pools: Mapping[str, Mapping[str, Any]]
) -> dict[str, tuple[str, str]]:
    """Return ``{target: (path, format)}`` of disks that are files of this host."""
    out = {}
    for pair in pairs:
        vm_disk = pair.now
        path = vm_disk.path if vm_disk is not None else None
        if vm_disk is None or path is None:
            continue
        if vm_disk.type == "volume":
            pool, _slash, volume = path.partition("/")
            path = str(Path(str((pools.get(pool) or {}).get("path"))) / volume)
        if Path(path).is_file():
            out[pair.target] = (path, vm_disk.format)
    return out


def _measure_files(
    pairs: Sequence[disks.Pair], places: Mapping[str, tuple[str, str]]
) -> dict[str, int]:
    """Return ``{target: bytes}`` from file headers, for disks with a size in the call."""
    out = {}
    for pair in pairs:
        if not pair.requested.is_sized_by_user or pair.target not in places:
            continue
        path, format_ = places[pair.target]
        sizes = diskpaths.measure(path, format_)
        if sizes is not None and diskpaths.is_measured(format_):
            out[pair.target] = int(sizes["virtual"])
    return out


def _guest_sizes(
    conn: Any,
    request: Request,
    pairs: Sequence[disks.Pair],
    file_sizes: Mapping[str, int],
    running_root: ET.Element | None,
) -> dict[str, int]:
    """Return ``{target: bytes}`` of the measured files as the guest sees them."""
    out = dict(file_sizes)
    for pair in pairs:
        target = pair.target
        # A running VM's disk may have grown since its header was read.
        running_target = live.find_target(running_root, pair.now) if target in out else None
        if running_target:
            out[target] = max(out[target], changing.disk_size(conn, request.name, running_target))
    return out
