"""NIC and disk profiles: the four spellings users write, merged with what a call adds."""

import re

from saltvirt import arguments
from saltvirt.config import DEFAULT_DISK, DEFAULT_NIC
from saltvirt.errors import BadArgument
from saltvirt.model import Disk
from saltvirt.nics import nic, refuse_equal_macs
from saltvirt.units import size_mib

_DISK_KEYS = {
    "name", "size", "format", "model", "image", "image_hash", "pool", "source_file",
    "overlay_image", "device", "hostname_property", "sparse_volume", "io", "iothread_id",
    "backing_store_path", "backing_store_format",
}  # fmt: skip


def entries(profile, what):
    """Return a profile as a list of ``{name: ..., ...}``, whichever way it was written."""
    if isinstance(profile, dict):
        profile = [{name: values} for name, values in profile.items()]
    if not isinstance(profile, list | tuple):
        raise BadArgument(what, f"a profile is a list or a mapping, not {profile!r}")
    out = []
    for entry in profile:
        if not isinstance(entry, dict):
            raise BadArgument(what, f"{entry!r} is no mapping")
        only = next(iter(entry.values())) if len(entry) == 1 else None
        if "name" not in entry and isinstance(only, dict | None) and len(entry) == 1:
            out.append({"name": str(next(iter(entry))), **(only or {})})
        elif "name" in entry:
            out.append(dict(entry))
        else:
            raise BadArgument(what, f"{entry!r} has no 'name'")
    return out


def merge(profile, extra):
    """Override the profile's entries by name; add those it does not have."""
    merged = {entry["name"]: entry for entry in profile}
    for entry in extra:
        merged[entry["name"]] = {**merged.get(entry["name"], {}), **entry}
    return list(merged.values())


def find(profiles, name, default, what):
    """Return a profile by name; ``default`` is there even if nobody configured it."""
    if name is None:
        return []
    if name in profiles:
        return entries(profiles[name], f"{what} profile {name!r}")
    if name == "default":
        return [dict(entry) for entry in default]
    known = ", ".join(sorted({"default", *map(str, profiles)}))
    raise BadArgument(what, f"no profile {name!r} in virt:{what}; there are: {known}")


def nics(vm, profiles, profile, interfaces):
    """Return the VM's NICs from the profile and the call's ``interfaces``."""
    base = find(profiles, profile, DEFAULT_NIC, "nic")
    extra = entries(interfaces or [], "interfaces")
    made = tuple(nic(vm, entry) for entry in merge(base, extra))
    refuse_equal_macs(made)
    return made


def _disk(entry, target, first_image, is_sized):
    what = f"disk {entry['name']!r}"
    arguments.refuse_unknown_keys(what, entry, _DISK_KEYS)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", str(entry["name"])):
        raise BadArgument(what, "use letters, digits, '.', '_' and '-'")
    for zfs in ("hostname_property", "sparse_volume"):
        if entry.get(zfs) is not None:
            raise BadArgument(what, f"{zfs!r} is for bhyve with ZFS, which is not supported")
    device = entry.get("device", "disk")
    if device not in ("disk", "cdrom", "floppy", "lun"):
        raise BadArgument(what, f"device {device!r}; one of disk, cdrom, floppy, lun")
    has_size = entry.get("size") is not None
    if has_size and size_mib(entry["size"], f"{what}: size") < 1:
        raise BadArgument(what, f"size {entry['size']!r}; at least 1 MiB")
    source_file = entry.get("source_file")
    if source_file is not None and not str(source_file).startswith("/") and not entry.get("pool"):
        raise BadArgument(what, f"source_file {source_file!r} is no absolute path")
    return Disk(
        name=str(entry["name"]),
        target=target,
        size_mib=size_mib(entry["size"], f"{what}: size") if has_size else None,
        format=entry.get("format"),
        model=entry.get("model") or ("virtio" if device in ("disk", "lun") else "ide"),
        device=device,
        image=entry.get("image") or first_image,
        image_hash=entry.get("image_hash"),
        overlay=entry.get("overlay_image"),
        pool=entry.get("pool"),
        source_file=source_file,
        backing_path=entry.get("backing_store_path"),
        backing_format=entry.get("backing_store_format"),
        io=entry.get("io"),
        iothread_id=entry.get("iothread_id"),
        is_sized_by_user=is_sized,
    )


_PREFIX = {"virtio": "vd", "ide": "hd", "scsi": "sd", "sata": "sd", "usb": "sd", "fdc": "fd",
           "xen": "xvd"}  # fmt: skip


def _targets():
    used = {}

    def next_target(model):
        prefix = _PREFIX.get(model)
        if prefix is None:
            raise BadArgument("disk model", f"{model!r}; one of {', '.join(sorted(_PREFIX))}")
        used[prefix] = used.get(prefix, -1) + 1
        if used[prefix] > 25:
            raise BadArgument("disks", f"more than 26 disks on the bus {model!r}")
        return prefix + chr(ord("a") + used[prefix])

    return next_target


def disks(profiles, profile, extra, image):
    """
    Return the VM's disks from the profile and the call's ``disks``.

    image
        The call's image; it becomes the first disk that has no other content.
    """
    base = find(profiles, profile, DEFAULT_DISK, "disk")
    added = entries(extra or [], "disks")
    target, out = _targets(), []
    is_default = profile == "default" and "default" not in profiles
    sized = {entry["name"] for entry in added if entry.get("size") is not None}
    if not is_default:
        sized |= {entry["name"] for entry in base if entry.get("size") is not None}
    for entry in merge(base, added):
        device = entry.get("device", "disk")
        model = entry.get("model") or {"cdrom": "ide", "floppy": "fdc"}.get(device, "virtio")
        takes_image = device == "disk" and not (
            entry.get("image") or entry.get("source_file") or entry.get("backing_store_path")
        )
        first = image if image and takes_image and not any(d.image == image for d in out) else None
        out.append(
            _disk({**entry, "model": model}, target(model), first, entry["name"] in sized)
        )
    if image and not any(disk.image == image for disk in out):
        raise BadArgument("image", "no disk of the profile can take it; use disk='default'")
    return tuple(out)


def describe(nic_profiles, disk_profiles):
    """Return ``{"nic": {name: [...]}, "disk": {name: [...]}}`` as ``virt.get_profiles`` shows."""
    listed_nics = {
        name: [
            {"name": n.name, "type": n.type, "source": n.source, "model": n.model}
            for n in nics("probe", nic_profiles, name, None)
        ]
        for name in {"default", *nic_profiles}
    }
    listed_disks = {
        name: [_described_disk(d) for d in disks(disk_profiles, name, None, None)]
        for name in {"default", *disk_profiles}
    }
    return {"nic": listed_nics, "disk": listed_disks}


def _described_disk(disk):
    out = {"name": disk.name, "size": disk.size_mib, "device": disk.device, "model": disk.model}
    more = {"format": disk.format, "image": disk.image, "pool": disk.pool}
    return {**out, **{key: value for key, value in more.items() if value}}
