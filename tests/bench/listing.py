"""Volumes, networks, an update and a state that change nothing, beside Salt 3006.25's own."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lab"))

import stage  # noqa: E402
from labkit.settings import LabError, lab_from_environment  # noqa: E402

TITLE = "salt-call, minus its bare test.ping, beside Salt 3006.25; x: times faster"
HEADS = ("what", "3006.25", "here", "", "at least")
VOLUMES, NETWORKS, VMS = 500, 20, 100
_NOISE_S = 0.02
_SLS = """\
{{% for number in range(1, {vms} + 1) %}}
bench{{{{ number }}}}:
  virt.running:
    - cpu: 1
    - mem: 16
{{% endfor %}}
"""


def asked(volumes, networks, vms):
    """Return ``(what, the words of a command, how many times faster it is to be)``."""
    roots = f"--file-root={stage.PLACE}/srv"
    return [
        (f"volume_infos of {volumes} volumes", ("virt.volume_infos", "bench"), 10),
        (f"pool_list_volumes of {volumes}", ("virt.pool_list_volumes", "bench"), 1),
        (f"list_networks of {networks}", ("virt.list_networks",), 1),
        ("an update that changes nothing", ("virt.update", "bench1", "cpu=1", "mem=16"), 1),
        (f"state running of {vms} VMs that run", (roots, "state.apply", "running"), 10),
    ]


def rows(host, found, counts=(VOLUMES, NETWORKS, VMS)):
    """Return the rows of the table; note the ratios in ``found``."""
    host.give("srv/running.sls", _SLS.format(vms=counts[2]))
    host.measured("objects.py", *counts)
    try:
        out = [_row(host, found, *one) for one in asked(*counts)]
    finally:
        host.measured("objects.py", 0, 0, 0)
    return out


def _row(host, found, what, words, least):
    commands = ([*host.salt_call, "test.ping"], [*host.salt_call, *words])
    rival = ([*host.rival, "test.ping"], [*host.rival, *words])
    bare, mine, bare_other, other = host.timed(*commands, *rival)
    mine, other = mine - bare, other - bare_other
    if min(mine, other) > _NOISE_S:
        found[f"{what}, 3006.25"] = mine / other
    times = f"{other / mine:.1f} x" if mine > _NOISE_S else f"> {other / _NOISE_S:.1f} x"
    return what, f"{other:.3f} s", f"{mine:.3f} s", times, f"{least} x"


def main():
    """Print these figures alone, of a lab that is up, with as many objects as are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, count in (("volumes", VOLUMES), ("networks", NETWORKS), ("vms", VMS)):
        parser.add_argument(f"--{name}", type=int, default=count)
    given = parser.parse_args()
    try:
        host = stage.Host(lab_from_environment(), "hyper1", stage.build())
    except LabError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    try:
        for row in [HEADS, *rows(host, {}, (given.volumes, given.networks, given.vms))]:
            print("  ".join(f"{cell:>32}" for cell in row))
    finally:
        host.clear()
    return 0


if __name__ == "__main__":
    sys.exit(main())
