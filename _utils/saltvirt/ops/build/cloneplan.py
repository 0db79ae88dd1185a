"""A clone as plain data: decided from its source, before anything is made. Nothing is read here."""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from saltvirt import nics, stocks
from saltvirt.errors import SeedError
from saltvirt.image.validation import ValidatedImage
from saltvirt.model import Disk, Nic, Requirements, Vm
from saltvirt.ops.build.buildplan import Plan
from saltvirt.ops.build.plandisks import DiskFile, DiskVolume
from saltvirt.ops.build.source import Source, SourceDisk
from saltvirt.ops.seeding import method as seeding
from saltvirt.ops.seeding import seedfiles
from saltvirt.placement import requirements
from saltvirt.spec import Deployment, console_log
from saltvirt.units import MIB
from saltvirt.xml import copied, domain, metadata, pooldisk, read
from saltvirt.xml import pool as pool_

_SAME = "its guest has the identity of {0!r} in it: minion id and key, SSH host keys, machine id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The disks of a clone, with what is made for each, in their order."""

    disks: tuple[Disk, ...]
    made: tuple[DiskFile | DiskVolume, ...]


def vm(
    source: Source,
    name: str,
    uuid: str,
    pools: Mapping[str, pool_.Pool],
    groups: Mapping[str, tuple[str, ...]],
) -> tuple[Vm, Copies]:
    """
    Return the VM that a clone is, and its disks.

    pools
        What those pools say in which there are volumes.
    groups
        ``affinity`` and ``anti_affinity`` that it has in place of its source's.
    """
    root = read.domain(source.xml)
    info, copies = source.info, _copies(source, name, pools)
    found = [(nics.mac_for(name, f"eth{at}"), one) for at, one in enumerate(read.interfaces(root))]
    made = Vm(
        name=name,
        uuid=uuid,
        cpu=info.vcpus,
        vcpus=info.vcpus,
        memory=info.memory_mib,
        memory_mib=info.memory_mib,
        nics=tuple(
            Nic(name=f"eth{at}", type=one.type or "", source=one.on, mac=mac, model=one.model or "")
            for at, (mac, one) in enumerate(found)
        ),
        disks=copies.disks,
        domain_type=info.domain_type,
        arch=info.arch,
        machine=info.machine,
        affinity=groups.get("affinity", tuple(info.affinity)),
        anti_affinity=groups.get("anti_affinity", tuple(info.anti_affinity)),
    )
    return made, copies


def required(source: Source, made: Vm) -> Requirements:
    """Return what a clone needs of its host: what its source does, and room for all its disks."""
    pages, tune = read.memory_from(read.domain(source.xml))
    taken = stocks.of_memory(made.memory_mib, pages, tune) | stocks.of_disks(made.disks)
    files = [disk.size_mib or 0 for disk in made.disks if not stocks.is_named(disk.pool)]
    return replace(
        requirements.of(source.info),
        name=made.name,
        affinity=made.affinity,
        anti_affinity=made.anti_affinity,
        disk_mib=sum(files),
        stocks=tuple(sorted(taken.items())),
    )


def _copies(source: Source, name: str, pools: Mapping[str, pool_.Pool]) -> Copies:
    system = copied.first(read.domain(source.xml))
    made = [_made(one, name, pools) for one in source.disks]
    disks = [
        _disk(one, file, is_system=one.target == system)
        for one, file in zip(source.disks, made, strict=True)
    ]
    return Copies(disks=tuple(disks), made=tuple(made))


