"""A cloud of Salt 3006.25: made by that release's own modules, on hosts that have ours too."""

import json
import shutil
import subprocess
from pathlib import Path

from labkit import node, pythons

PLACE = "/srv/old"
VMS = "/srv/vms"
IMAGE = f"{PLACE}/tiny.qcow2"
# What the VMs of the cloud are on, and what any host needs that is to take them.
PLACES = {
    "vms": {"virt.pool_running": [{"ptype": "dir"}, {"target": VMS}, {"autostart": True}]},
    "lan": {"virt.network_running": [{"bridge": "br0"}, {"forward": "bridge"}]},
    "inner": {
        "virt.network_running": [
            {"bridge": "virbr9"},
            {"forward": "nat"},
            {"ipv4_config": {"cidr": "192.168.99.0/24"}},
            {"autostart": True},
        ]
    },
}
SYSTEM = {"name": "system", "pool": "vms", "image": IMAGE, "format": "qcow2", "size": 64}
LAN = {"name": "eth0", "type": "network", "source": "lan", "mac": "52:54:00:aa:00:01"}
INNER = {"name": "eth1", "type": "network", "source": "inner"}
CONSOLE = 23023
# As 3006 had it by default: open to whoever reaches the port.
SERIAL = {"type": "tcp", "port": CONSOLE, "protocol": "raw", "host": "0.0.0.0"}
CLOUD = {
    **PLACES,
    "web": {
        "virt.running": [
            {"cpu": 1},
            {"mem": 96},
            {"disks": [SYSTEM, {"name": "data", "pool": "vms", "size": 8}]},
            {"interfaces": [LAN, INNER]},
            {"graphics": {"type": "vnc"}},
            {"serials": [SERIAL]},
            {"seed": False},
        ]
    },
    "db": {
        "virt.running": [
            {"cpu": 1},
            {"mem": 64},
            {"disks": [{"name": "system", "pool": "vms", "size": 8}]},
            {"interfaces": [{"name": "eth0", "type": "network", "source": "lan"}]},
            {"seed": False},
        ]
    },
    "plain": {
        "virt.defined": [
            {"cpu": 1},
            {"mem": 96},
            {"disks": [{"name": "system", "image": IMAGE}]},
            {"seed": False},
        ]
    },
}
BY_HAND = f"""<domain type='qemu'><name>byhand</name><memory>65536</memory>
<os><type>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='raw'/>
<source file='{VMS}/byhand.img'/><target dev='vda' bus='virtio'/></disk>
<disk type='file' device='cdrom'><target dev='hda' bus='ide'/></disk>
<interface type='bridge'><source bridge='br0'/></interface></devices></domain>"""
OVER = {
    "name": "system",
    "pool": "vms",
    "size": 64,
    "format": "qcow2",
    "backing_store_path": IMAGE,
    "backing_store_format": "qcow2",
}
# An overlay as 3006 meant to make it (overlay_image), which has failed in every release that
# split its command at blanks: of an image that the minion has kept.
BASE = f"{PLACE}/cache/files/base/tiny.qcow2"
THIN = "/srv/salt-images/thin_system.qcow2"
OVERLAY = f"""<domain type='qemu'><name>thin</name><memory>65536</memory>
<os><type>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
<source file='{THIN}'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""
_MINION = f"""\
file_client: local
root_dir: {PLACE}
pki_dir: {PLACE}/pki
cachedir: {PLACE}/cache
sock_dir: {PLACE}/run
log_file: {PLACE}/log
extension_modules: {PLACE}/none
file_roots: {{base: [{PLACE}/files]}}
enable_fqdns_grains: False
enable_gpu_grains: False
"""
# Its own external pillar, which makes keys for a minion and hands them to it.
_PILLAR = """
import sys
import salt.pillar.libvirt as made
made.__opts__, made.__grains__ = {"pki_dir": sys.argv[1]}, {"fqdn": sys.argv[3]}
assert made.__virtual__()
made.ext_pillar(sys.argv[2], {}, "")
"""


class Old:
    """Salt 3006.25 on a host, beside that host's own Salt: its modules are its own."""

    def __init__(self, cloud, host):
        self._cloud, self.host = cloud, host
        self.folder = cloud.folder(host) / PLACE.removeprefix("/")
        for part in ("etc", "files", "pki"):
            (self.folder / part).mkdir(parents=True)
        subprocess.run(["cp", "-a", pythons.rival(), self.folder / "salt"], check=True)
        shutil.copy(cloud.lab.images / "tiny.qcow2", self.folder)
        (self.folder / "etc/minion").write_text(f"id: {host}\n{_MINION}")
        for name, sls in (("places", PLACES), ("cloud", CLOUD)):
            (self.folder / f"files/old{name}.sls").write_text(json.dumps(sls))

    def call(self, *words):
        """Return the answer of its salt-call; it must succeed."""
        program = [f"{PLACE}/salt/bin/python3", f"{PLACE}/salt/bin/salt-call"]
        options = ["--local", "-c", f"{PLACE}/etc", "--out=json", "--retcode-passthrough"]
        argv = node.enter(self._cloud.pids[self.host], [*program, *options, *words])
        said = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stdout + said.stderr
        return json.loads(said.stdout)["local"]

    def take_keys(self, keys):
        """Have its own state write the keys that the master's pillar gave to this host."""
        mine = self.folder / "pki/libvirt"
        mine.mkdir()
        shutil.copy(keys / "cacert.pem", mine)
        shutil.copytree(keys / self.host, mine / self.host)
        done = self.call("state.single", "virt.keys", "libvirt_keys")
        return next(iter(done.values()))


