"""Seeding one VM, by each method and by the rivals; ten VMs at once from one image."""

import json
import statistics
import time
from pathlib import Path

from labkit import deps, node

HERE = Path(__file__).resolve().parent
ROUNDS = 3
HEADS = ("way", "wall", "CPU", "beside", "target")
TITLE = "seeding one VM (Debian image), medians; the appliance is emulated here"
TEN_TITLE = "ten VMs at once from one image: all of them started"
TEN_HEADS = ("this project", "qemu-img + virsh by hand", "ratio", "target")
ENVIRONMENT = ["env", "LIBGUESTFS_BACKEND=direct", "LIBGUESTFS_BACKEND_SETTINGS=force_tcg"]


def _times(lab, pid, *argv):
    """Return the median wall seconds of a command over fresh disks, and why it failed."""
    image, taken = lab.fileroot / "images/debian-minion.qcow2", []
    fresh = (
        "rm -f /srv/rival.qcow2; "
        f"qemu-img create -q -f qcow2 -F qcow2 -b {image} /srv/rival.qcow2"
    )
    # Salt 3006 ends with lsof's exit code after its umount, however well it went.
    quietly = (
        '"$@" >/srv/rival.out 2>&1 </dev/null || grep -q \'"local": true\' /srv/rival.out || '
        "cat /srv/rival.out"
    )
    for _ in range(ROUNDS):
        node.inside(pid, ["sh", "-c", fresh])
        begin = time.monotonic()
        said = node.inside(pid, ["sh", "-c", quietly, "x", *argv])
        taken.append(time.monotonic() - begin)
        if said.strip():
            return None, said.strip().splitlines()[-1][:60]
    return statistics.median(taken), None


def _tools():
    """Return where virt-customize and virt-sysprep are, unpacked and not installed."""
    return deps.unpacked(["guestfs-tools"]) / "usr/bin"


def rows(lab, pid, rival):
    """Yield the rows of both tables: ``(methods, ten at once)``."""
    images = lab.fileroot / "images"
    argv = [lab.venv / "bin/python3", HERE / "seed_host.py", lab.minion_conf("hyper1"),
            images / "debian-minion.qcow2", images / "tiny.qcow2"]  # fmt: skip
    done = json.loads(node.inside(pid, [str(one) for one in argv]).strip().splitlines()[-1])
    launch = done["launch"][0]
    table = [
        (name, f"{wall * 1000:.1f} ms", f"{cpu * 1000:.1f} ms", "", target)
        for name, target in (("nocloud", "50 ms"), ("credentials", ""))
        for wall, cpu in [done[name]]
    ]
    table.append(("bare appliance launch", f"{launch:.2f} s", f"{done['launch'][1]:.2f} s", "", ""))
    wall, cpu = done["guestfs"]
    table.append(
        ("guestfs", f"{wall:.2f} s", f"{cpu:.2f} s", f"{wall / launch:.2f} x launch", "1.2 x")
    )
    for name, words in _rivals(rival):
        took, why = _times(lab, pid, *map(str, words))
        shown = (f"{took:.2f} s", "", f"{took / launch:.2f} x launch") if took else ("-", "", why)
        table.append((name, *shown, ""))
    node.inside(pid, ["sh", "-c", "rm -f /srv/rival.*"])
    ours, hand = done["ten"]
    return table, [(f"{ours:.2f} s", f"{hand:.2f} s", f"{ours / hand:.2f} x", "1.5 x")]


def _rivals(rival):
    """Yield the same job by others: an id, a configuration, host keys and machine id away."""
    tools = _tools()
    write = ["--write", "/etc/salt/minion_id:b1", "--mkdir", "/etc/salt/minion.d",
             "--write", "/etc/salt/minion.d/99-salt-virt.conf:master: 10.77.0.1",
             "--hostname", "b1"]  # fmt: skip
    yield (
        "virt-customize",
        [*ENVIRONMENT, tools / "virt-customize", "-a", "/srv/rival.qcow2", *write],
    )
    yield "virt-sysprep", [*ENVIRONMENT, tools / "virt-sysprep", "-a", "/srv/rival.qcow2",
                           "--operations", "machine-id,ssh-hostkeys,customize", *write]  # fmt: skip
    apply = ["seed.apply", "/srv/rival.qcow2", "id_=b1", "config={master: 10.77.0.1}",
             "install=False", "approve_key=False"]  # fmt: skip
    yield "Salt 3006.25 seed.apply", [*ENVIRONMENT, *rival, "--out=json", *apply]
