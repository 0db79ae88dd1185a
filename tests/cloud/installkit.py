"""What a minion is installed from without the internet: the lab's own Salt, packed as Salt's."""

import hashlib
import json
import shutil
import subprocess
from contextlib import contextmanager

from labkit import node
from labkit.onedir import packages as packages_of

# What the lab's Debian has of cloud-init, in the guest's own words; a network of its own instead.
COMMANDS = [
    "rm -rf /usr/bin/cloud-init /etc/systemd/system/*/cloud-* /lib/systemd/system/cloud-*",
    "rm -f /lib/systemd/system-generators/cloud-init-generator",
    "echo 0123456789abcdef0123456789abcdef > /etc/machine-id",
    "mkdir -p /etc/ssh && echo 'of the image' > /etc/ssh/ssh_host_rsa_key",
]
NETWORK = "[Match]\nName=e*\n[Network]\nDHCP=yes\n"
PROGRAM = """#!/usr/bin/python3
import sys
sys.path.insert(0, "/opt/saltstack/salt/lib")
from salt.scripts import salt_{0}
salt_{0}()
"""
CONTROL = """Package: salt-minion
Version: 3008
Architecture: all
Maintainer: none
Description: a minion
"""
UNIT = """[Service]
Type=notify
NotifyAccess=all
ExecStart=/opt/saltstack/salt/salt-minion
[Install]
WantedBy=multi-user.target
"""
PLAIN = "salt://images/debian-plain.qcow2"
# The switch has it too, which is the way out of the hosts' network.
OUTSIDE = "198.51.100.1"


def onedir(cloud, work):
    """Put a tarball on the file server that is laid out as Salt's, with the lab's own Salt."""
    packages = packages_of(cloud.lab.salt)
    top = work / "salt"
    top.mkdir()
    (top / "lib").symlink_to(packages)
    for name in ("minion", "call"):
        (top / f"salt-{name}").write_text(PROGRAM.format(name))
        (top / f"salt-{name}").chmod(0o755)
    left_out = [f"--exclude={name}*" for name in ("pip", "libvirt", "setuptools", "__pycache__")]
    argv = ["tar", "-C", work, "-chf", work / "salt.tar", *left_out, "salt"]
    subprocess.run(argv, check=True)
    subprocess.run(["gzip", "-1", work / "salt.tar"], check=True)
    shutil.copy(work / "salt.tar.gz", cloud.fileroot)
    (cloud.fileroot / "50-any.network").write_text(NETWORK)


def repository(cloud, work):
    """Make a repository of packages with the lab's own Salt in it."""
    tree = work / "package"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(CONTROL)
    (tree / "opt/saltstack").mkdir(parents=True)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "lib/systemd/system").mkdir(parents=True)
    argv = ["tar", "-xzf", cloud.fileroot / "salt.tar.gz", "-C", tree / "opt/saltstack"]
    subprocess.run(argv, check=True)
    for name in ("minion", "call"):
        (tree / f"usr/bin/salt-{name}").symlink_to(f"/opt/saltstack/salt/salt-{name}")
    (tree / "lib/systemd/system/salt-minion.service").write_text(UNIT)
    package = work / "salt-minion.deb"
    subprocess.run(
        ["dpkg-deb", "-Zgzip", "-z1", "--build", tree, package], check=True, capture_output=True
    )
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    (work / "Packages").write_text(
        f"{CONTROL}Filename: ./{package.name}\n"
        f"Size: {package.stat().st_size}\nSHA256: {digest}\n"
    )


@contextmanager
def served(cloud, work):
    """Serve the repository to guests and appliances, from outside, while the block runs."""
    repository(cloud, work)
    folder = cloud.folder("switch") / "srv/apt"
    folder.mkdir(exist_ok=True)
    for name in ("Packages", "salt-minion.deb"):
        shutil.copy(work / name, folder)
    cloud.sh("switch", f"ip address replace {OUTSIDE}/32 dev lo")
    argv = ["python3", "-m", "http.server", "--bind", OUTSIDE, "-d", "/srv/apt", "8099"]
    server = subprocess.Popen(
        node.enter(cloud.pids["switch"], argv), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    source = f"deb [trusted=yes] http://{OUTSIDE}:8099 ./\n"
    (cloud.fileroot / "sources.list").write_text(source)
    try:
        yield
    finally:
        server.terminate()
        server.wait()
        (cloud.fileroot / "sources.list").unlink()
        cloud.sh("switch", f"ip address del {OUTSIDE}/32 dev lo; rm -r /srv/apt")


@contextmanager
def networked(cloud, host="hyper1"):
    """Have a host's appliances install from the guests' own repositories while the block runs."""
    conf = cloud.folder(host) / "etc/salt/minion.d/network.conf"
    conf.write_text(json.dumps({"virt": {"seed": {"install_network": True}}}))
    try:
        cloud.service(host, "salt-minion", "restart")
        cloud.ready([host])
        yield
    finally:
        conf.unlink()
        cloud.service(host, "salt-minion", "restart")
        cloud.ready([host])
