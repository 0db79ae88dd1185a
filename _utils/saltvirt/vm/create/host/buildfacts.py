"""The facts that a build is decided from: about the host and the images, gathered once."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saltvirt.core import nics, seedmethods
from saltvirt.core.errors import NotThereYet, SeedError, StorageError
from saltvirt.core.model import Deployment, Disk, Nic, Vm
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import hostfacts
from saltvirt.placement.answers import DomainTypes
from saltvirt.seeding import cloudconfig, identity, inspection, install, seedchoice
from saltvirt.seeding.offline import appliance
from saltvirt.seeding.seedmodel import Identity, Inspection
from saltvirt.storage import chains, diskpaths, seedfiles
from saltvirt.storage.images import cache, fetch, validation
from saltvirt.vm.create.host import existing, poolvolumes
from saltvirt.vm.show.host import inspect

_BOOT_FILES = ("kernel", "initrd")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """
    Facts that libvirt reports about this host, as far as the VM needs them.

    domain_types
        What :func:`saltvirt.vm.show.host.inspect.domain_types` returns.
    has_machine
        Whether QEMU knows the requested machine type; True if none is requested.
    devices
        The host's devices by name; read only if the VM takes any.
    pci
        The addresses of the host's PCI devices; read only if the VM takes any.
    filters
        The host's network filters; read only if the VM uses any.
    """

    arch: str
    domain_types: DomainTypes
    qemu: str
    has_machine: bool = True
    devices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pci: frozenset[str] = frozenset()
    filters: tuple[str, ...] = ()
    pools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedFacts:
    """
    What the seed method is chosen from.

    request
        None if nothing is seeded.
    content
        The content of the seeded image, None if it was not inspected.
    inspect_error
        The reason why the image could not be inspected.
    """

    request: seedchoice.SeedRequest | None = None
    content: Inspection | None = None
    inspect_error: SeedError | None = None

    def decide(self) -> seedchoice.SeedDecision | None:
        """Return how the guest is seeded, None if nothing is seeded; raise if none can work."""
        if self.request is None:
            return None
        return seedchoice.decide(self.request, self.content, self.inspect_error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """
    The sources of the VM's disks, and what exists already at their paths.

    images
        Images by source; None if still to be fetched.
    user_files
        The user's own files, by disk name.
    places
        Locations of the disks to be made, by disk name.
    taken_paths
        Existing files among those that the build might make.
    existing
        Existing disk files, by disk name; the build takes them as they are.
    volumes
        New and existing volumes in pools that are no folders, by disk name.
    existing_seed
        The seed that an existing disk's VM had, None if there is none.
    boot
        Kernel, initrd and loader as files of this host; None if still to be fetched.
    """

    images: Mapping[str, validation.ValidatedImage | None]
    user_files: Mapping[str, validation.ValidatedImage]
    places: Mapping[str, diskpaths.Place]
    taken_paths: frozenset[str]
    boot: Mapping[str, str | None]
    existing: Mapping[str, validation.ValidatedImage] = field(default_factory=dict)
    volumes: Mapping[str, poolvolumes.PoolVolume] = field(default_factory=dict)
    existing_seed: str | None = None
    seeding: SeedFacts = field(default_factory=SeedFacts)


def read_host_facts(conn: Any, settings: HostSettings, vm: Vm) -> HostFacts:
    """Return the facts that libvirt reports about this host."""
    capabilities = hostfacts.capabilities(conn)
    domain_types = inspect.domain_types(conn, settings, capabilities)
    kind = vm.domain_type or domain_types.default
    arch = vm.arch or capabilities["arch"]
    devices = _devices(conn, vm)
    has_pools = settings.disk_pool or any(disk.pool for disk in vm.disks)
    return HostFacts(
        arch=capabilities["arch"],
        domain_types=domain_types,
        qemu=hostfacts.versions(conn)["qemu"],
        has_machine=not (vm.machine and kind)
        or hostfacts.has_machine(conn, arch, vm.machine, kind),
        devices={device["name"]: device for device in devices},
        pci=frozenset(device["address"] for device in devices if "address" in device),
        filters=_filters(conn, vm),
        pools=hostfacts.pools(conn) if has_pools else {},
    )


def _devices(conn: Any, vm: Vm) -> list[dict[str, Any]]:
    """Return the host's devices if the VM takes any; listing them is slow."""
    is_wanted = vm.host_devices or any(is_pci(nic) for nic in vm.nics)
    return list(hostfacts.devices(conn)) if is_wanted else []


