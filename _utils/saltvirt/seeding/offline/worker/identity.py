"""Inspect a guest's root, and write an identity there; ``tree`` is like libguestfs' handle."""

import re
from collections.abc import Iterable
from typing import Any

_MINION = ("/usr/bin/salt-minion", "/opt/saltstack/salt/salt-minion", "/usr/local/bin/salt-minion")
_CLOUD_INIT = ("/usr/bin/cloud-init", "/usr/local/bin/cloud-init")
# With this file cloud-init reads no seed. Ubuntu's installer, for one, leaves it.
_SWITCHED_OFF = "/etc/cloud/cloud-init.disabled"
_SSH_SERVERS = tuple(
    f"/usr/{folder}/{name}"
    for folder in ("sbin", "bin", "local/sbin")
    for name in ("sshd", "dropbear")
)
_CLOUD_CONFIG, _CLOUD_CONFIGS = "/etc/cloud/cloud.cfg", "/etc/cloud/cloud.cfg.d/*.cfg"
# A list in brackets, or one with a line per item.
_SOURCES = re.compile(
    rb"^datasource_list[ \t]*:[ \t]*(?:\[([^\]]*)\]|((?:\r?\n[ \t]*-[^\r\n]*)+))", re.MULTILINE
)
_SOURCE, _MOST_SOURCES = rb"[A-Za-z0-9]{1,40}", 50
_SYSTEMD = ("/lib/systemd/systemd", "/usr/lib/systemd/systemd")
_UNITS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_HOME = "/root"
_SSH = f"{_HOME}/.ssh"
_INSTALLER = "salt-virt-install"
_INSTALL_UNIT = """\
[Unit]
Description=Install a salt-minion, as this image has none
Wants=network-online.target
After=network-online.target
ConditionPathExists=!/usr/bin/salt-minion

[Service]
Type=oneshot
ExecStart=/bin/sh /usr/local/sbin/salt-virt-install

[Install]
WantedBy=multi-user.target
"""


class Refused(Exception):
    """The job cannot be done; the message gives the reason."""


def _has_any_file(tree: Any, paths: Iterable[str]) -> bool:
    return any(tree.is_file(path, followsymlinks=True) for path in paths)


def has_minion(tree: Any) -> bool:
    """Return whether a root has a salt-minion."""
    return _has_any_file(tree, _MINION)


def look(tree: Any, system: dict[str, Any]) -> dict[str, Any]:
    """Return an image's facts as plain data; ``root`` is None if it contains no system."""
    if system["root"] is None:
        return {"root": None}
    return {
        **system,
        "has_minion": has_minion(tree),
        "has_cloud_init": _has_any_file(tree, _CLOUD_INIT) and not tree.exists(_SWITCHED_OFF),
        "datasources": _datasources(tree),
        "has_ssh_server": _has_any_file(tree, _SSH_SERVERS),
        "has_systemd": _has_any_file(tree, _SYSTEMD),
        "systemd_version": _systemd_version(tree),
    }


def _datasources(tree: Any) -> list[str] | None:
    """Return cloud-init's data sources from the last file that lists them; None if none does."""
    datasources = None
    for path in (_CLOUD_CONFIG, *sorted(tree.glob_expand(_CLOUD_CONFIGS))):
        try:
            text = tree.read_file(path) if tree.is_file(path) else b""
        except (RuntimeError, OSError, Refused):
            continue  # too large for a configuration, or broken: only a warning depends on it
        for match in _SOURCES.finditer(text):
            names = re.findall(_SOURCE, match[1] if match[1] is not None else match[2])
            datasources = [name.decode() for name in names[:_MOST_SOURCES]]
    return datasources


def _systemd_version(tree: Any) -> int | None:
    """Return systemd's version by the name of its own library, None if there is none."""
    for pattern in ("/usr/lib/*/systemd", "/usr/lib/systemd", "/usr/lib64/systemd", "/lib/systemd"):
        for path in tree.glob_expand(f"{pattern}/libsystemd-shared-*.so"):
            version = re.match(r"\d+", path.rpartition("-")[2])
            if version:
                return int(version[0])
    return None


