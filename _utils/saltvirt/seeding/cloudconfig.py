"""Build a NoCloud seed's cloud-config beside the identity: user data, network, vendor data."""

import ipaddress
import itertools
import re
from collections.abc import Iterable
from typing import Any

import yaml

from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Nic

_MARK = "#cloud-config"
# Other values of these would break the guest's identity.
_RESERVED_KEYS = ("hostname", "fqdn", "preserve_hostname")
# The seed adds to these lists. A value of another type would replace the seed's list.
_LISTS = ("bootcmd", "runcmd", "ssh_authorized_keys")
# cloud-init's words for "no", as in YAML.
_FALSE = ("false", "0", "no", "off")
# Linux allows 15 characters.
_LINK = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,14}")


def mapping(argument: str, value: Any) -> dict[str, Any]:
    """Return cloud-config as a mapping, from a mapping or a text with cloud-config's first line."""
    if isinstance(value, str) and value.lstrip().startswith(_MARK):
        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError as exc:
            raise BadArgument(argument, f"is not YAML{_describe_yaml_error(exc)}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadArgument(
            argument,
            f"is neither a mapping nor a text that begins with {_MARK}; a "
            "script goes under its 'runcmd'",
        )
    reserved_keys = sorted(set(value) & set(_RESERVED_KEYS))
    if reserved_keys:
        raise BadArgument(argument, f"{reserved_keys[0]!r} is the VM's name, which virt.init gives")
    for key in _LISTS:
        if not isinstance(value.get(key), list | None):
            raise BadArgument(argument, f"{key!r} is not a list, as cloud-init wants it")
    # A YAML key without a value is null: leave it out.
    return {key: item for key, item in value.items() if item is not None or key not in _LISTS}


def _describe_yaml_error(exc: yaml.YAMLError) -> str:
    """Return the error and its position, but not the line, which may contain a password."""
    mark, problem = getattr(exc, "problem_mark", None), getattr(exc, "problem", None)
    position = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    # Quoted parts come from the text itself.
    problem_text = re.sub(r"'.*'", "something", " ".join(str(problem).split())) if problem else ""
    return f"{position}: {problem_text}" if problem_text else position


def names_users(config: dict[str, Any]) -> bool:
    """Return whether cloud-config configures users, or the name of the default one."""
    return any(key in config for key in ("user", "users", "system_info"))


def names_packages(config: dict[str, Any]) -> bool:
    """Return whether cloud-config sets package sources, or installs packages itself."""
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
            merged_value = out.get(key)
            if isinstance(merged_value, dict) and isinstance(value, dict):
                out[key] = merge(merged_value, value)
            elif isinstance(merged_value, list) and isinstance(value, list):
                out[key] = [*merged_value, *value]
            else:
                out[key] = value
    return out


def lists_in_both(vendor_data: dict[str, Any], user_data: dict[str, Any]) -> dict[str, Any]:
    """
    Return the lists of the vendor data that the user data has, too.

    cloud-init takes the user data's list only, so that list must include the vendor data's. User
    data that disables the vendor data gets none of its lists.
    """
    switch = user_data.get("vendor_data")
    if isinstance(switch, dict) and str(switch.get("enabled", True)).lower() in _FALSE:
        return {}
    return _in_both(vendor_data, user_data)


