"""What a NoCloud seed says to cloud-init beside the identity: user data, network, vendor data."""

import ipaddress
import itertools
import re
from collections.abc import Iterable
from typing import Any

import yaml

from saltvirt.errors import BadArgument
from saltvirt.model import Nic

_MARK = "#cloud-config"
# Whoever changes these breaks the guest's identity.
_OURS = ("hostname", "fqdn", "preserve_hostname")
# Ours are in these, too. Anything but a list would be there instead of them.
_LISTS = ("bootcmd", "runcmd", "ssh_authorized_keys")
# What cloud-init takes for "no", as YAML itself does.
_FALSE = ("false", "0", "no", "off")
# Linux takes 15 characters.
_LINK = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,14}")


def mapping(argument: str, value: Any) -> dict[str, Any]:
    """Return cloud-config as a mapping, from a mapping or a text that begins as such."""
    if isinstance(value, str) and value.lstrip().startswith(_MARK):
        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError as exc:
            raise BadArgument(argument, f"is not YAML{_where(exc)}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadArgument(
            argument,
            f"is neither a mapping nor a text that begins with {_MARK}; a "
            "script goes under its 'runcmd'",
        )
    taken = sorted(set(value) & set(_OURS))
    if taken:
        raise BadArgument(argument, f"{taken[0]!r} is the VM's name, which virt.init gives")
    for key in _LISTS:
        if not isinstance(value.get(key), list | None):
            raise BadArgument(argument, f"{key!r} is not a list, as cloud-init wants it")
    # In YAML a key with nothing behind it is null, and says nothing.
    return {key: one for key, one in value.items() if one is not None or key not in _LISTS}


def _where(exc: yaml.YAMLError) -> str:
    """Return what is wrong, and where; not the line itself, in which there may be a password."""
    mark, problem = getattr(exc, "problem_mark", None), getattr(exc, "problem", None)
    at = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    # What stands between quotes is the text's own.
    why = re.sub(r"'.*'", "something", " ".join(str(problem).split())) if problem else ""
    return f"{at}: {why}" if why else at


def names_users(config: dict[str, Any]) -> bool:
    """Return whether cloud-config says which users there are, or what the default one is called."""
    return any(key in config for key in ("user", "users", "system_info"))


def names_packages(config: dict[str, Any]) -> bool:
    """Return whether cloud-config says where packages come from, or installs something itself."""
    keys = ("apt", "yum_repos", "zypper", "packages", "bootcmd", "runcmd")
    return any(key in config for key in keys)


def merge(*parts: dict[str, Any]) -> dict[str, Any]:
    """
    Return cloud-config merged from several, the later over the earlier.

    Lists are joined in order, mappings merged, everything else replaced.
    """
    out: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            before = out.get(key)
            if isinstance(before, dict) and isinstance(value, dict):
                out[key] = merge(before, value)
            elif isinstance(before, list) and isinstance(value, list):
                out[key] = [*before, *value]
            else:
                out[key] = value
    return out


def lists_in_both(vendor_data: dict[str, Any], user_data: dict[str, Any]) -> dict[str, Any]:
    """
    Return those lists of the vendor data that the user data has as well.

    cloud-init takes the user data's list then, and never runs the vendor data's: both must be in
    the user data. User data that switches the vendor data off gets none of it.
    """
    switch = user_data.get("vendor_data")
    if isinstance(switch, dict) and str(switch.get("enabled", True)).lower() in _FALSE:
        return {}
    return _in_both(vendor_data, user_data)


