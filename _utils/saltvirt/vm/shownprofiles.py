"""NIC and disk profiles for display."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
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
    nics = partial(profiles.nics, "probe", nic_profiles, interfaces=None)
    disks = partial(profiles.disks, disk_profiles, extra=None, image=None)
    return {
        "nic": _describe_all("nic", nic_profiles, profiles.NICS, nics, _describe_nic),
        "disk": _describe_all("disk", disk_profiles, profiles.DISKS, disks, _describe_disk),
    }


def _describe_all(
    label: str,
    configured: Mapping[str, Any],
    built_in: Mapping[str, Any],
    parse: Callable[..., Iterable[Any]],
    describe_entry: Callable[[profiles.Entry, Any], profiles.Entry],
) -> dict[str, list[profiles.Entry]]:
    """Return ``{name: [...]}`` of all profiles of NICs, or of disks."""
    out: dict[str, list[profiles.Entry]] = {}
    for name in {*built_in, *configured}:
        try:
            entries = profiles.find(configured, name, built_in, label)
            out[name] = list(map(describe_entry, entries, parse(profile=name)))
        except BadArgument as exc:
            out[name] = [{"error": str(exc)}]
    return out


def _describe_nic(entry: profiles.Entry, nic_: Nic) -> profiles.Entry:
    other_values = {key: value for key, value in entry.items() if key not in ("bridge", "network")}
    nic_values = {"name": nic_.name, "type": nic_.type, "source": nic_.source, "model": nic_.model}
    return {**other_values, **nic_values}


def _describe_disk(entry: profiles.Entry, disk: Disk) -> profiles.Entry:
    size = {} if disk.size_mib is None else {"size": disk.size_mib}
    # A user who may look at profiles must not see the secrets of their URLs.
    urls = {key: arguments.without_secrets(entry[key]) for key in _URLS if key in entry}
    return {**entry, **urls, "name": disk.name, **size, "device": disk.device, "model": disk.bus}
