"""
Open a disk in libguestfs' appliance: only the appliance's kernel reads the guest's file systems.

Source: libguestfs, guestfs(3).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confined
from identity import Refused

try:
    import guestfs
except ImportError:
    guestfs = None


@contextmanager
def opened(job: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the running appliance, with the guest's file systems mounted, and the guest's facts."""
    appliance = guestfs.GuestFS(python_return_dict=True)
    appliance.set_memsize(job["memory_mib"])
    appliance.set_network(bool(job.get("network")))
    appliance.config("-sandbox", confined.SANDBOX)
    is_read = job["action"] == "look"
    appliance.add_drive_opts(job["path"], format=job["format"], readonly=is_read)
    appliance.launch()
    inspection = job.get("found")
    if inspection and inspection.get("mounts"):
        yield appliance, _mount_known(appliance, inspection)
    else:
        yield appliance, _mount_inspected(appliance, readonly=is_read)
    # Only after success: a clean end makes sure that all data is on the disk.
    appliance.shutdown()
    appliance.close()


def _mount_inspected(appliance: Any, *, readonly: bool) -> dict[str, Any]:
    """Mount the guest's file systems at the guest's own places; return the guest's facts."""
    roots = appliance.inspect_os()
    if not roots:
        return {"root": _mount_bare(appliance, readonly), "os": "some system", "arch": "unknown"}
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
    mounts = [[place, places[place]] for place in sorted(places, key=len)]
    return {"root": roots[0], "mounts": mounts, **_describe_system(appliance, roots[0])}


def _mount_known(appliance: Any, inspection: dict[str, Any]) -> dict[str, Any]:
    """Mount by an earlier inspection of the same content: a new one takes as long as the launch."""
    for place, device in inspection["mounts"]:
        try:
            appliance.mount(device, place)
        except RuntimeError as exc:
            if place == "/":
                raise Refused(f"its root file system cannot be mounted: {exc}") from exc
    return {key: inspection[key] for key in ("root", "mounts", "os", "arch")}


def _describe_system(appliance: Any, root: str) -> dict[str, str]:
    try:
        name = appliance.inspect_get_distro(root)
        version = appliance.inspect_get_major_version(root)
        return {"os": f"{name} {version}".strip(), "arch": appliance.inspect_get_arch(root)}
    except RuntimeError:
        return {"os": "some system", "arch": "unknown"}


def _mount_bare(appliance: Any, readonly: bool) -> str | None:
    """Mount the first file system with a root, on a disk that libguestfs does not recognize."""
    mount = appliance.mount_ro if readonly else appliance.mount
    for device in sorted(appliance.list_filesystems()):
        try:
            mount(device, "/")
        except RuntimeError:
            continue
        if appliance.is_dir("/etc") and appliance.exists("/sbin/init"):
            return str(device)
        appliance.umount_all()
    return None


def search_path() -> list[str]:
    """Return the folders in which libguestfs looks for its appliance."""
    return str(guestfs.GuestFS(python_return_dict=True).get_path()).split(":")


def default_qemu() -> str:
    """Return the QEMU that libguestfs starts."""
    return str(guestfs.GuestFS(python_return_dict=True).get_hv())


def is_there() -> bool:
    """Return whether this interpreter has the binding."""
    return guestfs is not None


def refuse_foreign(system: dict[str, Any]) -> None:
    """Refuse to run a guest's programs that this host's processor cannot run."""
    host_arch = os.uname().machine
    if system["arch"] not in (host_arch, "unknown") and {system["arch"], host_arch} != {
        "i386",
        "x86_64",
    }:
        raise Refused(
            f"its programs cannot run here ({system['arch']} on {host_arch}); give "
            "install_from a tarball, or an image that has a minion"
        )
