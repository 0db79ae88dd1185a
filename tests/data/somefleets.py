"""Random fleets and requests that have a bit of everything placement looks at."""

from dataclasses import replace

import tightclouds
import told
from saltvirt.core.model import Policy, Requirements
from saltvirt.placement import choose, whatif

STOCKS = ("hugepages of 2048 KiB", "storage pool ssd")
AFFINE, APART = ("a", "b"), ("x", "y", "z@rack", "w@row")
POLICIES = [
    Policy(placement=placement, spread_over=over)
    for placement in ("spread", "pack")
    for over in (None, "rack")
]
_SIZES = (4, 4, 8, 8, 12, 16, 24)


def hosts(draw, most=8):
    """Return ``{host: info}``: few sizes, so that some are alike, some VMs, racks, maintenance."""
    out = {}
    for number in range(draw.randint(1, most)):
        info = tightclouds.host(
            draw.choice([0, 40, 40, 64, 64, 100]),
            draw.choice([8, 8, 16, 20]),
            draw.choice([-5, 90, 90, 200]),
            maintenance=draw.random() < 0.1,
            tags=_tags(draw),
        )
        if draw.random() < 0.8:
            # An older host says nothing of them.
            left = {"limit_mib": 20, "committed_mib": draw.choice([0, 4, 20])}
            info = told.but(info, stocks={name: left for name in STOCKS if draw.random() < 0.7})
        if draw.random() < 0.3:
            info = told.but(info, profiles={"disk": {"default": {"size_mib": draw.choice([4, 9])}}})
        for vm in range(draw.randint(0, 3) if draw.random() < 0.5 else 0):
            one = request(draw, f"o{number}{vm}")
            is_coming = draw.random() < 0.2
            facts = {"affinity": list(one.affinity), "anti_affinity": list(one.anti_affinity)}
            if is_coming:
                coming = {**_facts(info.coming), one.name: facts}
                info = told.but(info, coming=coming, building=sorted(coming))
            else:
                info = whatif.with_vm(info, replace(one, disk_profile=None, nic_profile=None))
        out[f"h{number}"] = info
    return out


def _facts(coming):
    return {
        name: {"affinity": one.affinity, "anti_affinity": one.anti_affinity}
        for name, one in coming.items()
    }


def _tags(draw):
    return {
        tag: draw.choice(values)
        for tag, values in {"rack": "rst", "row": "12"}.items()
        if draw.random() < 0.8
    }


def request(draw, name):
    """Return what a VM needs; one in three is in a group."""
    kind, chance = {}, draw.random()
    if chance < 0.15:
        kind["affinity"] = (draw.choice(AFFINE),)
    elif chance < 0.35:
        kind["anti_affinity"] = tuple({draw.choice(APART), draw.choice(APART)})
    if draw.random() < 0.3:
        kind["stocks"] = ((draw.choice(STOCKS), draw.choice([0, 4, 8])),)
    return Requirements(
        name=name,
        vcpus=draw.choice([1, 1, 2, 4]),
        memory_mib=draw.choice(_SIZES),
        disk_mib=draw.choice([0, 2, 8, 16]),
        disk_profile=draw.choice([None, "default"]),
        **kind,
    )


def requests(draw, most=20):
    """Return the requests of some VMs."""
    return [request(draw, f"n{number}") for number in range(draw.randint(1, most))]


def plainly(ordered, hosts_, weights, policy):
    """Return ``(hosts, {name: host})``: each is given the best of all, which are asked anew."""
    out = {}
    for required in ordered:
        evaluations = choose.evaluate(hosts_, required, weights, policy)
        if evaluations and evaluations[0].fits:
            best = evaluations[0].host
            out[required.name] = best
            hosts_ = {**hosts_, best: whatif.with_vm(hosts_[best], required)}
    return hosts_, out