def make_keys(cloud, hosts):
    """Have the master's folder of keys made by the pillar and the certtool of 3006.25."""
    pki = cloud.master_conf / "pki/master"
    for host in hosts:
        fqdn = cloud.local(host, "grains.get", "fqdn")
        argv = [pythons.rival() / "bin/python3", "-c", _PILLAR, pki, host, fqdn]
        subprocess.run(argv, check=True, capture_output=True)
    return Path(pki, "libvirt")


def clear(cloud, host):
    """Remove all of it from a host."""
    cloud.sh(
        host,
        "for vm in $(virsh -q list --all --name); do virsh destroy $vm; "
        "virsh undefine $vm --snapshots-metadata; done; "
        "for pool in vms more; do virsh pool-destroy $pool; virsh pool-undefine $pool; done; "
        "for net in lan inner apart; do virsh net-destroy $net; virsh net-undefine $net; done; "
        f"rm -rf {PLACE} {VMS} /srv/more /srv/salt-images/*_system*; true",
    )


def uuids(cloud):
    """Return the UUIDs of all VMs by their names, wherever they are."""
    out = {}
    for host in cloud.hosts:
        for line in cloud.sh(host, "virsh -q list --all --name --uuid").splitlines():
            uuid, name = line.split()
            assert name not in out, f"{name} is there twice"
            out[name] = uuid
    return out


def definitions(cloud, host):
    """Return the XML of all VMs, networks and pools of a host, as they are defined."""
    return cloud.sh(
        host,
        "for vm in $(virsh -q list --all --name); do virsh dumpxml --inactive $vm; done; "
        "for net in $(virsh -q net-list --all --name); do virsh net-dumpxml --inactive $net; done; "
        "for pool in $(virsh -q pool-list --all --name); do "
        "virsh pool-dumpxml --inactive $pool; done",
    )


def lacking(theirs, ours, path=""):
    """Yield the paths of what one answer has and another has not; the order is no difference."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key, one in theirs.items():
            if key not in VOLATILE:
                yield from lacking(one, ours.get(key), f"{path}/{key}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        for one in theirs:
            if not any(not list(lacking(one, other)) for other in ours):
                yield f"{path}: {one}"
    elif theirs != ours:
        yield f"{path}: {theirs} {ours}"


# What is another number a moment later; and the date of a snapshot within a disk, as 3006 took
# 31 ms for 310: it put the nanoseconds behind a point without the zeros before them.
VOLATILE = ("cputime", "disk size", "allocation", "free", "tty", "date")
