"""What a build is decided from: facts of the host and of the images, gathered once."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saltvirt import nics
from saltvirt.config import HostSettings
from saltvirt.errors import NotThereYet, SeedError, StorageError
from saltvirt.image import cache, rights, validation
from saltvirt.kvm import host
from saltvirt.model import Disk, Nic, Vm
from saltvirt.ops import chains, inspect, storage
from saltvirt.ops.build import existing, poolvolumes
from saltvirt.ops.context import Context
from saltvirt.ops.images import fetch
from saltvirt.ops.seeding import identity, inspection, install, provided, seedfiles
from saltvirt.ops.seeding import method as seeding
from saltvirt.placement.answers import DomainTypes
from saltvirt.seed import appliance, cloudconfig
from saltvirt.seed.model import Found, Identity
from saltvirt.spec import Deployment

BOOT_FILES = ("kernel", "initrd")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """
    What libvirt says of this host, as far as the VM needs it.

    domain_types
        What :func:`saltvirt.ops.inspect.domain_types` returns.
    has_machine
        Whether QEMU knows the machine type that is wanted; True if none is.
    devices
        The host's devices by name, if the VM takes any.
    pci
        The addresses of its PCI devices, if the VM takes any.
    filters
        Its network filters, if the VM uses any.
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
class Content:
    """
    What the VM's disks are made of, and what is where they will be.

    images
        Every image by its source, None if it is still to be fetched.
    given
        What the user's own files are, by the disks' names.
    places
        Where the disks go that are to be made, by their names.
    taken
        Which of the files that the build might make are there already.
    existing
        What is there of the disks, by their names: it is taken as it is.
    volumes
        The volumes that disks are, or are to be, in pools that are no folders.
    seed
        The seed that a VM had whose disk is there, None if there is none.
    boot
        Kernel and initrd as files of this host, None if still to be fetched.
    wish
        What the seed method is chosen from, None if nothing is seeded.
    found
        What the seeded image has in it, None if nobody looked.
    unseen
        Why nobody could look into it.
    """

    images: Mapping[str, validation.ValidatedImage | None]
    given: Mapping[str, validation.ValidatedImage]
    places: Mapping[str, storage.Place]
    taken: frozenset[str]
    boot: Mapping[str, str | None]
    existing: Mapping[str, validation.ValidatedImage] = field(default_factory=dict)
    volumes: Mapping[str, poolvolumes.PoolVolume] = field(default_factory=dict)
    seed: str | None = None
    wish: seeding.Wish | None = None
    found: Found | None = None
    unseen: SeedError | None = None


def of_host(conn: Any, settings: HostSettings, vm: Vm) -> HostFacts:
    """Return what libvirt says of this host."""
    capabilities = host.capabilities(conn)
    types = inspect.domain_types(conn, settings, capabilities)
    kind = vm.domain_type or types.default
    arch = vm.arch or capabilities["arch"]
    devices = _devices(conn, vm)
    has_pools = settings.disk_pool or any(disk.pool for disk in vm.disks)
    return HostFacts(
        arch=capabilities["arch"],
        domain_types=types,
        qemu=host.versions(conn)["qemu"],
        has_machine=not (vm.machine and kind) or host.has_machine(conn, arch, vm.machine, kind),
        devices={device["name"]: device for device in devices},
        pci=frozenset(device["address"] for device in devices if "address" in device),
        filters=_filters(conn, vm),
        pools=host.pools(conn) if has_pools else {},
    )


def _devices(conn: Any, vm: Vm) -> list[dict[str, Any]]:
    """Return the host's devices; listing them takes a while, so only for a VM that takes any."""
    is_wanted = vm.host_devices or any(is_pci(nic) for nic in vm.nics)
    return list(host.devices(conn)) if is_wanted else []


def _filters(conn: Any, vm: Vm) -> tuple[str, ...]:
    return tuple(host.filters(conn)) if any("filter" in nic.extra for nic in vm.nics) else ()