def _in_both(vendor_data: dict[str, Any], user_data: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in vendor_data.items():
        other = user_data.get(key)
        if isinstance(value, list) and isinstance(other, list):
            out[key] = value
        elif isinstance(value, dict) and isinstance(other, dict):
            below = _in_both(value, other)
            out |= {key: below} if below else {}
    return out


def network(nics: Iterable[Nic]) -> dict[str, Any] | None:
    """
    Return cloud-init's network configuration, None if no NIC says anything of it.

    A NIC is found by its MAC, and the guest calls it as the call does. Once one NIC says something,
    those that say nothing stay down.

    All releases of cloud-init make a default route of version 1. Of version 2 they do not: releases
    from 23.4 on warn of ``gateway4``, those before 22.2 fail at ``routes`` where they write ifcfg
    files, and those before 23.1 make no default route of IPv6. Version 2 is for what version 1
    cannot say.
    """
    wanted = [(nic, nic.extra["guest"]) for nic in nics if "guest" in nic.extra]
    if not wanted:
        return None
    links = _link_names([nic.name for nic, _guest in wanted])
    if not all(_fits_version_1(guest) for _nic, guest in wanted):
        ports = {
            link: _port(link, nic.mac, guest)
            for link, (nic, guest) in zip(links, wanted, strict=True)
        }
        return {"version": 2, "ethernets": ports}
    devices = [
        {"type": "physical", "name": link, "mac_address": nic.mac, "subnets": _subnets(guest)}
        for link, (nic, guest) in zip(links, wanted, strict=True)
    ]
    return {"version": 1, "config": devices}


def _link_names(names: list[str]) -> list[str]:
    """Return what the guest calls its NICs: as the call does, where that can name a link."""
    numbers = itertools.count()
    free = (name for name in (f"eth{number}" for number in numbers) if name not in names)
    # The names of VLANs have a dot.
    return [name if _LINK.fullmatch(name) and name != "lo" else next(free) for name in names]


def _holds(address: str, gateway: str) -> bool:
    """Return whether a gateway is in the network of an address, or on every link."""
    network, found = ipaddress.ip_interface(address).network, ipaddress.ip_address(gateway)
    return found in network or (network.version == found.version and found.is_link_local)


def _fits_version_1(guest: dict[str, Any]) -> bool:
    """Return whether version 1 can say all: no gateway outside, no name server for DHCP alone."""
    has_servers = bool(guest["dns"] or guest["search"])
    is_inside = not any(_is_outside(gateway, guest) for gateway in guest["gateways"])
    return is_inside and (bool(guest["addresses"]) or not has_servers)


def _is_outside(gateway: str, guest: dict[str, Any]) -> bool:
    return not any(_holds(address, gateway) for address in guest["addresses"])


def _subnets(guest: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the subnets of a NIC in version 1; each gateway is in the first that holds it."""
    subnets: list[dict[str, Any]] = []
    gateways = list(guest["gateways"])
    for address in guest["addresses"]:
        subnet = {"type": "static", "address": address}
        for gateway in [one for one in gateways if _holds(address, one)]:
            subnet["gateway"] = gateway
            gateways.remove(gateway)
        subnets.append(subnet)
    for key, value in (("dns_nameservers", guest["dns"]), ("dns_search", guest["search"])):
        if value:
            subnets[0][key] = list(value)
    leased = [{"type": "dhcp4"}] if guest["dhcp"] else []
    return [*leased, *subnets] or [{"type": "manual"}]


def _port(link: str, mac: str, guest: dict[str, Any]) -> dict[str, Any]:
    """Return a NIC in version 2."""
    out: dict[str, Any] = {"match": {"macaddress": mac}, "set-name": link, "dhcp4": guest["dhcp"]}
    if guest["addresses"]:
        out["addresses"] = list(guest["addresses"])
    routes = [_default_route(gateway, guest) for gateway in guest["gateways"]]
    servers = {"addresses": list(guest["dns"]), "search": list(guest["search"])}
    named = {key: value for key, value in servers.items() if value}
    return {**out, **({"routes": routes} if routes else {}), **({"nameservers": named} if named else {})}


def _default_route(gateway: str, guest: dict[str, Any]) -> dict[str, Any]:
    # Releases before 23.1 do not know the word "default".
    route = {"to": "::/0" if ":" in gateway else "0.0.0.0/0", "via": gateway}
    return {**route, **({"on-link": True} if _is_outside(gateway, guest) else {})}
