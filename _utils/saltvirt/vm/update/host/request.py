"""Check a call of ``virt.update``, and parse its arguments into a request."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.model import Disk, Nic
from saltvirt.core.options import defaults3006
from saltvirt.core.options.config import HostSettings
from saltvirt.vm import profiles, valuekinds
from saltvirt.xml.domain import osboot

_FLAGS = ("stop_on_reboot", "autostart")
_MAPPINGS = ("boot", "numatune", "hypervisor_features", "clock", "graphics")


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """
    The only device that a call changes; all other disks and NICs stay, though it names none.

    name
        Its name in the VM: a disk's target, a NIC's MAC; empty for a new disk. A device with the
        name, and no device in the call's list, is removed.
    """

    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """
    The requested changes; None leaves a setting.

    cpu, mem
        A number (mem: of MiB), or a mapping in which null removes a key.
    with_bus
        The names of disks with a bus in the call or its profile.
    with_size
        The names of disks with a size in the call itself.
    detach
        Whether to remove devices that the call's lists do not name.
    is_3006
        Whether new devices get Salt 3006's defaults.
    single
        The only device that the call changes; None if its lists name all devices.
    """

    name: str
    cpu: int | dict[str, Any] | None = None
    mem: int | dict[str, Any] | None = None
    boot: dict[str, Any] | None = None
    boot_dev: tuple[str, ...] | None = None
    numatune: dict[str, Any] | None = None
    hypervisor_features: dict[str, Any] | None = None
    clock: dict[str, Any] | None = None
    stop_on_reboot: bool | None = None
    graphics: dict[str, Any] | None = None
    serials: tuple[dict[str, Any], ...] | None = None
    consoles: tuple[dict[str, Any], ...] | None = None
    host_devices: tuple[str, ...] | None = None
    disks: tuple[Disk, ...] | None = None
    with_bus: frozenset[str] = frozenset()
    with_size: frozenset[str] = frozenset()
    interfaces: tuple[Nic, ...] | None = None
    autostart: bool | None = None
    detach: bool = False
    live: bool = True
    test: bool = False
    is_3006: bool = False
    single: Single | None = None


def from_call(settings: HostSettings, name: str, call_arguments: Mapping[str, Any]) -> Request:
    """
    Return a call's request.

    call_arguments
        The arguments of ``virt.update`` except the name and the connection; others are ignored.
    """
    value_of = call_arguments.get
    valuekinds.check(call_arguments)
    fields: dict[str, Any] = {
        **_disk_fields(settings, value_of("disk_profile"), value_of("disks")),
        **{key: arguments.mapping(key, value_of(key)) or None for key in _MAPPINGS},
        **{key: _ports(settings, key, value_of(key)) for key in ("serials", "consoles")},
        **{key: _parse_flag(key, value_of(key)) for key in _FLAGS},
    }
    if value_of("graphics") == {}:
        # As in virt.init, and in Salt 3006's virt.update.
        fields["graphics"] = {"type": "none"}
    host_devices, boot_dev = value_of("host_devices"), value_of("boot_dev")
    return Request(
        name=name,
        cpu=_parse_size(value_of("cpu"), arguments.vcpus),
        mem=_parse_size(value_of("mem"), arguments.memory_mib),
        boot_dev=osboot.parse_boot_devices(boot_dev) if boot_dev else None,
        host_devices=None
        if host_devices is None
        else arguments.names("host_devices", host_devices),
        interfaces=_interfaces(settings, name, value_of("nic_profile"), value_of("interfaces")),
        detach=bool(_parse_flag("detach", value_of("detach"))),
        live=arguments.boolean("live", value_of("live", True)),
        test=arguments.boolean("test", value_of("test", False)),
        is_3006=settings.compat is not None,
        **fields,
    )


def _ports(settings: HostSettings, key: str, value: Any) -> tuple[dict[str, Any], ...] | None:
    port_list = valuekinds.without_empty_values(key, value)
    return defaults3006.ports(port_list) if settings.compat else port_list


def _parse_flag(key: str, value: Any) -> bool | None:
    return None if value is None else arguments.boolean(key, value)


def _parse_size(value: Any, parse: Callable[[Any], int]) -> int | dict[str, Any] | None:
    """Return a number or a mapping of a call; None for an empty one, which leaves the VM's."""
    if isinstance(value, dict):
        return value or None
    return parse(value) if value else None


def _interfaces(
    settings: HostSettings, name: str, profile: Any, interfaces: Any
) -> tuple[Nic, ...] | None:
    if profile is None and interfaces is None:
        return None
    return profiles.nics(name, settings.nic, profile, interfaces)


def _disk_fields(settings: HostSettings, profile: Any, disks: Any) -> dict[str, Any]:
    """Return the fields of :class:`Request` about disks."""
    if profile is None and disks is None:
        return {}
    called_entries = profiles.entries(disks or [], "disks")
    base = profiles.find(settings.disk, profile, profiles.DISKS, "disk")
    parsed_disks = profiles.disks(settings.disk, profile, disks, None)
    return {
        "disks": tuple(map(defaults3006.disk, parsed_disks)) if settings.compat else parsed_disks,
        "with_bus": _names_with("model", profiles.merge(base, called_entries)),
        "with_size": _names_with("size", called_entries),
    }


def _names_with(key: str, entries: Iterable[profiles.Entry]) -> frozenset[str]:
    return frozenset(str(entry["name"]) for entry in entries if entry.get(key) not in (None, ""))
