"""A host of the lab: its own /etc/libvirt, /var/lib/libvirt, /srv, /run, and its libvirtd."""

import subprocess
import uuid

from labkit import node
from labkit.run import run, wait_for

LIBVIRTD_CONF = """\
listen_tls = 1
listen_tcp = 0
auth_unix_rw = "none"
auth_unix_ro = "none"
host_uuid = "{uuid}"
log_outputs = "2:file:/var/log/libvirt/libvirtd.log"
"""
# No cgroups, no security driver, no private /dev: none of them is to be had in these namespaces.
QEMU_CONF = """\
user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
remember_owner = 0
max_core = 0
stdio_handler = "logd"
"""
# Folders of the node bound over the machine's, so that no two nodes share state.
BINDS = {
    "etc": "/etc",
    "etc-libvirt": "/etc/libvirt",
    "pki": "/etc/pki",
    "var-lib-libvirt": "/var/lib/libvirt",
    "var-lib-salt-virt": "/var/lib/salt-virt",
    "var-cache-libvirt": "/var/cache/libvirt",
    "log": "/var/log",
    "srv": "/srv",
}


# What a host has before anybody made it a hypervisor: libvirt's packages as they come.
BARE = {part: target for part, target in BINDS.items() if part not in ("etc-libvirt", "pki")}


def _write_files(lab, name, folder, binds):
    if not (folder / "etc").exists():
        folder.mkdir(parents=True, exist_ok=True)
        run(["cp", "-a", "/etc", folder / "etc"])
    for part in binds:
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "log/libvirt/qemu").mkdir(parents=True, exist_ok=True)
    (folder / "var-lib-libvirt/images").mkdir(parents=True, exist_ok=True)
    identity = uuid.uuid4()
    etc = folder / "etc"
    (etc / "hostname").write_text(f"{name}\n")
    (etc / "machine-id").write_text(f"{identity.hex}\n")
    # An empty resolver: one that does not answer costs tens of seconds in libvirt and QEMU.
    (etc / "resolv.conf").unlink(missing_ok=True)
    (etc / "resolv.conf").write_text("")
    names = [f"{lab.host_ip(f'hyper{n}')} hyper{n}" for n in range(1, 33)]
    hosts = ["127.0.0.1 localhost", f"{lab.master_ip} master salt", *names]
    (etc / "hosts").write_text("\n".join(hosts) + "\n")
    if "etc-libvirt" in binds:
        _configure_libvirt(folder / "etc-libvirt", identity)


def _configure_libvirt(etc, identity):
    (etc / "qemu").mkdir(parents=True, exist_ok=True)
    (etc / "libvirtd.conf").write_text(LIBVIRTD_CONF.format(uuid=identity))
    (etc / "qemu.conf").write_text(QEMU_CONF)
    for empty in ("libvirt.conf", "network.conf", "qemu-lockd.conf", "virtlogd.conf"):
        (etc / empty).touch()


def prepare(lab, name, pid, binds=BINDS):
    """Lay down a node's files and bind them over the machine's; do nothing the second time."""
    folder = lab.node_dir(name)
    if (folder / "mounted").exists() and (folder / "mounted").read_text() == str(pid):
        return
    _write_files(lab, name, folder, binds)
    mounts = [f"mkdir -p {target}; mount --bind {folder}/{part} {target}"
              for part, target in binds.items()]
    script = [
        "set -e",
        f"hostname {name}",
        "mount -t tmpfs -o mode=755,size=256m tmpfs /run",
        "mkdir -p /run/lock /run/libvirt",
        # The machine's /sys shows the machine's links, not those of this node.
        "mount -t sysfs sysfs /sys",
        *mounts,
    ]
    node.inside(pid, ["/bin/sh", "-c", "\n".join(script)])
    (folder / "mounted").write_text(str(pid))


def is_answering(pid):
    """Return whether the host's libvirtd answers."""
    ask = node.enter(pid, ["timeout", "5", "virsh", "-q", "-c", "qemu:///system", "uri"])
    return subprocess.run(ask, capture_output=True, check=False).returncode == 0


def start_libvirtd(lab, name, pid):
    """Start virtlogd and libvirtd; the TLS port is open once the host has its keys."""
    folder = lab.node_dir(name)
    running = node.inside(pid, ["ps", "-A", "-ww", "-o", "comm="]).split()
    if "virtlogd" not in running:
        node.inside(pid, ["virtlogd", "-d"])
    if "libvirtd" not in running:
        has_keys = (folder / "pki/libvirt/servercert.pem").exists()
        listen = ["--listen"] if has_keys else []
        node.spawn(lab, name, pid, ["/usr/sbin/libvirtd", *listen], folder / "log/libvirtd.out")
    wait_for(f"libvirtd of {name}", lambda: is_answering(pid), timeout_s=60)


def stop(pid, program):
    """Stop a daemon of a host by its process ids and wait until it is gone."""
    def ids():
        listed = node.inside(pid, ["ps", "-A", "-ww", "-o", "pid=,args="]).splitlines()
        return [line.split()[0] for line in listed if program in line.split(None, 1)[1]]

    if found := ids():
        # One of them may be gone by itself already.
        subprocess.run(node.enter(pid, ["kill", *found]), check=False, stderr=subprocess.DEVNULL)
        wait_for(f"the end of {program}", lambda: not ids(), timeout_s=30)
