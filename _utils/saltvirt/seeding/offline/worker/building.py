"""Build a base image: add packages, files, commands and a minion, then remove its own traces."""

from typing import Any

import guestfstree
import identity
import installing

# Traces of a machine that has run, which an image for many VMs must not have.
_OWN = (
    "/etc/salt/minion_id",
    "/etc/salt/minion.d/zz-salt-virt.conf",
    "/etc/salt/pki/minion/*",
    "/etc/salt/proxy.d/*",
    "/var/cache/salt/minion/*",
    "/var/log/salt/*",
    "/var/lib/cloud/*",
    "/var/log/cloud-init*.log",
    "/var/lib/dhcp/*.leases",
    "/var/lib/NetworkManager/*.lease",
    "/var/lib/systemd/random-seed",
    "/var/log/journal/*",
    "/var/log/wtmp",
    "/var/log/btmp",
    "/var/log/lastlog",
    "/*/.bash_history",
    "/*/*/.bash_history",
    "/var/cache/apt/archives/*.deb",
    "/var/lib/apt/lists/*_*",
    "/var/cache/dnf/*",
    "/var/cache/zypp/packages/*",
    "/etc/udev/rules.d/70-persistent-*.rules",
    "/tmp/*",
    "/var/tmp/*",
)


def build(tree: Any, system: dict[str, Any], job: dict[str, Any]) -> None:
    """Run an image's steps in order: packages, minion, files, commands, cleaning."""
    if job["packages"]:
        installing.packages(tree, system, job["packages"])
    if job.get("install"):
        installing.make_sure(tree, system, job["install"])
    for path, host_path, mode in job["uploads"]:
        tree.mkdir_p(path.rpartition("/")[0] or "/")
        tree.rm_f(path)
        tree.upload(host_path, path)
        tree.chmod(int(mode, 8), path)
    if job["commands"]:
        guestfstree.refuse_foreign(system)
    for command in job["commands"]:
        installing.run(tree, command, f"{command!r}")
    if job["sysprep"]:
        _clean(tree)
    if identity.has_minion(tree):
        identity.start_at_boot(tree, job.get("install"))
    identity.relabel(tree)


def _clean(tree: Any) -> None:
    for pattern in _OWN:
        for path in tree.glob_expand(pattern):
            tree.rm_rf(path)
    identity.make_anonymous(tree)
