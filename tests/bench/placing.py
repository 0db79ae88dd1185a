"""
Where many VMs go, beside first fit, best fit and Ganeti's hail and hspace: in one run.

By itself, without a lab: ``tests/env python tests/bench/placing.py``.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "_utils"), str(HERE.parent / "data")]

import bounds  # noqa: E402
import ganeti  # noqa: E402
import sizemix  # noqa: E402
from saltvirt.core.model import Policy, Requirements  # noqa: E402
from saltvirt.placement import many  # noqa: E402
from saltvirt.placement.choose import Board  # noqa: E402

VMS, HOSTS = 10_000, 1_000
FEW_VMS, FEW_HOSTS = 400, 40
KINDS = {"balanced": sizemix.BALANCED, "lacking CPUs": sizemix.LACKING}
HAIL = "/usr/lib/ganeti/iallocators/hail"
LIMIT_S = 120
PACK_TITLE = (
    f"{VMS} VMs of the published mix on {HOSTS} hosts, packed; at least: no plan needs fewer hosts"
)
PACK_HEADS = ("hosts", "how", "hosts used", "at least", "ratio", "CPU")
SPREAD_TITLE = (
    f"{FEW_VMS} VMs of the mix, one after the other, spread over {FEW_HOSTS} hosts; uneven: "
    "standard deviation of what is promised"
)
SPREAD_HEADS = ("how", "memory uneven %", "CPUs uneven %", "CPU")
FULL_TITLE = f"VMs of 2 CPUs and 4 GiB, until {FEW_HOSTS} hosts of 64 CPUs and 128 GiB are full"
FULL_HEADS = ("how", "VMs", "CPU")


def cpu_s():
    """Return the CPU seconds of this process and of those that it has run."""
    done = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + done.ru_utime + done.ru_stime


def timed(work, *args, **kwargs):
    """Return what a call returns, and its CPU seconds."""
    begin = cpu_s()
    out = work(*args, **kwargs)
    return out, cpu_s() - begin


def needs_of(requests):
    """Return what requests need, as tuples."""
    return [(one.vcpus, one.memory_mib, one.disk_mib) for one in requests]


def fitted(needs, kind, best):
    """Return how many hosts first fit uses, or best fit: the fullest host in which a VM fits."""
    limits = [*kind.values()]
    hosts = [list(limits) for _host in range(HOSTS)]
    for vcpus, memory_mib, disk_mib in needs:
        fitting = (
            one for one in hosts if vcpus <= one[0] and memory_mib <= one[1] and disk_mib <= one[2]
        )
        if best:
            # By what is left of all, each as a share.
            host = min(
                fitting, key=lambda one: one[0] / limits[0] + one[1] / limits[1], default=None
            )
        else:
            host = next(fitting, None)
        if host is None:
            raise ValueError("there are too few hosts")
        host[0] -= vcpus
        host[1] -= memory_mib
        host[2] -= disk_mib
    return sum(one != limits for one in hosts)


def one_by_one(requests, hosts, policy):
    """Return ``{name: host}`` as it is when each is asked for after the other."""
    board, out = Board(hosts, policy=policy), {}
    for required in requests:
        out[required.name] = board.best(required)
        board.put(required, out[required.name])
    return out


def packed(found):
    """Yield the rows of packing."""
    for name, kind in KINDS.items():
        requests, hosts = sizemix.requests(VMS), sizemix.hosts(HOSTS, kind)
        needs = needs_of(requests)
        least = bounds.fewest_hosts(needs, [*kind.values()])
        pack = Policy(placement="pack")
        plan, took = timed(many.plan_many, requests, hosts, policy=pack)
        mine = len(set(plan.hosts.values()))
        rows = [("plan_many", mine, took)]
        there, took = timed(one_by_one, requests, hosts, pack)
        rows.append(("one by one", len(set(there.values())), took))
        decreasing = sorted(needs, key=lambda need: max(map(_share, need, kind.values())))[::-1]
        for how, best in (("first fit", False), ("best fit", True)):
            for listed, more in ((needs, ""), (decreasing, " decreasing")):
                used, took = timed(fitted, listed, kind, best)
                rows.append((how + more, used, took))
        found[f"hosts used, {name}, at least"] = mine / least
        rival = min(used for how, used, _took in rows if "fit" in how)
        found[f"hosts used, {name}, best of first and best fit"] = mine / rival
        for how, used, took in rows:
            yield name, how, used, least, f"{used / least:.3f}", f"{took:.2f} s"
        plan, took = timed(many.plan_many, requests, hosts)
        used = len(set(plan.hosts.values()))
        yield name, "plan_many, spread", used, "", "", f"{took:.2f} s"


def _share(need, limit):
    return need / limit


def uneven(requests, there, kind):
    """Return the standard deviations of the shares of memory and CPUs, in percent."""
    memory, cpus = Counter(), Counter()
    for one in requests:
        memory[there[one.name]] += one.memory_mib
        cpus[there[one.name]] += one.vcpus
    hosts = [f"h{n:04}" for n in range(FEW_HOSTS)]
    return [
        100 * statistics.pstdev(used[host] / kind[key] for host in hosts)
        for used, key in ((memory, "memory_mib"), (cpus, "vcpus"))
    ]


def hail(requests, kind):
    """Return ``{name: host}`` as hail chooses, each request with the cluster as it is by then."""
    hosts = [f"h{n:04}" for n in range(FEW_HOSTS)]
    there, vms = {}, {}
    for one in requests:
        text = ganeti.cluster(hosts, vms, kind["memory_mib"], kind["vcpus"], vcpu_ratio=1)
        with tempfile.TemporaryDirectory() as folder:
            data, asked = Path(folder) / "cluster", Path(folder) / "request"
            data.write_text(text)
            asked.write_text(json.dumps(ganeti.request(one.name, one.memory_mib, one.vcpus)))
            command = [HAIL, "-t", data, "--no-capacity-checks", asked]
            done = subprocess.run(command, capture_output=True, check=True, timeout=LIMIT_S)
        answer = json.loads(done.stdout)
        if not answer["success"]:
            raise ValueError(f"hail: {answer['info']}")
        there[one.name] = answer["result"][0]
        vms[one.name] = (one.memory_mib, one.vcpus, there[one.name])
    return there


def spread(found):
    """Yield the rows of spreading."""
    kind, requests = sizemix.BALANCED, sizemix.requests(FEW_VMS)
    hosts = sizemix.hosts(FEW_HOSTS, kind)
    ours, our_s = timed(one_by_one, requests, hosts, Policy())
    plan, plan_s = timed(many.plan_many, requests, hosts)
    theirs, their_s = timed(hail, requests, kind)
    rows = {
        "virt.init": (ours, our_s),
        "plan_many": (plan.hosts, plan_s),
        "hail": (theirs, their_s),
    }
    values = {how: uneven(requests, there, kind) for how, (there, _took) in rows.items()}
    for number, what in enumerate(("memory", "CPUs")):
        name = f"uneven {what} of {FEW_HOSTS} hosts, hail"
        found[name] = values["virt.init"][number] / values["hail"][number]
    for how, (_there, took) in rows.items():
        yield how, *[f"{value:.3f}" for value in values[how]], f"{took:.2f} s"


def full(found):
    """Yield the rows of VMs of one size until no more fit."""
    kind = {"vcpus": 256, "memory_mib": 131_072, "disk_mib": 2**21}
    hosts = sizemix.hosts(FEW_HOSTS, kind)
    wanted = [
        Requirements(name=f"v{n:05}", vcpus=2, memory_mib=4096, disk_mib=51_200)
        for n in range(FEW_HOSTS * 33)
    ]
    plan, took = timed(many.plan_many, wanted, hosts)
    command = [
        "hspace",
        f"--simulate=p,{FEW_HOSTS},2t,128g,64",
        "--standard-alloc=50g,4g,2",
        "--disk-template=ext",
        "--no-capacity-checks",
        "--machine-readable=yes",
    ]
    done, their_s = timed(
        subprocess.run, command, capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    said = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    theirs = int(said["HTS_ALLOC_INSTANCES"])
    found["hspace's VMs until full, ours"] = theirs / len(plan.hosts)
    yield "plan_many", len(plan.hosts), f"{took:.2f} s"
    yield "hspace", theirs, f"{their_s:.2f} s"


def tables(found):
    """Yield ``(title, heads, rows)``; note the ratios in ``found``."""
    yield PACK_TITLE, PACK_HEADS, list(packed(found))
    yield SPREAD_TITLE, SPREAD_HEADS, list(spread(found))
    yield FULL_TITLE, FULL_HEADS, list(full(found))


if __name__ == "__main__":
    import evening
    import plans
    import run

    ratios = {}
    for each in (tables, plans.tables, evening.tables):
        for one in each(ratios):
            run.table(*one)
    sys.exit(run.judge(ratios, accept=False, only=True))
