"""NIC and disk profiles: the four spellings users write, merged with the values of a call."""

import operator
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.diskbus import DiskBus, default_bus, find_bus
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import CalledNic, Disk, Nic
from saltvirt.core.nics import nic, override, refuse_equal_macs
from saltvirt.core.options.config import DEFAULT_DISK, DEFAULT_NIC
from saltvirt.core.units import size_mib
from saltvirt.xml.domain import remote
from saltvirt.xml.storage import poolsource

Entry = dict[str, Any]
NAT, NAT_NETWORK = "nat", "default"
# Built-in profiles, for a host without one of that name in its options.
NICS: Mapping[str, list[Entry]] = {
    "default": DEFAULT_NIC,
    NAT: [{"name": "eth0", "type": "network", "source": NAT_NETWORK, "model": "virtio"}],
}
DISKS: Mapping[str, list[Entry]] = {"default": DEFAULT_DISK}

_DISK_KEYS = {
    # Keys of bhyve, of ZFS, and of Uyuni: they have no effect here, as on Salt 3006.
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


def entries(profile: Any, label: str) -> list[Entry]:
    """Return a profile of any spelling as a list of ``{name: ..., ...}``."""
    if isinstance(profile, dict):
        profile = [{name: values} for name, values in profile.items()]
    if not isinstance(profile, list | tuple):
        raise BadArgument(
            label,
            f"a profile is a list or a mapping, not {arguments.repr_without_secrets(profile)}",
        )
    return [_entry(item, label) for entry in profile for item in _split_entry(entry)]


def _split_entry(entry: Any) -> list[Any]:
    """Return an entry of a list by itself, or each of the named entries that it consists of."""
    is_several = isinstance(entry, dict) and len(entry) > 1 and "name" not in entry
    if is_several and all(isinstance(values, dict | None) for values in entry.values()):
        return [{name: values} for name, values in entry.items()]
    return [entry]


def images(keywords: Mapping[str, Any]) -> list[Any]:
    """Return the images in the keyword arguments of ``virt.init``, None where there is none."""
    disks = entries(keywords.get("disks") or [], "disks")
    return [keywords.get("image"), *(disk.get("image") for disk in disks)]


def _entry(entry: Any, label: str) -> Entry:
    if not isinstance(entry, dict):
        raise BadArgument(label, f"{arguments.repr_without_secrets(entry)} is not a mapping")
    if "name" in entry:
        if not isinstance(entry["name"], str | int | float):
            raise BadArgument(
                label,
                f"the 'name' of an entry is {arguments.repr_without_secrets(entry['name'])}, which "
                "is no text",
            )
        return dict(entry)
    if len(entry) == 1:
        ((name, values),) = entry.items()
        if isinstance(values, dict | None):
            return {"name": str(name), **(values or {})}
    raise BadArgument(label, f"{arguments.repr_without_secrets(entry)} has no 'name'")


def merge(
    profile: Iterable[Entry],
    extra: Iterable[Entry],
    combine: Callable[[Entry, Entry], Entry] = operator.or_,
) -> list[Entry]:
    """Override the profile's entries by name; add those it does not have."""
    entries_by_name = {entry["name"]: entry for entry in profile}
    for entry in extra:
        entries_by_name[entry["name"]] = combine(entries_by_name.get(entry["name"], {}), entry)
    return list(entries_by_name.values())


def find(
    profiles: Mapping[str, Any], name: str | None, built_in: Mapping[str, Any], label: str
) -> list[Entry]:
    """Return a profile by name; built-in ones need no configuration."""
    if name is None:
        return []
    if not isinstance(name, Hashable):
        raise BadArgument(label, f"{name!r} is not the name of a profile")
    if name in profiles:
        return entries(profiles[name], f"{label} profile {name!r}")
    if name in built_in:
        return [dict(entry) for entry in built_in[name]]
    profile_names = ", ".join(sorted({*built_in, *map(str, profiles)}))
    raise BadArgument(label, f"no profile {name!r} in virt:{label}; there are: {profile_names}")


def nics(
    vm: str, profiles: Mapping[str, Any], profile: str | None, interfaces: Any
) -> tuple[Nic, ...]:
    """Return the VM's NICs from the profile and the call's ``interfaces``."""
    base = find(profiles, profile, NICS, "nic")
    extra = _interfaces(interfaces, is_whole=profile is None)
    vm_nics = tuple(nic(vm, entry) for entry in merge(base, extra, override))
    refuse_equal_macs(vm_nics)
    return vm_nics


# The keys for the place of a NIC.
_PLACES = ("type", "source", "bridge", "network")


def placed_nics(vm: str, profile: str | None, interfaces: Any) -> list[Nic]:
    """Return the NICs that a call itself places; a profile may place the others."""
    pairs = _nics_by_entry(vm, interfaces, is_whole=profile is None)
    refuse_equal_macs(vm_nic for _entry, vm_nic in pairs)
    return [
        vm_nic
        for entry, vm_nic in pairs
        if profile is None or any(entry.get(key) for key in _PLACES)
    ]


def called_nics(vm: str, interfaces: Any) -> tuple[tuple[str, CalledNic], ...]:
    """Return a call's own values of its NICs, which :func:`nics` adds to those of a profile."""
    pairs = _nics_by_entry(vm, interfaces, is_whole=False)
    return tuple((entry["name"], _called_nic(vm_nic, entry)) for entry, vm_nic in pairs)


def _nics_by_entry(vm: str, interfaces: Any, *, is_whole: bool) -> list[tuple[Entry, Nic]]:
    """Return a call's entries of NICs, each with the NIC that it describes by itself."""
    merged_entries = merge((), _interfaces(interfaces, is_whole=is_whole), override)
    return [(entry, nic(vm, entry, is_whole=is_whole)) for entry in merged_entries]


def _interfaces(interfaces: Any, *, is_whole: bool) -> list[Entry]:
    """Return the entries of ``interfaces``; a single one needs no name if there is no profile."""
    # With a profile only the name selects its entry; Salt 3006 needed none without a profile.
    items = interfaces or []
    if is_whole and isinstance(items, list | tuple) and len(items) == 1:
        item = items[0]
        if isinstance(item, dict) and any(isinstance(item.get(key), str) for key in _PLACES):
            items = [{"name": "eth0", **item}]
    return entries(items, "interfaces")


def _called_nic(vm_nic: Nic, entry: Entry) -> CalledNic:
    return CalledNic(
        type=vm_nic.type if entry.get("type") else None,
        source=vm_nic.source if entry.get("source") else None,
        tagged=vm_nic.is_tagged if "vlan" in entry else None,
        switched=vm_nic.is_switched if "virtualport" in entry else None,
    )


_IO = ("native", "threads", "io_uring")
_DEVICES = ("disk", "cdrom", "floppy", "lun")


def called_disks(extra: Any) -> tuple[Disk, ...]:
    """
    Return the disks of a call as far as a master knows them: name, size, pool and bus.

    Raises BadArgument for entries that no profile can complete.
    """
    return tuple(map(_called_disk, entries(extra or [], "disks")))


def _called_disk(entry: Entry) -> Disk:
    label = f"disk {entry['name']!r}"
    _check_entry(label, entry)
    _flag(label, entry, "overlay_image")
    _io(label, entry)
    _iothread(label, entry)
    return Disk(
        name=str(entry["name"]),
        target="",
        size_mib=_size_mib(label, entry),
        pool=_pool(entry),
        bus=_bus(entry).name,
    )


def _check_entry(label: str, entry: Entry) -> None:
    """Refuse values that no disk can have, with any profile."""
    arguments.refuse_unknown_keys(label, entry, _DISK_KEYS)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", str(entry["name"])):
        raise BadArgument(label, "use letters, digits, '.', '_' and '-'")
    if entry.get("device", "disk") not in _DEVICES:
        raise BadArgument(label, f"device {entry['device']!r}; one of {', '.join(_DEVICES)}")
    for key in ("pool", "model", "image", "format", "source_file"):
        if entry.get(key) is not None:
            arguments.text(f"{label}: {key}", entry[key])


def _check_disk(label: str, entry: Entry) -> None:
    """Refuse an entry that cannot be a disk."""
    _check_entry(label, entry)
    path = _source(entry)
    if remote.is_url(path) and entry.get("device") != "cdrom":
        raise BadArgument(
            label, "its source_file is a URL, which only a cdrom can be; a disk is made of image="
        )
    if path is None or remote.is_url(path):
        return
    if not path.startswith("/") and not entry.get("pool"):
        raise BadArgument(label, f"source_file {path!r} is not an absolute path")


def _source(entry: Entry) -> str | None:
    """Return a disk's path without double slashes; an empty text counts as none, as on 3006."""
    path = entry.get("source_file")
    if path in (None, "") or remote.is_url(path):
        return path or None
    return re.sub("/+", "/", str(path))


def _pool(entry: Entry) -> str | None:
    """Return the pool of a disk; a folder in the form in which the paths of its files begin."""
    pool: str | None = entry.get("pool") or None
    return poolsource.clean(pool) if pool and pool.startswith("/") else pool


def _flag(label: str, entry: Entry, key: str) -> bool | None:
    flag = entry.get(key)
    return None if flag is None else arguments.boolean(f"{label}: {key}", flag)


def _io(label: str, entry: Entry) -> str | None:
    io_mode: str | None = entry.get("io") or None
    if io_mode is not None and io_mode not in _IO:
        raise BadArgument(f"{label}: io", f"{io_mode!r}; one of {', '.join(_IO)}")
    return io_mode


def _iothread(label: str, entry: Entry) -> Any:
    """Return the I/O thread as it is given; refuse what is no number."""
    thread = entry.get("iothread_id")
    if thread is not None:
        arguments.whole_number(f"{label}: iothread_id", thread)
    return thread


def _size_mib(label: str, entry: Entry) -> int | None:
    if entry.get("size") is None:
        return None
    size = size_mib(entry["size"], f"{label}: size")
    if size < 1:
        raise BadArgument(label, f"size {entry['size']!r}; at least 1 MiB")
    return size


def _bus(entry: Entry) -> DiskBus:
    model = entry.get("model")
    return find_bus(model) if model else default_bus(entry.get("device", "disk"))


def _disk(entry: Entry, used_targets: set[str], is_sized: bool) -> Disk:
    """
    Return the disk that an entry describes, before the call's image is assigned to a disk.

    used_targets
        The targets of the disks before it; gets its target.
    """
    label = f"disk {entry['name']!r}"
    _check_disk(label, entry)
    bus, source = _bus(entry), _source(entry)
    target = bus.free_target(used_targets)
    used_targets.add(target)
    return Disk(
        name=str(entry["name"]),
        target=target,
        size_mib=_size_mib(label, entry),
        format=entry.get("format") or None,
        bus=bus.name,
        device=entry.get("device", "disk"),
        image=entry.get("image") or None,
        image_hash=entry.get("image_hash"),
        overlay=_flag(label, entry, "overlay_image"),
        pool=_pool(entry),
        source_file=source,
        backing_path=entry.get("backing_store_path"),
        backing_format=entry.get("backing_store_format"),
        io=_io(label, entry),
        iothread_id=_iothread(label, entry),
        elsewhere=remote.from_url(label, source) if source and remote.is_url(source) else None,
        is_sized_by_user=is_sized,
    )


def _names_sized_by_user(
    profile: Iterable[Entry], call_entries: Iterable[Entry], is_built_in: bool
) -> set[str]:
    """Return the names of the disks with a size from an operator, not from our default."""
    sized_entries = [*call_entries, *([] if is_built_in else profile)]
    return {entry["name"] for entry in sized_entries if entry.get("size") is not None}


def _is_empty(disk: Disk) -> bool:
    """Return whether a disk can take the call's image."""
    has_content = disk.image or disk.source_file or disk.backing_path
    return disk.device == "disk" and not has_content


def _with_image(disks: tuple[Disk, ...], image: str) -> tuple[Disk, ...]:
    """Return the disks, the first empty one with the image, unless an earlier one has it."""
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
        The call's image; the first disk without other content gets it.
    """
    base = find(profiles, profile, DISKS, "disk")
    call_entries = entries(extra or [], "disks")
    is_built_in = profile == "default" and "default" not in profiles
    sized_names = _names_sized_by_user(base, call_entries, is_built_in)
    used_targets: set[str] = set()
    vm_disks = tuple(
        _disk(entry, used_targets, entry["name"] in sized_names)
        for entry in merge(base, call_entries)
    )
    return _with_image(vm_disks, image) if image else vm_disks
