"""Clusters and requests as Ganeti's tools read them."""

_SPECS = "128,1,1024,1,1,1|128,1,1024,1,1,1;1048576,256,1048576,16,8,12"
_DISK_MIB = 10_000_000


def cluster(hosts, vms, memory_mib, cpus, vcpu_ratio):
    """
    Return the text of a cluster of equal hosts.

    vms
        ``{name: (memory MiB, vcpus, host)}``.
    """
    used = dict.fromkeys(hosts, 0)
    for memory, _cpus, host in vms.values():
        used[host] += memory
    policy = f"{_SPECS}|ext|{vcpu_ratio:.1f}|32.0"
    nodes = [
        f"{name}|{memory_mib}|0|{memory_mib - used[name]}|{_DISK_MIB}|{_DISK_MIB}|{cpus}|"
        f"{'M' if name == hosts[0] else 'N'}|fake|1||N|0|1|1.0"
        for name in hosts
    ]
    instances = [
        f"{name}|{memory}|1024|{vcpus}|running|Y|{host}||ext||1|1|N"
        for name, (memory, vcpus, host) in vms.items()
    ]
    lines = ["g|fake|preferred||", "", *nodes, "", *instances]
    return "\n".join([*lines, "", "", f"|{policy}", f"g|{policy}", ""])


def request(name, memory_mib, vcpus):
    """Return the request for one VM as an iallocator gets it; the cluster comes beside it."""
    wanted = {
        "type": "allocate",
        "name": name,
        "memory": memory_mib,
        "vcpus": vcpus,
        "disk_space_total": 1024,
        "disks": [{"size": 1024, "mode": "rw"}],
        "disk_template": "ext",
        "required_nodes": 1,
        "spindle_use": 1,
        "hypervisor": "kvm",
        "os": "",
        "nics": [],
        "tags": [],
    }
    empty = {"nodegroups": {}, "nodes": {}, "instances": {}}
    return {"cluster_tags": [], "enabled_hypervisors": ["kvm"], **empty, "request": wanted}
