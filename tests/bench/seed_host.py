"""Measure seeding inside a host: each method's own work, and ten VMs at once from one image."""

import json
import multiprocessing
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import asminion
from saltvirt.core.crypto import keypair
from saltvirt.core.options import config
from saltvirt.core.salt.context import Context
from saltvirt.seeding import credentials, inspection, nocloud, write
from saltvirt.seeding.offline import appliance
from saltvirt.seeding.seedmodel import Identity
from saltvirt.vm import spec
from saltvirt.vm.create.host import create
from saltvirt.xml.domain import domain

ROUNDS, AT_ONCE = 3, 10
LAUNCH = """
import guestfs, sys
g = guestfs.GuestFS(python_return_dict=True)
g.set_memsize(768)
g.add_drive_opts(sys.argv[1], format="qcow2")
g.launch()
g.shutdown()
"""
PUBLIC, PRIVATE = keypair.generate()
IDENTITY = Identity(
    id="b1",
    config={"master": "10.77.0.1", "id": "b1"},
    public_key=PUBLIC,
    private_key=PRIVATE,
)


def used():
    """Return the CPU time of this process and of its children that ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def median(way, rounds=ROUNDS):
    """Return the medians of ``(wall, CPU)`` seconds of a way."""
    taken = []
    for _ in range(rounds):
        begin, cpu = time.monotonic(), used()
        way()
        taken.append((time.monotonic() - begin, used() - cpu))
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def overlay(image, path):
    """Make a fresh disk over an image."""
    Path(path).unlink(missing_ok=True)
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", image, "-F", "qcow2", path]
    subprocess.run(list(map(str, argv)), check=True)
    return str(path)


def methods(context, image, folder):
    """Return the figures of each method."""
    iso, disk = folder / "seed.iso.qcow2", folder / "disk.qcow2"

    def by_nocloud():
        iso.unlink(missing_ok=True)
        nocloud.build(iso, IDENTITY, "i-1", install=True)

    job = {"action": "look", "path": image, "format": "qcow2"}
    found = inspection.parse_content(appliance.run(job, **inspection.limits(context.settings)))

    def by_guestfs():
        overlay(image, disk)
        write.seed_disk(
            context, str(disk), "qcow2", IDENTITY, via="guestfs", install=None, content=found
        )

    out = {
        "nocloud": median(by_nocloud, 20),
        "credentials": median(lambda: credentials.content(write.files_of(IDENTITY)), 20),
    }
    overlay(image, disk)
    argv = ["/usr/bin/python3", "-c", LAUNCH, str(disk)]
    environment = {
        **os.environ,
        "LIBGUESTFS_BACKEND": "direct",
        "LIBGUESTFS_BACKEND_SETTINGS": "force_tcg",
    }
    out["launch"] = median(lambda: subprocess.run(argv, check=True, env=environment))
    out["guestfs"] = median(by_guestfs)
    return out


def _one(opts, number):
    settings = config.host_settings(opts)
    given = {"image": IMAGE[0], "pub_key": PUBLIC, "priv_key": PRIVATE, "seed_method": "nocloud"}
    deployment = spec.deployment(settings, f"b{number}", 1, 64, given)
    create.create(Context(settings=settings, opts=opts), deployment)


IMAGE = [""]


def at_once(image):
    """Return the wall seconds of ten VMs at once, as a minion's jobs: forked, everything loaded."""
    IMAGE[0] = image
    opts = asminion.options()
    # The lab's hosts pretend to be small.
    capacity = {"vcpus": 64, "memory_mib": 65536, "disk_mib": 1 << 20}
    opts["virt"] = {**opts["virt"], "capacity": capacity}
    fork = multiprocessing.get_context("fork")
    jobs = [fork.Process(target=_one, args=(opts, number)) for number in range(AT_ONCE)]
    begin = time.monotonic()
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert all(job.exitcode == 0 for job in jobs)
    return time.monotonic() - begin


def by_hand(image, xml, folder):
    """Return the wall seconds of the same by qemu-img and virsh, ten shells at once."""
    scripts = []
    for number in range(AT_ONCE):
        disk, text = folder / f"h{number}.qcow2", folder / f"h{number}.xml"
        mac = f"00:00:{number:02x}"
        filled = xml.replace("@NAME@", f"h{number}").replace("@DISK@", str(disk))
        text.write_text(filled.replace("@MAC@", mac).replace("NAME-console", f"h{number}-console"))
        scripts.append(
            f"qemu-img create -q -f qcow2 -b {image} -F qcow2 {disk} 8G && "
            f"virsh -q define {text} && virsh -q start h{number}"
        )
    begin = time.monotonic()
    jobs = [subprocess.Popen(["sh", "-c", one], stdout=subprocess.DEVNULL) for one in scripts]
    assert [job.wait() for job in jobs] == [0] * AT_ONCE
    return time.monotonic() - begin


def same(image):
    """Return the XML of such a VM as an administrator would have it: the same, without the seed."""
    settings = config.HostSettings()
    vm = spec.deployment(settings, "@NAME@".strip("@"), 1, 64, {"image": image}).vm
    disk = replace(vm.disks[0], path="@DISK@", format="qcow2")
    return domain.build(
        replace(
            vm,
            name="@NAME@",
            domain_type="qemu",
            disks=(disk,),
            nics=(replace(vm.nics[0], mac="52:54:00:@MAC@"),),
        )
    )


def clean():
    """Remove all VMs of this measurement."""
    listed = subprocess.check_output(["virsh", "-q", "list", "--all", "--name"], text=True)
    for name in re.findall(r"^[bh]\d$", listed, re.MULTILINE):
        subprocess.run(["virsh", "-q", "destroy", name], check=False, capture_output=True)
        subprocess.run(["virsh", "-q", "undefine", name], check=True, capture_output=True)
    for path in Path("/srv/salt-images").glob("b[0-9]*_*"):
        path.unlink()


def main(debian, tiny):
    """Print all figures as JSON."""
    opts = asminion.options()
    context = Context(settings=config.host_settings(opts), opts=opts)
    with tempfile.TemporaryDirectory(dir="/srv") as folder:
        Path(folder).chmod(0o755)  # QEMU is a user of its own
        out = methods(context, debian, Path(folder))
        ours, theirs = [], []
        for _ in range(ROUNDS):
            for times, way in (
                (ours, lambda: at_once(tiny)),
                (theirs, lambda: by_hand(tiny, same(tiny), Path(folder))),
            ):
                try:
                    times.append(way())
                finally:
                    clean()
        out["ten"] = [statistics.median(ours), statistics.median(theirs)]
    print(json.dumps(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
