"""Why a host cannot take a VM."""

from saltvirt.placement import generation


def free(host):
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


def reasons(host, need):
    """Return every reason why a host cannot take a VM; empty if it can."""
    return [
        *_state(host, need),
        *_room(host, need),
        *_machine(host, need),
        *generation.reasons(host, need),
        *_links(host, need),
        *_groups(host, need),
    ]


def _state(host, need):
    if host.get("maintenance"):
        yield "in maintenance"
    if need.name in host["vms"]:
        yield f"it already has a VM called {need.name}"
    elif need.name in host["building"]:
        yield f"a VM called {need.name} is being built there"


def _room(host, need):
    have = free(host)
    if need.vcpus > have["vcpus"]:
        yield f"{need.vcpus} CPUs wanted, {max(0, have['vcpus'])} of {_limit(host)} free"
    if need.memory_mib > have["memory_mib"]:
        free_mib = max(0, have["memory_mib"])
        yield f"{need.memory_mib} MiB of memory wanted, {free_mib} MiB free"
    if _disk_mib(host, need) > have["disk_mib"]:
        free_mib = max(0, have["disk_mib"])
        yield f"{_disk_mib(host, need)} MiB of disk wanted, {free_mib} MiB free"


def _limit(host):
    return int(host["cpu"]["vcpus_limit"])


def _disk_mib(host, need):
    profile = host["profiles"]["disk"].get(need.disk_profile, {})
    return max(need.disk_mib, profile.get("size_mib", 0))


def _machine(host, need):
    types = host["domain_types"]
    why = why_not_type(types, need.domain_type)
    if why:
        yield why
    if need.arch and need.arch not in host["archs"]:
        yield f"no {need.arch} guests there ({', '.join(host['archs'])})"
    kind = need.domain_type or types["default"]
    lacking = sorted(set(need.cpu_features) - set(host["cpu"]["features"].get(kind, ())))
    if lacking and not why:
        yield f"its CPU lacks {', '.join(lacking)} for {kind} guests"


def why_not_type(types, wanted):
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


def _links(host, need):
    yield from _profiles(host, need)
    profile = host["profiles"]["nic"].get(need.nic_profile, {})

    def wanted(kind):
        return {*getattr(need, kind), *profile.get(kind, ())}

    for bridge in sorted(wanted("bridges") - set(host["bridges"])):
        yield f"no bridge {bridge} there"
    active = {name for name, state in host["networks"].items() if state["active"]}
    for network in sorted(wanted("networks") - active):
        yield f"no active network {network} there"
    for link in sorted(wanted("links") - set(host["links"])):
        yield f"no link {link} there"


def _profiles(host, need):
    for kind, wanted in (("nic", need.nic_profile), ("disk", need.disk_profile)):
        profile = host["profiles"][kind].get(wanted)
        if wanted and profile is None:
            yield f"no {kind} profile {wanted!r} there"
        elif wanted and "error" in profile:
            yield profile["error"]


def _groups(host, need):
    for name, vm in sorted(host["vms"].items()):
        clash = set(vm["anti_affinity"]) & set(need.anti_affinity)
        if clash:
            yield f"{name} of the anti-affinity group {sorted(clash)[0]} is there"
            return