def _filters(conn: Any, vm: Vm) -> tuple[str, ...]:
    return tuple(hostfacts.filters(conn)) if any("filter" in nic.extra for nic in vm.nics) else ()


def gather_content(
    context: Context,
    conn: Any,
    deployment: Deployment,
    host_facts: HostFacts,
    guest_identity: Identity | None,
    *,
    is_dry: bool,
    is_new: bool = True,
) -> Content:
    """
    Return the sources of the disks; unless ``is_dry``, fetch and inspect images.

    deployment
        With the VM as :func:`saltvirt.vm.create.host.buildplan.apply_host_facts` returns it.
    guest_identity
        None if the guest gets no identity.
    is_new
        Whether the VM is new. Defaults to True; one that exists has its seed, if any, already.
    """
    settings, vm = context.settings, deployment.vm
    found_disks = _locate_disks(context, conn, host_facts, vm)
    # Existing disks need no image.
    new_disks_vm = replace(
        vm, disks=tuple(disk for disk in vm.disks if disk.name not in found_disks.names)
    )
    is_seeded = _is_to_be_seeded(context, deployment, found_disks.names, guest_identity)
    files_by_disk = {
        disk.name: validated_image
        for disk in new_disks_vm.disks
        if (validated_image := _validate_user_file(settings, host_facts, disk)) is not None
    }
    source_file_disks = [
        disk for disk in new_disks_vm.disks if disk.source_file and disk.name in files_by_disk
    ]
    existing.refuse_base(
        conn,
        settings,
        source_file_disks,
        [files_by_disk[disk.name].path for disk in source_file_disks],
    )
    images = _obtain_images(context, replace(deployment, vm=new_disks_vm), is_dry)
    seeding = gather_seed_facts(
        context, deployment, guest_identity if is_seeded else None, images, is_dry=is_dry
    )
    has_old_seed = _may_have_seed(found_disks.names, seeding, is_new=is_new)
    return Content(
        images=images,
        user_files=files_by_disk,
        places=found_disks.places,
        taken_paths=_find_taken_paths(settings, new_disks_vm, found_disks.places),
        existing=found_disks.files,
        volumes=found_disks.volumes,
        existing_seed=existing.find_seed(context, conn, vm.name) if has_old_seed else None,
        boot=boot_files(context, deployment, is_dry=is_dry),
        seeding=seeding,
    )


def _may_have_seed(disk_names: Collection[str], seeding: SeedFacts, *, is_new: bool) -> bool:
    """Return whether a new VM with existing disks may take over a former VM's seed."""
    return is_new and bool(disk_names) and seeding.request is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _DiskLocations:
    """Locations, existing files and volumes of disks, each by disk name."""

    places: Mapping[str, diskpaths.Place]
    files: Mapping[str, validation.ValidatedImage]
    volumes: Mapping[str, poolvolumes.PoolVolume]

    @property
    def names(self) -> set[str]:
        """The names of existing disks."""
        volume_names = {
            name for name, volume in self.volumes.items() if volume.existing_bytes is not None
        }
        return volume_names | set(self.files)


def _locate_disks(context: Context, conn: Any, host_facts: HostFacts, vm: Vm) -> _DiskLocations:
    places_by_disk = places(context.settings, host_facts, vm)
    return _DiskLocations(
        places=places_by_disk,
        files=existing.find_existing_files(context, conn, vm, places_by_disk),
        volumes=poolvolumes.find_volumes(context, conn, vm, host_facts.pools),
    )


