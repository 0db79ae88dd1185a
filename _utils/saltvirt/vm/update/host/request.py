"""Check a call of ``virt.update``, and parse its arguments into a request."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.model import Disk, Nic
from saltvirt.core.options import defaults3006
from saltvirt.core.options.config import HostSettings
from saltvirt.vm import profiles, valuekinds
from saltvirt.xml.domain import osboot

_MAPPINGS = ("boot", "numatune", "hypervisor_features", "clock", "graphics")


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
    seed_readonly
        Whether the seed is read-only; only virt.update sets this.
    detach
        Whether to remove devices that the call's lists do not name.
    is_3006
        Whether new devices get Salt 3006's defaults.
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
    seed_readonly: bool | None = None
    detach: bool = False
    live: bool = True
    test: bool = False
    is_3006: bool = False


def from_call(settings: HostSettings, name: str, call_arguments: Mapping[str, Any]) -> Request:
    """
    Return a call's request.

    call_arguments
        All arguments of ``virt.update`` except the name and the connection.
    """
    disks, with_bus = _disks(settings, call_arguments["disk_profile"], call_arguments["disks"])
    other_fields: dict[str, Any] = {
        key: arguments.mapping(key, call_arguments[key]) or None for key in _MAPPINGS
    }
    if call_arguments["graphics"] == {}:
        # As in virt.init, and in Salt 3006's virt.update.
        other_fields["graphics"] = {"type": "none"}
    other_fields |= {
        key: _ports(settings, key, call_arguments[key]) for key in ("serials", "consoles")
    }
    other_fields |= {
        key: _parse_flag(key, call_arguments[key]) for key in ("stop_on_reboot", "autostart")
    }
    other_fields |= {key: arguments.boolean(key, call_arguments[key]) for key in ("live", "test")}
    valuekinds.check(call_arguments)
    return Request(
        name=name,
        cpu=_cpu(call_arguments["cpu"]),
        mem=_mem(call_arguments["mem"]),
        boot_dev=osboot.parse_boot_devices(call_arguments["boot_dev"])
        if call_arguments["boot_dev"]
        else None,
        host_devices=_parse_names("host_devices", call_arguments["host_devices"]),
        disks=disks,
        with_bus=with_bus,
        with_size=_names_with_size(call_arguments["disks"]),
        interfaces=_interfaces(
            settings, name, call_arguments["nic_profile"], call_arguments["interfaces"]
        ),
        seed_readonly=_parse_flag("seed_readonly", call_arguments.get("seed_readonly")),
        detach=bool(_parse_flag("detach", call_arguments.get("detach"))),
        is_3006=settings.compat is not None,
        **other_fields,
    )


def _ports(settings: HostSettings, key: str, value: Any) -> tuple[dict[str, Any], ...] | None:
    port_list = valuekinds.without_empty_values(key, value)
    return defaults3006.ports(port_list) if settings.compat else port_list


def _parse_flag(key: str, value: Any) -> bool | None:
    return None if value is None else arguments.boolean(key, value)


def _parse_names(key: str, value: Any) -> tuple[str, ...] | None:
    return None if value is None else arguments.names(key, value)


def _cpu(cpu: Any) -> int | dict[str, Any] | None:
    if isinstance(cpu, dict):
        return cpu or None
    return arguments.vcpus(cpu) if cpu else None


def _mem(mem: Any) -> int | dict[str, Any] | None:
    if isinstance(mem, dict):
        return mem or None
    return arguments.memory_mib(mem) if mem else None


def _interfaces(
    settings: HostSettings, name: str, profile: Any, interfaces: Any
) -> tuple[Nic, ...] | None:
    if profile is None and interfaces is None:
        return None
    return profiles.nics(name, settings.nic, profile, interfaces)


def _names_with_size(disks: Any) -> frozenset[str]:
    """Return the names of disks with a size in the call itself."""
    entries = profiles.entries(disks or [], "disks")
    return frozenset(str(entry["name"]) for entry in entries if entry.get("size") is not None)


def _disks(
    settings: HostSettings, profile: Any, disks: Any
) -> tuple[tuple[Disk, ...] | None, frozenset[str]]:
    """Return ``(disks, names of disks with a bus in the call or its profile)``."""
    if profile is None and disks is None:
        return None, frozenset()
    base = profiles.find(settings.disk, profile, profiles.DISKS, "disk")
    entries = profiles.merge(base, profiles.entries(disks or [], "disks"))
    bus_names = frozenset(str(entry["name"]) for entry in entries if entry.get("model"))
    parsed_disks = profiles.disks(settings.disk, profile, disks, None)
    return (
        tuple(map(defaults3006.disk, parsed_disks)) if settings.compat else parsed_disks
    ), bus_names
