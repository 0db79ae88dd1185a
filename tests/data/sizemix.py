"""VM sizes as clouds offer them: the published mix on which placement is measured."""

import random

import tightclouds
from saltvirt.core.model import Requirements

# vCPUs, memory in MiB, disk in MiB, and how many of a hundred are so: 2, 4 and 8 GiB for each vCPU.
MIX = (
    (1, 2048, 10240, 20),
    (2, 4096, 20480, 18),
    (2, 8192, 20480, 16),
    (4, 8192, 40960, 10),
    (4, 16384, 40960, 12),
    (2, 16384, 40960, 6),
    (8, 16384, 81920, 5),
    (8, 32768, 81920, 6),
    (4, 32768, 81920, 4),
    (16, 65536, 163840, 2),
    (8, 65536, 163840, 1),
)
# Hosts of which neither CPUs nor memory is plenty for the mix, and hosts that lack CPUs.
BALANCED = {"vcpus": 64, "memory_mib": 256_000, "disk_mib": 4_000_000}
LACKING = {"vcpus": 96, "memory_mib": 384_000, "disk_mib": 2_500_000}


def requests(count, seed=1):
    """Return what so many VMs of the mix need, in the order in which they are asked for."""
    drawn = random.Random(seed).choices(MIX, [one[3] for one in MIX], k=count)
    return [
        Requirements(name=f"v{n:05}", vcpus=one[0], memory_mib=one[1], disk_mib=one[2])
        for n, one in enumerate(drawn)
    ]


def hosts(count, kind, jitter_mib=0, seed=1):
    """Return so many empty hosts of a kind; with jitter, no two have the same memory."""
    draw = random.Random(seed)
    return {
        f"h{n:04}": tightclouds.host(
            kind["memory_mib"] - draw.randint(0, jitter_mib), kind["vcpus"], kind["disk_mib"]
        )
        for n in range(count)
    }
