"""Where many VMs go at once: each choice counts for the next one."""

from saltvirt.placement import choose, moves


def with_vm(host, need):
    """Return what a host would say of itself with one more VM on it."""
    cpu, memory, disk = host["cpu"], host["memory"], host["storage"]
    vm = {
        "state": "running",
        "vcpus": need.vcpus,
        "memory_mib": need.memory_mib,
        "affinity": list(need.affinity),
        "anti_affinity": list(need.anti_affinity),
    }
    return {
        **host,
        "vms": {**host["vms"], need.name: vm},
        "cpu": {**cpu, "vcpus_committed": cpu["vcpus_committed"] + need.vcpus},
        "memory": {**memory, "committed_mib": memory["committed_mib"] + need.memory_mib},
        "storage": {**disk, "committed_mib": disk["committed_mib"] + need.disk_mib},
    }


def without_vm(host, need):
    """Return what a host would say of itself with one VM less on it."""
    cpu, memory, disk = host["cpu"], host["memory"], host["storage"]
    return {
        **host,
        "vms": {name: vm for name, vm in host["vms"].items() if name != need.name},
        "cpu": {**cpu, "vcpus_committed": cpu["vcpus_committed"] - need.vcpus},
        "memory": {**memory, "committed_mib": memory["committed_mib"] - need.memory_mib},
        "storage": {**disk, "committed_mib": disk["committed_mib"] - need.disk_mib},
    }


def evacuate(hosts, abouts, weights=None, refused=None, silent=None):
    """
    Return where each VM of a host goes: ``(moves, stays)``; big ones first, equal ones by name.

    hosts
        ``{host: answer of virt.host_info}`` of all others.
    abouts
        ``{name: answer of virt.migration_info}`` of the VMs.
    refused
        ``{name: {host: reasons}}`` of hosts that have said themselves that they cannot take a VM.
    silent
        ``{host: why}`` of others that have not answered.

    ``moves`` is ``{name: host}`` in the order in which they are made, ``stays`` ``{name: why}``.
    """
    hosts, out, stays = dict(hosts), {}, {}
    by_size = sorted(abouts.values(), key=lambda a: (-a["memory_mib"], -a["vcpus"], a["name"]))
    for about in by_size:
        if about["obstacles"]:
            stays[about["name"]] = "; ".join(about["obstacles"])
            continue
        need = moves.need(about)
        late = (refused or {}).get(need.name, {})
        verdicts = choose.overruled(choose.judge(hosts, need, weights), late)
        if verdicts and verdicts[0].fits:
            best = verdicts[0].host
            hosts[best] = with_vm(hosts[best], need)
            out[need.name] = best
        else:
            said = {**{v.host: ", ".join(v.reasons) for v in verdicts}, **(silent or {})}
            stays[need.name] = "; ".join(f"{host}: {why}" for host, why in said.items()) or (
                "there is no other hypervisor")  # fmt: skip
    return out, stays