def of_content(
    context: Context,
    conn: Any,
    deployment: Deployment,
    on: HostFacts,
    who: Identity | None,
    *,
    is_dry: bool,
) -> Content:
    """
    Return what the disks are made of; unless ``is_dry``, images are fetched and looked into.

    deployment
        With the VM as :func:`saltvirt.ops.build.buildplan.on_host` returns it.
    who
        The guest's identity, None if it gets none.
    """
    settings, vm = context.settings, deployment.vm
    there = _there(context, conn, on, vm)
    # Of what is there nothing is made, so nothing is asked for.
    rest = replace(vm, disks=tuple(disk for disk in vm.disks if disk.name not in there.names))
    is_seeded = is_to_be_seeded(context, deployment, there.names, who)
    given = {
        disk.name: validated
        for disk in rest.disks
        if (validated := _given(settings, on, disk)) is not None
    }
    named = [disk for disk in rest.disks if disk.source_file and disk.name in given]
    existing.refuse_base(conn, settings, named, [given[disk.name].path for disk in named])
    images = _images(context, replace(deployment, vm=rest), is_dry)
    wish, found, unseen = of_seed(
        context, deployment, who if is_seeded else None, images, is_dry=is_dry
    )
    kept = there.names and not wish
    return Content(
        images=images,
        given=given,
        places=there.places,
        taken=_taken(settings, rest, there.places),
        existing=there.files,
        volumes=there.volumes,
        seed=existing.seed(context, conn, vm.name) if kept else None,
        boot=boot_files(context, deployment, is_dry=is_dry),
        wish=wish,
        found=found,
        unseen=unseen,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _There:
    """Where disks go, which of them are there already, and which are volumes; by their names."""

    places: Mapping[str, storage.Place]
    files: Mapping[str, validation.ValidatedImage]
    volumes: Mapping[str, poolvolumes.PoolVolume]

    @property
    def names(self) -> set[str]:
        """The disks that are there already."""
        kept = {name for name, one in self.volumes.items() if one.there_bytes is not None}
        return kept | set(self.files)


def _there(context: Context, conn: Any, on: HostFacts, vm: Vm) -> _There:
    where = places(context.settings, on, vm)
    return _There(
        places=where,
        files=existing.of_disks(context, conn, vm, where),
        volumes=poolvolumes.of_disks(context, conn, vm, on.pools),
    )


def of_seed(
    context: Context,
    deployment: Deployment,
    who: Identity | None,
    images: Mapping[str, validation.ValidatedImage | None],
    *,
    is_dry: bool,
) -> tuple[seeding.Wish | None, Found | None, SeedError | None]:
    """
    Return what the seed method is chosen from: the wish, what the image has, why nobody could look.

    who
        None if nothing is seeded.
    """
    wish = _wish(context, deployment, who) if who else None
    found, unseen = _inspected(context, deployment.vm, wish, images, is_dry)
    return _with_minion(context, deployment, wish, found), found, unseen


def _with_minion(
    context: Context, deployment: Deployment, wish: seeding.Wish | None, found: Found | None
) -> seeding.Wish | None:
    """Return the wish with the minion that the master has fetched, if one is installed."""
    if wish is None or not wish.installs or wish.install_from:
        return wish
    return replace(wish, provided=provided.suitable(context, found, deployment.saltenv))


def places(settings: HostSettings, on: HostFacts, vm: Vm) -> dict[str, storage.Place]:
    """Return where the disks go that are to be made, by their names."""
    return {
        disk.name: storage.place(settings, on.pools, disk)
        for disk in vm.disks
        if is_made(disk) and not poolvolumes.is_in_one(settings, on.pools, disk)
    }


def is_to_be_seeded(
    context: Context,
    deployment: Deployment,
    there: Collection[str],
    who: Identity | None,
) -> bool:
    """
    Return whether the guest's disk is made of its image, so that it is seeded.

    One that was there keeps the identity that it has; raise StorageError if the master has given
    the VM another one.
    """
    seeded = next((disk for disk in deployment.vm.disks if disk.image), None)
    if seeded is None or seeded.name not in there:
        return seeded is not None
    if who and context.is_ordered and deployment.priv_key:
        raise StorageError(
            f"disk {seeded.name!r} of VM {deployment.vm.name!r} is there already, and keeps what "
            "is in it, its minion's key too; seed=False takes it as it is, or remove it, or choose "
            "another name"
        )
    return False


def is_made(disk: Disk) -> bool:
    """Return whether a build makes the disk's file."""
    is_medium = disk.device in ("cdrom", "floppy")
    return not disk.source_file and not (is_medium and not disk.image)


def _images(
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
    """Return kernel, initrd and loader as files of this host, None of what is still to come."""
    boot = deployment.vm.boot or {}
    out: dict[str, str | None] = {}
    for key in BOOT_FILES:
        if "://" in str(boot.get(key, "")) and is_dry:
            out[key] = None
        elif "://" in str(boot.get(key, "")):
            found = fetch.obtain(context, boot[key], deployment.saltenv, validation.accept_any)
            rights.let_qemu_read(found.path)
            out[key] = found.path
        elif boot.get(key):
            out[key] = boot[key]
    if boot.get("loader"):
        out["loader"] = boot["loader"]
    for key, path in out.items():
        if path and not Path(path).is_file():
            raise NotThereYet(f"boot:{key}", f"there is no file {path} on this host")
    return out


def _given(settings: HostSettings, on: HostFacts, disk: Disk) -> validation.ValidatedImage | None:
    """Return what the user's own file for a disk is, None if the disk has none."""
    if disk.elsewhere or poolvolumes.is_in_one(settings, on.pools, disk):
        return None  # QEMU fetches it, or libvirt has it
    if disk.source_file:
        return _source_file(settings, on, disk)
    if disk.backing_path and not disk.image:
        return chains.validated(settings, f"disk {disk.name!r}", disk.backing_path, more=1)
    return None


def _source_file(settings: HostSettings, on: HostFacts, disk: Disk) -> validation.ValidatedImage:
    path = Path(disk.source_file or "")
    if not path.is_absolute():
        path = storage.place(settings, on.pools, disk).folder / path
    if path.is_relative_to("/dev"):
        if not path.is_block_device():
            raise StorageError(f"disk {disk.name!r}: {path} is not a block device of this host")
        return validation.ValidatedImage(path=str(path), format=disk.format or "raw", size_bytes=0)
    if not path.is_file():
        raise StorageError(f"disk {disk.name!r}: there is no file {path} on this host")
    # A guest may have written what looks like another format into a raw disk, or a medium.
    if disk.device != "disk" or disk.format == "raw":
        return validation.ValidatedImage(path=str(path), format=disk.format or "raw", size_bytes=0)
    validated = chains.validated(settings, f"disk {disk.name!r}", str(path))
    if disk.format and disk.format != validated.format:
        raise StorageError(f"disk {disk.name!r}: {path} is {validated.format}, not {disk.format}")
    return validated


def disk_path(vm: Vm, disk: Disk, place: storage.Place, fmt: str) -> str:
    """Return where a disk that is made lies."""
    return str(place.folder / f"{vm.name}_{disk.name}.{fmt}")


def is_pci(nic: Nic) -> bool:
    """Return whether a NIC is a PCI device of the host that is passed through."""
    return nic.type == "hostdev" and bool(nics.pci(nic.source))


def _taken(settings: HostSettings, vm: Vm, places: Mapping[str, storage.Place]) -> frozenset[str]:
    wanted = [
        disk_path(vm, disk, places[disk.name], fmt)
        for disk in vm.disks
        if disk.name in places
        for fmt in ("qcow2", "raw")
    ]
    wanted += seedfiles.every(settings.images, vm.name)
    return frozenset(path for path in wanted if os.path.lexists(path))


def _wish(context: Context, deployment: Deployment, who: Identity) -> seeding.Wish:
    settings = context.settings
    image = next(disk.image for disk in deployment.vm.disks if disk.image)
    if deployment.seed_cmd != identity.OWN:
        asks = bool(deployment.ssh_keys)
        return seeding.Wish(image=image, function=deployment.seed_cmd, asks_for_ssh_keys=asks)
    asked = deployment.seed_method or settings.seed.get("method", "auto")
    if asked == "nbd":
        seeding.refuse_host_mount(settings)
    needs_appliance = asked in ("auto", "guestfs", "credentials")
    cloud = who.cloud_init
    return seeding.Wish(
        image=image,
        asked=asked,
        install_from=install.source(settings, deployment.install_from),
        installs=deployment.install,
        starts=deployment.start,
        is_networked=install.uses_network(settings),
        is_for_cloud_init=bool(any(cloud.user_data) or cloud.network),
        has_ssh_keys=bool(who.ssh_keys),
        asks_for_ssh_keys=bool(deployment.ssh_keys),
        has_own_users=any(cloudconfig.names_users(one) for one in cloud.all_data),
        has_own_packages=any(cloudconfig.names_packages(one) for one in cloud.all_data),
        why_blind=appliance.why_missing(inspection.python(settings)) if needs_appliance else None,
    )


def _inspected(
    context: Context, vm: Vm, wish: seeding.Wish | None, images: Mapping[str, Any], is_dry: bool
) -> tuple[Found | None, SeedError | None]:
    """Return ``(what the seeded image has in it, why nobody could look)``."""
    base = images.get(wish.image) if wish and wish.is_image_known else None
    if base is None or wish is None:
        return None, None
    if is_dry or wish.why_blind:
        return inspection.kept(context.settings, base), None
    try:
        return inspection.look(context, base, use_kvm=vm.domain_type == "kvm"), None
    except SeedError as exc:
        return None, exc
