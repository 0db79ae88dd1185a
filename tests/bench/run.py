"""
Figures beside named rivals, in one run: ``make bench``.

One host of the lab gets 10, 100 and 500 defined VMs. ``virt.full_info`` and ``virt.host_info``
are timed as whole ``salt-call`` processes beside Salt 3006.25's own ``virt.full_info`` (each
minus its bare ``salt-call test.ping``), and inside one process beside libvirt's bare bulk call.
Inside a minion's process lists of volumes and networks, and an update and a state that change
nothing, are timed beside Salt 3006.25's (``listing.py``). What the project costs a minion that has
nothing to do stands beside one without it (``idle.py``).
Then the CPU time of ``virt.init`` of an overlay clone with seeding, libvirt's define and start
left out. Then seeding beside virt-customize, virt-sysprep and Salt 3006.25's seed.apply, and
ten VMs at once beside qemu-img and virsh by hand. Then a move beside virsh and Salt 3006.25's
module, 200 signed answers beside unsigned ones, plans for simulated clouds beside Ganeti's
hbal, and placement beside first fit, best fit, hail and hspace (these by themselves, without a lab:
``placing.py``). Last, on swarms of up to 200 hosts, what the runner's commands cost beside a bare
test.ping and beside Salt 3006.25's own runner.

At the end the ratios stand beside those of ``ratios.json``; the exit code is 1 if one is worse by
more than a tenth. With ``--accept`` they are written there instead.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lab"))

import answers  # noqa: E402
import commands  # noqa: E402
import evening  # noqa: E402
import idle  # noqa: E402
import listing  # noqa: E402
import move  # noqa: E402
import placing  # noqa: E402
import plans  # noqa: E402
import ratios  # noqa: E402
import seeds  # noqa: E402
import stage  # noqa: E402
from labkit import node  # noqa: E402
from labkit.settings import CHECKOUT, LabError, lab_from_environment  # noqa: E402

COUNTS = (10, 100, 500)
HOST = "hyper1"
NOISE_S = 0.02


def table(title, heads, rows):
    """Print a table with aligned columns."""
    widths = [max(len(str(row[n])) for row in [heads, *rows]) for n in range(len(heads))]
    print(f"\n{title}")
    for row in [heads, *rows]:
        cells = zip(row, widths, strict=True)
        print("  " + "  ".join(str(cell).rjust(width) for cell, width in cells), flush=True)


def seconds(value):
    """Return a time as text."""
    return f"{value:.3f} s"


def faster(other, mine):
    """Return how many times faster as text; of what is lost in the noise nothing can be said."""
    return f"{other / mine:.1f} x" if min(other, mine) > NOISE_S else f"< {NOISE_S} s"


def note(found, name, mine, other):
    """Note a ratio, unless it is lost in the noise."""
    if min(mine, other) > NOISE_S:
        found[name] = mine / other


def compare(host, found):
    """Print the tables of the answers; note their ratios in ``found``."""
    asked = ("test.ping", "virt.full_info", "virt.host_info")
    commands = [[*host.salt_call, name] for name in asked]
    commands += [[*host.rival, name] for name in asked[:2]]
    whole, one = [], []
    for count in COUNTS:
        host.measured("define.py", count)
        bare_ours, mine, info, bare_theirs, other = host.timed(*commands)
        mine, info, other = mine - bare_ours, info - bare_ours, other - bare_theirs
        note(found, f"full_info of {count} VMs, 3006.25", mine, other)
        note(found, f"host_info of {count} VMs, 3006.25's full_info", info, other)
        whole.append(
            (
                count,
                seconds(other),
                seconds(mine),
                faster(other, mine),
                seconds(info),
                faster(other, info),
            )
        )
        in_one = host.measured("inspect_host.py")
        bulk = in_one["bulk"]
        for name in ("full_info", "host_info"):
            found[f"{name} of {count} VMs inside, stats+XML"] = in_one[name] / bulk
        one.append(
            (
                count,
                seconds(in_one["stats"]),
                seconds(bulk),
                *[
                    cell
                    for key in ("full_info", "host_info")
                    for cell in (seconds(in_one[key]), f"{in_one[key] / bulk:.1f} x")
                ],
            )
        )
    table(
        "salt-call, minus its bare test.ping "
        f"(ours {seconds(bare_ours)}, 3006.25 {seconds(bare_theirs)}); x: times faster",
        ("VMs", "3006.25 full_info", "full_info", "", "host_info", ""),
        whole,
    )
    table(
        "inside one process, beside libvirt's bare bulk calls; x: times stats+XML",
        ("VMs", "stats", "stats+XML", "full_info", "", "host_info", ""),
        one,
    )
    host.measured("define.py", 0)


def measure(lab, host):
    """Print all tables; return the ratios of our figures to the rivals', by names."""
    found = {}
    compare(host, found)
    table(listing.TITLE, listing.HEADS, listing.rows(host, found))
    table(idle.TITLE, idle.HEADS, idle.rows(host, found))
    figures = host.measured("deploy.py")
    table(
        f"virt.init of an overlay clone with seeding, median of {figures['rounds']}",
        ("CPU on the host", "of it define+start", "the rest", "target"),
        [
            (
                seconds(figures["cpu"]),
                seconds(figures["libvirt"]),
                seconds(figures["cpu"] - figures["libvirt"]),
                "0.500 s",
            )
        ],
    )
    signed = host.measured("sign.py")["per_second"]
    table("the certificate authority", ("certificates a second",), [(f"{signed:.0f}",)])
    methods, ten = seeds.rows(host, found)
    table(seeds.TITLE, seeds.HEADS, methods)
    table(seeds.TEN_TITLE, seeds.TEN_HEADS, ten)
    table(move.TITLE, move.HEADS, list(move.rows(lab, host, found)))
    table(answers.TITLE, answers.HEADS, list(answers.rows(found)))
    for each in (plans.tables, placing.tables, evening.tables, commands.tables):
        for one in each(found):
            table(*one)
    return found


