"""A build as plain data: decided from facts, before anything is made. Nothing is read here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from saltvirt.arguments import shown
from saltvirt.errors import BadArgument, NameTaken, ReservationRefused, StorageError
from saltvirt.image import clone, validation
from saltvirt.model import Disk, Requirements, Vm
from saltvirt.ops.build import buildfacts
from saltvirt.ops.build.buildfacts import Content, HostFacts
from saltvirt.ops.seeding import method as seeding
from saltvirt.placement import fit
from saltvirt.placement.answers import HostInfo
from saltvirt.spec import Deployment
from saltvirt.units import MIB
from saltvirt.xml import domain


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFile:
    """
    A disk's file that is to be made.

    layout
        What :func:`saltvirt.image.clone.plan` returns.
    base
        What it is made of, None if it is empty.
    pool
        The libvirt pool that it belongs to, if any.
    """

    path: str
    layout: Mapping[str, Any]
    base: validation.ValidatedImage | None = None
    pool: str | None = None

    @property
    def how(self) -> str:
        """How it is made: ``empty``, ``overlay`` or ``copy``."""
        if self.base is None:
            return "empty"
        return "overlay" if self.layout["is_overlay"] else "copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingFile:
    """
    A disk's file that is there already, and is taken as it is.

    grown_bytes
        How large it is to be, None if it stays.
    """

    path: str
    format: str
    grown_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    All that a build will do.

    vm
        With the paths and formats of its disks, and its seed.
    files
        The disks that are to be made, in this order.
    seed
        How it is seeded, None if it is not.
    credentials_path
        Where the credentials lie until QEMU has read them, None if it gets none.
    unfetched
        The images that are to be fetched before more can be said; a dry run alone has any.
    existing
        The files of its disks that are there already.
    is_seed_kept
        Whether its seed is, too.
    """

    vm: Vm
    files: tuple[DiskFile, ...]
    devices: tuple[Mapping[str, Any], ...] = ()
    seed: seeding.SeedMethod | None = None
    seed_path: str | None = None
    credentials_path: str | None = None
    starts: bool = True
    installs: bool = True
    saltenv: str = "base"
    unfetched: tuple[str, ...] = ()
    existing: tuple[ExistingFile, ...] = ()
    is_seed_kept: bool = False

    @property
    def paths(self) -> list[str]:
        """Every file that is made."""
        extra = (self.seed_path, self.credentials_path)
        return [*(file.path for file in self.files), *(path for path in extra if path)]

    @property
    def taken(self) -> list[str]:
        """Every file that is there already, and is the VM's then."""
        kept = [self.vm.seed_path] if self.is_seed_kept else []
        return [path for path in (*(one.path for one in self.existing), *kept) if path]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user is to know of the VM."""
        there = {one.path for one in self.existing}
        taken = (_taken_as_it_is(disk) for disk in self.vm.disks if disk.path in there)
        return (*taken, *(self.seed.warnings if self.seed else ()))

    @property
    def seeded_disk(self) -> Disk:
        """The disk whose guest gets an identity."""
        return next(disk for disk in self.vm.disks if disk.image)

    def xml(self) -> str:
        """Return the domain XML."""
        return domain.build(self.vm, self.devices)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as ``dry_run=True`` shows it."""
        files: dict[str, DiskFile | ExistingFile] = {one.path: one for one in self.files}
        files |= {one.path: one for one in self.existing}
        return {
            "name": self.vm.name,
            "domain_type": self.vm.domain_type,
            "arch": self.vm.arch,
            "vcpus": self.vm.vcpus,
            "memory_mib": self.vm.memory_mib,
            "disks": [_shown(disk, files.get(disk.path or "")) for disk in self.vm.disks],
            "nics": [
                {"name": n.name, "type": n.type, "source": n.source, "model": n.model, "mac": n.mac}
                for n in self.vm.nics
            ],
            "seed": self.seed.to_dict() if self.seed else None,
            "files": self.paths,
            "to_fetch": list(self.unfetched),
            "start": self.starts,
            "xml": None if self.unfetched else self.xml(),
        }


def _taken_as_it_is(disk: Disk) -> str:
    image = f"; {shown(disk.image)} is not copied, and nothing is seeded" if disk.image else ""
    return f"disk {disk.name!r} was there already and is taken as it is: {disk.path}{image}"


