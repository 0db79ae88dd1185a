"""What a call's disks are on this host: which are there, which are to be made, and of what."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saltvirt.errors import BadArgument, StorageError
from saltvirt.image import cache
from saltvirt.kvm import changing, diskvolumes, host, volumes
from saltvirt.model import Disk, Vm
from saltvirt.ops import storage
from saltvirt.ops.build import buildfacts, plandisks
from saltvirt.ops.context import Context
from saltvirt.ops.update import disks, live
from saltvirt.ops.update.request import Request
from saltvirt.placement.answers import DomainTypes
from saltvirt.spec import Deployment
from saltvirt.units import MIB, human
from saltvirt.xml import amend, disk, held
from saltvirt.xml.volume import place_of

# A partition, or a volume group's extents, may be a little less than was asked for.
_ROUNDED = 1.01
# A volume may be larger than was asked for by its pool's extent, which is seldom above this.
_EXTENT = 32 * MIB
_NOBODY = DomainTypes(default=None, usable=[], why="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """
    A call's disks.

    elements
        What the definition is to have, in the call's order.
    files
        Those that are to be made.
    existing
        The files of those that are new to the VM and were there already.
    volumes
        The volumes of those that are new to the VM, in pools that are no folders.
    growth
        ``{target: bytes}`` of those that are to be larger.
    places
        ``{target: (path, format)}`` of those, where it is known.
    growth_mib
        ``{target: MiB}``, how much more those may take then.
    more_mib
        How much more the new ones may take.
    small
        What is said of those that are to be larger and cannot be made so here.
    """

    elements: list[ET.Element]
    files: tuple[plandisks.DiskFile, ...] = ()
    existing: tuple[plandisks.ExistingFile, ...] = ()
    volumes: tuple[plandisks.DiskVolume, ...] = ()
    growth: Mapping[str, int] = field(default_factory=dict)
    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    growth_mib: Mapping[str, int] = field(default_factory=dict)
    more_mib: int = 0
    small: tuple[str, ...] = ()


def refuse_full_seed(now: ET.Element) -> None:
    """
    Raise StorageError if a guest has not taken its key from its seed yet, which it then wipes.

    now
        The VM's definition.
    """
    for one in filter(held.is_seed, amend.devices(now, "disk")):
        path = disk.read(one).path or ""
        try:
            has_key = b" PRIVATE KEY-" in Path(path).read_bytes()
        except OSError as exc:
            raise StorageError(f"cannot read seed {path}: {exc.strerror}") from exc
        if has_key:
            raise StorageError(
                f"the guest has not taken its key from its seed {path} yet, and could not wipe it; "
                "start the VM, and try again when its minion answers"
            )


def find(
    context: Context, conn: Any, request: Request, root: ET.Element, running: ET.Element | None
) -> Disks | None:
    """
    Return a call's disks; None if it names none. Images are fetched unless it is a test.

    root, running
        The VM's definition, and what runs of it, if it does.
    """
    if request.disks is None:
        return None
    pools = host.pools(conn)
    current = amend.devices(root, "disk")
    default = context.settings.disk_pool
    candidates = [*current, *_only_running(current, running)]
    below = _below(candidates)
    found = disks.pairs(
        request.name, candidates, request.disks, request.with_bus, pools, default, below
    )
    made = _decided(context, conn, request, found, pools)
    taken = {disk.read(one).target.get("dev", "") for one in current if held.is_seed(one)}
    names = disks.targets(found, request.with_bus, taken)
    rows = zip(found, made, names, strict=True)
    elements = [
        disks.written(pair, decided, target, pair.wanted.name in request.with_bus)
        for pair, (decided, _file), target in rows
    ]
    places = _places(found, pools)
    measured = _measured(found, places)
    if not request.is_3006:
        disks.refuse_smaller(found, measured, request.with_size)
    sizes = _sizes(conn, request, found, measured, running)
    growth = disks.growth(found, sizes)
    files = plandisks.to_make(made)
    return Disks(
        elements=elements,
        files=files,
        existing=plandisks.there_already(made),
        volumes=plandisks.in_pools(made),
        growth=growth,
        places=places,
        growth_mib={one: (size - sizes[one]) // MIB for one, size in growth.items()},
        more_mib=sum(file.layout["size_bytes"] // MIB for file in files),
        small=tuple(_too_small(conn, request, found, places, running)),
    )


def _below(elements: Sequence[ET.Element]) -> dict[str, list[str]]:
    """Return ``{a disk's file: those beside it that it is based on}``."""
    out = {}
    for one in map(disk.read, elements):
        # Into a raw disk its guest may have written what looks like the header of an overlay.
        if one.path and one.type == "file" and one.format == "qcow2":
            beside = Path(one.path).parent
            below = storage.chain_below(one.path)
            out[one.path] = [path for path in below if Path(path).parent == beside]
    return out


def _too_small(
    conn: Any,
    request: Request,
    found: Sequence[disks.Pair],
    places: Mapping[str, tuple[str, str]],
    running: ET.Element | None,
) -> Iterator[str]:
    """Yield what is said of the volumes that are smaller than the call says, and are no files."""
    for one in found:
        now, wanted = one.now, _size_of(one.wanted)
        if now is None or now.type == "file" or now.target.get("dev") in places:
            continue
        where, size = _volume(conn, now) if wanted else (("", ""), 0)
        in_use = live.target_of(running, now) if size else None
        _refuse_smaller(request, one.wanted, size)
        if in_use:
            size = max(size, changing.disk_size(conn, request.name, in_use))
        if size and wanted > size * _ROUNDED:
            yield (
                f"disk {one.wanted.name!r} has {human(size)} and is to have {human(wanted)}: a "
                f"volume such as {'/'.join(where)} is not grown here; grow it by "
                f"virt.volume_resize {' '.join(where)} {one.wanted.size_mib}, or where it is "
                f"served, and then virt.pool_refresh {where[0]}"
            )


def _refuse_smaller(request: Request, wanted: Disk, size: int) -> None:
    """Raise BadArgument if a volume has more than the call says, and not by its pool's rounding."""
    is_said = wanted.name in request.with_size and not request.is_3006
    if is_said and size and _size_of(wanted) * _ROUNDED + _EXTENT < size:
        raise BadArgument("disks", disks.too_large(wanted, size))


def _size_of(one: Disk) -> int:
    """Return the bytes that a call wants a disk to have, 0 if it does not say it."""
    is_sized = one.is_sized_by_user and one.device == "disk"
    return (one.size_mib or 0) * MIB if is_sized else 0


def _volume(conn: Any, now: disk.Disk) -> tuple[tuple[str, str], int]:
    """Return ``((pool, volume), bytes)`` of a disk; 0 where nobody knows."""
    # Of a pool that does not run nobody can say it.
    with suppress(StorageError):
        found = diskvolumes.find(conn, place_of(now))
        there = volumes.find(conn, found.pool, found.volume) if found else None
        if found is not None and there is not None:
            return (found.pool, found.volume), there.capacity
    return ("", ""), 0


def _only_running(current: Sequence[ET.Element], running: ET.Element | None) -> list[ET.Element]:
    """
    Return the disks that a VM has as it runs alone, as definitions have them.

    They were taken out of its definition, and the guest has not let go of them, or was not asked
    to: who lists one again means that one. One whose name another disk has by now is left out.
    """
    known = [disk.read(one) for one in current]
    names = {one.target.get("dev") for one in known}
    contents = [held.content(one) for one in known]
    found = map(disk.read, () if running is None else amend.devices(running, "disk"))
    return [
        disk.build(replace(one, backing=None, source=held.kept_source(one)))
        for one in found
        if one.target.get("dev") not in names and held.content(one) not in contents
    ]


def _decided(
    context: Context,
    conn: Any,
    request: Request,
    found: Sequence[disks.Pair],
    pools: Mapping[str, Any],
) -> plandisks.Pairs:
    """Return the disks with their paths, and the files of those that are to be made."""
    open_ = [one.wanted for one in found if not one.is_decided]
    decided = iter(_made(context, conn, request, open_, pools) if open_ else ())
    return [(one.wanted, None) if one.is_decided else next(decided) for one in found]


def _made(
    context: Context, conn: Any, request: Request, open_: Sequence[Disk], pools: Mapping[str, Any]
) -> plandisks.Pairs:
    deployment = _deployment(request.name, open_)
    on = buildfacts.HostFacts(arch="", domain_types=_NOBODY, qemu="", pools=pools)
    content = buildfacts.of_content(context, conn, deployment, on, None, is_dry=request.test)
    out = []
    for one, file in plandisks.disks(deployment, content):
        # Without an image it is as it was: what it had is its content again. With one, what is
        # there may be half a copy, of an update that was killed.
        is_copy = file is not None and file.how == "existing" and one.image is not None
        if file is not None and (is_copy or file.path in content.taken):
            where = one.volume or file.path
            raise StorageError(
                f"disk {one.name!r}: {where} is there already, but VM {request.name!r} does "
                "not have it; give it as source_file if it is to, else remove it"
            )
        is_unfetched = one.path is None and one.image is not None
        guess = f"{content.places[one.name].folder}/" if is_unfetched else ""
        name = f"{request.name}_{one.name}.{one.format or 'qcow2'}"
        out.append((replace(one, path=guess + name) if is_unfetched else one, file))
    return out


def boot_files(context: Context, request: Request, boot: Mapping[str, str]) -> dict[str, str]:
    """
    Return ``{kernel | initrd | loader: path}`` of what a VM is to boot; URLs are fetched.

    A test fetches nothing: what is not here yet has no path, and stands as it is written.
    """
    deployment = _deployment(request.name, (), dict(boot))
    found = buildfacts.boot_files(context, deployment, is_dry=request.test)
    return {key: path or _cached(context, boot[key]) for key, path in found.items()}


def _cached(context: Context, url: str) -> str:
    kept = cache.peek(url, "base", context.settings, context.opts)
    return kept.path if kept else url


def _deployment(name: str, open_: Sequence[Disk], boot: dict[str, Any] | None = None) -> Deployment:
    """Return a build of these disks alone: they are made as a build makes them."""
    return Deployment(
        vm=Vm(name=name, cpu=1, vcpus=1, memory=1, memory_mib=1, disks=tuple(open_), boot=boot),
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


def _places(
    found: Sequence[disks.Pair], pools: Mapping[str, Mapping[str, Any]]
) -> dict[str, tuple[str, str]]:
    """Return ``{target: (path, format)}`` of the disks that are files of this host."""
    out = {}
    for now in (one.now for one in found):
        path = now.path if now is not None else None
        if now is None or path is None:
            continue
        if now.type == "volume":
            pool, _slash, volume = path.partition("/")
            path = str(Path(str((pools.get(pool) or {}).get("path"))) / volume)
        if Path(path).is_file():
            out[now.target.get("dev", "")] = (path, now.format)
    return out


def _measured(found: Sequence[disks.Pair], places: Mapping[str, tuple[str, str]]) -> dict[str, int]:
    """Return ``{target: bytes}`` of the files whose size the call says, by their headers."""
    out = {}
    for one in found:
        target = one.now.target.get("dev", "") if one.now else ""
        if not one.wanted.is_sized_by_user or target not in places:
            continue
        measured = storage.measure(*places[target])
        if measured is not None and storage.is_measured(places[target][1]):
            out[target] = int(measured["virtual"])
    return out


def _sizes(
    conn: Any,
    request: Request,
    found: Sequence[disks.Pair],
    measured: Mapping[str, int],
    running: ET.Element | None,
) -> dict[str, int]:
    """Return ``{target: bytes}`` of the measured files as the guest sees them."""
    out = dict(measured)
    for one in found:
        target = one.now.target.get("dev", "") if one.now else ""
        # A guest that runs may have a disk that was grown since its header was read.
        in_use = live.target_of(running, one.now) if target in out else None
        if in_use:
            out[target] = max(out[target], changing.disk_size(conn, request.name, in_use))
    return out
