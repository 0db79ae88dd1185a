"""Seeding one VM, by each method and by the rivals; ten VMs at once from one image."""

import statistics
import time

from stage import PLACE

ROUNDS = 3
HEADS = ("way", "wall", "CPU", "beside", "target")
TITLE = "seeding one VM (Debian image), medians; the appliance is emulated here"
TEN_TITLE = "ten VMs at once from one image: all of them started"
TEN_HEADS = ("this project", "qemu-img + virsh by hand", "ratio", "target")
DEBIAN, DISK = PLACE / "debian-minion.qcow2", PLACE / "rival.qcow2"


def _times(host, *argv):
    """Return the median wall seconds of a command over fresh disks, and why it failed."""
    fresh, taken = f"rm -f {DISK}; qemu-img create -q -f qcow2 -F qcow2 -b {DEBIAN} {DISK}", []
    # Salt 3006 ends with lsof's exit code after its umount, however well it went.
    quietly = (
        f"cd {PLACE}; "
        '"$@" >rival.out 2>&1 </dev/null || grep -q \'"local": true\' rival.out || cat rival.out'
    )
    for _ in range(ROUNDS):
        host.run("sh", "-c", fresh)
        begin = time.monotonic()
        said = host.run("sh", "-c", quietly, "x", *argv)
        taken.append(time.monotonic() - begin)
        if said.strip():
            return None, said.strip().splitlines()[-1][:60]
    return statistics.median(taken), None


def rows(host, found):
    """Return the rows of both tables, ``(methods, ten at once)``; note ratios in ``found``."""
    done = host.measured("seed_host.py", DEBIAN, PLACE / "tiny.qcow2")
    launch = done["launch"][0]
    table = [
        (name, f"{wall * 1000:.1f} ms", f"{cpu * 1000:.1f} ms", "", target)
        for name, target in (("nocloud", "50 ms"), ("credentials", ""))
        for wall, cpu in [done[name]]
    ]
    table.append(("bare appliance launch", f"{launch:.2f} s", f"{done['launch'][1]:.2f} s", "", ""))
    wall, cpu = done["guestfs"]
    found["seeding by guestfs, bare launch"] = wall / launch
    table.append(
        ("guestfs", f"{wall:.2f} s", f"{cpu:.2f} s", f"{wall / launch:.2f} x launch", "1.2 x")
    )
    for name, words in _rivals(host):
        took, why = _times(host, *words)
        shown = (f"{took:.2f} s", "", f"{took / launch:.2f} x launch") if took else ("-", "", why)
        table.append((name, *shown, ""))
    ours, hand = done["ten"]
    found["ten VMs at once, by hand"] = ours / hand
    return table, [(f"{ours:.2f} s", f"{hand:.2f} s", f"{ours / hand:.2f} x", "1.5 x")]


def _rivals(host):
    """Yield the same job by others: an id, a configuration, host keys and machine id away."""
    write = [
        "--write",
        "/etc/salt/minion_id:b1",
        "--mkdir",
        "/etc/salt/minion.d",
        "--write",
        "/etc/salt/minion.d/zz-salt-virt.conf:master: 10.77.0.1",
        "--hostname",
        "b1",
    ]
    yield "virt-customize", [*host.environment, "virt-customize", "-a", DISK, *write]
    yield (
        "virt-sysprep",
        [
            *host.environment,
            "virt-sysprep",
            "-a",
            DISK,
            "--operations",
            "machine-id,ssh-hostkeys,customize",
            *write,
        ],
    )
    apply = [
        "seed.apply",
        DISK,
        "id_=b1",
        "config={master: 10.77.0.1}",
        "install=False",
        "approve_key=False",
    ]
    yield "Salt 3006.25 seed.apply", [*host.environment, *host.rival, "--out=json", *apply]
