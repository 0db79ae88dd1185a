"""What a guest's root has, and writing its identity there; ``tree`` is like libguestfs' handle."""

import re
from collections.abc import Iterable
from typing import Any

_MINION = ("/usr/bin/salt-minion", "/opt/saltstack/salt/salt-minion", "/usr/local/bin/salt-minion")
_CLOUD_INIT = ("/usr/bin/cloud-init", "/usr/local/bin/cloud-init")
# It reads no seed then. Ubuntu's installer, for one, leaves it so.
_SWITCHED_OFF = "/etc/cloud/cloud-init.disabled"
_SSH_SERVERS = tuple(
    f"/usr/{folder}/{name}"
    for folder in ("sbin", "bin", "local/sbin")
    for name in ("sshd", "dropbear")
)
_CLOUD_CONFIG, _CLOUD_CONFIGS = "/etc/cloud/cloud.cfg", "/etc/cloud/cloud.cfg.d/*.cfg"
# As a list in brackets, or with a line for each.
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
    """The job cannot be done; the message says why."""


def _has_any_file(tree: Any, paths: Iterable[str]) -> bool:
    return any(tree.is_file(path, followsymlinks=True) for path in paths)


def has_minion(tree: Any) -> bool:
    """Return whether there is a salt-minion."""
    return _has_any_file(tree, _MINION)


def look(tree: Any, system: dict[str, Any]) -> dict[str, Any]:
    """Return what an image has, as plain data; ``root`` is None if there is no system in it."""
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
    """Return where cloud-init looks for its data, as its files say last; None if they do not."""
    datasources = None
    for path in (_CLOUD_CONFIG, *sorted(tree.glob_expand(_CLOUD_CONFIGS))):
        try:
            text = tree.read_file(path) if tree.is_file(path) else b""
        except (RuntimeError, OSError, Refused):
            continue  # too large for a configuration, or broken: it only helps to warn
        for match in _SOURCES.finditer(text):
            names = re.findall(_SOURCE, match[1] if match[1] is not None else match[2])
            datasources = [name.decode() for name in names[:_MOST_SOURCES]]
    return datasources


def _systemd_version(tree: Any) -> int | None:
    """Return systemd's version as its own library names it, None if there is none."""
    for pattern in ("/usr/lib/*/systemd", "/usr/lib/systemd", "/usr/lib64/systemd", "/lib/systemd"):
        for path in tree.glob_expand(f"{pattern}/libsystemd-shared-*.so"):
            version = re.match(r"\d+", path.rpartition("-")[2])
            if version:
                return int(version[0])
    return None


def seed(tree: Any, job: dict[str, Any]) -> None:
    """Write a guest's identity into a root that has a minion, or installs one when it boots."""
    # Those of the minion that it was: every VM of that image would have them.
    is_another = job.get("is_another") or _minion_id(tree) != _find_new_id(job)
    for name in ("minion.pem", "minion.pub") if is_another else ():
        tree.rm_f(f"/etc/salt/pki/minion/{name}")
    tree.rm_f("/etc/salt/minion.d/99-salt-virt.conf")  # what releases before called it
    for path, text, mode in job["files"]:
        put(tree, path, text, int(mode, 8))
    tree.mkdir_p("/etc/salt/pki/minion")  # without a key of ours the guest makes its own there
    tree.chmod(0o700, "/etc/salt/pki/minion")
    authorize(tree, job.get("ssh_keys") or [])
    make_anonymous(tree)
    start_at_boot(tree, job.get("install"))
    relabel(tree)


def _minion_id(tree: Any) -> str:
    """Return which minion a root has been, empty if none."""
    path = "/etc/salt/minion_id"
    content = tree.read_file(path) if tree.is_file(path) else b""
    return str(content.decode(errors="replace").strip())


def _find_new_id(job: dict[str, Any]) -> str:
    """Return which minion a root is to be."""
    texts = {path: text for path, text, _mode in job["files"]}
    return str(texts.get("/etc/salt/minion_id", "")).strip()


def put(tree: Any, path: str, text: str, mode: int) -> None:
    """Write a file of the guest."""
    tree.mkdir_p(path.rpartition("/")[0])
    # A link that the image has there would lead elsewhere in the guest.
    tree.rm_f(path)
    tree.write(path, text.encode())
    tree.chmod(mode, path)


def authorize(tree: Any, keys: Iterable[str]) -> None:
    """Let those who have these SSH keys log in as root, beside those whom the image lets in."""
    new_keys = list(keys)
    if not new_keys:
        return
    # A link that the image has there would lead to somebody else's folder, or file.
    if tree.is_symlink(_SSH):
        tree.rm_f(_SSH)
    tree.mkdir_p(_SSH)
    # What the image has there may be another user's, whose files sshd does not believe.
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
    """Take away what must differ from guest to guest."""
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
    """Have SELinux label what was written, at the guest's next boot."""
    if tree.is_file("/etc/selinux/config", followsymlinks=True):
        tree.touch("/.autorelabel")
