"""Why a host cannot take a VM."""

from collections.abc import Iterator

from saltvirt.model import Requirements
from saltvirt.placement import generation, groups
from saltvirt.placement.facts import DomainTypes, HostInfo

DIMENSIONS = ("vcpus", "memory_mib", "disk_mib")


def free(host: HostInfo) -> dict[str, int]:
    """
    Return what a host still has to give: ``{"vcpus", "memory_mib", "disk_mib"}``.

    host
        One answer of ``virt.host_info``.
    """
    return {
        "vcpus": int(host["cpu"]["vcpus_limit"] - host["cpu"]["vcpus_committed"]),
        "memory_mib": host["memory"]["limit_mib"] - host["memory"]["committed_mib"],
        "disk_mib": host["storage"]["limit_mib"] - host["storage"]["committed_mib"],
    }


def limits(host: HostInfo) -> dict[str, int]:
    """Return what a host has to give in all, with the keys of :func:`free`."""
    return {
        "vcpus": host["cpu"]["vcpus_limit"],
        "memory_mib": host["memory"]["limit_mib"],
        "disk_mib": host["storage"]["limit_mib"],
    }


def reasons(host: HostInfo, need: Requirements) -> list[str]:
    """Return every reason why a host cannot take a VM; empty if it can."""
    return [*_taken(host, need), *_room(host, need), *standing(host, need), *apart(host, need)]


def standing(host: HostInfo, need: Requirements) -> list[str]:
    """Return the reasons that stay whichever VMs come and go: what the host is, not what it has."""
    return [
        *(["in maintenance"] if host.get("maintenance") else []),
        *_machine(host, need),
        *generation.reasons(host, need),
        *_links(host, need),
    ]


def _taken(host: HostInfo, need: Requirements) -> Iterator[str]:
    if need.name in host["vms"]:
        yield f"it already has a VM called {need.name}"
    elif need.name in host["building"]:
        yield f"a VM called {need.name} is being built there"


def _room(host: HostInfo, need: Requirements) -> Iterator[str]:
    have = free(host)
    if need.vcpus > have["vcpus"]:
        yield f"{need.vcpus} CPUs wanted, {max(0, have['vcpus'])} of {_limit(host)} free"
    if need.memory_mib > have["memory_mib"]:
        free_mib = max(0, have["memory_mib"])
        yield f"{need.memory_mib} MiB of memory wanted, {free_mib} MiB free"
    if _disk_mib(host, need) > have["disk_mib"]:
        free_mib = max(0, have["disk_mib"])
        yield f"{_disk_mib(host, need)} MiB of disk wanted, {free_mib} MiB free"


def _limit(host: HostInfo) -> int:
    return int(host["cpu"]["vcpus_limit"])


def _disk_mib(host: HostInfo, need: Requirements) -> int:
    profile = host["profiles"]["disk"].get(need.disk_profile or "", {})
    return max(need.disk_mib, profile.get("size_mib", 0))


def _machine(host: HostInfo, need: Requirements) -> Iterator[str]:
    types = host["domain_types"]
    why = why_not_type(types, need.domain_type)
    if why:
        yield why
    if need.arch and need.arch not in host["archs"]:
        yield f"no {need.arch} guests there ({', '.join(host['archs'])})"
    kind = need.domain_type or types["default"]
    lacking = sorted(set(need.cpu_features) - set(host["cpu"]["features"].get(kind or "", ())))
    if lacking and not why:
        yield f"its CPU lacks {', '.join(lacking)} for {kind} guests"


def why_not_type(types: DomainTypes, wanted: str | None) -> str | None:
    """
    Return why a host cannot run guests of a domain type, or None.

    types
        ``{"default", "usable", "why"}`` of the host.
    wanted
        ``kvm`` or ``qemu``; None for what the host runs by default.
    """
    if wanted and wanted not in types["usable"]:
        others = ", ".join(types["usable"]) or "none at all"
        return f"no {wanted} guests there ({others}): {types['why']}"
    if not wanted and types["default"] is None:
        return f"it cannot say which guests run there: {types['why']}"
    return None


def _links(host: HostInfo, need: Requirements) -> Iterator[str]:
    yield from _profiles(host, need)
    profile = host["profiles"]["nic"].get(need.nic_profile or "", {})
    for bridge in sorted({*need.bridges, *profile.get("bridges", ())} - set(host["bridges"])):
        yield f"no bridge {bridge} there"
    active = {name for name, state in host["networks"].items() if state["active"]}
    for network in sorted({*need.networks, *profile.get("networks", ())} - active):
        yield f"no active network {network} there"
    for link in sorted({*need.links, *profile.get("links", ())} - set(host["links"])):
        yield f"no link {link} there"


def _profiles(host: HostInfo, need: Requirements) -> Iterator[str]:
    nic, disk = host["profiles"]["nic"], host["profiles"]["disk"]
    for kind, wanted, profile in (
        ("nic", need.nic_profile, nic.get(need.nic_profile or "")),
        ("disk", need.disk_profile, disk.get(need.disk_profile or "")),
    ):
        if wanted and profile is None:
            yield f"no {kind} profile {wanted!r} there"
        elif wanted and profile and "error" in profile:
            yield profile["error"]


def apart(host: HostInfo, need: Requirements) -> Iterator[str]:
    """Yield why the VM's anti-affinity groups keep it off a host."""
    if not need.anti_affinity:
        return
    for name, vm in sorted(groups.members(host).items()):
        clash = set(vm["anti_affinity"]) & set(need.anti_affinity)
        if clash and name != need.name:
            is_there = "is there" if name in host["vms"] else "is being built there or on its way"
            yield f"{name} of the anti-affinity group {sorted(clash)[0]} {is_there}"
            return
