"""The files of netplan: what a bridge needs in them, what its ports give up, and get back."""

import fnmatch
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import yaml

from saltvirt.net import linkconfig
from saltvirt.net.linkconfig import LinkConfig
from saltvirt.net.tools import PersistenceError

_Yaml = dict[str, Any]
_Macs = dict[str, str | None] | None
# What a port gives up: netplan joins what all of its files say of a link.
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


def _of(text: str, kind: str) -> dict[str, _Yaml]:
    # A kind may have a renderer of its own beside its links.
    return {
        str(one): own or {}
        for one, own in (_network(text).get(kind) or {}).items()
        if isinstance(own, dict | None)
    }


def written(
    config: LinkConfig, texts: Sequence[str], macs: _Macs = None, had: str = ""
) -> dict[str, str]:
    """
    Return the files of netplan for a bridge; see :func:`freed` for its ports.

    texts
        Those of the other files, with what they said before they were freed.
    macs
        ``{link: MAC}``, to tell what a definition by MAC is for.
    had
        What was written for the bridge before: ports that are not asked for any more stay.
    """
    called = ids(config.ports, texts, macs)
    called |= _there(had, config.name) | called
    bridge = {
        "interfaces": list(called),
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
    names = _nameservers(config, texts, called)
    for key, value in (
        ("addresses", list(config.addresses)),
        ("routes", routes),
        ("nameservers", names),
        ("dhcp4-overrides", _overrides(config, texts, called)),
    ):
        if value:
            bridge[key] = value
    if config.ra:
        bridge["accept-ra"] = True
    ports = {one: own for one, own in called.items() if own}
    network = {
        "version": 2,
        **({"ethernets": ports} if ports else {}),
        "bridges": {config.name: bridge},
    }
    path = f"/etc/netplan/90-salt-virt-{config.name}.yaml"
    files = {path: yaml.safe_dump({"network": network}, sort_keys=True)}
    if section := linkconfig.client_section(config):
        # netplan has no word for it, networkd reads it beside what netplan writes.
        path = f"/etc/systemd/network/10-netplan-{config.name}.network.d/salt-virt.conf"
        files[path] = section
    return files


def ids(ports: Iterable[str], texts: Sequence[str], macs: _Macs = None) -> dict[str, _Yaml | None]:
    """Return what netplan calls these links, with what our own file says of them, or None."""
    return dict(_id(port, texts, (macs or {}).get(port)) for port in ports)


def _id(port: str, texts: Sequence[str], mac: str | None) -> tuple[str, _Yaml | None]:
    if any(port in _of(text, kind) for text in texts for kind in ("bonds", "vlans")):
        return port, None
    found = _candidates(port, texts)
    if port in found:
        if not _fits(found[port], port, mac):
            raise PersistenceError(
                f"netplan calls another link {port!r} than this host does (match, "
                "set-name): rename one of them"
            )
        return port, dict(_QUIET)
    fitting = [one for one, own in found.items() if _fits(own, port, mac)]
    if len(fitting) == 1 and _is_for_one(found[fitting[0]]):
        return fitting[0], dict(_QUIET)
    if fitting:
        # One for several links stays as it is: networkd takes the first file that fits, by name.
        return f"00-salt-virt-{port}", {"match": {"name": port}, **_QUIET}
    return port, dict(_QUIET)


def _candidates(port: str, texts: Iterable[str]) -> dict[str, _Yaml]:
    """Return the definitions that may be for a link: of its name, or that match by something."""
    return {
        one: own
        for text in texts
        for one, own in _of(text, "ethernets").items()
        if own.get("match") or one == port
    }


def _fits(own: _Yaml, port: str, mac: str | None) -> bool:
    """Return whether a definition may be for a link; a driver says nothing against it."""
    match = own.get("match") or {}
    if own.get("set-name"):
        found: bool = own["set-name"] == port
        return found
    named, address = match.get("name"), match.get("macaddress")
    return (named is None or fnmatch.fnmatch(port, str(named))) and (
        address is None or mac is None or str(address).lower() == mac.lower()
    )


def _is_for_one(own: _Yaml) -> bool:
    match = own["match"]
    named = str(match.get("name", "*"))
    return bool(own.get("set-name") or match.get("macaddress") or not set(named) & set("*?["))


def _nameservers(
    config: LinkConfig, texts: Iterable[str], called: Collection[str]
) -> dict[str, list[Any]]:
    """Return the name servers and search domains: those of the ports, unless others are asked."""
    said = _said(texts, called, "nameservers")
    addresses = _joined(said, "addresses")
    if config.is_dns_asked or (config.dns and not addresses):
        addresses = list(config.dns)
    found = {"addresses": addresses, "search": _joined(said, "search") or list(config.search)}
    return {key: value for key, value in found.items() if value}


def _there(had: str, name: str) -> dict[str, _Yaml | None]:
    """Return the ports that a bridge has by its file, as :func:`ids` does."""
    return {one: _of(had, "ethernets").get(one) for one in ids_of(had, name)}


def _overrides(config: LinkConfig, texts: Iterable[str], called: Collection[str]) -> _Yaml:
    """Return what the ports make of a lease: without it another default route may win."""
    found = _said(texts, called, "dhcp4-overrides") if config.dhcp else []
    return {key: value for own in found for key, value in own.items()}


def _said(texts: Iterable[str], called: Collection[str], key: str) -> list[_Yaml]:
    """Return what the definitions of some links say under a key."""
    return [
        own.get(key) or {}
        for text in texts
        for kind in _KINDS
        for one, own in _of(text, kind).items()
        if one in called
    ]


def _joined(said: Iterable[_Yaml], key: str) -> list[Any]:
    """Return what several mappings have in a list of one name, each once."""
    return list(dict.fromkeys(value for one in said for value in one.get(key) or []))


def freed(text: str, ports: Iterable[str]) -> str | None:
    """
    Return another file of netplan without the addresses of the ports (by their ids), or None.

    netplan joins the lists of all its files, so what one of them gives a port cannot be taken away
    by another.
    """
    data = yaml.safe_load(text) or {}
    network, changed = data.get("network") or {}, False
    for kind in _KINDS:
        for port in ports:
            own = (network.get(kind) or {}).get(port) or {}
            for key in _KEYS:
                if key in own and own[key] not in (False, []):
                    del own[key]
                    changed = True
    return yaml.safe_dump(data, sort_keys=True) if changed else None


def restored(text: str, before: str, ports: Collection[str]) -> str:
    """
    Return a file of netplan with what the ports gave up, and all else as it is now.

    before
        The file as it was before :func:`freed`; it comes back as it was if nothing else changed.
    """
    data = yaml.safe_load(text) or {}
    for kind in _KINDS:
        for port, own in _of(before, kind).items():
            given = {key: own[key] for key in _KEYS if key in own}
            if port in ports and given:
                network = data.setdefault("network", {"version": 2})
                _fill(network, kind, port, given)
    if data == yaml.safe_load(before):
        return before
    return text if data == (yaml.safe_load(text) or {}) else yaml.safe_dump(data, sort_keys=True)


def _fill(network: _Yaml, kind: str, port: str, given: _Yaml) -> None:
    some = network[kind] = network.get(kind) or {}
    own = some[port] = some.get(port) or {}
    for key, value in given.items():
        own.setdefault(key, value)


def ids_of(text: str, name: str) -> list[str]:
    """Return what netplan calls the ports of a bridge, from the file that was written for it."""
    return (_of(text, "bridges").get(name) or {}).get("interfaces") or []


def renderer(texts: Iterable[str]) -> str:
    """Return who netplan's files are for, ``networkd`` or ``NetworkManager``; the last one says."""
    found = "networkd"
    for text in texts:
        found = _network(text).get("renderer", found)
    return found
