"""Look at a host and its VMs: libvirt's bulk calls, one XML each, no subprocess."""

import time
from pathlib import Path

from saltvirt import profiles
from saltvirt.errors import BadArgument, NoSuchVm, VirtError
from saltvirt.kvm import host, prove, query
from saltvirt.nics import needs
from saltvirt.ops import claims, storage
from saltvirt.placement import generation
from saltvirt.spec import console_log
from saltvirt.units import MIB
from saltvirt.xml import read

RUN_DIR = "/run/salt-virt"


def vm_info(conn, name=None):
    """Return ``{name: {...}}`` of all VMs or of one, as ``virt.vm_info`` shows them."""
    return {row["name"]: _describe(row) for row in query.rows(conn, name)}


def _describe(row):
    root = read.domain(row["xml"])
    return {
        "cpu": row["vcpus"],
        "cputime": row["cputime_ns"],
        "disks": disks(root, row["blocks"]),
        "graphics": read.graphics(root),
        "nics": read.nics(root),
        "uuid": root.findtext("uuid", ""),
        "loader": read.loader(root),
        **read.after(root),
        "maxMem": row["max_memory_kib"],
        "mem": row["memory_kib"],
        "state": row["state"],
    }


def disks(root, blocks):
    """Return ``{target: {file, type, file format, virtual size, disk size}}``; sizes in bytes."""
    return {s["target"]: _disk(s, blocks.get(s["target"])) for s in read.disk_sources(root)}


def _disk(source, stats):
    out = {"file": source["path"] or "", "type": source["device"], "file format": source["format"]}
    if source["path"] is None:
        return out
    backing = source["backing"]
    if source["type"] == "file":
        sizes = storage.measure(source["path"], source["format"])
        if sizes is None and stats is None:
            return {**out, "error": "the file is missing or cannot be read"}
        if sizes:
            out["virtual size"], out["disk size"] = sizes["virtual"], sizes["actual"]
            backing = backing or (sizes["backing"] and {"path": sizes["backing"], "format": None})
    if stats:
        out["virtual size"] = stats["capacity"]
        out.setdefault("disk size", stats["allocation"])
    if backing:
        out["backing file"] = {"file": backing["path"], "file format": backing["format"] or ""}
    return out


def full_info(conn):
    """Return ``{freecpu, freemem, node_info, vm_info}``; ``freemem`` in MiB."""
    node, rows = query.node(conn), query.rows(conn)
    return {
        **_free(node, rows),
        "node_info": node,
        "vm_info": {row["name"]: _describe(row) for row in rows},
    }


def free(conn):
    """Return ``{freecpu, freemem}`` as in :func:`full_info`, without reading any XML."""
    return _free(query.node(conn), query.rows(conn, with_xml=False, with_blocks=False))


def _free(node, rows):
    used_cpus = sum(row["vcpus"] for row in rows if row["state"] == "running")
    used_kib = sum(row["memory_kib"] for row in rows if row["state"] in ("running", "paused"))
    return {
        "freecpu": node["cpus"] - used_cpus,
        "freemem": round(node["phymemory"] - used_kib / 1024, 1),
    }


def load(conn, seconds):
    """Return ``{cpus, memory_mib, vms: {name: {cpu, memory_mib}}}`` as used over some seconds."""
    def sample():
        return {row["name"]: row for row in query.rows(conn, with_xml=False, with_blocks=False)}

    first, begin = sample(), time.monotonic()
    time.sleep(seconds)
    last, passed_ns = sample(), (time.monotonic() - begin) * 1e9
    node = query.node(conn)
    return {
        "cpus": node["cpus"],
        "memory_mib": node["phymemory"],
        "vms": {
            name: {
                "cpu": round((row["cputime_ns"] - first[name]["cputime_ns"]) / passed_ns, 3),
                "memory_mib": row["rss_kib"] // 1024,
            }
            for name, row in last.items()
            if name in first and row["state"] == "running"
        },
    }


def seen(conn, settings):
    """Return what :func:`host_info` needs of the domains, read now, and until when it holds."""
    holds_until = claims.last_end(settings)
    return (*_vms(conn, settings), holds_until)


def host_info(conn, settings, known=None):
    """
    Return everything placement needs to know of this host, as plain data.

    known
        What :func:`seen` returned. A domain that is being started holds up whoever reads it, so it
        is read before a lock is taken; it is read again if a claim has ended since.
    """
    capabilities = host.capabilities(conn)
    node = query.node(conn)
    # First: a claim that ends meanwhile is a VM that is listed then. The other way round it would
    # be in neither, and its room handed out twice.
    building = claims.live(settings)
    if known is None or known[-1] != claims.last_end(settings):
        known = seen(conn, settings)
    vms, promises, _ = known
    extra = [claim for name, claim in building.items() if name not in vms]
    types = domain_types(conn, settings, capabilities)
    features = {kind: host.cpu_features(conn, capabilities, kind) for kind in types["usable"]}
    return {
        "maintenance": in_maintenance(settings),
        "vms": vms,
        "building": sorted(building),
        "unfinished": sorted(claims.stale(settings)),
        "cpu": {**_cpu(settings, node, capabilities, vms, extra), "features": features},
        "memory": _memory(conn, settings, node, vms, extra),
        "storage": _storage(conn, settings, promises, extra),
        "bridges": bridges(),
        "links": links(),
        "networks": host.networks(conn),
        "profiles": _profiles(settings),
        "domain_types": types,
        "machines": generation.known(capabilities["guests"], capabilities["arch"]),
        "archs": sorted({guest["arch"] for guest in capabilities["guests"]}),
        "versions": host.versions(conn),
    }


