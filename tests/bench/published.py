"""
How a question to many hosts is published: the operator's glob, or ids in lists of 50.

Each with Salt's ``zmq_filtering`` and without it, on swarms of their own, where all minions are
hypervisors. As a program: published.py [HOSTS]
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "swarm"), str(HERE.parents[1] / "_utils")]

import commands  # noqa: E402
import run  # noqa: E402
from swarmkit.settings import Spec, SwarmError  # noqa: E402

HOSTS, VMS, ROUNDS = 200, 10, 5
GLOB = "h[0-9]*"
HEADS = ("zmq_filtering", "published as", "wall", "test.ping", "CPU master", "bus")


def _row(hosts, is_filtered, is_listed):
    """Return the row of one way, measured on a swarm of its own."""
    named = Spec(hosts=hosts).ids if is_listed else GLOB
    options = {"zmq_filtering": is_filtered, "virt": {"timeout_s": 20, "hypervisors": named}}
    spec = Spec(hosts=hosts, vms=VMS, options=options)
    with commands.swarm(spec) as own:
        asked = {name: commands.OURS[name] for name in (commands.FLOOR, "list")}
        by = commands.timed(own, spec, asked, ROUNDS)
    one = by["list"]
    return (
        "on" if is_filtered else "off",
        "lists of ids" if is_listed else GLOB,
        f"{one['wall_s']:.2f} s",
        f"{by[commands.FLOOR]['wall_s']:.2f} s",
        f"{one['master_s']:.2f} s",
        f"{one['bytes'] / 1e6:.2f} MB",
    )


def main(hosts):
    """Print the table."""
    ways = [(is_filtered, is_listed) for is_filtered in (True, False) for is_listed in (0, 1)]
    title = f"virt.list of {hosts} hosts with {VMS} VMs each, Salt 3008, median of {ROUNDS}"
    run.table(title, HEADS, [_row(hosts, *way) for way in ways])


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else HOSTS)
    except SwarmError as error:
        sys.exit(f"published: {error}")
