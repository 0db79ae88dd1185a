"""Plans for simulated clouds beside Ganeti's hbal, on the same clusters, in one run."""

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "_utils"), str(HERE.parent / "data")]

import ganeti  # noqa: E402
import told  # noqa: E402
from saltvirt.core import wire  # noqa: E402
from saltvirt.placement import balance, evacuation  # noqa: E402
from saltvirt.placement.answers import HostInfo, Load, MigrationInfo  # noqa: E402

SIZES = ((10, 200), (20, 400), (40, 800), (80, 1600), (1000, 20000))
HBAL_LIMIT_S = 60
NODE_MIB, NODE_CPUS = 131072, 64


def cluster(hosts, vms, seed=1):
    """Return ``{vm: (memory MiB, vcpus, host)}``: a cloud that was filled from one end."""
    draw = random.Random(seed)
    names = [f"h{number}" for number in range(hosts)]
    shares = [0.4 + 1.2 * number / hosts for number in range(hosts)]
    sizes, room = {}, dict.fromkeys(names, NODE_MIB * 0.95)
    for number in range(vms):
        memory, cpus = draw.choice([(1024, 1), (2048, 1), (4096, 2), (8192, 4)])
        host = draw.choices(names, shares)[0]
        while room[host] < memory:
            host = draw.choice(names)
        room[host] -= memory
        sizes[f"v{number}"] = (memory, cpus, host)
    return names, sizes


def plain(names, sizes):
    """Return the cloud as the hosts would tell it: ``(infos, loads, vms)`` as plain data."""
    pattern = json.loads((HERE.parent / "data/fleets/three.json").read_text())
    pattern = next(iter(pattern.values()))
    on = {name: {} for name in names}
    for vm, (memory, cpus, host) in sizes.items():
        on[host][vm] = {**told.VM, "vcpus": cpus, "memory_mib": memory}
    hosts, loads = {}, {}
    for name, vms in on.items():
        used, cpus = (sum(vm[key] for vm in vms.values()) for key in ("memory_mib", "vcpus"))
        hosts[name] = {
            **pattern,
            "vms": vms,
            "building": [],
            "maintenance": False,
            "memory": {**pattern["memory"], "limit_mib": NODE_MIB, "committed_mib": used},
            "cpu": {**pattern["cpu"], "vcpus_limit": NODE_CPUS * 4, "vcpus_committed": cpus},
            "storage": {**pattern["storage"], "limit_mib": 10**8, "committed_mib": 0},
        }
        loads[name] = {
            "cpus": NODE_CPUS,
            "memory_mib": NODE_MIB,
            "vms": {vm: {"cpu": 0.0, "memory_mib": v["memory_mib"]} for vm, v in vms.items()},
        }
    usual = {**told.ABOUT, "images": "/srv", "machine": "pc", "files": []}
    vms = {
        vm: {**usual, "name": vm, "memory_mib": memory, "vcpus": cpus}
        for vm, (memory, cpus, _host) in sizes.items()
    }
    return hosts, loads, vms


def ours(names, sizes):
    """Return the cloud as a master reads it: ``(infos, loads, vms)``."""
    hosts, loads, vms = plain(names, sizes)
    return (
        {host: wire.read(host, "virt.host_info", HostInfo, one) for host, one in hosts.items()},
        {host: wire.read(host, "virt.load", Load, one) for host, one in loads.items()},
        wire.read("all", "virt.migration_info", dict[str, MigrationInfo], vms),
    )


def uneven(names, sizes, moved):
    """Return the standard deviation of the hosts' shares of memory in use, in percent."""
    used = dict.fromkeys(names, 0)
    for vm, (memory, _cpus, host) in sizes.items():
        used[moved.get(vm, host)] += memory
    return 100 * statistics.pstdev(value / NODE_MIB for value in used.values())


def hbal(names, sizes, most, limit_s):
    """Return ``(seconds, {vm: host})`` of hbal's plan, or None if it takes too long."""
    text = ganeti.cluster(names, sizes, NODE_MIB, NODE_CPUS, vcpu_ratio=4)
    with tempfile.NamedTemporaryFile("w", suffix=".data") as handle:
        handle.write(text)
        handle.flush()
        begin = time.monotonic()
        try:
            done = subprocess.run(
                ["hbal", "-t", handle.name, f"--max-length={most}"],
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=True,
            )
        except subprocess.TimeoutExpired:
            return None
        took = time.monotonic() - begin
    words = [line.split() for line in done.stdout.splitlines() if "=>" in line]
    return took, {word[1]: word[word.index("=>") + 1] for word in words}


def rows(found):
    """Yield a row of the table per size; note the ratios in ``found``."""
    for hosts, count in SIZES:
        names, sizes = cluster(hosts, count)
        hosts_, loads, vms = ours(names, sizes)
        most = max(50, hosts // 5)
        begin = time.monotonic()
        steps = balance.rebalance(hosts_, loads, vms, max_moves=most, threshold=0.0)
        mine = time.monotonic() - begin
        after = uneven(names, sizes, {step.name: step.target for step in steps})
        first = {vm: vms[vm] for vm, size in sizes.items() if size[2] == names[0]}
        begin = time.monotonic()
        evacuation.evacuate({name: hosts_[name] for name in names[1:]}, first)
        emptied = time.monotonic() - begin
        theirs = hbal(names, sizes, len(steps), HBAL_LIMIT_S)
        if theirs:
            less_even = uneven(names, sizes, theirs[1])
            found[f"uneven after rebalancing {hosts} hosts, hbal"] = after / less_even
        yield (
            f"{hosts} x {count}",
            f"{uneven(names, sizes, {}):.2f}",
            f"{after:.2f}",
            len(steps),
            f"{mine:.2f} s",
            *of_hbal(theirs, names, sizes),
            f"{emptied:.2f} s",
        )


def of_hbal(theirs, names, sizes):
    """Return the cells of hbal's plan, or of none."""
    if theirs is None:
        return "-", "-", f"over {HBAL_LIMIT_S} s"
    took, moved = theirs
    return f"{uneven(names, sizes, moved):.2f}", len(moved), f"{took:.2f} s"


HEADS = ("hosts x VMs", "uneven %", "after", "moves", "time", "hbal", "moves", "time", "evacuate 1")
TITLE = (
    "plans beside Ganeti's hbal, as many moves at most; uneven: standard deviation of the "
    "hosts' memory in use"
)


def tables(found):
    """Yield ``(title, heads, rows)``; note the ratios in ``found``."""
    yield TITLE, HEADS, list(rows(found))