def _shown(disk: Disk, file: DiskFile | ExistingFile | None) -> dict[str, Any]:
    out = {
        "name": disk.name,
        "target": disk.target,
        "device": disk.device,
        "path": disk.path or disk.source_file,
        "format": disk.format,
        "size_mib": disk.size_mib,
    }
    if disk.image:
        out["image"] = shown(disk.image)
    if isinstance(file, DiskFile):
        out |= {"made": file.how, "base": file.base.path if file.base else None}
    elif file:
        out |= {"made": "existing", "base": None}
    return out


def on_host(vm: Vm, host: HostFacts) -> Vm:
    """Return the VM with what the host decides; refuse what the host does not have."""
    why = fit.why_not_type(host.domain_types, vm.domain_type)
    if why:
        raise ReservationRefused(vm.name, [why])
    _refuse_nics(vm, host)
    for name in vm.host_devices:
        if name not in host.devices:
            raise BadArgument(
                "host_devices",
                f"{name!r} is not a device of this host; list them with virt.node_devices",
            )
    kind = vm.domain_type or host.domain_types.default
    return replace(vm, domain_type=kind, arch=vm.arch or host.arch)


def _refuse_nics(vm: Vm, host: HostFacts) -> None:
    """Refuse a NIC that wants a filter or a device which this host does not have."""
    for nic in vm.nics:
        name = nic.extra["filter"]["name"] if "filter" in nic.extra else None
        if name is not None and name not in host.filters:
            listed = ", ".join(host.filters) or "none (libvirt-daemon-config-nwfilter brings them)"
            raise BadArgument(
                f"interface {nic.name!r}", f"no filter {name!r} on this host; it has: {listed}"
            )
        if buildfacts.is_pci(nic) and (nic.source or "").lower() not in host.pci:
            raise BadArgument(
                f"interface {nic.name!r}",
                f"no PCI device {nic.source} on this host; list them with virt.node_devices",
            )


def refuse(vm: Vm, host: HostFacts, info: HostInfo, required: Requirements) -> None:
    """
    Raise unless the host has room for the VM, and no other of its name.

    info
        What :func:`saltvirt.ops.inspect.host_info` returns.
    """
    if required.name in info.kept:
        raise NameTaken(
            f"VM {required.name!r} has moved to {info.kept[required.name]}, and its definition was "
            f"kept here; choose another name, or remove that with virt.undefine {required.name}"
        )
    if required.name in info.vms:
        raise NameTaken(
            f"a VM called {required.name!r} exists on this host ({info.vms[required.name].state}); "
            f"choose another name, or remove it first with virt.purge {required.name}"
        )
    why = list(fit.reasons(info, required))
    if not why and not host.has_machine:
        why = [f"QEMU {host.qemu} there does not know the machine type {vm.machine}"]
    if why:
        raise ReservationRefused(required.name, why)


def decide(deployment: Deployment, host: HostFacts, content: Content, images: str) -> Plan:
    """
    Return the plan of a build; raise if it cannot work.

    deployment
        With the VM as :func:`on_host` returned it.
    images
        The folder of seeds.
    """
    seed = seeding.decide(content.wish, content.found, content.unseen) if content.wish else None
    pairs = disks(deployment, content)
    paths = _seed_paths(images, deployment.vm.name, seed)
    boot = {**(deployment.vm.boot or {}), **content.boot}
    vm = replace(
        deployment.vm,
        disks=tuple(disk for disk, _file in pairs),
        boot=boot or None,
        seed_path=paths.get("nocloud") or content.seed,
        ssh_user=seed.ssh_user if seed else None,
    )
    plan = Plan(
        vm=vm,
        files=to_make(pairs),
        devices=tuple(host.devices[name] for name in vm.host_devices),
        seed=seed,
        seed_path=paths.get("nocloud"),
        credentials_path=paths.get("credentials"),
        starts=deployment.start,
        installs=deployment.install,
        saltenv=deployment.saltenv,
        unfetched=_unfetched(deployment.vm, content),
        existing=there_already(pairs),
        is_seed_kept=content.seed is not None,
    )
    _refuse_taken(plan, content)
    return plan


