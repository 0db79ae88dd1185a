"""Read a host's facts from libvirt: versions, capabilities, pools, networks, devices."""

import logging
import time
from collections.abc import Mapping
from typing import Any

from saltvirt.core.errors import StorageError
from saltvirt.core.units import MIB
from saltvirt.libvirt.connect import libvirt
from saltvirt.libvirt.errorcodes import DOMAIN_GONE, has_code, read_existing
from saltvirt.xml import parse
from saltvirt.xml.node import capabilities as capabilities_
from saltvirt.xml.node import nodedev

# libvirt's errors if it cannot expand a model: no such call, architecture or domain type.
_NO_CPU_DATA = ("NO_SUPPORT", "CONFIG_UNSUPPORTED", "OPERATION_UNSUPPORTED", "INVALID_ARG")
# Up to libvirt 9.0, an unknown feature is an internal error, and an unknown model is unsupported.
_CPU_ERRORS = ("CPU_INCOMPATIBLE", "INTERNAL_ERROR", "CONFIG_UNSUPPORTED")

# Part of libvirt's message: this error has no code of its own.
_BUSY = "asynchronous jobs running"

log = logging.getLogger(__name__)


def versions(conn: Any) -> Any:
    """Return ``{"libvirt": "9.0.0", "qemu": "7.2.22"}``."""
    return {"libvirt": _dotted(conn.getLibVersion()), "qemu": _dotted(conn.getVersion())}


def _dotted(number: int) -> str:
    return f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}"


def capabilities(conn: Any) -> dict[str, Any]:
    """Return a host's capabilities as plain data; see :mod:`saltvirt.xml.node.capabilities`."""
    return capabilities_.read(conn.getCapabilities())


def pools(conn: Any) -> dict[str, dict[str, Any]]:
    """Return ``{pool: {path, type, free_mib, capacity_mib, active}}``."""

    def read(pool: Any) -> dict[str, Any]:
        state, capacity, _allocation, free = pool.info()
        root = parse(pool.XMLDesc(0))
        return {
            "type": root.get("type"),
            "path": root.findtext("target/path"),
            "active": state == libvirt.VIR_STORAGE_POOL_RUNNING,
            "capacity_mib": capacity // MIB,
            "free_mib": free // MIB,
        }

    return dict(read_existing(conn.listAllStoragePools(0), read, *DOMAIN_GONE, "NO_STORAGE_POOL"))


def networks(conn: Any) -> dict[str, Any]:
    """Return ``{network: {active, bridge, forward}}``; ``forward`` is "" if it is isolated."""
    out = {}
    for network in conn.listAllNetworks(0):
        root = parse(network.XMLDesc(0))
        bridge, forward = root.find("bridge"), root.find("forward")
        out[network.name()] = {
            "active": bool(network.isActive()),
            "bridge": bridge.get("name") if bridge is not None else None,
            # libvirt's own default for an element without a mode.
            "forward": forward.get("mode", "nat") if forward is not None else "",
        }
    return out


def filters(conn: Any) -> list[str]:
    """Return the names of the host's network filters, sorted."""
    return sorted(nwfilter.name() for nwfilter in conn.listAllNWFilters(0))


def has_machine(conn: Any, arch: str, machine: str | None, domain_type: str) -> bool:
    """Return whether this host's QEMU supports a machine type."""
    try:
        conn.getDomainCapabilities(None, arch, machine, domain_type)
    except libvirt.libvirtError:
        return False
    return True


def own_cpu(conn: Any) -> str | None:
    """Return libvirt's description of this host's CPU, None if it has none."""
    return capabilities_.own_cpu(conn.getCapabilities())


