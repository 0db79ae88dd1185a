"""NIC and disk profiles as people look at them."""

from collections.abc import Callable, Mapping
from typing import Any

from saltvirt import arguments, profiles
from saltvirt.errors import BadArgument
from saltvirt.model import Disk, Nic

_URLS = ("image", "image_hash", "source_file")


def describe(
    nic_profiles: Mapping[str, Any], disk_profiles: Mapping[str, Any]
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """
    Return ``{"nic": {name: [...]}, "disk": {name: [...]}}`` as ``virt.get_profiles`` shows.

    An entry has all that was written, with the defaults of what was not; a profile that cannot be
    used is ``[{"error": why}]``.
    """

    def nic_entries(name: str) -> list[profiles.Entry]:
        said = profiles.find(nic_profiles, name, profiles.NICS, "nic")
        return list(map(_described_nic, said, profiles.nics("probe", nic_profiles, name, None)))

    def disk_entries(name: str) -> list[profiles.Entry]:
        said = profiles.find(disk_profiles, name, profiles.DISKS, "disk")
        return list(map(_described_disk, said, profiles.disks(disk_profiles, name, None, None)))

    return {
        "nic": {name: _or_why(nic_entries, name) for name in {*profiles.NICS, *nic_profiles}},
        "disk": {name: _or_why(disk_entries, name) for name in {*profiles.DISKS, *disk_profiles}},
    }


def _or_why(listed: Callable[[str], list[profiles.Entry]], name: str) -> list[profiles.Entry]:
    """Return the entries of a profile, or why it cannot be used: the others can."""
    try:
        return listed(name)
    except BadArgument as exc:
        return [{"error": str(exc)}]


def _described_nic(said: profiles.Entry, nic_: Nic) -> profiles.Entry:
    more = {key: value for key, value in said.items() if key not in ("bridge", "network")}
    needed = {"name": nic_.name, "type": nic_.type, "source": nic_.source, "model": nic_.model}
    return {**more, **needed}


def _described_disk(said: profiles.Entry, disk: Disk) -> profiles.Entry:
    size = {} if disk.size_mib is None else {"size": disk.size_mib}
    # Whoever may look at profiles is not to have what their URLs have of secrets.
    urls = {key: arguments.without_secrets(said[key]) for key in _URLS if key in said}
    return {**said, **urls, "name": disk.name, **size, "device": disk.device, "model": disk.model}