def _in_both(vendor_data: dict[str, Any], user_data: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in vendor_data.items():
        user_value = user_data.get(key)
        if isinstance(value, list) and isinstance(user_value, list):
            out[key] = value
        elif isinstance(value, dict) and isinstance(user_value, dict):
            nested_lists = _in_both(value, user_value)
            out |= {key: nested_lists} if nested_lists else {}
    return out


def network(nics: Iterable[Nic]) -> dict[str, Any] | None:
    """
    Return cloud-init's network configuration, None if no NIC has any.

    A NIC is found by its MAC, and the guest names it as the call does. Once one NIC is configured,
    NICs without configuration stay down.

    All releases of cloud-init set a default route by version 1, but not by version 2: releases from
    23.4 on warn of ``gateway4``, releases before 22.2 fail at ``routes`` if they write ifcfg files,
    and releases before 23.1 set no IPv6 default route. But only version 2 can set name servers for
    a NIC with DHCP only.
    """
    configured_nics = _list_configured_nics(nics)
    if not configured_nics:
        return None
    guests = [guest for _link, _mac, guest in configured_nics]
    servers = [_server(guest) for guest in guests if _has_servers_alone(guest)]
    if servers and not any(guest["gateways"] for guest in guests):
        return {"version": 2, "ethernets": {nic[0]: _port(*nic) for nic in configured_nics}}
    return {"version": 1, "config": [*(_device(*nic) for nic in configured_nics), *servers]}


def _list_configured_nics(nics: Iterable[Nic]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return ``(name in the guest, MAC, configuration)`` of the configured NICs."""
    configured_nics = [nic for nic in nics if "guest" in nic.extra]
    links = _link_names([nic.name for nic in configured_nics])
    return [
        (link, nic.mac, nic.extra["guest"])
        for link, nic in zip(links, configured_nics, strict=True)
    ]


def _device(link: str, mac: str, guest: dict[str, Any]) -> dict[str, Any]:
    """Return a NIC in version 1."""
    subnets = _subnets(guest)
    return {"type": "physical", "name": link, "mac_address": mac, "subnets": subnets}


def find_gateways_outside(config: dict[str, Any] | None) -> list[list[str]]:
    """Return, per NIC with any, the gateways that are outside its networks."""
    gateways_by_nic = [
        [
            subnet["gateway"]
            for subnet in device.get("subnets", [])
            if "gateway" in subnet and not _contains_gateway(subnet["address"], subnet["gateway"])
        ]
        for device in (config or {}).get("config", [])
    ]
    return [gateways for gateways in gateways_by_nic if gateways]


def _link_names(names: list[str]) -> list[str]:
    """Return the NICs' names in the guest: the call's names where Linux allows them."""
    numbers = itertools.count()
    free = (name for name in (f"eth{number}" for number in numbers) if name not in names)
    # A dot in a name would mean a VLAN.
    return [name if _LINK.fullmatch(name) and name != "lo" else next(free) for name in names]


def _contains_gateway(address: str, gateway: str) -> bool:
    """Return whether a gateway is in an address's network, or link-local."""
    network, gateway_ip = ipaddress.ip_interface(address).network, ipaddress.ip_address(gateway)
    return gateway_ip in network or (
        network.version == gateway_ip.version and gateway_ip.is_link_local
    )


def _has_servers_alone(guest: dict[str, Any]) -> bool:
    """Return whether a NIC has name servers, but no static address."""
    return bool(guest["dns"] or guest["search"]) and not guest["addresses"]


def _server(guest: dict[str, Any]) -> dict[str, Any]:
    return {"type": "nameserver", "address": list(guest["dns"]), "search": list(guest["search"])}


def _subnets(guest: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the subnets of a NIC in version 1."""
    subnets = [{"type": "static", "address": address} for address in guest["addresses"]]
    for gateway in guest["gateways"]:
        _subnet_of(gateway, subnets)["gateway"] = gateway
    extra = {"dns_nameservers": list(guest["dns"]), "dns_search": list(guest["search"])}
    for subnet in subnets[:1]:
        subnet |= {key: value for key, value in extra.items() if value}
    dhcp_subnets = [{"type": "dhcp4"}] if guest["dhcp"] else []
    return [*dhcp_subnets, *subnets] or [{"type": "manual"}]


def _subnet_of(gateway: str, subnets: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the subnet that contains a gateway, else the first one of its family."""
    family = [subnet for subnet in subnets if (":" in subnet["address"]) == (":" in gateway)]
    return next(
        (candidate for candidate in family if _contains_gateway(candidate["address"], gateway)),
        family[0],
    )


def _port(link: str, mac: str, guest: dict[str, Any]) -> dict[str, Any]:
    """Return a NIC without a gateway in version 2."""
    out: dict[str, Any] = {"match": {"macaddress": mac}, "set-name": link, "dhcp4": guest["dhcp"]}
    if guest["addresses"]:
        out["addresses"] = list(guest["addresses"])
    servers = {"addresses": list(guest["dns"]), "search": list(guest["search"])}
    if any(servers.values()):
        out["nameservers"] = {key: value for key, value in servers.items() if value}
    return out
