"""
Figures beside named rivals, in one run: ``make bench``.

One host of the lab gets 10, 100 and 500 defined VMs. ``virt.full_info`` and ``virt.host_info``
are timed as whole ``salt-call`` processes beside Salt 3006.25's own ``virt.full_info`` (each
minus its bare ``salt-call test.ping``), and inside one process beside libvirt's bare bulk call.
Then the CPU time of ``virt.init`` of an overlay clone with seeding, libvirt's define and start
left out. Then seeding beside virt-customize, virt-sysprep and Salt 3006.25's seed.apply, and
ten VMs at once beside qemu-img and virsh by hand. Then a move beside virsh and Salt 3006.25's
module, and plans for simulated clouds beside Ganeti's hbal.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lab"))

import move  # noqa: E402
import plans  # noqa: E402
import seeds  # noqa: E402
from labkit import deps, node  # noqa: E402
from labkit.settings import CHECKOUT, SALTS, lab_from_environment  # noqa: E402

COUNTS = (10, 100, 500)
HOST = "hyper1"
ROUNDS = 5
NOISE_S = 0.02
RIVAL = """\
id: rival
file_client: local
root_dir: {dir}
pki_dir: {dir}/pki
cachedir: {dir}/cache
sock_dir: {dir}/run
log_file: {dir}/log
enable_fqdns_grains: False
enable_gpu_grains: False
"""


def inside(pid, *argv):
    """Run a command in the host; return its output."""
    return node.inside(pid, [str(word) for word in argv])


def timed(pid, *argv):
    """Return the median wall time of a command in seconds."""
    times = []
    for _ in range(ROUNDS):
        begin = time.monotonic()
        inside(pid, *argv)
        times.append(time.monotonic() - begin)
    return statistics.median(times)


def measured(pid, venv, script, *words):
    """Run one of our own measuring scripts in the host and return its figures."""
    argv = [venv / "bin/python3", HERE / script, *words]
    return json.loads(inside(pid, *argv).strip().splitlines()[-1])


def define(pid, venv, count):
    """Bring the host to ``count`` defined VMs."""
    measured(pid, venv, "define.py", count)


def rival(lab):
    """Make Salt 3006.25's environment and configuration; return its salt-call."""
    venv = deps.install_venv("venv-3006", [SALTS["3006"], *deps.PYTHON_EXTRAS])
    folder = lab.root / "rival"
    (folder / "etc").mkdir(parents=True, exist_ok=True)
    (folder / "etc/minion").write_text(RIVAL.format(dir=folder))
    return [venv / "bin/salt-call", "--local", "-c", folder / "etc", "--out=quiet"]


def table(title, heads, rows):
    """Print a table with aligned columns."""
    widths = [max(len(str(row[n])) for row in [heads, *rows]) for n in range(len(heads))]
    print(f"\n{title}")
    for row in [heads, *rows]:
        cells = zip(row, widths, strict=True)
        print("  " + "  ".join(str(cell).rjust(width) for cell, width in cells))


def seconds(value):
    """Return a time as text."""
    return f"{value:.3f} s"


def faster(other, mine):
    """Return how many times faster as text; of what is lost in the noise nothing can be said."""
    return f"{other / mine:.1f} x" if mine > NOISE_S else f"< {NOISE_S} s"


def compare(lab, pid):
    """Print the tables of the answers."""
    theirs = rival(lab)
    ours = [lab.venv / "bin/salt-call", "-c", lab.minion_conf(HOST), "--local", "--out=quiet"]
    whole, one = [], []
    for count in COUNTS:
        define(pid, lab.venv, count)
        bare_ours, bare_theirs = timed(pid, *ours, "test.ping"), timed(pid, *theirs, "test.ping")
        mine = timed(pid, *ours, "virt.full_info") - bare_ours
        info = timed(pid, *ours, "virt.host_info") - bare_ours
        other = timed(pid, *theirs, "virt.full_info") - bare_theirs
        whole.append((count, seconds(other), seconds(mine), faster(other, mine),
                      seconds(info), faster(other, info)))  # fmt: skip
        in_one = measured(pid, lab.venv, "inspect_host.py")
        bulk = in_one["bulk"]
        one.append((count, seconds(in_one["stats"]), seconds(bulk), *[
            cell for key in ("full_info", "host_info")
            for cell in (seconds(in_one[key]), f"{in_one[key] / bulk:.1f} x")]))  # fmt: skip
    table("salt-call, minus its bare test.ping "
          f"(ours {seconds(bare_ours)}, 3006.25 {seconds(bare_theirs)}); x: times faster",
          ("VMs", "3006.25 full_info", "full_info", "", "host_info", ""), whole)  # fmt: skip
    table("inside one process, beside libvirt's bare bulk calls; x: times stats+XML",
          ("VMs", "stats", "stats+XML", "full_info", "", "host_info", ""), one)  # fmt: skip
    define(pid, lab.venv, 0)


def main():
    """Bring the lab up, measure, take it down if it was down."""
    lab = lab_from_environment()
    command = CHECKOUT / "tests/lab/lab"
    was_up = bool(node.alive(lab))
    subprocess.run([command, "up", "--hosts", "3"], check=True)
    pid = node.alive(lab)[HOST]
    try:
        compare(lab, pid)
        figures = measured(pid, lab.venv, "deploy.py", lab.minion_conf(HOST))
        table(f"virt.init of an overlay clone with seeding, median of {figures['rounds']}",
              ("CPU on the host", "of it define+start", "the rest", "target"),
              [(seconds(figures["cpu"]), seconds(figures["libvirt"]),
                seconds(figures["cpu"] - figures["libvirt"]), "0.500 s")])  # fmt: skip
        signed = measured(pid, lab.venv, "sign.py")["per_second"]
        table("the certificate authority", ("certificates a second",), [(f"{signed:.0f}",)])
        methods, ten = seeds.rows(lab, pid, rival(lab))
        table(seeds.TITLE, seeds.HEADS, methods)
        table(seeds.TEN_TITLE, seeds.TEN_HEADS, ten)
        table(move.TITLE, move.HEADS, list(move.rows(lab, rival(lab))))
        table(plans.TITLE, plans.HEADS, list(plans.rows()))
    finally:
        if not was_up:
            subprocess.run([command, "down"], check=True)


if __name__ == "__main__":
    main()
