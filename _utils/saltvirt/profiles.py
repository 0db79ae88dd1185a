"""NIC and disk profiles: the four spellings users write, merged with what a call adds."""

import operator
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from saltvirt import arguments
from saltvirt.config import DEFAULT_DISK, DEFAULT_NIC
from saltvirt.errors import BadArgument
from saltvirt.model import CalledNic, Disk, Nic
from saltvirt.nics import nic, override, refuse_equal_macs
from saltvirt.units import size_mib
from saltvirt.xml import poolsource, remote

Entry = dict[str, Any]
NAT, NAT_NETWORK = "nat", "default"
# Of a host whose options have none of that name.
NICS: Mapping[str, list[Entry]] = {
    "default": DEFAULT_NIC,
    NAT: [{"name": "eth0", "type": "network", "source": NAT_NETWORK, "model": "virtio"}],
}
DISKS: Mapping[str, list[Entry]] = {"default": DEFAULT_DISK}

_DISK_KEYS = {
    # Of bhyve and ZFS, and of Uyuni: they mean nothing here, as they meant nothing to Salt 3006.
    "hostname_property",
    "sparse_volume",
    "type",
    "name",
    "size",
    "format",
    "model",
    "image",
    "image_hash",
    "pool",
    "source_file",
    "overlay_image",
    "device",
    "io",
    "iothread_id",
    "backing_store_path",
    "backing_store_format",
}


def entries(profile: Any, what: str) -> list[Entry]:
    """Return a profile as a list of ``{name: ..., ...}``, whichever way it was written."""
    if isinstance(profile, dict):
        profile = [{name: values} for name, values in profile.items()]
    if not isinstance(profile, list | tuple):
        raise BadArgument(what, f"a profile is a list or a mapping, not {arguments.told(profile)}")
    return [_entry(one, what) for entry in profile for one in _each(entry)]


def _each(entry: Any) -> list[Any]:
    """Return an entry of a list by itself, and each of those that stand in one, by their names."""
    is_several = isinstance(entry, dict) and len(entry) > 1 and "name" not in entry
    if is_several and all(isinstance(values, dict | None) for values in entry.values()):
        return [{name: values} for name, values in entry.items()]
    return [entry]


def images(given: Mapping[str, Any]) -> list[Any]:
    """Return what the keyword arguments of ``virt.init`` say of images, None where nothing."""
    disks = entries(given.get("disks") or [], "disks")
    return [given.get("image"), *(disk.get("image") for disk in disks)]


def _entry(entry: Any, what: str) -> Entry:
    if not isinstance(entry, dict):
        raise BadArgument(what, f"{arguments.told(entry)} is not a mapping")
    if "name" in entry:
        if not isinstance(entry["name"], str | int | float):
            raise BadArgument(
                what, f"the 'name' of an entry is {arguments.told(entry['name'])}, which is no text"
            )
        return dict(entry)
    if len(entry) == 1:
        ((name, values),) = entry.items()
        if isinstance(values, dict | None):
            return {"name": str(name), **(values or {})}
    raise BadArgument(what, f"{arguments.told(entry)} has no 'name'")


def merge(
    profile: Iterable[Entry],
    extra: Iterable[Entry],
    how: Callable[[Entry, Entry], Entry] = operator.or_,
) -> list[Entry]:
    """Override the profile's entries by name; add those it does not have."""
    merged = {entry["name"]: entry for entry in profile}
    for entry in extra:
        merged[entry["name"]] = how(merged.get(entry["name"], {}), entry)
    return list(merged.values())


def find(
    profiles: Mapping[str, Any], name: str | None, built_in: Mapping[str, Any], what: str
) -> list[Entry]:
    """Return a profile by name; those built in are there even if nobody configured them."""
    if name is None:
        return []
    if not isinstance(name, Hashable):
        raise BadArgument(what, f"{name!r} is not the name of a profile")
    if name in profiles:
        return entries(profiles[name], f"{what} profile {name!r}")
    if name in built_in:
        return [dict(entry) for entry in built_in[name]]
    known = ", ".join(sorted({*built_in, *map(str, profiles)}))
    raise BadArgument(what, f"no profile {name!r} in virt:{what}; there are: {known}")


def nics(
    vm: str, profiles: Mapping[str, Any], profile: str | None, interfaces: Any
) -> tuple[Nic, ...]:
    """Return the VM's NICs from the profile and the call's ``interfaces``."""
    base = find(profiles, profile, NICS, "nic")
    extra = _interfaces(interfaces, is_whole=profile is None)
    made = tuple(nic(vm, entry) for entry in merge(base, extra, override))
    refuse_equal_macs(made)
    return made