def to_make(pairs: Iterable[tuple[Disk, DiskFile | ExistingFile | None]]) -> tuple[DiskFile, ...]:
    """Return the files that are to be made, of what :func:`disks` returns."""
    return tuple(file for _disk, file in pairs if isinstance(file, DiskFile))


def there_already(
    pairs: Iterable[tuple[Disk, DiskFile | ExistingFile | None]],
) -> tuple[ExistingFile, ...]:
    """Return the files that are there already, of what :func:`disks` returns."""
    return tuple(file for _disk, file in pairs if isinstance(file, ExistingFile))


def _seed_paths(images: str, name: str, seed: seeding.SeedMethod | None) -> dict[str, str]:
    """Return ``{method: path}`` of the seed's file, nothing where a VM gets none."""
    kinds = {"nocloud": "iso", "credentials": "credentials"}
    return {
        method: buildfacts.seed_path(images, name, kind)
        for method, kind in kinds.items()
        if seed and seed.name == method
    }


def _unfetched(vm: Vm, content: Content) -> tuple[str, ...]:
    """Return the images and boot files that a dry run did not fetch."""
    images = [image for image, found in content.images.items() if found is None]
    boot = [(vm.boot or {})[key] for key, path in content.boot.items() if path is None]
    return (*images, *boot)


def _refuse_taken(plan: Plan, content: Content) -> None:
    for path in plan.paths:
        if path in content.taken:
            what = "seed" if path in (plan.seed_path, plan.credentials_path) else "disk"
            raise StorageError(
                f"{what} {path} already exists, but there is no VM of this name; see what it is, "
                "then remove it or choose another name"
            )


def disks(
    deployment: Deployment, content: Content
) -> list[tuple[Disk, DiskFile | ExistingFile | None]]:
    """Return the disks with their paths and formats, and the files that a build makes or takes."""
    return [_disk(deployment, content, disk) for disk in deployment.vm.disks]


def _disk(
    deployment: Deployment, content: Content, disk: Disk
) -> tuple[Disk, DiskFile | ExistingFile | None]:
    """Return ``(the disk with its path and format, its file if it is to be made or taken)``."""
    if disk.name in content.existing:
        return _existing(disk, content.existing[disk.name])
    if disk.elsewhere:
        return replace(disk, format="raw"), None
    if not buildfacts.is_made(disk):
        given = content.given.get(disk.name)
        return (replace(disk, path=given.path, format=given.format) if given else disk), None
    base = content.images.get(disk.image) if disk.image else content.given.get(disk.name)
    if disk.image and base is None:
        return disk, None
    if disk.backing_path and not disk.image:
        disk = replace(disk, overlay=True)
    layout = _layout(disk, base, deployment.enable_qcow)
    place = content.places[disk.name]
    path = buildfacts.disk_path(deployment.vm, disk, place, layout["format"])
    file = DiskFile(path=path, layout=layout, base=base, pool=place.pool)
    size_mib = layout["size_bytes"] // MIB
    return replace(disk, path=path, format=layout["format"], size_mib=size_mib), file


def _existing(disk: Disk, there: validation.ValidatedImage) -> tuple[Disk, ExistingFile]:
    asked = disk.size_mib * MIB if disk.size_mib and disk.is_sized_by_user else 0
    grown = asked if asked > there.size_bytes else None
    size_mib = max(there.size_bytes, asked) // MIB
    file = ExistingFile(path=there.path, format=there.format, grown_bytes=grown)
    return replace(disk, path=there.path, format=there.format, size_mib=size_mib), file


def _layout(
    disk: Disk, base: validation.ValidatedImage | None, enable_qcow: bool | None
) -> Mapping[str, Any]:
    if base is not None:
        return clone.plan(disk, base, enable_qcow)
    fmt = disk.format or "qcow2"
    if fmt not in ("qcow2", "raw"):
        raise BadArgument(f"disk {disk.name!r}", f"format {fmt!r}; qcow2 or raw")
    if not disk.size_mib:
        raise BadArgument(f"disk {disk.name!r}", "has neither a size nor an image")
    return {"format": fmt, "size_bytes": disk.size_mib * MIB, "is_overlay": False}
