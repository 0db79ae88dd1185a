"""Create a VM on this host; leave nothing behind if a step fails."""

import uuid
from dataclasses import replace
from pathlib import Path

from saltvirt import files, nics, spec, undo
from saltvirt.errors import BadArgument, ClaimRefused, NameTaken, StorageError
from saltvirt.image import clone, gate
from saltvirt.kvm import connect, host, lifecycle
from saltvirt.ops import (
    approve,
    claims,
    departures,
    fetching,
    inspect,
    looking,
    purge,
    seeding,
    storage,
)
from saltvirt.placement import fit
from saltvirt.seed import credentials
from saltvirt.units import MIB
from saltvirt.xml import domain

_BOOT_FILES = ("kernel", "initrd")


def create(context, deployment):
    """Create the VM that a :class:`saltvirt.spec.Deployment` describes; return True."""
    identity = seeding.prepare(context, deployment)
    settings = context.settings
    with undo.on_sigterm(), connect.opened(settings, readonly=False) as conn:
        vm, devices = _decide(conn, settings, deployment.vm)
        need = spec.need(vm)
        departures.settle(conn, settings)
        purge.clean_unfinished(conn, settings)
        known = inspect.seen(conn, settings)

        def check():
            _refuse(inspect.host_info(conn, settings, known), need)
            _refuse_machine(conn, vm)

        with claims.claimed(settings, need, check) as claim:
            _build(conn, context, replace(deployment, vm=vm), identity, devices, claim)
    return True


def _refuse(info, need):
    if need.name in info["vms"]:
        raise NameTaken(
            f"a VM called {need.name!r} exists on this host ({info['vms'][need.name]['state']}); "
            f"choose another name, or remove it first with virt.purge {need.name}"
        )
    why = fit.reasons(info, need)
    if why:
        raise ClaimRefused(need.name, why)


def _refuse_machine(conn, vm):
    about = {"arch": vm.arch, "machine": vm.machine, "domain_type": vm.domain_type}
    if vm.machine and not host.has_machine(conn, about):
        raise ClaimRefused(vm.name, [f"QEMU {host.versions(conn)['qemu']} there does not know the "
                                     f"machine type {vm.machine}"])  # fmt: skip


def _decide(conn, settings, vm):
    """Fill in what the host decides: domain type, architecture, devices."""
    capabilities = host.capabilities(conn)
    types = inspect.domain_types(conn, settings, capabilities)
    why = fit.why_not_type(types, vm.domain_type)
    if why:
        raise ClaimRefused(vm.name, [why])
    _refuse_nics(conn, vm)
    arch = vm.arch or capabilities["arch"]
    decided = replace(vm, domain_type=vm.domain_type or types["default"], arch=arch)
    return decided, _devices(conn, vm.host_devices)


def _devices(conn, names):
    known = {device["name"]: device for device in host.devices(conn)} if names else {}
    for name in names:
        if name not in known:
            raise BadArgument("host_devices", f"{name!r} is no device of this host; see them "
                              "with virt.node_devices")  # fmt: skip
    return [known[name] for name in names]


def _refuse_nics(conn, vm):
    """Refuse a NIC that wants a filter or a device which this host does not have."""
    filters = {one.extra["filter"]["name"]: one for one in vm.nics if "filter" in one.extra}
    known = host.filters(conn) if filters else ()
    for name, nic in filters.items():
        if name not in known:
            listed = ", ".join(known) or "none (libvirt-daemon-config-nwfilter brings them)"
            raise BadArgument(f"interface {nic.name!r}",
                              f"no filter {name!r} on this host; it has: {listed}")  # fmt: skip
    passed = [nic for nic in vm.nics if nic.type == "hostdev" and nics.pci(nic.source)]
    there = {device.get("address") for device in host.devices(conn)} if passed else set()
    for nic in passed:
        if nic.source.lower() not in there:
            raise BadArgument(f"interface {nic.name!r}", f"no PCI device {nic.source} on this "
                              "host; see them with virt.node_devices")  # fmt: skip


def _build(conn, context, deployment, identity, devices, claim):
    vm = deployment.vm
    fetched = _fetch(context, deployment)
    way = looking.way(context, deployment, fetched, identity) if identity else None
    with undo.on_failure() as steps:
        disks = [
            _make_disk(conn, context, deployment, disk, fetched.get(disk.image), claim, steps)
            for disk in vm.disks
        ]
        vm = replace(vm, disks=tuple(disks), boot=_boot_files(context, deployment))
        if identity is not None:
            vm = _seed(context, deployment, vm, identity, way, claim, steps)
        claim.will_define()
        steps.then(purge.remove_log, vm.name)
        lifecycle.define(conn, domain.build(vm, devices))
        steps.then(lifecycle.undefine, conn, vm.name)
        if identity is not None and identity["is_submitted"]:
            approve.submit(context, vm.name, identity["public_key"])
        if deployment.start:
            context.say("Starting")
            steps.then(lifecycle.destroy, conn, vm.name)
            if way and way.method == "credentials":
                _start_with(conn, context, identity, vm.name, claim, steps)
            else:
                lifecycle.start(conn, vm.name)


