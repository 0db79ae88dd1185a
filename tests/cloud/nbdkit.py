"""A small emulated VM whose kernel has ``nbd``, which this machine's own may not.

It runs this machine's programs: the machine's file system is its root, below a layer in memory
that takes whatever is written. Only one folder is really shared.
"""

import json
import os
import subprocess
from contextlib import contextmanager

import ramkit
from labkit.run import wait_for
from labkit.settings import CHECKOUT, MASTER_IP
from saltvirt.core.crypto import keypair

_MODULES = ("virtio_pci", "virtiofs", "overlay", "nbd")
_INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc p /proc; $b mount -t sysfs s /sys; $b mount -t devtmpfs d /dev
for module in /mod/*; do case $module in *nbd.ko) $b insmod $module max_part=16;;
    *) $b insmod $module;; esac; done
$b mkdir /host /layer /new
$b mount -t virtiofs host /host; $b mount -t tmpfs t /layer; $b mkdir /layer/up /layer/work
$b mount -t overlay -o lowerdir=/host,upperdir=/layer/up,workdir=/layer/work o /new
for part in proc sys dev; do $b mount --move /$part /new/$part; done
$b mount -t tmpfs t /new/run
$b mkdir -p /new/run/lock /new{share}; $b mount --bind /host{share} /new{share}
$b chroot /new {command} >/new{share}/out 2>&1; echo "ENDED $?" >/new{share}/code
$b sync; $b poweroff -f
"""


@contextmanager
def _shared_root(folder):
    """Serve this machine's file system to a VM; nothing of it outlives the block."""
    socket = folder / "fs.sock"
    with (folder / "virtiofsd.log").open("w") as log:
        server = subprocess.Popen(
            [
                "/usr/lib/qemu/virtiofsd",
                f"--socket-path={socket}",
                "-o",
                "source=/",
                "-o",
                "sandbox=chroot,cache=always",
                "-f",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            wait_for("virtiofsd", socket.exists)
            yield socket
        finally:
            server.kill()
            server.wait()


def run(folder, script, *words, modules=(), timeout_s=600):
    """Run a Python script of the tests inside; return the JSON lines that it printed."""
    python = "/opt/tests/bin/python"
    paths = f"PYTHONPATH={CHECKOUT}/_utils"
    argv = ["/usr/bin/env", "PYTHONDONTWRITEBYTECODE=1", paths, python, script, *words]
    command = " ".join(map(str, argv))
    initrd = ramkit.initrd(
        folder, _INIT.format(share=folder, command=command), [*_MODULES, *modules]
    )
    with _shared_root(folder) as socket:
        argv = [
            "qemu-system-x86_64",
            "-accel",
            "tcg",
            "-cpu",
            "max",
            "-m",
            "1024",
            "-smp",
            "2",
            "-object",
            "memory-backend-memfd,id=mem,size=1024M,share=on",
            "-numa",
            "node,memdev=mem",
            "-chardev",
            f"socket,id=c,path={socket}",
            "-device",
            "vhost-user-fs-pci,chardev=c,tag=host",
            "-kernel",
            ramkit.kernel(),
            "-initrd",
            initrd,
            "-append",
            "console=ttyS0 quiet tsc=reliable no_timer_check noxsave " "mitigations=off panic=-1",
            "-nographic",
            "-no-reboot",
            "-nodefaults",
            "-serial",
            f"file:{folder}/console",
        ]
        try:
            subprocess.run(
                list(map(str, argv)),
                check=True,
                timeout=timeout_s,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
        except subprocess.TimeoutExpired:
            raise AssertionError((folder / "console").read_text()[-2000:]) from None
    out = (folder / "out").read_text()
    assert (folder / "code").read_text() == "ENDED 0\n", out[-3000:]
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def identity(cloud, name, folder):
    """Make the identity of a minion that the master accepts, for a script inside."""
    public, private = keypair.generate()
    pki = cloud.master_conf / "pki/master"
    made = {
        "id": name,
        "config": {"master": MASTER_IP, "id": name},
        "public_key": public,
        "private_key": private,
        "master_key": (pki / "master.pub").read_text(),
    }
    (folder / "identity.json").write_text(json.dumps(made))
    (pki / "minions" / name).write_text(public)


def boot(cloud, name, disk, *words):
    """Start a VM on hyper1 from a disk that was seeded, and wait for its minion."""
    target = cloud.folder("hyper1") / f"srv/{name}.qcow2"
    argv = ["qemu-img", "convert", "-O", "qcow2", disk, target]
    subprocess.run(list(map(str, argv)), check=True)
    disks = f"disks=[{{name: system, source_file: /srv/{name}.qcow2}}]"
    try:
        assert cloud.local("hyper1", "virt.init", name, "2", "1024", disks, *words) is True
        wait_for(f"the minion of {name}", lambda: cloud.answers(name), timeout_s=300)
    finally:
        cloud.purge_all()
        target.unlink()


def is_possible():
    """Return what this machine lacks, None if nothing."""
    needed = ["/usr/lib/qemu/virtiofsd", "/usr/bin/qemu-nbd", "/bin/busybox"]
    return next((path for path in needed if not os.access(path, os.X_OK)), None)
