"""Roots on LVM, on Btrfs and on a disk without partitions, seeded and booted: make nightly."""

import shutil
import subprocess
from pathlib import Path

import hostile
import nbdkit
import pytest
import ramkit

pytestmark = pytest.mark.nightly
# Run by the system's Python, which has the binding: the lab's Debian, copied into another layout.
COPY = """
import guestfs, sys
source, target, layout = sys.argv[1:]
g = guestfs.GuestFS(python_return_dict=True)
g.set_memsize(1024)
g.add_drive_opts(source, format="qcow2", readonly=True)
g.disk_create(target, "qcow2", 3 << 30)
g.add_drive_opts(target, format="qcow2")
g.launch()
device = "/dev/sdb"
if layout != "bare":
    g.part_disk("/dev/sdb", "mbr")
    device = "/dev/sdb1"
if layout == "lvm":
    g.pvcreate(device)
    g.vgcreate("vg", [device])
    g.lvcreate("root", "vg", 2800)
    device = "/dev/vg/root"
g.mkfs("btrfs" if layout == "btrfs" else "ext4", device)
if layout == "btrfs":
    g.mount(device, "/")
    g.btrfs_subvolume_create("/@rootfs")
    g.umount("/")
    g.mount_options("subvol=@rootfs", device, "/")
else:
    g.mount(device, "/")
g.mkdir("/source")
g.mount_ro("/dev/sda1", "/source")
for name in g.ls("/source"):
    if name not in ("lost+found", "source"):
        g.cp_a("/source/" + name, "/" + name)
g.umount("/source")
g.rmdir("/source")
place = {"lvm": "/dev/vg/root", "btrfs": "/dev/vda1", "bare": "/dev/vda"}[layout]
kind = "btrfs subvol=@rootfs" if layout == "btrfs" else "ext4 rw"
g.write("/etc/fstab", (place + " / " + kind + " 0 0\\n").encode())
g.shutdown()
"""
INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc p /proc; $b mount -t sysfs s /sys; $b mount -t devtmpfs d /dev
for module in /mod/*; do $b insmod $module; done
n=0; while [ ! -b {wait} ] && [ $n -lt 200 ]; do $b usleep 50000; n=$((n+1)); done
{before}
$b mkdir /new; $b mount {options} {root} /new || exec $b sh
for part in dev proc sys; do $b mount --move /$part /new/$part; done
exec $b switch_root /new /sbin/init
"""
LAYOUTS = {
    "lvm": {
        "wait": "/dev/vda1",
        "before": "/usr/sbin/lvm vgchange -ay --noudevsync; " "/usr/sbin/lvm vgmknodes",
        "root": "/dev/vg/root",
        "options": "-t ext4 -o rw",
    },
    "btrfs": {
        "wait": "/dev/vda1",
        "before": "",
        "root": "/dev/vda1",
        "options": "-t btrfs -o rw,subvol=@rootfs",
    },
    "bare": {"wait": "/dev/vda", "before": "", "root": "/dev/vda", "options": "-t ext4 -o rw"},
}
MODULES = ["virtio_pci", "virtio_blk", "virtio_net", "dm_mod", "btrfs"]


@pytest.fixture(scope="module", params=sorted(LAYOUTS))
def layout(cloud, request, tmp_path_factory):
    """An image of that layout on hyper1, and the ``boot`` that starts it."""
    name, image = request.param, f"/srv/{request.param}.qcow2"
    source = cloud.lab.images / "debian-minion.qcow2"
    work = tmp_path_factory.mktemp(name)
    (work / "copy.py").write_text(COPY)
    argv = [
        "env",
        "LIBGUESTFS_BACKEND=direct",
        "LIBGUESTFS_BACKEND_SETTINGS=force_tcg",
        "/usr/bin/python3",
        work / "copy.py",
        source,
        work / "disk.qcow2",
        name,
    ]
    subprocess.run(list(map(str, argv)), check=True)
    initrd = ramkit.initrd(work, INIT.format(**LAYOUTS[name]), MODULES, ["/usr/sbin/lvm"])
    srv = cloud.folder("hyper1") / "srv"
    shutil.move(work / "disk.qcow2", srv / f"{name}.qcow2")
    shutil.move(initrd, srv / "initrd")
    cmdline = "root=none console=ttyS0 quiet net.ifnames=0 tsc=reliable no_timer_check noxsave"
    yield image, f"boot={{kernel: {ramkit.kernel()}, initrd: /srv/initrd, cmdline: '{cmdline}'}}"
    cloud.purge_all()
    cloud.forget_images("hyper1")
    cloud.sh("hyper1", f"rm -f {image} /srv/initrd")


@pytest.mark.parametrize("method", ["guestfs", "nocloud", "credentials"])
def test_a_guest_of_that_layout_answers(cloud, layout, method):
    image, boot = layout
    cloud.purge_all()

    done = cloud.run(
        "virt.init", "l1", "2", "1024", image, "host=hyper1", boot, f"seed_method={method}"
    )

    assert done.code == 0, done.out + cloud.console("hyper1", "l1")[-1500:]
    assert cloud.salt("l1", "grains.item", "id").data["l1"] == {"id": "l1"}


@pytest.mark.skipif(
    nbdkit.is_possible() is not None, reason=f"this machine lacks {nbdkit.is_possible()}"
)
@pytest.mark.parametrize("layout", ["bare", "btrfs"], indirect=True)
def test_a_guest_of_that_layout_answers_after_nbd(cloud, layout, tmp_path):
    image, boot = layout
    base = cloud.folder("hyper1") / image.lstrip("/")
    hostile.qemu_img("create", "-f", "qcow2", "-b", base, "-F", "qcow2", tmp_path / "good.qcow2")
    cloud.purge_all()
    nbdkit.identity(cloud, "l1", tmp_path)

    inside = Path(nbdkit.__file__).with_name("inside_nbd.py")
    said = nbdkit.run(tmp_path, inside, tmp_path, "only", modules=["btrfs"])

    assert [one["error"] for one in said] == [None]
    nbdkit.boot(cloud, "l1", tmp_path / "good.qcow2", boot)