def _start_with(conn, context, identity, name, claim, steps):
    """Start a VM with its identity as a credential, which no file has once QEMU has read it."""
    path = Path(context.settings.images) / f"{name}_seed.credentials"
    claim.will_make(path)
    steps.then(storage.remove, path)
    files.write(path, credentials.content(looking.files_of(identity)))
    lifecycle.start_once(conn, name, lambda xml: credentials.added(xml, path))
    storage.remove(path)


def _fetch(context, deployment):
    """Return ``{image: judged cached copy}`` of every image the disks are made of."""
    out = {}
    for disk in deployment.vm.disks:
        if disk.image and disk.image not in out:
            out[disk.image] = fetching.obtain(
                context, disk.image, deployment.saltenv, image_hash=disk.image_hash
            )
    return out


def _boot_files(context, deployment):
    """Return the ``boot`` mapping with kernel and initrd as local files."""
    boot = dict(deployment.vm.boot or {})
    for key in _BOOT_FILES:
        if "://" in str(boot.get(key, "")):
            found = fetching.obtain(context, boot[key], deployment.saltenv, gate.accept_any)
            boot[key] = found.path
    for key in (*_BOOT_FILES, "loader"):
        if boot.get(key) and not Path(boot[key]).is_file():
            raise BadArgument(f"boot:{key}", f"there is no file {boot[key]} on this host")
    return boot or None


def _make_disk(conn, context, deployment, disk, base, claim, steps):
    """Return the disk with its path and format, made if it is to be made."""
    if disk.device in ("cdrom", "floppy") and not disk.source_file and base is None:
        return disk
    if disk.source_file:
        return _existing(conn, context.settings, disk)
    place = storage.place(conn, context.settings, disk)
    if base is None and disk.backing_path:
        base = gate.judge(disk.backing_path, backing_below=storage.backing_below(context.settings))
        disk = replace(disk, overlay=True)
    how = _how(disk, base, deployment.enable_qcow)
    path = place.folder / f"{deployment.vm.name}_{disk.name}.{how['format']}"
    if path.exists():
        raise StorageError(f"disk {path} exists already, and no VM of this name; look what it is, "
                           "then remove it or choose another name")  # fmt: skip
    claim.will_make(path)
    steps.then(storage.remove, path)
    if base is None:
        clone.empty(path, how["size_bytes"], how["format"])
    else:
        clone.make(base, path, how)
    if place.pool:
        host.refresh_pool(conn, place.pool)
        steps.then(host.refresh_pool, conn, place.pool)
    size_mib = how["size_bytes"] // MIB
    return replace(disk, path=str(path), format=how["format"], size_mib=size_mib)


def _how(disk, base, enable_qcow):
    if base is not None:
        return clone.plan(disk, base, enable_qcow)
    fmt = disk.format or "qcow2"
    if fmt not in ("qcow2", "raw"):
        raise BadArgument(f"disk {disk.name!r}", f"format {fmt!r}; qcow2 or raw")
    if not disk.size_mib:
        raise BadArgument(f"disk {disk.name!r}", "has neither a size nor an image")
    return {"format": fmt, "size_bytes": disk.size_mib * MIB, "is_overlay": False}


def _existing(conn, settings, disk):
    """Return a disk that the user made: the file is used as it is, and judged first."""
    path = Path(disk.source_file)
    if not path.is_absolute():
        path = storage.place(conn, settings, disk).folder / path
    if str(path).startswith("/dev/"):
        if not path.is_block_device():
            raise StorageError(f"disk {disk.name!r}: {path} is no block device on this host")
        return replace(disk, path=str(path), format=disk.format or "raw")
    if not path.is_file():
        raise StorageError(f"disk {disk.name!r}: there is no file {path} on this host")
    if disk.device != "disk":
        return replace(disk, path=str(path), format=disk.format or "raw")
    if disk.format == "raw":
        return replace(disk, path=str(path))
    judged = gate.judge(path, backing_below=storage.backing_below(settings))
    if disk.format and disk.format != judged.format:
        raise StorageError(f"disk {disk.name!r}: {path} is {judged.format}, not {disk.format}")
    return replace(disk, path=str(path), format=judged.format)


def _seed(context, deployment, vm, identity, way, claim, steps):
    context.say("Seeding", detail=f"by {way.method}")
    first = next(disk for disk in vm.disks if disk.image)
    if way.method in ("guestfs", "nbd"):
        looking.write(context, deployment, identity, first, way)
        return vm
    if way.method == "credentials":
        return vm
    if way.method != "nocloud":
        seeding.run_command(context, deployment, identity, first.path)
        return vm
    path = seeding.path_for(context.settings, vm.name)
    if path.exists():
        raise StorageError(f"seed {path} exists already, and no VM of this name; remove it")
    claim.will_make(path)
    steps.then(storage.remove, path)
    seeding.write(path, identity, str(uuid.uuid4()), install=bool(way.install))
    return replace(vm, seed_path=str(path))
