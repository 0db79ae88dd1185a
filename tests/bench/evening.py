"""Rebalancing a thousand hosts beside what no plan of as many moves can better, and hbal."""

import random
import time

import bounds
import plans
from saltvirt.placement import balance

HOSTS, VMS = 1_000, 20_000
MOVES = (200, 5_000)
TITLE = (
    f"rebalancing {HOSTS} hosts x {VMS} VMs; uneven: standard deviation of the hosts' memory in "
    "use; at best: no plan of as many moves leaves less"
)
HEADS = ("cloud", "moves", "made", "uneven %", "after", "at best", "of it", "CPU", "hbal")


def half_empty():
    """Return a cloud of which a half has just been added: ``(names, {vm: (MiB, CPUs, host)})``."""
    draw = random.Random(2)
    names = [f"h{number}" for number in range(HOSTS)]
    sizes = ((1024, 1), (2048, 1), (4096, 2))
    return names, {
        f"v{number}": (*draw.choice(sizes), names[number % (HOSTS // 2)]) for number in range(VMS)
    }


def at_best(names, sizes, moves):
    """Return the least standard deviation, in percent, that so many moves can lead to."""
    on = {name: [] for name in names}
    for memory, _cpus, host in sizes.values():
        on[host].append(memory / plans.NODE_MIB)
    return 100 * bounds.least_uneven([sum(on[name]) for name in names], [*on.values()], moves)


def rows(found):
    """Yield a row for each cloud and number of moves."""
    clouds = {"filled from one end": plans.cluster(HOSTS, VMS), "half of it new": half_empty()}
    for cloud, (names, sizes) in clouds.items():
        hosts, loads, vms = plans.ours(names, sizes)
        before = plans.uneven(names, sizes, {})
        for moves in MOVES:
            begin = time.process_time()
            steps = balance.rebalance(hosts, loads, vms, max_moves=moves, threshold=0.0)
            took = time.process_time() - begin
            after = plans.uneven(names, sizes, {step.name: step.target for step in steps})
            best = at_best(names, sizes, moves)
            found[f"{moves} moves, {cloud}, at best"] = (before - best) / (before - after)
            theirs = plans.hbal(names, sizes, moves, plans.HBAL_LIMIT_S) if moves == 200 else None
            yield (
                cloud,
                moves,
                len(steps),
                f"{before:.2f}",
                f"{after:.2f}",
                f"{best:.2f}",
                f"{100 * (before - after) / (before - best):.1f} %",
                f"{took:.2f} s",
                plans.of_hbal(theirs, names, sizes)[0] if theirs else "-",
            )


def tables(found):
    """Yield ``(title, heads, rows)``; note the ratios in ``found``."""
    yield TITLE, HEADS, list(rows(found))
