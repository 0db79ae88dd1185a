"""Find local users who may control libvirt, and so are as good as root on this host."""

import grp
import os
import pwd
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from saltvirt.checks.audit.auditanswer import LocalFacts
from saltvirt.checks.audit.host.conffiles import Conf, FileReader, read_settings

# Each daemon's read-write socket; virtproxyd has that of libvirtd.
_SOCKETS = {"libvirtd": "libvirt-sock", "virtproxyd": "libvirt-sock"} | {
    f"virt{kind}d": f"virt{kind}d-sock"
    for kind in (
        *("qemu", "network", "storage", "nodedev", "nwfilter", "interface", "secret"),
        *("lxc", "xen", "ch", "vbox"),
    )
}
_RUN = Path("/run/libvirt")
# Where polkit looks for operators' rules.
_POLKIT = (
    Path("/etc/polkit-1"),
    Path("/run/polkit-1"),
    Path("/usr/local/share/polkit-1"),
    Path("/var/lib/polkit-1/localauthority"),
)
# The folders below with distributions' own rules.
_VENDORS = {"10-vendor.d", "20-org.d"}
# The group that distributions' own rules admit.
_GROUP = "libvirt"
# Members of these groups are root by sudo anyway.
_ADMINISTRATORS = ("sudo", "wheel", "admin")
# A rule may test the whole name of an action, or its beginning.
_ACTION = "org.libvirt"
# By suffix: a comment, the beginning of a rule, and words that grant. The newer files have
# functions of JavaScript, the older ones sections with keys.
_KINDS = {
    ".rules": (
        re.compile(r"//[^\n]*|/\*.*?\*/", re.S),
        "addRule",
        ("Result.YES", '"yes"', "'yes'"),
    ),
    ".pkla": (re.compile(r"^\s*#[^\n]*", re.M), "[", ("=yes",)),
}


def read_local_users(reader: FileReader, conf_folder: Path) -> LocalFacts:
    """Return how this host's own users may control libvirt."""
    return LocalFacts(
        sockets=sorted(_sockets(reader, conf_folder)),
        users=_users(),
        rules=sorted(_rules(reader)),
    )


def _sockets(reader: FileReader, conf_folder: Path) -> Iterator[str]:
    for daemon, socket_name in _SOCKETS.items():
        path = conf_folder / f"{daemon}.conf"
        conf = reader.at(path, read_settings, Conf())
        # The daemon's file sets the folder, unless systemd has made the socket.
        folders = (_RUN, Path(str(conf.get("unix_sock_dir") or _RUN)))
        is_for_all = any(_is_writable_by_all(folder / socket_name) for folder in folders)
        if conf.get("auth_unix_rw") == "none" and is_for_all:
            yield str(path)


def _is_writable_by_all(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return False


def _users() -> list[str]:
    administrators = {user for name in _ADMINISTRATORS for user in _members(name)}
    return sorted(_members(_GROUP) - administrators - {"root"})


def _members(name: str) -> set[str]:
    try:
        group = grp.getgrnam(name)
    except KeyError:
        return set()
    primary_members = {user.pw_name for user in pwd.getpwall() if user.pw_gid == group.gr_gid}
    return {*group.gr_mem, *primary_members}


def _rules(reader: FileReader) -> Iterator[str]:
    for path in _files():
        if path.suffix in _KINDS and _lets_in(reader.at(path, Path.read_text, ""), path.suffix):
            yield str(path)


def _files() -> Iterator[Path]:
    for polkit_folder in _POLKIT:
        for folder, folders, names in os.walk(polkit_folder):
            folders[:] = [subfolder for subfolder in folders if subfolder not in _VENDORS]
            yield from (Path(folder, name) for name in names)


def _lets_in(text: str, kind: str) -> bool:
    """Return whether a file has a rule that admits users to libvirt; ignore its conditions."""
    comments, begin, grants = _KINDS[kind]
    rules = "".join(comments.sub("", text).split(" ")).split(begin)
    return any(_ACTION in rule and any(grant in rule for grant in grants) for rule in rules)
