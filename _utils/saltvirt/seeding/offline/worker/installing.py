"""Install a salt-minion in a guest that has none; guest programs run only in the appliance."""

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import guestfstree
import identity
from identity import Refused

_ONEDIR = "/opt/saltstack/salt"
_LINKED = ("salt-minion", "salt-call")
_COMPRESSED = {".tar": None, ".gz": "gzip", ".tgz": "gzip", ".xz": "xz", ".txz": "xz"}
_UNIT = f"""\
[Unit]
Description=The Salt Minion
After=network.target

[Service]
Type=notify
NotifyAccess=all
# A guest whose processor is emulated may take minutes until its minion is ready.
TimeoutStartSec=infinity
Restart=on-failure
RestartSec=10
KillMode=process
LimitNOFILE=8192
ExecStart={_ONEDIR}/salt-minion

[Install]
WantedBy=multi-user.target
"""
_QUIET = """\
out=$(mktemp)
(
{script}
) >"$out" 2>&1
code=$?
[ $code = 0 ] || tail -n 1 "$out" >&2
rm -f "$out"
exit $code
"""
_REPOSITORY = """\
set -e
if command -v apt-get >/dev/null 2>&1; then
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -qy {packages}
elif command -v dnf >/dev/null 2>&1; then dnf -qy install {packages}
elif command -v zypper >/dev/null 2>&1; then zypper -nq install {packages}
elif command -v pacman >/dev/null 2>&1; then pacman -Sy --noconfirm {packages}
else echo 'it has no package manager that is known' >&2; exit 1
fi
"""


def make_sure(tree: Any, system: dict[str, Any], install: dict[str, Any] | None) -> None:
    """Install a minion if there is none; ``install`` is ``{"kind", "files", ...}`` or None."""
    if identity.has_minion(tree):
        return
    if not install:
        raise Refused("there is no salt-minion in it, and install=False")
    if install["kind"] == "boot":
        return
    if install["kind"] == "refused":
        raise Refused(install["refusal"])
    _KINDS[install["kind"]](tree, system, install)
    if not identity.has_minion(tree):
        raise Refused(
            f"there is still no salt-minion in it after installing one by " f"{install['kind']}"
        )


def run(tree: Any, script: str, action: str) -> str:
    """Run a script in the guest's root; an error has the last line of its output."""
    try:
        return str(tree.sh(_QUIET.format(script=script)))
    except RuntimeError as exc:
        lines = [line for line in str(exc).splitlines() if line.strip()]
        reason = lines[-1].strip().removeprefix("sh: ") if lines else "no reason is printed"
        raise Refused(f"{action} failed: {reason}") from exc


def packages(tree: Any, system: dict[str, Any], names: Sequence[str]) -> None:
    """Install packages by the guest's own package manager, which needs the network."""
    guestfstree.refuse_foreign(system)
    run(tree, _REPOSITORY.format(packages=shlex.join(names)), f"installing {', '.join(names)}")


def _repository(tree: Any, system: dict[str, Any], _install: dict[str, Any]) -> None:
    package = "salt" if tree.is_file("/etc/arch-release") else "salt-minion"
    try:
        packages(tree, system, [package])
    except Refused as exc:
        raise Refused(f"{exc}; if its repositories have no minion, give install_from=") from exc


def _upload_files(tree: Any, files: Iterable[tuple[str, str]]) -> list[str]:
    """Copy files of the host into the guest; return their paths there."""
    tree.mkdir_p("/var/tmp/salt-virt")
    paths = []
    for path, name in files:
        paths.append(f"/var/tmp/salt-virt/{name}")
        tree.upload(path, paths[-1])
    return paths


def _package(tree: Any, system: dict[str, Any], install: dict[str, Any]) -> None:
    guestfstree.refuse_foreign(system)
    paths = _upload_files(tree, install["files"])
    command = "DEBIAN_FRONTEND=noninteractive dpkg -i" if paths[0].endswith(".deb") else "rpm -i"
    run(tree, f"{command} {shlex.join(paths)}", "installing the package")
    tree.rm_rf("/var/tmp/salt-virt")


def _script(tree: Any, system: dict[str, Any], install: dict[str, Any]) -> None:
    guestfstree.refuse_foreign(system)
    (path,) = _upload_files(tree, install["files"])
    run(tree, f"sh {shlex.quote(path)}", "the bootstrap script")
    tree.rm_rf("/var/tmp/salt-virt")


def _tarball(tree: Any, system: dict[str, Any], install: dict[str, Any]) -> None:
    """Unpack a onedir tarball, with the top folder ``salt``; run nothing in it."""
    ((path, name),) = install["files"]
    suffix = name[name.rindex(".") :]
    if suffix not in _COMPRESSED:
        raise Refused(f"{name} is compressed in a way that is not known; .tar, .tar.gz or .tar.xz")
    tree.mkdir_p("/opt/saltstack")
    if tree.is_dir(_ONEDIR):
        raise Refused(f"it has {_ONEDIR} without a minion in it already")
    options = {"compress": _COMPRESSED[suffix]} if _COMPRESSED[suffix] else {}
    try:
        tree.tar_in(path, "/opt/saltstack", **options)
    except RuntimeError as exc:
        if "No space left on device" not in str(exc):
            raise
        raise Refused(
            f"its root file system has no room for what is in {name}; give an image with more room"
        ) from exc
    if not tree.is_file(f"{_ONEDIR}/salt-minion", followsymlinks=True):
        raise Refused(f"{name} is not a onedir tarball: it has no salt/salt-minion")
    _refuse_other_processor(tree, system, name)
    for program in _LINKED:
        tree.ln_sf(f"{_ONEDIR}/{program}", f"/usr/bin/{program}")
    identity.put(tree, "/etc/systemd/system/salt-minion.service", _UNIT, 0o644)


def _refuse_other_processor(tree: Any, system: dict[str, Any], name: str) -> None:
    for path in tree.glob_expand(f"{_ONEDIR}/bin/python3*"):
        if not tree.is_file(path):  # a link to another match
            continue
        try:
            arch = tree.file_architecture(path)
        except RuntimeError:
            continue
        if system["arch"] not in (arch, "unknown"):
            raise Refused(f"{name} is for {arch}, and this is {system['os']} for {system['arch']}")


_KINDS = {"repository": _repository, "package": _package, "tarball": _tarball, "script": _script}
