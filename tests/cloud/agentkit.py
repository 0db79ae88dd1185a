"""
A guest with an agent that speaks to libvirt through its channel.

The guest is a kernel and busybox in memory, up within seconds. Its agent is a script that has the
protocol of ``qemu-ga``, and not that program: no image of the lab has it. libvirt, QEMU, its
channel and the guest are real, and so is what ``guest-exec`` runs there.
"""

import gzip
import shutil
import subprocess
from pathlib import Path

from cloudkit import wait

FOLDER = "srv/agent"
_MODULES = (
    "virtio/virtio_ring",
    "virtio/virtio",
    "virtio/virtio_pci_modern_dev",
    "virtio/virtio_pci_legacy_dev",
    "virtio/virtio_pci",
    "char/virtio_console",
)
_INIT = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev; mkdir -p /tmp
for module in /mod/*; do insmod $module; done
while ! ls /dev/vport* >/dev/null 2>&1; do usleep 50000; done
exec /agent
"""
# What it names itself would clear a terminal.
_AGENT = r"""#!/bin/sh
exec 3<>$(ls /dev/vport*)
say() { printf '{"return": %s}\n' "$1" >&3; }
number() { say=${line##*\"$1\":}; say=${say# }; echo "${say%%[!0-9]*}"; }
known='{"name": "guest-exec", "enabled": true}, {"name": "guest-get-host-name", "enabled": true}'
known="$known, {\"name\": \"guest-get-osinfo\", \"enabled\": true}"
known="$known, {\"name\": \"guest-get-users\", \"enabled\": false}"
# Until libvirt has connected to the channel, what is read from it is an end of file.
while :; do
    IFS= read -r line <&3 || { usleep 20000; continue; }
    case "$line" in
    *guest-sync-delimited*) printf '\377' >&3; say "$(number id)" ;;
    *guest-sync*) say "$(number id)" ;;
    *guest-info*) say "{\"version\": \"0 of a test\", \"supported_commands\": [$known]}" ;;
    *guest-get-host-name*) say '{"host-name": "evil\u001b[2J\u202e../../etc"}' ;;
    *guest-get-osinfo*) say "{\"id\": \"busybox\", \"kernel-release\": \"$(uname -r)\"}" ;;
    *guest-exec-status*)
        say "{\"exited\": true, \"exitcode\": $code, \"out-data\": \"$(base64 -w 0 /tmp/out)\"}" ;;
    *hang*) sleep 1000 ;;
    *guest-exec*)
        path=${line##*\"path\":}; path=${path#*\"}; path=${path%%\"*}
        arg=${line##*\"arg\":}; arg=${arg#*[}; arg=$(echo "${arg%%]*}" | tr -d '"' | tr ',' ' ')
        input=
        case "$line" in *input-data*) input=${line##*\"input-data\":}; input=${input#*\"} ;; esac
        echo "${input%%\"*}" | base64 -d | $path $arg >/tmp/out 2>&1; code=$?
        say '{"pid": 7}' ;;
    *) printf '{"error": {"class": "CommandNotFound", "desc": "not \\u001b[2J here"}}\n' >&3 ;;
    esac
done
"""


def boot(cloud, host, name):
    """Have such a guest run on a host, and its agent listen."""
    folder = cloud.folder(host) / FOLDER
    if not folder.exists():
        _make(folder)
    boot = (
        f"{{kernel: /{FOLDER}/kernel, initrd: /{FOLDER}/initrd, "
        "cmdline: console=ttyS0 quiet tsc=reliable no_timer_check}"
    )
    words = ["disk=None", "nic=None", "seed=False", f"boot={boot}"]
    cloud.local(host, "virt.init", name, "1", "96", *words)
    wait("the agent", lambda: listens(cloud, host, name))


def listens(cloud, host, name):
    """Return whether the agent in a running guest does."""
    return "state='connected'" in cloud.sh(host, f"virsh -q dumpxml {name}")


def forget(cloud, host):
    """Remove what such guests boot."""
    shutil.rmtree(cloud.folder(host) / FOLDER, ignore_errors=True)


def _make(folder):
    kernel = max(Path("/boot").glob("vmlinuz-*-cloud-amd64"))
    drivers = Path("/lib/modules", kernel.name.removeprefix("vmlinuz-"), "kernel/drivers")
    tree = folder / "tree"
    for name in ("bin", "mod", "proc", "sys", "dev"):
        (tree / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin")
    for number, module in enumerate(_MODULES, 10):
        if (path := drivers / f"{module}.ko").exists():
            shutil.copy(path, tree / f"mod/{number}-{path.name}")
    for name, text in (("init", _INIT), ("agent", _AGENT)):
        (tree / name).write_text(text)
        (tree / name).chmod(0o755)
    names = "\n".join(str(one.relative_to(tree)) for one in sorted(tree.rglob("*")))
    argv = ["cpio", "-o", "-H", "newc", "--quiet"]
    packed = subprocess.run(argv, input=names.encode(), cwd=tree, capture_output=True, check=True)
    (folder / "initrd").write_bytes(gzip.compress(packed.stdout, 1))
    shutil.copy(kernel, folder / "kernel")
    shutil.rmtree(tree)
