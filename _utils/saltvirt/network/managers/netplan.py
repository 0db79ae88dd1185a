"""Build netplan's files for a bridge; remove and restore the settings of its ports."""

import fnmatch
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import yaml

from saltvirt.network.managers import linkconfig
from saltvirt.network.managers.linkconfig import LinkConfig
from saltvirt.network.managers.tools import PersistenceError

_Yaml = dict[str, Any]
_Macs = dict[str, str | None] | None
# Settings that a port loses: netplan merges the definitions of all files.
_KEYS = (
    "addresses",
    "dhcp4",
    "dhcp6",
    "dhcp4-overrides",
    "dhcp6-overrides",
    "gateway4",
    "gateway6",
    "nameservers",
    "routes",
    "accept-ra",
)
_QUIET = {"dhcp4": False, "dhcp6": False}
_KINDS = ("ethernets", "bonds", "vlans")


def _network(text: str) -> _Yaml:
    return (yaml.safe_load(text) or {}).get("network") or {}


def _read_definitions(text: str, kind: str) -> dict[str, _Yaml]:
    # A kind may have a ``renderer`` key beside its links.
    return {
        str(link_id): definition or {}
        for link_id, definition in (_network(text).get(kind) or {}).items()
        if isinstance(definition, dict | None)
    }


def build_files(
    config: LinkConfig, texts: Sequence[str], macs: _Macs = None, old_text: str = ""
) -> dict[str, str]:
    """
    Return the files of netplan for a bridge; see :func:`without_ports` for its ports.

    texts
        The original texts of the other files, with the settings of the ports.
    macs
        ``{link: MAC}``, for definitions that match by MAC.
    old_text
        The present file of the bridge: its ports stay, even if they are not requested.
    """
    port_definitions = ids(config.ports, texts, macs)
    port_definitions |= _read_ports(old_text, config.name) | port_definitions
    bridge = {
        "interfaces": list(port_definitions),
        "macaddress": config.mac,
        "mtu": config.mtu,
        "dhcp4": config.dhcp,
        "parameters": {"stp": config.stp, "forward-delay": config.forward_delay_s},
    }
    routes = [{"to": "default", "via": gateway} for gateway in config.gateways]
    routes += [
        {"to": dst, "via": via} if via else {"to": dst, "scope": "link"}
        for dst, via in config.routes
    ]
    names = _nameservers(config, texts, port_definitions)
    for key, value in (
        ("addresses", list(config.addresses)),
        ("routes", routes),
        ("nameservers", names),
        ("dhcp4-overrides", _overrides(config, texts, port_definitions)),
    ):
        if value:
            bridge[key] = value
    if config.ra:
        bridge["accept-ra"] = True
    ports = {link_id: definition for link_id, definition in port_definitions.items() if definition}
    network = {
        "version": 2,
        **({"ethernets": ports} if ports else {}),
        "bridges": {config.name: bridge},
    }
    path = f"/etc/netplan/90-salt-virt-{config.name}.yaml"
    files = {path: yaml.safe_dump({"network": network}, sort_keys=True)}
    if section := linkconfig.client_section(config):
        # netplan has no such option: write a drop-in for networkd.
        path = f"/etc/systemd/network/10-netplan-{config.name}.network.d/salt-virt.conf"
        files[path] = section
    return files


def ids(ports: Iterable[str], texts: Sequence[str], macs: _Macs = None) -> dict[str, _Yaml | None]:
    """Return netplan's ids of these links, with their definition in our own file, or None."""
    return dict(_id(port, texts, (macs or {}).get(port)) for port in ports)


def _id(port: str, texts: Sequence[str], mac: str | None) -> tuple[str, _Yaml | None]:
    if any(port in _read_definitions(text, kind) for text in texts for kind in ("bonds", "vlans")):
        return port, None
    candidates = _candidates(port, texts)
    if port in candidates:
        if not _fits(candidates[port], port, mac):
            raise PersistenceError(
                f"netplan calls another link {port!r} than this host does (match, "
                "set-name): rename one of them"
            )
        return port, dict(_QUIET)
    fitting_ids = [
        link_id for link_id, definition in candidates.items() if _fits(definition, port, mac)
    ]
    if len(fitting_ids) == 1 and _is_for_one(candidates[fitting_ids[0]]):
        return fitting_ids[0], dict(_QUIET)
    if fitting_ids:
        # A definition for several links stays: networkd takes the first matching file by name.
        return f"00-salt-virt-{port}", {"match": {"name": port}, **_QUIET}
    return port, dict(_QUIET)


def _candidates(port: str, texts: Iterable[str]) -> dict[str, _Yaml]:
    """Return the definitions that may be for a link: with its name, or with ``match``."""
    return {
        link_id: definition
        for text in texts
        for link_id, definition in _read_definitions(text, "ethernets").items()
        if definition.get("match") or link_id == port
    }


