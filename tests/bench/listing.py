"""Volumes, networks, an update and a state that change nothing, beside Salt 3006.25's own."""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lab"))

import stage  # noqa: E402
from labkit.settings import LabError, lab_from_environment  # noqa: E402

TITLE = "inside a minion's process, beside Salt 3006.25; x: times faster"
HEADS = ("what", "3006.25", "here", "", "at least")
VOLUMES, NETWORKS, VMS = 500, 20, 100
_SLS = """\
{{% for number in range(1, {vms} + 1) %}}
bench{{{{ number }}}}:
  virt.running:
    - cpu: 1
    - mem: 16
{{% endfor %}}
"""


def asked(volumes, networks, vms):
    """Return ``(what, function, arguments, how many times faster it is to be)``."""
    update = {"args": ["bench1"], "kwargs": {"cpu": 1, "mem": 16}}
    return [
        (f"volume_infos of {volumes} volumes", "virt.volume_infos", {"args": ["bench"]}, 10),
        (f"pool_list_volumes of {volumes}", "virt.pool_list_volumes", {"args": ["bench"]}, 1),
        (f"list_networks of {networks}", "virt.list_networks", {}, 1),
        ("an update that changes nothing", "virt.update", update, 1),
        (f"state running of {vms} VMs that run", "state.apply", {"args": ["running"]}, 10),
    ]


def rows(host, found, counts=(VOLUMES, NETWORKS, VMS)):
    """Return the rows of the table; note the ratios in ``found``."""
    host.give("srv/running.sls", _SLS.format(vms=counts[2]))
    host.measured("objects.py", *counts)
    wanted = asked(*counts)
    calls = json.dumps([one[:3] for one in wanted])
    words = (stage.PLACE / "called.py", "/etc/salt", stage.PLACE / "srv", calls)
    rival = (words[0], stage.PLACE / "rival", *words[2:])
    try:
        mine = json.loads(host.run(stage.PYTHON, *words).splitlines()[-1])
        other = json.loads(host.run(host.rival[0], *rival).splitlines()[-1])
    finally:
        host.measured("objects.py", 0, 0, 0)
    return [_row(found, what, mine[what], other[what], least) for what, _f, _g, least in wanted]


def _row(found, what, mine, other, least):
    found[f"{what}, 3006.25"] = mine / other
    return what, f"{other:.4f} s", f"{mine:.4f} s", f"{other / mine:.1f} x", f"{least} x"


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