def _vms(conn, settings):
    """Return the VMs, and what their disks in the image folder may take, in bytes."""
    out, promises = {}, {"virtual": 0, "growth": 0}
    images = f"{settings.images}/"
    for row in query.rows(conn, with_blocks=False):
        root = read.domain(row["xml"])
        ours = read.ours(root)
        out[row["name"]] = {
            "state": row["state"],
            "vcpus": row["max_vcpus"],
            "memory_mib": row["max_memory_kib"] // 1024,
            "affinity": ours["affinity"],
            "anti_affinity": ours["anti_affinity"],
        }
        for disk in read.disk_sources(root):
            if (disk["path"] or "").startswith(images):
                _add_promise(promises, storage.measure(disk["path"], disk["format"]))
    return out, promises


def _add_promise(promises, sizes):
    if sizes:
        promises["virtual"] += sizes["virtual"]
        promises["growth"] += max(0, sizes["virtual"] - sizes["actual"])


def _cpu(settings, node, capabilities, vms, extra):
    total = settings.capacity.get("vcpus", node["cpus"])
    return {
        "threads": node["cpus"],
        "model": capabilities["model"],
        "vendor": capabilities["vendor"],
        "arch": capabilities["arch"],
        "vcpus_limit": int(total * settings.cpu_ratio),
        "vcpus_committed": _sum("vcpus", vms, extra),
    }


def _memory(conn, settings, node, vms, extra):
    total = settings.capacity.get("memory_mib", node["phymemory"])
    return {
        "total_mib": node["phymemory"],
        "free_mib": host.free_memory_mib(conn),
        "limit_mib": int(total * settings.memory_ratio - settings.reserve_mib),
        "committed_mib": _sum("memory_mib", vms, extra),
    }


def _sum(key, vms, extra):
    return sum(vm[key] for vm in vms.values()) + sum(claim[key] for claim in extra)


def _storage(conn, settings, promises, extra):
    total, free = storage.free_mib(settings.images)
    capacity = settings.capacity.get("disk_mib")
    if capacity is None:
        committed = total - free + promises["growth"] // MIB
    else:
        committed = promises["virtual"] // MIB
    limit = (capacity or total) * settings.disk_ratio - settings.disk_reserve_mib
    return {
        "images": {"path": settings.images, "total_mib": total, "free_mib": free},
        "pools": host.pools(conn),
        "limit_mib": int(limit),
        "committed_mib": committed + sum(claim["disk_mib"] for claim in extra),
    }


def _profiles(settings):
    return {
        "nic": {name: _nic_needs(settings, name) for name in {"default", *settings.nic}},
        "disk": {name: _disk_needs(settings, name) for name in {"default", *settings.disk}},
    }


def _nic_needs(settings, name):
    try:
        nics = profiles.nics("probe", settings.nic, name, None)
    except BadArgument as exc:
        return {"error": str(exc)}
    return {key: list(value) if isinstance(value, tuple) else value
            for key, value in needs(nics).items()}  # fmt: skip


def _disk_needs(settings, name):
    try:
        disks_ = profiles.disks(settings.disk, name, None, None)
    except BadArgument as exc:
        return {"error": str(exc)}
    return {"size_mib": sum(disk.size_mib or 0 for disk in disks_)}


def domain_types(conn, settings, capabilities):
    """
    Return ``{"default", "usable", "why"}``; ``virt:hypervisor`` wins, then the proof of KVM.

    Where KVM is offered and could be neither proved nor disproved there is no default: emulation
    would be many times slower, and nobody would know why.
    """
    offered = {kind for guest in capabilities["guests"] for kind in guest["domain_types"]}
    if settings.hypervisor:
        why = f"virt:hypervisor is set to {settings.hypervisor}"
        return {"default": settings.hypervisor, "usable": [settings.hypervisor], "why": why}
    proof = prove.kvm(conn, capabilities, RUN_DIR)
    usable = [kind for kind in ("kvm", "qemu") if kind in offered and (
        kind != "kvm" or proof["usable"])]  # fmt: skip
    is_open = proof["usable"] is None
    why = f"{proof['why']}; set virt:hypervisor to kvm or qemu" if is_open else proof["why"]
    return {"default": usable[0] if usable and not is_open else None, "usable": usable, "why": why}


def bridges():
    """Return the host's bridges."""
    return sorted(path.parent.name for path in Path("/sys/class/net").glob("*/bridge"))


def links():
    """Return the host's own links, without its loopback and without those of VMs."""
    names = (path.name for path in Path("/sys/class/net").iterdir())
    return sorted(name for name in names if name != "lo" and not name.startswith("vnet"))


def in_maintenance(settings):
    """Return whether the host takes no new VMs."""
    return (Path(settings.state_dir) / "maintenance").exists()


def presence(conn, settings, name):
    """Return ``{"state", "building", "unfinished"}``: all that locating one VM needs."""
    try:
        state = query.state(conn, name)
    except NoSuchVm:
        state = None
    return {
        "state": state,
        "building": name in claims.live(settings),
        "unfinished": name in claims.stale(settings),
    }


def console_tail(name, lines):
    """
    Return the last lines of a VM's console log; no more than a MiB of it is read.

    The guest writes it: control characters, which could steer a terminal, are left out.
    """
    path = Path(console_log(name))
    try:
        with path.open("rb") as handle:
            handle.seek(max(0, path.stat().st_size - MIB))
            text = handle.read().decode(errors="replace")
    except OSError as exc:
        raise VirtError(f"no console log of {name!r}: {exc.strerror} ({path})") from exc
    return "\n".join(printable(line) for line in text.splitlines()[-lines:])


def printable(line):
    """Return a line without control characters."""
    return "".join(char for char in line if char.isprintable() or char == "\t")