def gather_seed_facts(
    context: Context,
    deployment: Deployment,
    guest_identity: Identity | None,
    images: Mapping[str, validation.ValidatedImage | None],
    *,
    is_dry: bool,
) -> SeedFacts:
    """
    Return what the seed method is chosen from.

    guest_identity
        None if nothing is seeded.
    """
    if guest_identity is None:
        return SeedFacts()
    request = _seed_request(context, deployment, guest_identity)
    content, inspect_error = _inspect_image(context, deployment.vm, request, images, is_dry)
    if request.installs and not request.install_from:
        # The master may provide packages of a minion.
        packages = install.find_suitable(context, content, deployment.saltenv)
        request = replace(request, provided=packages)
    return SeedFacts(request=request, content=content, inspect_error=inspect_error)


def places(settings: HostSettings, host_facts: HostFacts, vm: Vm) -> dict[str, diskpaths.Place]:
    """Return the locations of the disks to be made, by disk name."""
    return {
        disk.name: diskpaths.find_place(settings, host_facts.pools, disk)
        for disk in vm.disks
        if is_made(disk) and not poolvolumes.is_pool_volume(settings, host_facts.pools, disk)
    }


def _is_to_be_seeded(
    context: Context,
    deployment: Deployment,
    existing_names: Collection[str],
    guest_identity: Identity | None,
) -> bool:
    """
    Return whether the guest's disk is made from its image, and so seeded.

    An existing disk keeps its identity; raise StorageError if the master has made another one.
    """
    image_disk = next((disk for disk in deployment.vm.disks if disk.image), None)
    if image_disk is None or image_disk.name not in existing_names:
        return image_disk is not None
    if guest_identity and context.is_ordered and deployment.priv_key:
        raise StorageError(
            f"disk {image_disk.name!r} of VM {deployment.vm.name!r} is there already, and keeps "
            "what is in it, its minion's key too; seed=False takes it as it is, or remove it, or "
            "choose another name"
        )
    return False


def is_made(disk: Disk) -> bool:
    """Return whether a build makes the disk's file."""
    is_medium = disk.device in ("cdrom", "floppy")
    return not disk.source_file and not (is_medium and not disk.image)


def _obtain_images(
    context: Context, deployment: Deployment, is_dry: bool
) -> dict[str, validation.ValidatedImage | None]:
    out: dict[str, validation.ValidatedImage | None] = {}
    for disk in deployment.vm.disks:
        if disk.image and disk.image not in out:
            out[disk.image] = (
                cache.peek(disk.image, deployment.saltenv, context.settings, context.opts)
                if is_dry
                else fetch.obtain(
                    context,
                    disk.image,
                    deployment.saltenv,
                    image_hash=disk.image_hash,
                    digest=context.images.get(disk.image),
                )
            )
    return out


def boot_files(context: Context, deployment: Deployment, *, is_dry: bool) -> dict[str, str | None]:
    """Return kernel, initrd and loader as files of this host; None if still to be fetched."""
    boot = deployment.vm.boot or {}
    out: dict[str, str | None] = {}
    for key in _BOOT_FILES:
        if "://" in str(boot.get(key, "")) and is_dry:
            out[key] = None
        elif "://" in str(boot.get(key, "")):
            boot_file = fetch.obtain(context, boot[key], deployment.saltenv, validation.accept_any)
            cache.let_qemu_read(boot_file.path)
            out[key] = boot_file.path
        elif boot.get(key):
            out[key] = boot[key]
    if boot.get("loader"):
        out["loader"] = boot["loader"]
    for key, path in out.items():
        if path and not Path(path).is_file():
            raise NotThereYet(f"boot:{key}", f"there is no file {path} on this host")
    return out


def _validate_user_file(
    settings: HostSettings, host_facts: HostFacts, disk: Disk
) -> validation.ValidatedImage | None:
    """Return the user's own file for a disk, validated; None if the disk has none."""
    if disk.elsewhere or poolvolumes.is_pool_volume(settings, host_facts.pools, disk):
        return None  # QEMU or libvirt accesses it
    if disk.source_file:
        return _validate_source_file(settings, host_facts, disk)
    if disk.backing_path and not disk.image:
        return chains.validate(settings, f"disk {disk.name!r}", disk.backing_path, more=1)
    return None


