"""List, clone and destroy VMs for salt-cloud."""

import os
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from saltvirt.core import guestaccess
from saltvirt.core.errors import LibvirtRefused, StorageError
from saltvirt.core.undo import on_failure
from saltvirt.libvirt.connect import domain, libvirt
from saltvirt.libvirt.domains import domainfiles, lifecycle, query
from saltvirt.libvirt.errorcodes import read_existing
from saltvirt.libvirt.storage import anybytes, diskvolumes
from saltvirt.xml.edit import clone as clone_xml
from saltvirt.xml.storage import storagevolume

# Sources of a clone's address, as profiles name them (``ip_source``).
SOURCES = {"ip-learning": "lease", "qemu-agent": "agent"}
STRATEGIES = ("quick", "full")


def nodes(conn: Any) -> dict[str, dict[str, Any]]:
    """
    Return ``{name: {id, image, size, state, private_ips, public_ips}}`` of all VMs.

    A VM that vanishes meanwhile is left out.
    """

    def read(dom: Any) -> dict[str, Any]:
        state = query.STATES.get(dom.state()[0], "unknown")
        return {
            "id": dom.UUIDString(),
            "image": "",
            "size": "",
            "state": state,
            "private_ips": [],
            "public_ips": _addresses(dom, "lease") if state == "running" else [],
        }

    return dict(read_existing(conn.listAllDomains(), read))


def address(conn: Any, name: str, source: str) -> str | None:
    """Return the first IPv4 address of a running VM that is no loopback address, or None."""
    dom = domain(conn, name)
    if query.STATES.get(dom.state()[0]) != "running":
        return None
        # Salt puts the address into a shell command, and a guest's agent is not trusted.
    ipv4_addresses = [
        ip for ip in guestaccess.addresses(_addresses(dom, SOURCES[source])) if ":" not in ip
    ]
    return ipv4_addresses[0] if ipv4_addresses else None


def _addresses(dom: Any, source: str) -> list[str]:
    entries = query.read_addresses(dom, source)
    return [entry["addr"] for entry in entries if entry["type"] == libvirt.VIR_IP_ADDR_TYPE_IPV4]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedClone:
    """
    A clone, and what was created for it.

    paths
        Its volumes.
    had_variables
        Whether the file of its firmware's variables existed before.
    """

    uuid: str
    paths: tuple[str, ...]
    had_variables: bool


def clone(
    conn: Any, base: str, name: str, *, strategy: str, learn_addresses: bool, validate: bool
) -> CreatedClone:
    """
    Clone a VM and start the clone; undo everything on failure.

    strategy
        ``quick``: qcow2 disks are overlays of the base's; ``full``: copies. Raw ones are copied.
    validate
        Have libvirt check the definition by its schema.
    """
    original = domain(conn, base)
    if original.isActive():
        raise LibvirtRefused(
            f"base domain {base!r} is running: what is copied of its disks would be inconsistent; "
            f"shut it down first"
        )
    text = lifecycle.secure_xml(conn, base)
    disks = clone_xml.writable(text)
    volumes = _volumes(conn)
    with on_failure() as steps:
        paths = {}
        for disk in disks:
            if disk.path not in volumes:
                raise StorageError(
                    f"disk {disk.target} of {base!r}: {disk.path} is in no active storage pool; "
                    "make a pool of its folder (virt.pool_running), or refresh it"
                )
            new_volume = _copy(*volumes[disk.path], disk, is_overlay=strategy == "quick")
            steps.undo_with(_delete, new_volume)
            paths[disk.path] = new_volume.path()
        xml = clone_xml.domain(text, name, base, paths, learn_addresses=learn_addresses)
        flags = libvirt.VIR_DOMAIN_DEFINE_VALIDATE if validate else 0
        new_domain = conn.defineXMLFlags(xml, flags)
        had_variables = True

        def undefine() -> None:
            _undefine(conn, name, had_variables)

        steps.undo_with(undefine)
        # Existing variables belong to an earlier VM of that name: an undo keeps them.
        had_variables = domainfiles.has_variables(conn, name)
        lifecycle.start(conn, name)
    return CreatedClone(
        uuid=new_domain.UUIDString(), paths=tuple(paths.values()), had_variables=had_variables
    )