# Where a NIC is.
_PLACES = ("type", "source", "bridge", "network")


def placed(vm: str, profile: str | None, interfaces: Any) -> list[Nic]:
    """Return the NICs of which a call itself says where they are: of others a profile may."""
    said = _said(vm, interfaces, is_whole=profile is None)
    refuse_equal_macs(made for _entry, made in said)
    return [
        made for entry, made in said if profile is None or any(entry.get(key) for key in _PLACES)
    ]


def called(vm: str, interfaces: Any) -> tuple[tuple[str, CalledNic], ...]:
    """Return what a call says of its NICs, which :func:`nics` adds to those of a profile."""
    said = _said(vm, interfaces, is_whole=False)
    return tuple((entry["name"], _called(made, entry)) for entry, made in said)


def _said(vm: str, interfaces: Any, *, is_whole: bool) -> list[tuple[Entry, Nic]]:
    """Return what a call says of its NICs, each with the NIC that it means by itself."""
    said = merge((), _interfaces(interfaces, is_whole=is_whole), override)
    return [(entry, nic(vm, entry, is_whole=is_whole)) for entry in said]


def _interfaces(interfaces: Any, *, is_whole: bool) -> list[Entry]:
    """Return the entries of ``interfaces``; a single one needs no name if there is no profile."""
    # By it alone it is found in a profile, and Salt 3006 did not miss it there.
    given = interfaces or []
    if is_whole and isinstance(given, list | tuple) and len(given) == 1:
        one = given[0]
        if isinstance(one, dict) and any(isinstance(one.get(key), str) for key in _PLACES):
            given = [{"name": "eth0", **one}]
    return entries(given, "interfaces")


def _called(made: Nic, entry: Entry) -> CalledNic:
    return CalledNic(
        type=made.type if entry.get("type") else None,
        source=made.source if entry.get("source") else None,
        tagged=made.is_tagged if "vlan" in entry else None,
        switched=made.is_switched if "virtualport" in entry else None,
    )


_IO = ("native", "threads", "io_uring")
_DEVICES = ("disk", "cdrom", "floppy", "lun")
# The bus of a drive that does not say which; of a disk it is virtio.
_BUS = {"cdrom": "ide", "floppy": "fdc"}
_PREFIX = {
    "virtio": "vd",
    "ide": "hd",
    "scsi": "sd",
    "sata": "sd",
    "usb": "sd",
    "fdc": "fd",
    "xen": "xvd",
}


def listed(extra: Any) -> list[Entry]:
    """Return a call's ``disks`` as a master reads them; refuse what no profile makes a disk of."""
    said = entries(extra or [], "disks")
    for entry in said:
        what = f"disk {entry['name']!r}"
        _check_said(what, entry)
        _flag(what, entry, "overlay_image")
        _io(what, entry)
        _iothread(what, entry)
        _size_mib(what, entry)
        if entry.get("model"):
            _prefix(entry["model"])
    return said


def _check_said(what: str, entry: Entry) -> None:
    """Refuse what cannot be said of a disk, whatever a profile says of it too."""
    arguments.refuse_unknown_keys(what, entry, _DISK_KEYS)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", str(entry["name"])):
        raise BadArgument(what, "use letters, digits, '.', '_' and '-'")
    if entry.get("device", "disk") not in _DEVICES:
        raise BadArgument(what, f"device {entry['device']!r}; one of {', '.join(_DEVICES)}")
    for key in ("pool", "model", "image", "format", "source_file"):
        if entry.get(key) is not None:
            arguments.text(f"{what}: {key}", entry[key])


def _check_disk(what: str, entry: Entry) -> None:
    """Refuse what cannot be a disk."""
    _check_said(what, entry)
    path = _source(entry)
    if remote.is_url(path) and entry.get("device") != "cdrom":
        raise BadArgument(
            what, "its source_file is a URL, which only a cdrom can be; a disk is made of image="
        )
    if path is None or remote.is_url(path):
        return
    if not path.startswith("/") and not entry.get("pool"):
        raise BadArgument(what, f"source_file {path!r} is not an absolute path")


def _source(entry: Entry) -> str | None:
    """Return where a disk is, no slash twice; an empty text says nothing, as on Salt 3006."""
    given = entry.get("source_file")
    if given in (None, "") or remote.is_url(given):
        return given or None
    return re.sub("/+", "/", str(given))