def _disk(one: SourceDisk, made: DiskFile | DiskVolume, *, is_system: bool) -> Disk:
    return Disk(
        name=one.name,
        target=one.target,
        device=one.says.device,
        format=one.image.format,
        size_mib=-(-one.image.size_bytes // MIB),
        pool=one.pool,
        path=made.path,
        volume=made.where if isinstance(made, DiskVolume) else None,
        # Its content is an image's, which has a minion or gets one.
        image=one.image.path if is_system else None,
    )


def _made(one: SourceDisk, name: str, pools: Mapping[str, pool_.Pool]) -> DiskFile | DiskVolume:
    if one.volume is None or one.pool is None or one.in_volume is None:
        path = PurePath(one.image.path).with_name(f"{name}_{one.name}.{one.image.format}")
        layout = {
            "format": one.image.format,
            "size_bytes": one.image.size_bytes,
            "is_overlay": False,
            "is_whole": True,
        }
        return DiskFile(path=str(path), layout=layout, base=one.image, pool=one.pool)
    return DiskVolume(
        pool=one.pool,
        name=one.in_volume,
        path=pooldisk.path(pools[one.pool], one.in_volume),
        size_bytes=one.image.size_bytes,
        base=one.image if one.is_device else None,
        copied=None if one.is_device else one.volume,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeding:
    """What the seed method is chosen from; see :class:`saltvirt.ops.build.buildfacts.Content`."""

    wish: seeding.Wish | None
    found: Any
    unseen: SeedError | None


def decide(
    deployment: Deployment, source: Source, copies: Copies, facts: Seeding, images: str
) -> Plan:
    """
    Return the plan of a clone; raise if it cannot work.

    images
        The folder of seeds.
    """
    made, name = deployment.vm, deployment.vm.name
    method = seeding.decide(facts.wish, facts.found, facts.unseen) if facts.wish else None
    seed = seedfiles.path(images, name, "nocloud") if method and method.name == "nocloud" else None
    noted = read.ours(read.domain(source.xml))["ssh_user"]
    made = replace(made, seed_path=seed, ssh_user=(method.ssh_user if method else None) or noted)
    variables = _variables(source, name)
    files = [one for one in copies.made if isinstance(one, DiskFile)]
    return Plan(
        vm=made,
        files=(*files, *([variables] if variables else [])),
        seed=method,
        seed_path=seed,
        starts=deployment.start,
        autostarts=deployment.autostart,
        installs=deployment.install,
        saltenv=deployment.saltenv,
        volumes=tuple(one for one in copies.made if isinstance(one, DiskVolume)),
        definition=_definition(source, made, copies, variables),
        told=tuple(_told(source, method)),
    )


def _variables(source: Source, name: str) -> DiskFile | None:
    base = source.variables
    if base is None:
        return None
    path = PurePath(base.path)
    own = path.name.removeprefix(source.name)
    # One that begins so by chance, as web1_VARS.fd of "web", would be another VM's.
    is_own = own != path.name and own[:1] in ("_", ".", "-")
    last = f"{name}{own}" if is_own else f"{name}_VARS{path.suffix}"
    return DiskFile(path=str(path.with_name(last)), layout=_as_it_is(base), base=base)


def _as_it_is(base: ValidatedImage) -> dict[str, Any]:
    return {"format": base.format, "size_bytes": base.size_bytes, "is_overlay": False}


def _definition(source: Source, made: Vm, copies: Copies, variables: DiskFile | None) -> str:
    root = read.domain(source.xml)
    old = copied.seed(root)
    pairs = zip(source.disks, copies.made, strict=True)
    own = copied.Own(
        name=made.name,
        uuid=made.uuid or "",
        notes=replace(metadata.of(made), stay=read.ours(root)["stay"]),
        macs=tuple(one.mac for one in made.nics),
        console_log=(console_log(source.name), console_log(made.name)),
        sources={one.target: _where(one, file) for one, file in pairs},
        dropped=frozenset([old] if old else []),
        variables=variables.path if variables else None,
        seed=next(domain.seeds(made, _targets(source, old)), None),
    )
    return copied.definition(source.xml, own)


def _targets(source: Source, seed: str | None) -> set[str]:
    found = {one.target["dev"] for one in read.disks(read.domain(source.xml))}
    return found - {seed or ""}


def _where(one: SourceDisk, made: DiskFile | DiskVolume) -> str:
    """Return what the <source> of a copy names."""
    if one.says.type == "volume":
        return made.name if isinstance(made, DiskVolume) else posixpath.basename(made.path)
    if isinstance(made, DiskVolume) and one.says.type == "network":
        before, slash, _last = (one.says.source or {}).get("name", "").rpartition("/")
        return f"{before}{slash}{made.name}"
    return made.path or ""


def _told(source: Source, method: seeding.SeedMethod | None) -> Iterator[str]:
    root = read.domain(source.xml)
    yield from (f"as of {source.name!r}: {one}" for one in copied.shared(root))
    yield from (f"unlike {source.name!r}: {one}" for one in copied.ended(root))
    if source.has_snapshots:
        yield f"the snapshots of {source.name!r} are not copied, only what its disks have now"
    if method is None and source.disks:
        yield _SAME.format(source.name)