def remove_clone(conn: Any, name: str, created_clone: CreatedClone) -> None:
    """
    Remove a clone with its created volumes; later additions stay.

    A later VM of the same name stays, too.
    """
    if lifecycle.uuid_if_defined(conn, name) == created_clone.uuid:
        _remove(conn, name, created_clone.paths, (), had_variables=created_clone.had_variables)


def _undefine(conn: Any, name: str, had_variables: bool) -> None:
    is_kept = had_variables or domainfiles.has_shared_variables(conn, name)
    lifecycle.destroy(conn, name)
    lifecycle.undefine(conn, name, keep_nvram=is_kept)


def _delete(volume: Any) -> None:
    volume.delete(0)


def _volumes(conn: Any) -> dict[str, tuple[Any, Any]]:
    """Return ``{path: (pool, volume)}`` of all active pools, by one call per pool."""
    active = libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE
    return {
        anybytes.text(volume.path): (pool, volume)
        for pool in conn.listAllStoragePools(active)
        for volume in pool.listAllVolumes()
    }


def _copy(pool: Any, volume: Any, disk: clone_xml.Writable, *, is_overlay: bool) -> Any:
    """Create a copy or overlay of a volume beside it, under a unique name, and return it."""
    stem, dot, ending = volume.name().rpartition(".")
    unique = f"{stem or ending}-{uuid.uuid1()}{dot if stem else ''}{ending if stem else ''}"
    capacity = volume.info()[1]
    if is_overlay and disk.format == "qcow2":
        return pool.createXML(clone_xml.volume(unique, capacity, "qcow2", volume.path()), 0)
    detected_format = storagevolume.read(anybytes.read_volume_xml(volume)).format
    if disk.format == "raw" and storagevolume.has_header(detected_format):
        # The guest may have written that header: libvirt would copy any file that it names.
        raise StorageError(
            f"disk {disk.target}: {disk.path} is {disk.format} to its VM, and libvirt takes it for "
            f"{detected_format} by what is in it, so it is not copied; see what has "
            "written that header"
        )
    return pool.createXMLFrom(clone_xml.volume(unique, capacity, disk.format), volume, 0)


def destroy(
    conn: Any, name: str, find_needed: Callable[[Sequence[str]], Collection[str]] | None = None
) -> None:
    """
    Remove a VM at once, with its disks in pools; other disks' backing files stay.

    find_needed
        Returns which of these files must stay, too, or raises. Defaults to none.

    Raises, with nothing changed, if the VM does not exist, or has moved to another host.
    """
    text = lifecycle.inactive_xml(conn, name)
    moved_to = lifecycle.moved_to(conn, name)
    if moved_to is None and lifecycle.is_migrated(conn, name):
        moved_to = "another host, as libvirt says"
    if moved_to is not None:
        raise LibvirtRefused(
            f"VM {name!r} has moved to {moved_to}, and only its definition was kept here; its "
            f"disks may be that host's too. virt.undefine {name} removes the definition alone"
        )
    # libvirt knows an overlay made by a snapshot or qemu-img only after a refresh.
    disk_files = clone_xml.exclusive_files(text)
    diskvolumes.refresh_folders(conn, disk_files)
    volumes_by_path = _volumes(conn)
    spared_paths = (
        find_needed([path for path in disk_files if path in volumes_by_path]) if find_needed else ()
    )
    _remove(conn, name, disk_files, spared_paths, had_variables=False)


def _remove(
    conn: Any,
    name: str,
    disk_files: Sequence[str],
    spared_paths: Collection[str],
    *,
    had_variables: bool,
) -> None:
    """Remove a VM with those of some files that are volumes and that no other VM uses."""
    diskvolumes.refresh_folders(conn, disk_files)
    volumes = _volumes(conn)
    # The definition of a stopped clone does not name its disk's backing file.
    backing_files = {clone_xml.backing(volume.XMLDesc(0)) for _pool, volume in volumes.values()}
    used_paths = {
        *map(os.path.realpath, filter(None, backing_files)),
        *lifecycle.disks_in_use(conn, exclude=name),
    }
    _undefine(conn, name, had_variables)
    for path in disk_files:
        # Another VM may use the file by another path, such as a link.
        if (
            path in volumes
            and path not in spared_paths
            and os.path.realpath(path) not in used_paths
        ):
            _delete(volumes[path][1])
