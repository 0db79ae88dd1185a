"""
Look into a guest's disk, or write its identity there, inside libguestfs' appliance.

This file is run as a program by an interpreter that has the ``guestfs`` binding, which Salt's own
seldom has; so it imports nothing of the project. It reads one job as JSON from its standard input
and writes one answer as JSON to its standard output: secrets are in no argument and no file.
Source: libguestfs, guestfs(3); only the appliance's kernel ever reads the guest's file systems.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

try:
    import guestfs
except ImportError:
    guestfs = None

_MINION = ("/usr/bin/salt-minion", "/opt/saltstack/salt/salt-minion", "/usr/local/bin/salt-minion")
_CLOUD_INIT = ("/usr/bin/cloud-init", "/usr/local/bin/cloud-init")
_SYSTEMD = ("/lib/systemd/systemd", "/usr/lib/systemd/systemd")
_UNITS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
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


def opened(job):
    """Return the running appliance with the disk in it."""
    appliance = guestfs.GuestFS(python_return_dict=True)
    appliance.set_memsize(job["memory_mib"])
    appliance.add_drive_opts(job["path"], format=job["format"], readonly=job["action"] == "look")
    appliance.launch()
    return appliance


def mounted(appliance, *, readonly):
    """Mount the guest's file systems where the guest has them; return its root."""
    roots = appliance.inspect_os()
    if not roots:
        return _bare(appliance, readonly)
    if len(roots) > 1:
        raise Refused(f"it has {len(roots)} operating systems ({', '.join(roots)})")
    places = appliance.inspect_get_mountpoints(roots[0])
    mount = appliance.mount_ro if readonly else appliance.mount
    for place in sorted(places, key=len):
        try:
            mount(places[place], place)
        except RuntimeError as exc:
            if place == "/":
                raise Refused(f"its root file system cannot be mounted: {exc}") from exc
    return roots[0]


def _bare(appliance, readonly):
    """Mount the only file system of a disk that has a root but says nothing of itself."""
    mount = appliance.mount_ro if readonly else appliance.mount
    for device in sorted(appliance.list_filesystems()):
        try:
            mount(device, "/")
        except RuntimeError:
            continue
        if appliance.is_dir("/etc") and appliance.exists("/sbin/init"):
            return device
        appliance.umount_all()
    return None


def _any(appliance, paths):
    return any(appliance.is_file(path, followsymlinks=True) for path in paths)


def look(appliance):
    """Return what an image has, as plain data; ``root`` is None if there is no system in it."""
    root = mounted(appliance, readonly=True)
    if root is None:
        return {"root": None}
    try:
        version = appliance.inspect_get_major_version(root)
        name, arch = appliance.inspect_get_distro(root), appliance.inspect_get_arch(root)
    except RuntimeError:
        name, version, arch = "some system", "", "unknown"
    return {
        "root": root, "os": f"{name} {version}".strip(), "arch": arch,
        "has_minion": _any(appliance, _MINION),
        "has_cloud_init": _any(appliance, _CLOUD_INIT),
        "has_systemd": _any(appliance, _SYSTEMD),
    }  # fmt: skip


def seed(appliance, job):
    """Write a guest's identity; return what was found, as :func:`look` does."""
    root = mounted(appliance, readonly=False)
    if root is None:
        raise Refused("there is no operating system in it")
    has_minion = _any(appliance, _MINION)
    if not has_minion and not job["install"]:
        raise Refused("there is no salt-minion in it, and install=False")
    for path, text, mode in job["files"]:
        _put(appliance, path, text, int(mode, 8))
    appliance.chmod(0o700, "/etc/salt/pki/minion")
    _anonymous(appliance)
    _starts_at_boot(appliance, has_minion, job["install_script"])
    if appliance.is_file("/etc/selinux/config", followsymlinks=True):
        appliance.touch("/.autorelabel")
    return {"root": root, "has_minion": has_minion}


def _put(appliance, path, text, mode):
    appliance.mkdir_p(path.rpartition("/")[0])
    # A link that the image has there would lead elsewhere in the guest.
    appliance.rm_f(path)
    appliance.write(path, text.encode())
    appliance.chmod(mode, path)


def _anonymous(appliance):
    """Take away what must differ from guest to guest."""
    if appliance.exists("/etc/machine-id"):
        appliance.write("/etc/machine-id", b"")
    if appliance.is_file("/var/lib/dbus/machine-id"):
        appliance.rm_f("/var/lib/dbus/machine-id")
    for path in appliance.glob_expand("/etc/ssh/ssh_host_*_key*"):
        appliance.rm_f(path)


def _starts_at_boot(appliance, has_minion, script):
    if not _any(appliance, _SYSTEMD):
        return
    if not has_minion:
        _put(appliance, f"{_UNITS[0]}/{_INSTALLER}.service", _INSTALL_UNIT, 0o644)
        _put(appliance, f"/usr/local/sbin/{_INSTALLER}", script, 0o755)
    name = "salt-minion" if has_minion else _INSTALLER
    appliance.mkdir_p(f"{_UNITS[0]}/multi-user.target.wants")
    for folder in _UNITS:
        unit = f"{folder}/{name}.service"
        if appliance.is_file(unit, followsymlinks=True):
            appliance.ln_sf(unit, f"{_UNITS[0]}/multi-user.target.wants/{name}.service")
            return


def do(job):
    """Do a job and write its answer."""
    try:
        appliance = opened(job)
        answer = look(appliance) if job["action"] == "look" else seed(appliance, job)
        appliance.shutdown()
    except Refused as exc:
        answer = {"refused": str(exc)}
    except RuntimeError as exc:  # every error of libguestfs
        answer = {"failed": str(exc)}
    json.dump(answer, sys.stdout)
    sys.stdout.flush()


def watched(job, limit_s):
    """Do a job in a child, which ends with whoever asked for it, however that was killed."""
    asked_by = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        signal.alarm(limit_s)
        do(job)
        os._exit(0)
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if os.getppid() != asked_by:
            Path(f"{os.environ['TMPDIR']}.lock").unlink(missing_ok=True)
            shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
            os.killpg(0, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 0.5)


def main():
    """Do one job; with ``--check`` only say whether this interpreter could."""
    if guestfs is None:
        print("this interpreter has no module 'guestfs'", file=sys.stderr)
        return 1
    if sys.argv[1:] == ["--check"]:
        return 0
    job = json.load(sys.stdin)
    watched(job, job["limit_s"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