def _validate_source_file(
    settings: HostSettings, host_facts: HostFacts, disk: Disk
) -> validation.ValidatedImage:
    path = Path(disk.source_file or "")
    if not path.is_absolute():
        path = diskpaths.find_place(settings, host_facts.pools, disk).folder / path
    if path.is_relative_to("/dev"):
        if not path.is_block_device():
            raise StorageError(f"disk {disk.name!r}: {path} is not a block device of this host")
        return validation.ValidatedImage(path=str(path), format=disk.format or "raw", size_bytes=0)
    if not path.is_file():
        raise StorageError(f"disk {disk.name!r}: there is no file {path} on this host")
    # Do not probe: a guest may have written another format's header into a raw disk or medium.
    if disk.device != "disk" or disk.format == "raw":
        return validation.ValidatedImage(path=str(path), format=disk.format or "raw", size_bytes=0)
    validated_image = chains.validate(settings, f"disk {disk.name!r}", str(path))
    if disk.format and disk.format != validated_image.format:
        raise StorageError(
            f"disk {disk.name!r}: {path} is {validated_image.format}, not {disk.format}"
        )
    return validated_image


def disk_path(vm: Vm, disk: Disk, place: diskpaths.Place, fmt: str) -> str:
    """Return the path of a disk that is to be made."""
    return str(place.folder / f"{vm.name}_{disk.name}.{fmt}")


def is_pci(nic: Nic) -> bool:
    """Return whether a NIC is a passed-through PCI device of the host."""
    return nic.type == "hostdev" and bool(nics.pci(nic.source))


def _find_taken_paths(
    settings: HostSettings, vm: Vm, places: Mapping[str, diskpaths.Place]
) -> frozenset[str]:
    candidate_paths = [
        disk_path(vm, disk, places[disk.name], fmt)
        for disk in vm.disks
        if disk.name in places
        for fmt in ("qcow2", "raw")
    ]
    candidate_paths += seedfiles.all_paths(settings.images, vm.name)
    return frozenset(path for path in candidate_paths if os.path.lexists(path))


def _seed_request(
    context: Context, deployment: Deployment, guest_identity: Identity
) -> seedchoice.SeedRequest:
    settings = context.settings
    image = next(disk.image for disk in deployment.vm.disks if disk.image)
    if deployment.seed_cmd != identity.OWN_COMMAND:
        has_ssh_keys = bool(deployment.ssh_keys)
        return seedchoice.SeedRequest(
            image=image, function=deployment.seed_cmd, asks_for_ssh_keys=has_ssh_keys
        )
    method_name = deployment.seed_method or settings.seed.get("method", seedmethods.AUTO)
    method = seedmethods.METHODS.get(method_name)
    if method and method.needs_host_mount:
        seedchoice.refuse_host_mount(settings)
    needs_appliance = seedmethods.reads_image(method_name)
    cloud = guest_identity.cloud_init
    return seedchoice.SeedRequest(
        image=image,
        method_name=method_name,
        install_from=install.source(settings, deployment.install_from),
        installs=deployment.install,
        starts=deployment.start,
        is_networked=install.uses_network(settings),
        is_for_cloud_init=bool(any(cloud.user_data) or cloud.network),
        has_ssh_keys=bool(guest_identity.ssh_keys),
        asks_for_ssh_keys=bool(deployment.ssh_keys),
        has_own_users=any(cloudconfig.names_users(data) for data in cloud.all_data),
        has_own_packages=any(cloudconfig.names_packages(data) for data in cloud.all_data),
        inspection_obstacle=appliance.why_missing(inspection.python(settings))
        if needs_appliance
        else None,
    )


def _inspect_image(
    context: Context,
    vm: Vm,
    request: seedchoice.SeedRequest,
    images: Mapping[str, Any],
    is_dry: bool,
) -> tuple[Inspection | None, SeedError | None]:
    """Return ``(content of the seeded image, inspection error)``."""
    base = images.get(request.image) if request.reads_image else None
    if base is None:
        return None, None
    if is_dry or request.inspection_obstacle:
        return inspection.read_kept_content(context.settings, base), None
    try:
        return inspection.look(context, base, use_kvm=vm.domain_type == "kvm"), None
    except SeedError as exc:
        return None, exc