def cpu_features(conn: Any, capabilities: Mapping[str, Any], domain_type: str) -> list[str]:
    """
    Return the CPU features that guests of a domain type can have here, the model's own included.

    libvirt's capabilities list only the features beyond the model; a baseline expands the model. If
    libvirt cannot say which CPU a domain type gets, the host's own counts; on an architecture
    without CPU data, the listed features are all that is known.
    """
    arch, flag = capabilities["arch"], libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
    try:
        model = capabilities_.host_model(conn.getDomainCapabilities(None, arch, None, domain_type))
        if model is not None:
            return capabilities_.required_features(
                conn.baselineHypervisorCPU(None, arch, None, domain_type, [model], flag)
            )
    except libvirt.libvirtError as exc:
        if not has_code(exc, *_NO_CPU_DATA):
            raise
    return _own_features(conn, capabilities)


def _own_features(conn: Any, capabilities: Mapping[str, Any]) -> list[str]:
    listed_features: list[str] = capabilities["features"]
    cpu_xml, flag = own_cpu(conn), libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
    if cpu_xml is None or capabilities["model"] is None:
        return listed_features
    try:
        return capabilities_.required_features(conn.baselineCPU([cpu_xml], flag))
    except libvirt.libvirtError as exc:
        if has_code(exc, *_NO_CPU_DATA):
            return listed_features
        raise


def why_not_cpu(
    conn: Any,
    arch: str,
    machine: str | None,
    domain_type: str,
    *,
    cpu: str | None,
    host_cpu: str | None,
) -> str | None:
    """
    Return what a VM needs and this host's CPU or QEMU lacks; None if nothing.

    cpu
        The VM's ``<cpu>``, None if it takes any.
    host_cpu
        The CPU of the VM's present host, if the guest has that CPU unchanged.
    """
    flag = libvirt.VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE
    try:
        if host_cpu:
            conn.compareCPU(host_cpu, flag)
        elif cpu:
            conn.compareHypervisorCPU(None, arch, machine, domain_type, cpu, flag)
    except libvirt.libvirtError as exc:
        if has_code(exc, *_CPU_ERRORS):
            return f"its CPU does not suffice: {exc}"
        raise
    return None


def refresh_pool(conn: Any, name: str, patience_s: float = 60) -> None:
    """
    Have libvirt list new files in a pool's folder.

    patience_s
        How long to wait while other jobs create or copy volumes there: libvirt does not refresh
        the pool meanwhile. Defaults to a minute; then StorageError is raised.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            conn.storagePoolLookupByName(name).refresh(0)
            return
        except libvirt.libvirtError as exc:
            if _BUSY not in str(exc):
                raise
            if time.monotonic() >= deadline:
                raise StorageError(
                    f"another job creates or copies a volume in storage pool {name!r}, and libvirt "
                    "does not refresh the pool meanwhile; try again when that is over"
                ) from exc
        time.sleep(0.2)


def forget_removed(conn: Any, name: str) -> None:
    """Have libvirt notice files removed from a pool's folder; log a failure."""
    try:
        refresh_pool(conn, name, patience_s=0)
    except (libvirt.libvirtError, StorageError) as exc:
        log.warning("storage pool %s was not refreshed: %s", name, exc)


def free_memory_mib(conn: Any) -> int:
    """Return the free memory in MiB, caches included."""
    stats = conn.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS, 0)
    free_mib: int = sum(stats.get(key, 0) for key in ("free", "buffers", "cached")) // 1024
    return free_mib


def devices(conn: Any) -> list[dict[str, Any]]:
    """Return the host's PCI and USB devices, among which a VM's devices are found."""
    flags = (
        libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_USB_DEV
    )
    rows = (nodedev.read(device.XMLDesc(0)) for device in conn.listAllDevices(flags))
    return sorted(rows, key=lambda device: device["name"])


def describe_devices(conn: Any) -> list[dict[str, Any]]:
    """Return PCI and USB devices and network links, as ``virt.node_devices`` shows them."""
    kinds = ("PCI_DEV", "USB_DEV", "NET")
    flags = sum(getattr(libvirt, f"VIR_CONNECT_LIST_NODE_DEVICES_CAP_{kind}") for kind in kinds)
    rows = (nodedev.describe(device.XMLDesc(0)) for device in conn.listAllDevices(flags))
    return sorted((row for row in rows if row), key=lambda row: str(row["name"]))
