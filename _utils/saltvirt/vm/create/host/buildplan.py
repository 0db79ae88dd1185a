"""A build as plain data, decided from facts before anything is made; pure functions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from saltvirt.core.arguments import hide_credentials
from saltvirt.core.errors import (
    BadArgument,
    ImageError,
    NameTaken,
    ReservationRefused,
    StorageError,
)
from saltvirt.core.model import Deployment, Disk, Requirements, Vm
from saltvirt.core.seedmethods import CREDENTIAL, SEED
from saltvirt.placement import cures, fit
from saltvirt.placement.answers import HostInfo
from saltvirt.seeding import seedchoice
from saltvirt.storage import seedfiles
from saltvirt.storage.images.validation import ValidatedImage
from saltvirt.vm.create.host import buildfacts, plandisks
from saltvirt.vm.create.host.buildfacts import Content, HostFacts
from saltvirt.vm.create.host.plandisks import DiskFile, DiskVolume, ExistingFile, File
from saltvirt.xml.domain import domain, graphics, hostdev

_EFI = "boot='{efi: True}'"
_NO_IMAGE = "no image was given: its disk is empty"
# Architectures without a BIOS.
_UEFI_ALONE = ("aarch64", "riscv64", "loongarch64")


def refuse_unbootable(
    vm: Vm, images: Mapping[str, ValidatedImage | None], *, is_seeded: bool
) -> None:
    """Raise ImageError if a guest is to be seeded, but cannot boot from its image."""
    reason = _find_obstacle(vm, images)
    if reason and is_seeded:
        raise ImageError(f"{reason}; give {_EFI}, or seed=False if it boots otherwise")


def boot_warnings(
    vm: Vm, images: Mapping[str, ValidatedImage | None], *, is_seeded: bool
) -> Iterator[str]:
    """Yield warnings about how a VM boots, one line each."""
    reason = _find_obstacle(vm, images)
    if reason and not is_seeded:
        yield f"{reason}; to boot from it, give {_EFI}"
    if _is_empty(vm):
        yield _NO_IMAGE


def _find_obstacle(vm: Vm, images: Mapping[str, ValidatedImage | None]) -> str | None:
    """Return the reason why a VM cannot boot from its image, None if it can or may."""
    image = next((disk.image for disk in vm.disks if disk.image), None)
    validated_image = images.get(image) if image else None
    boot = vm.boot or {}
    boots_otherwise = vm.boot_dev[:1] != ("hd",) or vm.os_type not in (None, "hvm")
    if (
        validated_image is None
        or boots_otherwise
        or any(boot.get(key) for key in ("efi", "loader", "kernel"))
    ):
        return None
    if vm.arch in _UEFI_ALONE:
        return f"a VM of {vm.arch} has no BIOS, and boots from a disk by UEFI alone"
    if validated_image.needs_uefi:
        return (
            f"image {hide_credentials(image)} boots by UEFI alone (it has an EFI system partition, "
            "and no boot code for a BIOS), and this VM has a BIOS"
        )
    return None


def _is_empty(vm: Vm) -> bool:
    """Return whether a VM has a disk, but nothing to boot from."""
    disks = [disk for disk in vm.disks if disk.device == "disk"]
    boots_otherwise = "network" in vm.boot_dev or bool((vm.boot or {}).get("kernel"))
    return bool(disks) and not boots_otherwise and not any(map(_has_content, vm.disks))


def _has_content(disk: Disk) -> bool:
    sources = (disk.image, disk.source_file, disk.backing_path, disk.elsewhere, disk.volume)
    return any(sources) or disk.device == "lun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    Everything that a build will do.

    vm
        With the paths and formats of its disks, and its seed.
    files
        The disk files to be made, in this order.
    seed
        The seed method, None if the VM is not seeded.
    credentials_path
        The file with the credentials until QEMU has read them, None if there are none.
    unfetched
        Images and boot files that a dry run did not fetch; empty for a real build.
    existing
        Disk files that exist already.
    volumes
        New and existing volumes in pools that are no folders.
    is_seed_kept
        Whether the VM keeps an existing seed.
    definition
        The domain XML, if not built from ``vm``.
    other_warnings
        Further warnings for the user.
    notes_made
        Whether the definition notes what the build makes, so that an undo removes only that.
    """

    vm: Vm
    files: tuple[DiskFile, ...]
    devices: tuple[Mapping[str, Any], ...] = ()
    seed: seedchoice.SeedDecision | None = None
    seed_path: str | None = None
    credentials_path: str | None = None
    starts: bool = True
    autostarts: bool = False
    installs: bool = True
    saltenv: str = "base"
    unfetched: tuple[str, ...] = ()
    existing: tuple[ExistingFile, ...] = ()
    volumes: tuple[DiskVolume, ...] = ()
    is_seed_kept: bool = False
    definition: str | None = None
    other_warnings: tuple[str, ...] = ()
    notes_made: bool = False

    @property
    def paths(self) -> list[str]:
        """All files that the build makes."""
        extra = (self.seed_path, self.credentials_path)
        return [*(file.path for file in self.files), *(path for path in extra if path)]

    @property
    def existing_paths(self) -> list[str]:
        """All existing files that become the VM's."""
        seed_paths = [self.vm.seed_path] if self.is_seed_kept else []
        return [path for path in (*(file.path for file in self.existing), *seed_paths) if path]

    @property
    def new_volumes(self) -> tuple[DiskVolume, ...]:
        """The volumes that the build makes."""
        return tuple(volume for volume in self.volumes if volume.size_bytes is not None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """All warnings for the user."""
        disk_warnings = (
            _existing_disk_warning(disk) for disk in self.vm.disks if self._is_there(disk)
        )
        return (*disk_warnings, *(self.seed.warnings if self.seed else ()), *self.other_warnings)

    def _is_there(self, disk: Disk) -> bool:
        file = self._files.get(_disk_location(disk))
        is_there = file is not None and file.how == "existing"
        # No warning for a file that the call itself names.
        return is_there and not disk.source_file

    @property
    def _files(self) -> dict[str | None, File]:
        """The files and volumes of the disks, by location."""
        new_files: dict[str | None, File] = {file.path: file for file in self.files}
        existing_files: dict[str | None, File] = {file.path: file for file in self.existing}
        return new_files | existing_files | {volume.where: volume for volume in self.volumes}

    @property
    def seeded_disk(self) -> Disk:
        """The disk that gets the seed's identity."""
        return next(disk for disk in self.vm.disks if disk.image)

    def xml(self) -> str:
        """Return the domain XML."""
        if self.definition is not None:
            return self.definition
        made_names = (
            [*self.paths, *(volume.where for volume in self.new_volumes)]
            if self.notes_made
            else None
        )
        return domain.build(self.vm, self.devices, made_names)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as ``dry_run=True`` shows it."""
        files = self._files
        return {
            "name": self.vm.name,
            "domain_type": self.vm.domain_type,
            "arch": self.vm.arch,
            "vcpus": self.vm.vcpus,
            "memory_mib": self.vm.memory_mib,
            "disks": [
                _disk_summary(disk, files.get(_disk_location(disk))) for disk in self.vm.disks
            ],
            "nics": [
                {
                    "name": nic.name,
                    "type": nic.type,
                    "source": nic.source,
                    "model": nic.model,
                    "mac": nic.mac,
                }
                for nic in self.vm.nics
            ],
            "seed": self.seed.to_dict() if self.seed else None,
            "files": self.paths,
            "to_fetch": list(self.unfetched),
            "start": self.starts,
            "autostart": self.autostarts,
            # The answer goes to the master's job cache.
            "xml": None if self.unfetched else graphics.without_passwords(self.xml()),
        }


def _disk_location(disk: Disk) -> str | None:
    """Return a disk's volume or path."""
    return disk.volume or disk.path


def _existing_disk_warning(disk: Disk) -> str:
    image = (
        f"; {hide_credentials(disk.image)} is not copied, and nothing is seeded"
        if disk.image
        else ""
    )
    return (
        f"disk {disk.name!r} was there already and is taken as it is: {_disk_location(disk)}{image}"
    )


def _disk_summary(disk: Disk, file: File | None) -> dict[str, Any]:
    out = {
        "name": disk.name,
        "target": disk.target,
        "device": disk.device,
        "path": _disk_location(disk) or disk.source_file,
        "format": disk.format,
        "size_mib": disk.size_mib,
    }
    if disk.image:
        out["image"] = hide_credentials(disk.image)
    if file:
        base = None if isinstance(file, ExistingFile) else file.base
        out |= {"made": file.how, "base": base.path if base else None}
    return out


def apply_host_facts(vm: Vm, host: HostFacts) -> Vm:
    """Return the VM with the host's defaults; refuse devices and types that the host lacks."""
    reason = fit.why_not_type(host.domain_types, vm.domain_type)
    if reason:
        raise ReservationRefused(vm.name, [reason], cures.format_cures([reason], name=vm.name))
    _refuse_nics(vm, host)
    for name in vm.host_devices:
        hostdev.refuse_unknown(name, host.devices)
    kind = vm.domain_type or host.domain_types.default
    return replace(vm, domain_type=kind, arch=vm.arch or host.arch)


def _refuse_nics(vm: Vm, host: HostFacts) -> None:
    """Refuse a NIC with a filter or device that this host lacks."""
    for nic in vm.nics:
        name = nic.extra["filter"]["name"] if "filter" in nic.extra else None
        if name is not None and name not in host.filters:
            filter_names = (
                ", ".join(host.filters) or "none (libvirt-daemon-config-nwfilter brings them)"
            )
            raise BadArgument(
                f"interface {nic.name!r}",
                f"no filter {name!r} on this host; it has: {filter_names}",
            )
        if buildfacts.is_pci(nic) and (nic.source or "").lower() not in host.pci:
            raise BadArgument(
                f"interface {nic.name!r}",
                f"no PCI device {nic.source} on this host; list them with virt.node_devices",
            )


def refuse(
    vm: Vm,
    host: HostFacts,
    info: HostInfo,
    requirements: Requirements,
    *,
    start: bool = True,
    command: str = cures.INIT,
) -> tuple[str, ...]:
    """
    Raise unless the host has room for the VM, and no other VM of its name.

    Return warnings: the reasons why a VM that is only defined could not start now.

    info
        What :func:`saltvirt.vm.show.host.inspect.host_info` returns.
    start
        Whether the VM is started. If not, inactive networks and missing bridges are accepted, as
        by virt.update. Defaults to True.
    command
        The operator's command, which decides the remedies.
    """
    if requirements.name in info.kept:
        raise NameTaken(
            f"VM {requirements.name!r} has moved to {info.kept[requirements.name]}, and its "
            "definition was "
            f"kept here; choose another name, or remove that with virt.undefine {requirements.name}"
        )
    if requirements.name in info.vms:
        raise NameTaken(
            f"a VM called {requirements.name!r} exists on this host "
            f"({info.vms[requirements.name].state}); "
            f"choose another name, or remove it first with virt.purge {requirements.name}"
        )
    start_reasons = () if start else tuple(fit.missing_links(info, requirements))
    reasons = [reason for reason in fit.reasons(info, requirements) if reason not in start_reasons]
    if not reasons and not host.has_machine:
        reasons = [f"QEMU {host.qemu} there does not know the machine type {vm.machine}"]
    if reasons:
        cures_text = cures.format_cures(reasons, command, requirements.name)
        raise ReservationRefused(requirements.name, reasons, cures_text)
    return tuple(f"it is defined, and cannot start yet: {reason}" for reason in start_reasons)


def decide(deployment: Deployment, host: HostFacts, content: Content, images: str) -> Plan:
    """
    Return the plan of a build; raise if it cannot work.

    deployment
        With the VM as :func:`apply_host_facts` returned it.
    images
        The folder of seeds.
    """
    seed = content.seeding.decide()
    is_seeded = seed is not None
    refuse_unbootable(deployment.vm, content.images, is_seeded=is_seeded)
    pairs = plandisks.plan_disks(deployment, content)
    paths = _seed_paths(images, deployment.vm.name, seed)
    boot = {**(deployment.vm.boot or {}), **content.boot}
    vm = replace(
        deployment.vm,
        disks=tuple(disk for disk, _file in pairs),
        boot=boot or None,
        seed_path=paths.get(SEED) or content.existing_seed,
        ssh_user=seed.ssh_user if seed else None,
    )
    plan = Plan(
        vm=vm,
        files=plandisks.select(pairs, DiskFile),
        devices=tuple(host.devices[name] for name in vm.host_devices),
        seed=seed,
        seed_path=paths.get(SEED),
        credentials_path=paths.get(CREDENTIAL),
        starts=deployment.start,
        autostarts=deployment.autostart,
        installs=deployment.install,
        saltenv=deployment.saltenv,
        unfetched=_find_unfetched(deployment.vm, content),
        existing=plandisks.select(pairs, ExistingFile),
        volumes=plandisks.select(pairs, DiskVolume),
        is_seed_kept=content.existing_seed is not None,
        other_warnings=_boot_warnings(deployment.vm, content, is_seeded=is_seeded),
    )
    _refuse_taken(plan, content)
    return plan


def _boot_warnings(vm: Vm, content: Content, *, is_seeded: bool) -> tuple[str, ...]:
    """Return warnings about how a VM boots; none if it has existing disks or volumes."""
    if content.existing or content.volumes:
        return ()
    return tuple(boot_warnings(vm, content.images, is_seeded=is_seeded))


def _seed_paths(images: str, name: str, seed: seedchoice.SeedDecision | None) -> dict[str, str]:
    """Return ``{what it is written to: path}`` of the seed's file, empty if the VM gets none."""
    method = seed.method if seed else None
    path = seedfiles.path(images, name, method)
    return {method.writes_to: path} if method and path else {}


def _find_unfetched(vm: Vm, content: Content) -> tuple[str, ...]:
    """Return the images and boot files that a dry run did not fetch."""
    images = [image for image, validated_image in content.images.items() if validated_image is None]
    boot = [(vm.boot or {})[key] for key, path in content.boot.items() if path is None]
    return (*images, *boot)


def refuse_duplicate_paths(plan: Plan) -> None:
    """Raise StorageError if two files of a plan have one path, such as a disk and the seed."""
    for path in sorted({path for path in plan.paths if plan.paths.count(path) > 1}):
        raise StorageError(f"two files of VM {plan.vm.name!r} would be {path}")


def _refuse_taken(plan: Plan, content: Content) -> None:
    refuse_duplicate_paths(plan)
    for path in plan.paths:
        if path in content.taken_paths:
            kind = "seed" if path in (plan.seed_path, plan.credentials_path) else "disk"
            raise StorageError(
                f"{kind} {path} already exists, but there is no VM of this name; see what it is, "
                "then remove it or choose another name"
            )
