"""Read and change the state of domains: start, stop, define, undefine, resize."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import LibvirtRefused, NoSuchVm
from saltvirt.libvirt.connect import domain, libvirt
from saltvirt.libvirt.domains import query
from saltvirt.libvirt.errorcodes import has_code
from saltvirt.libvirt.storage import pools
from saltvirt.xml import METADATA_NS, parse, to_text
from saltvirt.xml.domain import metadata
from saltvirt.xml.edit import readdomain
from saltvirt.xml.storage import blockdisk, storagepool


def is_defined(conn: Any, name: str) -> bool:
    """Return whether the host has a domain of that name."""
    return uuid_if_defined(conn, name) is not None


def name_of(conn: Any, uuid: str) -> str | None:
    """Return the name of the domain with a UUID, None if the host has none."""
    names = {dom.UUIDString(): dom.name() for dom in conn.listAllDomains()}
    return names.get(uuid)


def uuid(conn: Any, name: str) -> str:
    """Return a domain's UUID."""
    domain_uuid: str = domain(conn, name).UUIDString()
    return domain_uuid


def uuid_if_defined(conn: Any, name: str) -> str | None:
    """Return a domain's UUID, None if the host has none of that name."""
    try:
        return uuid(conn, name)
    except NoSuchVm:
        return None


def define(conn: Any, xml: str) -> str:
    """Define a domain and return its name."""
    name: str = conn.defineXML(xml).name()
    return name


def create_transient(conn: Any, xml: str) -> str:
    """Start a domain without a definition, and return its name."""
    name: str = conn.createXML(xml, 0).name()
    return name


def undefine(conn: Any, name: str, *, keep_nvram: bool = False, keep_tpm: bool = False) -> None:
    """
    Remove a domain's definition, with all that libvirt keeps for it.

    keep_nvram, keep_tpm
        Leave the firmware's variables, or the TPM's state. Default to False.
    """
    driver_flags = ("MANAGED_SAVE", "SNAPSHOTS_METADATA")
    nvram_flag = "KEEP_NVRAM" if keep_nvram else "NVRAM"
    tpm_flags = ("KEEP_TPM",) if keep_tpm else ()
    dom = domain(conn, name)
    try:
        _undefine(dom, *driver_flags, "CHECKPOINTS_METADATA", nvram_flag, *tpm_flags)
    except libvirt.libvirtError as exc:
        if not has_code(exc, "INVALID_ARG") or conn.getType().lower() != "test":
            raise
        # The test driver has no firmware and no checkpoints, and refuses their flags.
        _undefine(dom, *driver_flags)