def seed(tree: Any, job: dict[str, Any]) -> None:
    """Write a guest's identity into a root with a minion, or with an installer for its boot."""
    # Remove the image's own minion keys, or all VMs made from it share them.
    is_another = job.get("is_another") or _minion_id(tree) != _find_new_id(job)
    for name in ("minion.pem", "minion.pub") if is_another else ():
        tree.rm_f(f"/etc/salt/pki/minion/{name}")
    for path, text, mode in job["files"]:
        put(tree, path, text, int(mode, 8))
    tree.mkdir_p("/etc/salt/pki/minion")  # a guest without a key of ours makes its own there
    tree.chmod(0o700, "/etc/salt/pki/minion")
    authorize(tree, job.get("ssh_keys") or [])
    make_anonymous(tree)
    start_at_boot(tree, job.get("install"))
    relabel(tree)


def _minion_id(tree: Any) -> str:
    """Return the minion id that a root had, empty if none."""
    path = "/etc/salt/minion_id"
    content = tree.read_file(path) if tree.is_file(path) else b""
    return str(content.decode(errors="replace").strip())


def _find_new_id(job: dict[str, Any]) -> str:
    """Return the minion id that a root is to get."""
    texts = {path: text for path, text, _mode in job["files"]}
    return str(texts.get("/etc/salt/minion_id", "")).strip()


def put(tree: Any, path: str, text: str, mode: int) -> None:
    """Write a file of the guest."""
    tree.mkdir_p(path.rpartition("/")[0])
    # A link in the image would redirect the file.
    tree.rm_f(path)
    tree.write(path, text.encode())
    tree.chmod(mode, path)


def authorize(tree: Any, keys: Iterable[str]) -> None:
    """Let these SSH keys log in as root, beside the image's own keys."""
    new_keys = list(keys)
    if not new_keys:
        return
    # A link in the image would lead to another user's folder or file.
    if tree.is_symlink(_SSH):
        tree.rm_f(_SSH)
    tree.mkdir_p(_SSH)
    # A folder in the image may have another owner: sshd would ignore its files.
    tree.chown(0, 0, _SSH)
    tree.chmod(0o700, _SSH)
    path = f"{_SSH}/authorized_keys"
    old_content = tree.read_file(path) if tree.is_file(path) else b""
    lines = [line for line in old_content.splitlines() if line.strip()]
    present_keys = {tuple(line.split()[:2]) for line in lines}
    encoded_keys = [key.encode() for key in new_keys]
    lines += [key for key in encoded_keys if tuple(key.split()[:2]) not in present_keys]
    tree.rm_f(path)
    tree.write(path, b"".join(line + b"\n" for line in lines))
    tree.chmod(0o600, path)


def make_anonymous(tree: Any) -> None:
    """Remove the data that must differ from guest to guest."""
    if tree.exists("/etc/machine-id"):
        tree.rm_f("/etc/machine-id")
        tree.write("/etc/machine-id", b"")
    if tree.is_file("/var/lib/dbus/machine-id"):
        tree.rm_f("/var/lib/dbus/machine-id")
    for path in tree.glob_expand("/etc/ssh/ssh_host_*_key*"):
        tree.rm_f(path)


def start_at_boot(tree: Any, install: dict[str, Any] | None) -> None:
    """Have systemd start the minion, or first its installer, when the guest boots."""
    if not _has_any_file(tree, _SYSTEMD):
        return
    is_there = has_minion(tree)
    if install and not is_there:
        put(tree, f"{_UNITS[0]}/{_INSTALLER}.service", _INSTALL_UNIT, 0o644)
        put(tree, f"/usr/local/sbin/{_INSTALLER}", install["script"], 0o755)
    name = "salt-minion" if is_there else _INSTALLER
    tree.mkdir_p(f"{_UNITS[0]}/multi-user.target.wants")
    for folder in _UNITS:
        unit = f"{folder}/{name}.service"
        if tree.is_file(unit, followsymlinks=True):
            tree.ln_sf(unit, f"{_UNITS[0]}/multi-user.target.wants/{name}.service")
            return


def relabel(tree: Any) -> None:
    """Have SELinux label the written files at the guest's next boot."""
    if tree.is_file("/etc/selinux/config", followsymlinks=True):
        tree.touch("/.autorelabel")