def judge(found, accept, only=False):
    """
    Print the ratios beside the accepted ones, or accept them; return the exit code.

    only
        There are those alone that were measured. Defaults to False.
    """
    earlier = {name: one for name, one in ratios.read().items() if name in found or not only}
    rows, worse = ratios.compared(found, earlier)
    table(ratios.TITLE, ratios.HEADS, rows)
    if accept:
        ratios.write(found)
        print(f"\naccepted: {ratios.ACCEPTED.relative_to(CHECKOUT)}")
        return 0
    if not earlier:
        print(f"\n{ratios.NONE}")
    if worse:
        print(f"\nworse by more than a tenth: {'; '.join(worse)}")
    return 1 if worse else 0


def in_lab(lab, *verbs):
    """Run a verb of the lab, which says itself why it cannot be done."""
    argv = [CHECKOUT / "tests/lab/lab", "--salt", lab.salt, *verbs]
    if subprocess.run(argv, check=False).returncode:
        raise LabError(f"lab {' '.join(verbs)} failed")


def bench(lab):
    """Bring the lab up, measure, take it down if it was down; return the ratios."""
    was_up = bool(node.alive(lab))
    built = stage.build()
    # As many hosts as of the demo and the tests: what they have kept serves here, and the reverse.
    in_lab(lab, "up", "--hosts", "3", "--images", ",".join(stage.IMAGES))
    try:
        if was_up:
            in_lab(lab, "sync")
        host = stage.Host(lab, HOST, built)
        try:
            return measure(lab, host)
        finally:
            host.clear()
    finally:
        if not was_up:
            in_lab(lab, "down")


def main():
    """Print all figures; whatever cannot be had is said in one line."""
    parser = argparse.ArgumentParser(description="figures beside named rivals, in one run")
    parser.add_argument(
        "--accept", action="store_true", help="compare the next runs with the ratios of this one"
    )
    accept = parser.parse_args().accept
    try:
        found = bench(lab_from_environment())
    except (LabError, commands.SwarmError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return judge(found, accept)


if __name__ == "__main__":
    sys.exit(main())