def _undefine(dom: Any, *flags: str) -> None:
    # libvirt before 8.9 has no KEEP_TPM.
    dom.undefineFlags(sum(getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{flag}", 0) for flag in flags))


def keeps_tpm() -> bool:
    """Return whether libvirt (8.9 or later) can keep a TPM's state when it undefines its VM."""
    return hasattr(libvirt, "VIR_DOMAIN_UNDEFINE_KEEP_TPM")


def destroy(conn: Any, name: str) -> None:
    """Stop a domain at once if it runs."""
    dom = domain(conn, name)
    if dom.isActive():
        dom.destroy()


def start(conn: Any, name: str) -> None:
    """
    Start a domain; do nothing if it runs.

    A disk defined as a file that is a block device of the host is first redefined as a block
    device: QEMU would not open it.
    """
    dom = domain(conn, name)
    if dom.isActive():
        return
    root = readdomain.domain(secure_xml(conn, name))
    if blockdisk.make_block_disks(root, lambda path: Path(path).is_block_device()):
        conn.defineXML(to_text(root))
    dom.create()


def start_once(conn: Any, name: str, change: Callable[[str], str]) -> None:
    """Start a defined domain with XML that is changed for this run only."""
    conn.createXML(change(secure_xml(conn, name)), 0)


def set_autostart(conn: Any, name: str, state: object) -> None:
    """Set whether a domain starts with its host."""
    domain(conn, name).setAutostart(int(arguments.on_off("state", state)))


def _resizable(conn: Any, name: str, config: bool) -> Any:
    dom = domain(conn, name)
    if dom.isActive() and not config:
        raise LibvirtRefused(f"VM {name!r} runs; stop it first, or give config=True")
    return dom


def set_memory(conn: Any, name: str, memory_mib: int, *, config: bool) -> None:
    """Set the memory in a domain's definition; ``config`` allows it while the domain runs."""
    dom = _resizable(conn, name, config)
    size_kib = memory_mib * 1024
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG
    is_qemu = conn.getType().lower() == "qemu"
    if is_qemu and parse(inactive_xml(conn, name)).find("cpu/numa/cell") is not None:
        raise LibvirtRefused(
            f"VM {name!r} has NUMA cells, whose sum is its memory; change it with virt.update "
            f"{name} mem={memory_mib}"
        )
    dom.setMemoryFlags(size_kib, flags | libvirt.VIR_DOMAIN_MEM_MAXIMUM)
    dom.setMemoryFlags(size_kib, flags)


def set_vcpus(conn: Any, name: str, vcpus: int, *, config: bool) -> None:
    """Set the CPUs in a domain's definition; ``config`` allows it while the domain runs."""
    dom = _resizable(conn, name, config)
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG
    dom.setVcpusFlags(vcpus, flags | libvirt.VIR_DOMAIN_VCPU_MAXIMUM)
    dom.setVcpusFlags(vcpus, flags)


def set_stay(conn: Any, name: str, state: object) -> None:
    """Set whether rebalancing leaves a domain on its host."""
    dom = domain(conn, name)
    for is_live in (False, True) if dom.isActive() else (False,):
        _set_metadata(dom, "stay", "yes" if state else "no", live=is_live)


def note_cpu(conn: Any, name: str, qemu: str) -> None:
    """Record, for this run of a domain on any host, the QEMU that gave it its CPU."""
    _set_metadata(domain(conn, name), "cpu_qemu", qemu, live=True)


def note_made_variables(conn: Any, name: str) -> None:
    """Record in a definition that the firmware's variables did not exist before its build."""
    _set_metadata(domain(conn, name), "made_variables", "yes", live=False)


def _set_metadata(dom: Any, key: str, value: str | None, *, live: bool) -> None:
    """Set one of this project's metadata, of the running domain or of its definition."""
    # Metadata of this run must not get into the definition.
    text = dom.XMLDesc(0 if live else libvirt.VIR_DOMAIN_XML_INACTIVE)
    root = metadata.build_with_note(text, key, value)
    flag = libvirt.VIR_DOMAIN_AFFECT_LIVE if live else libvirt.VIR_DOMAIN_AFFECT_CONFIG
    dom.setMetadata(
        libvirt.VIR_DOMAIN_METADATA_ELEMENT, to_text(root), "saltvirt", METADATA_NS, flag
    )


def is_persistent(conn: Any, name: str) -> bool:
    """Return whether a domain stays defined when it stops."""
    return bool(domain(conn, name).isPersistent())


def _names_with(conn: Any, feature: str) -> set[str]:
    flag = getattr(libvirt, f"VIR_CONNECT_LIST_DOMAINS_{feature}")
    return {dom.name() for dom in conn.listAllDomains(flag)}


def list_autostarted_domains(conn: Any) -> set[str]:
    """Return the names of the domains that start with the host."""
    return _names_with(conn, "AUTOSTART")


def saved(conn: Any) -> set[str]:
    """Return the names of the domains with a saved state, from which they start again."""
    return _names_with(conn, "MANAGEDSAVE")


def list_domains_with_checkpoints(conn: Any) -> set[str]:
    """Return the names of the domains with checkpoints, mostly made by backups."""
    return _names_with(conn, "HAS_CHECKPOINT")


def _read_xml(conn: Any, name: str, *flags: str) -> str:
    bits = sum(getattr(libvirt, f"VIR_DOMAIN_XML_{flag}") for flag in flags)
    text: str = domain(conn, name).XMLDesc(bits)
    return text


def xml(conn: Any, name: str) -> str:
    """Return a domain's XML without secrets, such as a VNC password."""
    return _read_xml(conn, name)


def inactive_xml(conn: Any, name: str) -> str:
    """Return a domain's definition, which applies from its next start on, without secrets."""
    return _read_xml(conn, name, "INACTIVE")


def secure_xml(conn: Any, name: str) -> str:
    """Return a domain's definition with its secrets, as this host can define it again."""
    return _read_xml(conn, name, "INACTIVE", "SECURE")


def migratable_xml(conn: Any, name: str) -> str:
    """Return a domain's definition with its secrets, as another host can define it."""
    return _read_xml(conn, name, "INACTIVE", "SECURE", "MIGRATABLE")


def is_active(conn: Any, name: str) -> bool:
    """Return whether a domain runs, or is paused."""
    return bool(domain(conn, name).isActive())


def is_migrated(conn: Any, name: str) -> bool:
    """Return whether a domain last ran here and migrated away, by libvirt's own state."""
    state, reason = domain(conn, name).state()
    return (state, reason) == (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED)


def undefine_moved(conn: Any, name: str, *, with_snapshots: bool, keep_tpm: bool) -> None:
    """
    Remove the definition of a domain that is another host's; its files stay.

    with_snapshots
        Remove libvirt's metadata of its snapshots, too: the other host has them. Without this,
        libvirt refuses a domain with snapshots.
    keep_tpm
        Leave the TPM's state, which the other host shares.
    """
    dom = domain(conn, name)
    if dom.isActive():
        raise LibvirtRefused(f"VM {name!r} runs, so its definition is not removed")
    snapshot_flags = ("SNAPSHOTS_METADATA",) if with_snapshots else ()
    _undefine(dom, "KEEP_NVRAM", *snapshot_flags, *(("KEEP_TPM",) if keep_tpm else ()))


def mark_moved(conn: Any, name: str, host: str) -> None:
    """Mark a kept definition with the host that has its domain, and turn autostart off."""
    set_autostart(conn, name, "off")
    _set_metadata(domain(conn, name), "moved_to", host, live=False)


def unmark_moved(conn: Any, name: str) -> None:
    """Remove the mark of a kept definition: the domain is this host's own again."""
    if moved_to(conn, name) is not None:
        _set_metadata(domain(conn, name), "moved_to", None, live=False)


def moved_to(conn: Any, name: str) -> str | None:
    """Return the host that a kept definition's domain moved to, None if the domain is ours."""
    # Not the running XML: an operator who started the VM may have removed the mark there.
    text = inactive_xml(conn, name)
    host: str | None = readdomain.describe_notes(readdomain.domain(text))["moved_to"]
    return host


def file_paths(conn: Any, name: str) -> list[str]:
    """Return the files that are a domain's disks."""
    disks = readdomain.disk_sources(readdomain.domain(xml(conn, name)))
    paths = [disk["path"] for disk in disks if disk["type"] == "file" and disk["path"]]
    return [*paths, *(path for disk in disks if (path := _volume_file(conn, disk)))]


def _disk_sources(conn: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield ``(name, disks)`` of all domains, with a running domain's defined disks, too."""
    for name, texts in query.texts(conn):
        sources = [
            disk for text in texts for disk in readdomain.disk_sources(readdomain.domain(text))
        ]
        yield name, [_with_file_path(conn, disk) for disk in sources]


def _volume_file(conn: Any, disk: dict[str, Any]) -> str | None:
    """Return the file of a disk that is named as a pool's volume; else None."""
    name, _, volume = (disk["path"] or "").partition("/")
    pool = pools.find(conn, name) if disk["type"] == "volume" and name else None
    return None if pool is None else storagepool.volume_path(parse(pool.XMLDesc(0)), volume)


def _with_file_path(conn: Any, disk: dict[str, Any]) -> dict[str, Any]:
    """Return a disk with the path of its file, even if it is named as a pool's volume."""
    if disk["type"] != "volume" or not disk["path"]:
        return disk
    name, _, volume = disk["path"].partition("/")
    # Not libvirt's volume: a pool that is inactive, or was not refreshed, lacks it.
    pool = pools.find(conn, name)
    folder = None if pool is None else parse(pool.XMLDesc(0)).findtext("target/path")
    return {**disk, "path": f"{folder}/{volume}"} if folder else disk


def find_disk_file(conn: Any, path: str) -> str:
    """Return the file of a disk that is named as a pool's volume, else the path as given."""
    file = None if path.startswith("/") else _volume_file(conn, {"type": "volume", "path": path})
    return file or path


def disks(conn: Any) -> dict[str, set[str]]:
    """Return ``{name: paths}`` of the disks of all domains, and the backing files libvirt lists."""
    out = {}
    for name, sources in _disk_sources(conn):
        backing = [(disk["backing"] or {}).get("path") for disk in sources]
        out[name] = {path for path in [*(d["path"] for d in sources), *backing] if path}
    return out


def overlays(conn: Any) -> set[str]:
    """
    Return the paths of all domains' disks that may have backing files.

    A direct backing file that libvirt lists is included, if it may have backing files in turn.
    """
    return {path for paths in overlays_by_vm(conn).values() for path in paths}


def overlays_by_vm(conn: Any) -> dict[str, set[str]]:
    """Return ``{name: paths}`` of all domains, with the paths as in :func:`overlays`."""
    out = {}
    for name, disks in _disk_sources(conn):
        layers = (layer for disk in disks for layer in (disk, disk["backing"]) if layer)
        # A guest can write an overlay's header into a raw disk.
        out[name] = {
            layer["path"] for layer in layers if layer["path"] and layer["format"] != "raw"
        }
    return out


def disk_format(conn: Any, path: str | Path) -> str | None:
    """Return the format of a file by libvirt's definitions, None if it is no domain's disk."""
    real_path = os.path.realpath(path)
    for _name, sources in _disk_sources(conn):
        for disk in sources:
            if disk["path"] and os.path.realpath(disk["path"]) == real_path:
                defined_format: str | None = disk["format"]
                return defined_format
    return None


def disks_in_use(conn: Any, exclude: str | None = None) -> set[str]:
    """
    Return the paths of all domains' disks and backing files, except for one domain.

    Each path is there as written, and with its symbolic links resolved.
    """
    used_paths = {path for name, paths in disks(conn).items() if name != exclude for path in paths}
    return used_paths | {os.path.realpath(path) for path in used_paths}
