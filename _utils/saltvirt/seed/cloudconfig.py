"""What a NoCloud seed says to cloud-init beside the identity: user data, network, vendor data."""

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


def network(nics: Iterable[Nic]) -> dict[str, Any] | None:
    """
    Return cloud-init's network configuration (version 2), None if no NIC says anything of it.

    A NIC is found by its MAC, whatever the guest's kernel calls it. Once one NIC says something,
    those that say nothing stay down.
    """
    told = {nic.name: (nic.mac, nic.extra["guest"]) for nic in nics if "guest" in nic.extra}
    if not told:
        return None
    return {"version": 2, "ethernets": {name: _port(*one) for name, one in told.items()}}


def _port(mac: str, guest: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"match": {"macaddress": mac}, "dhcp4": guest["dhcp"]}
    if guest["addresses"]:
        out["addresses"] = list(guest["addresses"])
    for gateway in guest["gateways"]:
        out["gateway6" if ":" in gateway else "gateway4"] = gateway
    servers = {"addresses": list(guest["dns"]), "search": list(guest["search"])}
    if any(servers.values()):
        out["nameservers"] = {key: value for key, value in servers.items() if value}
    return out