def _pool(entry: Entry) -> str | None:
    """Return the pool of a disk; a folder as the names of files in it begin."""
    given: str | None = entry.get("pool") or None
    return poolsource.clean(given) if given and given.startswith("/") else given


def _flag(what: str, entry: Entry, key: str) -> bool | None:
    given = entry.get(key)
    return None if given is None else arguments.boolean(f"{what}: {key}", given)


def _io(what: str, entry: Entry) -> str | None:
    given: str | None = entry.get("io") or None
    if given is not None and given not in _IO:
        raise BadArgument(f"{what}: io", f"{given!r}; one of {', '.join(_IO)}")
    return given


def _iothread(what: str, entry: Entry) -> Any:
    """Return the thread as it is given; refuse what is no number of one."""
    given = entry.get("iothread_id")
    if given is not None:
        arguments.whole(f"{what}: iothread_id", given)
    return given


def _size_mib(what: str, entry: Entry) -> int | None:
    if entry.get("size") is None:
        return None
    size = size_mib(entry["size"], f"{what}: size")
    if size < 1:
        raise BadArgument(what, f"size {entry['size']!r}; at least 1 MiB")
    return size


def _disk(entry: Entry, next_target: Callable[[str], str], is_sized: bool) -> Disk:
    """Return the disk that an entry of a profile means, before any of them takes the image."""
    what = f"disk {entry['name']!r}"
    _check_disk(what, entry)
    device = entry.get("device", "disk")
    model, source = entry.get("model") or _BUS.get(device, "virtio"), _source(entry)
    return Disk(
        name=str(entry["name"]),
        target=next_target(model),
        size_mib=_size_mib(what, entry),
        format=entry.get("format") or None,
        model=model,
        device=device,
        image=entry.get("image") or None,
        image_hash=entry.get("image_hash"),
        overlay=_flag(what, entry, "overlay_image"),
        pool=_pool(entry),
        source_file=source,
        backing_path=entry.get("backing_store_path"),
        backing_format=entry.get("backing_store_format"),
        io=_io(what, entry),
        iothread_id=_iothread(what, entry),
        elsewhere=remote.of(what, source) if source and remote.is_url(source) else None,
        is_sized_by_user=is_sized,
    )


def _prefix(model: str) -> str:
    prefix = _PREFIX.get(model)
    if prefix is None:
        raise BadArgument("disk model", f"{model!r}; one of {', '.join(sorted(_PREFIX))}")
    return prefix


def _targets() -> Callable[[str], str]:
    """Return a function that names the next disk of a bus: vda, vdb, sda, ..."""
    used: dict[str, int] = {}

    def next_target(model: str) -> str:
        prefix = _prefix(model)
        used[prefix] = used.get(prefix, -1) + 1
        if used[prefix] > 25:
            raise BadArgument("disks", f"more than 26 disks on the bus {model!r}")
        return prefix + chr(ord("a") + used[prefix])

    return next_target


def _sized_by_user(profile: Iterable[Entry], added: Iterable[Entry], is_ours: bool) -> set[str]:
    """Return the names of the disks whose size somebody asked for; not that of our default."""
    asked = [*added, *([] if is_ours else profile)]
    return {entry["name"] for entry in asked if entry.get("size") is not None}


def _is_empty(disk: Disk) -> bool:
    """Return whether a disk could take the call's image."""
    has_content = disk.image or disk.source_file or disk.backing_path
    return disk.device == "disk" and not has_content


def _with_image(disks: tuple[Disk, ...], image: str) -> tuple[Disk, ...]:
    """Return the disks, the first empty one with the image, unless one before it has it."""
    for number, disk in enumerate(disks):
        if disk.image == image:
            return disks
        if _is_empty(disk):
            return (*disks[:number], replace(disk, image=image), *disks[number + 1 :])
    raise BadArgument("image", "no disk of the profile can take it; use disk='default'")


def disks(
    profiles: Mapping[str, Any], profile: str | None, extra: Any, image: str | None
) -> tuple[Disk, ...]:
    """
    Return the VM's disks from the profile and the call's ``disks``.

    image
        The call's image; it becomes the first disk that has no other content.
    """
    base = find(profiles, profile, DISKS, "disk")
    added = entries(extra or [], "disks")
    is_ours = profile == "default" and "default" not in profiles
    sized, next_target = _sized_by_user(base, added, is_ours), _targets()
    made = tuple(_disk(entry, next_target, entry["name"] in sized) for entry in merge(base, added))
    return _with_image(made, image) if image else made