def _fits(definition: _Yaml, port: str, mac: str | None) -> bool:
    """Return whether a definition may be for a link; ``match`` by driver is ignored."""
    match = definition.get("match") or {}
    if definition.get("set-name"):
        is_same_name: bool = definition["set-name"] == port
        return is_same_name
    name_pattern, address = match.get("name"), match.get("macaddress")
    return (name_pattern is None or fnmatch.fnmatch(port, str(name_pattern))) and (
        address is None or mac is None or str(address).lower() == mac.lower()
    )


def _is_for_one(definition: _Yaml) -> bool:
    match = definition["match"]
    name_pattern = str(match.get("name", "*"))
    return bool(
        definition.get("set-name") or match.get("macaddress") or not set(name_pattern) & set("*?[")
    )


def _nameservers(
    config: LinkConfig, texts: Iterable[str], link_ids: Collection[str]
) -> dict[str, list[Any]]:
    """Return the name servers and search domains: as requested, else those of the ports."""
    settings = _read_settings(texts, link_ids, "nameservers")
    addresses = _merge_lists(settings, "addresses")
    if config.is_dns_asked or (config.dns and not addresses):
        addresses = list(config.dns)
    nameservers = {
        "addresses": addresses,
        "search": _merge_lists(settings, "search") or list(config.search),
    }
    return {key: value for key, value in nameservers.items() if value}


def _read_ports(text: str, name: str) -> dict[str, _Yaml | None]:
    """Return the ports in a bridge's file, like :func:`ids`."""
    return {
        link_id: _read_definitions(text, "ethernets").get(link_id) for link_id in ids_of(text, name)
    }


def _overrides(config: LinkConfig, texts: Iterable[str], link_ids: Collection[str]) -> _Yaml:
    """Return the ports' DHCP overrides; without these another default route may win."""
    settings = _read_settings(texts, link_ids, "dhcp4-overrides") if config.dhcp else []
    return {key: value for overrides in settings for key, value in overrides.items()}


def _read_settings(texts: Iterable[str], link_ids: Collection[str], key: str) -> list[_Yaml]:
    """Return the values of a key in the definitions of some links."""
    return [
        definition.get(key) or {}
        for text in texts
        for kind in _KINDS
        for link_id, definition in _read_definitions(text, kind).items()
        if link_id in link_ids
    ]


def _merge_lists(mappings: Iterable[_Yaml], key: str) -> list[Any]:
    """Return the union of the lists under a key of several mappings, in order."""
    return list(dict.fromkeys(value for mapping in mappings for value in mapping.get(key) or []))


def without_ports(text: str, ports: Iterable[str]) -> str | None:
    """
    Return a file of netplan without the addressing of the ports (by their ids), or None.

    netplan merges the lists of all files, so another file cannot remove an entry.
    """
    data = yaml.safe_load(text) or {}
    network, is_changed = data.get("network") or {}, False
    for kind in _KINDS:
        for port in ports:
            definition = (network.get(kind) or {}).get(port) or {}
            for key in _KEYS:
                if key in definition and definition[key] not in (False, []):
                    del definition[key]
                    is_changed = True
    return yaml.safe_dump(data, sort_keys=True) if is_changed else None


def restore_ports(text: str, old_text: str, ports: Collection[str]) -> str:
    """
    Return a file of netplan with the removed settings of the ports restored.

    old_text
        The file before :func:`without_ports`; returned byte by byte if nothing else changed.
    """
    data = yaml.safe_load(text) or {}
    for kind in _KINDS:
        for port, definition in _read_definitions(old_text, kind).items():
            addressing = {key: definition[key] for key in _KEYS if key in definition}
            if port in ports and addressing:
                network = data.setdefault("network", {"version": 2})
                _fill(network, kind, port, addressing)
    if data == yaml.safe_load(old_text):
        return old_text
    return text if data == (yaml.safe_load(text) or {}) else yaml.safe_dump(data, sort_keys=True)


def _fill(network: _Yaml, kind: str, port: str, addressing: _Yaml) -> None:
    links = network[kind] = network.get(kind) or {}
    definition = links[port] = links.get(port) or {}
    for key, value in addressing.items():
        definition.setdefault(key, value)


def ids_of(text: str, name: str) -> list[str]:
    """Return netplan's ids of a bridge's ports, from the bridge's file."""
    return (_read_definitions(text, "bridges").get(name) or {}).get("interfaces") or []


def renderer(texts: Iterable[str]) -> str:
    """Return the renderer, ``networkd`` or ``NetworkManager``; the last file decides."""
    renderer_name = "networkd"
    for text in texts:
        renderer_name = _network(text).get("renderer", renderer_name)
    return renderer_name
