"""NIC and disk profiles for display."""

from collections.abc import Callable, Mapping
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Disk, Nic
from saltvirt.vm import profiles

_URLS = ("image", "image_hash", "source_file")


def describe(
    nic_profiles: Mapping[str, Any], disk_profiles: Mapping[str, Any]
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """
    Return ``{"nic": {name: [...]}, "disk": {name: [...]}}`` as ``virt.get_profiles`` shows.

    An entry has all values that were written, and the defaults of the others; an unusable profile
    is ``[{"error": reason}]``.
    """

    def nic_entries(name: str) -> list[profiles.Entry]:
        entries = profiles.find(nic_profiles, name, profiles.NICS, "nic")
        return list(map(_describe_nic, entries, profiles.nics("probe", nic_profiles, name, None)))

    def disk_entries(name: str) -> list[profiles.Entry]:
        entries = profiles.find(disk_profiles, name, profiles.DISKS, "disk")
        return list(map(_describe_disk, entries, profiles.disks(disk_profiles, name, None, None)))

    return {
        "nic": {
            name: _entries_or_error(nic_entries, name) for name in {*profiles.NICS, *nic_profiles}
        },
        "disk": {
            name: _entries_or_error(disk_entries, name)
            for name in {*profiles.DISKS, *disk_profiles}
        },
    }


def _entries_or_error(
    list_entries: Callable[[str], list[profiles.Entry]], name: str
) -> list[profiles.Entry]:
    """Return the entries of a profile, or why it cannot be used, without failing the others."""
    try:
        return list_entries(name)
    except BadArgument as exc:
        return [{"error": str(exc)}]


def _describe_nic(entry: profiles.Entry, nic_: Nic) -> profiles.Entry:
    other_values = {key: value for key, value in entry.items() if key not in ("bridge", "network")}
    nic_values = {"name": nic_.name, "type": nic_.type, "source": nic_.source, "model": nic_.model}
    return {**other_values, **nic_values}


def _describe_disk(entry: profiles.Entry, disk: Disk) -> profiles.Entry:
    size = {} if disk.size_mib is None else {"size": disk.size_mib}
    # A user who may look at profiles must not see the secrets of their URLs.
    urls = {key: arguments.without_secrets(entry[key]) for key in _URLS if key in entry}
    return {**entry, **urls, "name": disk.name, **size, "device": disk.device, "model": disk.bus}
