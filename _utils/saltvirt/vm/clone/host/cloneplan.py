"""A clone as plain data, decided from its source before anything is made; pure functions."""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from saltvirt.core import nics
from saltvirt.core.model import Deployment, Disk, Nic, Requirements, Vm
from saltvirt.core.units import MIB
from saltvirt.placement import resources, whatif
from saltvirt.seeding import seedchoice
from saltvirt.storage import seedfiles
from saltvirt.storage.images.validation import ValidatedImage
from saltvirt.vm.clone.host.clonesource import Source, SourceDisk
from saltvirt.vm.create.host.buildfacts import SeedFacts
from saltvirt.vm.create.host.buildplan import Plan
from saltvirt.vm.create.host.plandisks import DiskFile, DiskVolume
from saltvirt.vm.spec import console_log
from saltvirt.xml.domain import domain, metadata
from saltvirt.xml.edit import copied, readdomain
from saltvirt.xml.storage import pooldisk, storagepool

_SAME_IDENTITY = (
    "its guest has the identity of {0!r} in it: minion id and key, SSH host keys, machine id"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The disks of a clone, and the file or volume made for each, in the same order."""

    disks: tuple[Disk, ...]
    files: tuple[DiskFile | DiskVolume, ...]


def plan_vm(
    source: Source,
    name: str,
    uuid: str,
    pools: Mapping[str, storagepool.Pool],
    groups: Mapping[str, tuple[str, ...]],
) -> tuple[Vm, Copies]:
    """
    Return the VM of a clone, and its disks.

    pools
        Definitions of the pools that hold volumes of the source.
    groups
        ``affinity`` and ``anti_affinity`` that replace the source's.
    """
    root = readdomain.domain(source.xml)
    info, copies = source.info, _plan_copies(source, name, pools)
    interfaces = [
        (nics.mac_for(name, f"eth{number}"), interface)
        for number, interface in enumerate(readdomain.interfaces(root))
    ]
    clone = Vm(
        name=name,
        uuid=uuid,
        cpu=info.vcpus,
        vcpus=info.vcpus,
        memory=info.memory_mib,
        memory_mib=info.memory_mib,
        nics=tuple(
            Nic(
                name=f"eth{number}",
                type=interface.type or "",
                source=interface.on,
                mac=mac,
                model=interface.model or "",
            )
            for number, (mac, interface) in enumerate(interfaces)
        ),
        disks=copies.disks,
        domain_type=info.domain_type,
        arch=info.arch,
        machine=info.machine,
        affinity=groups.get("affinity", tuple(info.affinity)),
        anti_affinity=groups.get("anti_affinity", tuple(info.anti_affinity)),
    )
    return clone, copies


def compute_requirements(source: Source, clone: Vm) -> Requirements:
    """Return what a clone needs of its host: as its source, with room for all its disks."""
    pages, tune = readdomain.memory_from(readdomain.domain(source.xml))
    stock_amounts = resources.for_memory(clone.memory_mib, pages, tune) | resources.for_disks(
        clone.disks
    )
    file_sizes_mib = [
        disk.size_mib or 0 for disk in clone.disks if not resources.is_named(disk.pool)
    ]
    return replace(
        whatif.needs_of_move(source.info),
        name=clone.name,
        affinity=clone.affinity,
        anti_affinity=clone.anti_affinity,
        disk_mib=sum(file_sizes_mib),
        stocks=tuple(sorted(stock_amounts.items())),
    )


def _plan_copies(source: Source, name: str, pools: Mapping[str, storagepool.Pool]) -> Copies:
    system = copied.find_boot_target(readdomain.domain(source.xml))
    copies = [_plan_copy(source_disk, name, pools) for source_disk in source.disks]
    disks = [
        _copy_disk(source_disk, file, is_system=source_disk.target == system)
        for source_disk, file in zip(source.disks, copies, strict=True)
    ]
    return Copies(disks=tuple(disks), files=tuple(copies))


def _copy_disk(source_disk: SourceDisk, copy: DiskFile | DiskVolume, *, is_system: bool) -> Disk:
    return Disk(
        name=source_disk.name,
        target=source_disk.target,
        device=source_disk.definition.device,
        format=source_disk.image.format,
        size_mib=-(-source_disk.image.size_bytes // MIB),
        pool=source_disk.pool,
        path=copy.path,
        volume=copy.where if isinstance(copy, DiskVolume) else None,
        # The boot disk counts as made from an image: it has a minion, or gets one.
        image=source_disk.image.path if is_system else None,
    )


def _plan_copy(
    source_disk: SourceDisk, name: str, pools: Mapping[str, storagepool.Pool]
) -> DiskFile | DiskVolume:
    if source_disk.volume is None or source_disk.pool is None or source_disk.in_volume is None:
        path = PurePath(source_disk.image.path).with_name(
            f"{name}_{source_disk.name}.{source_disk.image.format}"
        )
        layout = {
            "format": source_disk.image.format,
            "size_bytes": source_disk.image.size_bytes,
            "is_overlay": False,
            "is_whole": True,
        }
        return DiskFile(
            path=str(path), layout=layout, base=source_disk.image, pool=source_disk.pool
        )
    return DiskVolume(
        pool=source_disk.pool,
        name=source_disk.in_volume,
        path=pooldisk.path(pools[source_disk.pool], source_disk.in_volume),
        size_bytes=source_disk.image.size_bytes,
        base=source_disk.image if source_disk.is_device else None,
        copied=None if source_disk.is_device else source_disk.volume,
    )


def decide(
    deployment: Deployment, source: Source, copies: Copies, seeding: SeedFacts, images: str
) -> Plan:
    """
    Return the plan of a clone; raise if it cannot work.

    images
        The folder of seeds.
    """
    clone, name = deployment.vm, deployment.vm.name
    seed = seeding.decide()
    seed_path = seedfiles.path(images, name, seed.method if seed else None)
    ssh_user = readdomain.describe_notes(readdomain.domain(source.xml))["ssh_user"]
    clone = replace(
        clone, seed_path=seed_path, ssh_user=(seed.ssh_user if seed else None) or ssh_user
    )
    variables = _plan_variables(source, name)
    files = [copy for copy in copies.files if isinstance(copy, DiskFile)]
    return Plan(
        vm=clone,
        files=(*files, *([variables] if variables else [])),
        seed=seed,
        seed_path=seed_path,
        starts=deployment.start,
        autostarts=deployment.autostart,
        installs=deployment.install,
        saltenv=deployment.saltenv,
        volumes=tuple(copy for copy in copies.files if isinstance(copy, DiskVolume)),
        definition=_definition(source, clone, copies, variables),
        other_warnings=tuple(_clone_warnings(source, seed)),
    )


def _plan_variables(source: Source, name: str) -> DiskFile | None:
    base = source.variables
    if base is None:
        return None
    path = PurePath(base.path)
    suffix = path.name.removeprefix(source.name)
    # "web" must not match web1_VARS.fd: the copy's name could be another VM's.
    has_vm_prefix = suffix != path.name and suffix[:1] in ("_", ".", "-")
    file_name = f"{name}{suffix}" if has_vm_prefix else f"{name}_VARS{path.suffix}"
    return DiskFile(path=str(path.with_name(file_name)), layout=_copy_layout(base), base=base)


def _copy_layout(base: ValidatedImage) -> dict[str, Any]:
    return {"format": base.format, "size_bytes": base.size_bytes, "is_overlay": False}


def _definition(source: Source, clone: Vm, copies: Copies, variables: DiskFile | None) -> str:
    root = readdomain.domain(source.xml)
    seed_target = copied.seed(root)
    pairs = zip(source.disks, copies.files, strict=True)
    clone_properties = copied.CopySettings(
        name=clone.name,
        uuid=clone.uuid or "",
        notes=replace(metadata.from_call(clone), stay=readdomain.describe_notes(root)["stay"]),
        macs=tuple(nic.mac for nic in clone.nics),
        console_log=(console_log(source.name), console_log(clone.name)),
        sources={
            source_disk.target: _source_value(source_disk, file) for source_disk, file in pairs
        },
        dropped=frozenset([seed_target] if seed_target else []),
        variables=variables.path if variables else None,
        seed=next(domain.seeds(clone, _read_targets(source, seed_target)), None),
    )
    return copied.definition(source.xml, clone_properties)


def _read_targets(source: Source, seed: str | None) -> set[str]:
    targets = {disk.target["dev"] for disk in readdomain.disks(readdomain.domain(source.xml))}
    return targets - {seed or ""}


def _source_value(source_disk: SourceDisk, copy: DiskFile | DiskVolume) -> str:
    """Return the value of a copy's <source>."""
    if source_disk.definition.type == "volume":
        return copy.name if isinstance(copy, DiskVolume) else posixpath.basename(copy.path)
    if isinstance(copy, DiskVolume) and source_disk.definition.type == "network":
        before, slash, _last = (source_disk.definition.source or {}).get("name", "").rpartition("/")
        return f"{before}{slash}{copy.name}"
    return copy.path or ""


def _clone_warnings(source: Source, seed: seedchoice.SeedDecision | None) -> Iterator[str]:
    root = readdomain.domain(source.xml)
    yield from (f"as of {source.name!r}: {part}" for part in copied.describe_shared(root))
    yield from (
        f"unlike {source.name!r}: {part}" for part in copied.describe_replaced_chardevs(root)
    )
    if source.has_snapshots:
        yield f"the snapshots of {source.name!r} are not copied, only what its disks have now"
    if seed is None and source.disks:
        yield _SAME_IDENTITY.format(source.name)
