"""Facts about a host that libvirt knows: versions, capabilities, pools, networks."""

from saltvirt.kvm.connect import is_gone, libvirt
from saltvirt.units import MIB
from saltvirt.xml import parse, read

# What libvirt answers where it cannot expand a model: no such call, architecture or domain type.
_NO_CPU_DATA = ("NO_SUPPORT", "CONFIG_UNSUPPORTED", "OPERATION_UNSUPPORTED", "INVALID_ARG")


def versions(conn):
    """Return ``{"libvirt": "9.0.0", "qemu": "7.2.22"}``."""
    return {"libvirt": _dotted(conn.getLibVersion()), "qemu": _dotted(conn.getVersion())}


def _dotted(number):
    return f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}"


def capabilities(conn):
    """Return the host's capabilities as plain data; see :func:`saltvirt.xml.read.capabilities`."""
    return read.capabilities(conn.getCapabilities())


def pools(conn):
    """Return ``{pool: {path, type, free_mib, capacity_mib, active}}``."""
    out = {}
    for pool in conn.listAllStoragePools(0):
        try:
            state, capacity, _allocation, free = pool.info()
            root = parse(pool.XMLDesc(0))
        except libvirt.libvirtError as exc:
            if is_gone(exc) or exc.get_error_code() == libvirt.VIR_ERR_NO_STORAGE_POOL:
                continue
            raise
        out[pool.name()] = {
            "type": root.get("type"),
            "path": root.findtext("target/path"),
            "active": state == libvirt.VIR_STORAGE_POOL_RUNNING,
            "capacity_mib": capacity // MIB,
            "free_mib": free // MIB,
        }
    return out


def networks(conn):
    """Return ``{network: {active, bridge}}``."""
    out = {}
    for network in conn.listAllNetworks(0):
        bridge = parse(network.XMLDesc(0)).find("bridge")
        out[network.name()] = {
            "active": bool(network.isActive()),
            "bridge": bridge.get("name") if bridge is not None else None,
        }
    return out


def filters(conn):
    """Return the names of the host's network filters, sorted."""
    return sorted(one.name() for one in conn.listAllNWFilters(0))


def has_machine(conn, about):
    """Return whether this host's QEMU knows a VM's machine type."""
    try:
        conn.getDomainCapabilities(None, about["arch"], about.get("machine"),
                                   about["domain_type"])  # fmt: skip
    except libvirt.libvirtError:
        return False
    return True


def own_cpu(conn):
    """Return libvirt's description of this host's own CPU, None if it has none."""
    return read.cpu(parse(conn.getCapabilities()))[1]


def cpu_features(conn, capabilities, domain_type):
    """
    Return the CPU features that guests of a domain type can have here, the model's own included.

    libvirt lists what a host's CPU has beyond its model; what the model implies it tells apart. On
    an architecture where it has no such data the listed ones are all that is known.
    """
    try:
        text = conn.getDomainCapabilities(None, capabilities["arch"], None, domain_type)
        model = read.host_model(text)
        if model is None:
            return capabilities["features"]
        flag = libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
        expanded = conn.baselineHypervisorCPU(None, capabilities["arch"], None, domain_type,
                                              [model], flag)  # fmt: skip
    except libvirt.libvirtError as exc:
        if _is_one_of(exc, _NO_CPU_DATA):
            return capabilities["features"]
        raise
    return read.required_features(expanded)


def why_not_cpu(conn, about):
    """
    Return what this host's CPU, or its QEMU, lacks of a VM's; None if it lacks nothing.

    about
        ``cpu`` is the VM's ``<cpu>``, ``host_cpu`` that of the host it runs on if the VM has it
        as it is.
    """
    flag = libvirt.VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE
    try:
        if about.get("host_cpu"):
            conn.compareCPU(about["host_cpu"], flag)
        elif about.get("cpu"):
            conn.compareHypervisorCPU(None, about["arch"], about.get("machine"),
                                      about["domain_type"], about["cpu"], flag)  # fmt: skip
    except libvirt.libvirtError as exc:
        if _is_one_of(exc, _CPU_ERRORS):
            return f"its CPU does not suffice: {exc}"
        raise
    return None


# A feature that a newer libvirt has named is an internal error, says 9.0; a model, unsupported.
_CPU_ERRORS = ("CPU_INCOMPATIBLE", "INTERNAL_ERROR", "CONFIG_UNSUPPORTED")


def _is_one_of(exc, names):
    return exc.get_error_code() in [getattr(libvirt, f"VIR_ERR_{name}") for name in names]


def refresh_pool(conn, name):
    """Let libvirt see what was made or removed in a pool's folder."""
    conn.storagePoolLookupByName(name).refresh(0)


def free_memory_mib(conn):
    """Return the memory that nobody uses, caches counted as free, in MiB."""
    stats = conn.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS, 0)
    return sum(stats.get(key, 0) for key in ("free", "buffers", "cached")) // 1024


def devices(conn):
    """Return the PCI and USB devices of the host, as ``virt.node_devices`` shows them."""
    flags = (
        libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_USB_DEV
    )
    found = (read.device(device.XMLDesc(0)) for device in conn.listAllDevices(flags))
    return sorted(found, key=lambda device: device["name"])
