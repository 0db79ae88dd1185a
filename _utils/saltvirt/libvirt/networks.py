"""List, define, compare, start and remove libvirt's networks."""

from collections.abc import Collection, Iterable
from ipaddress import ip_network
from typing import Any

from saltvirt.core.errors import LibvirtRefused, VirtError
from saltvirt.libvirt.connect import libvirt
from saltvirt.libvirt.errorcodes import read_existing, value_or
from saltvirt.xml import parse, to_text
from saltvirt.xml.network import network as xml

_FAMILIES = {0: "ipv4", 1: "ipv6"}


def find(conn: Any, name: str) -> Any:
    """Return a network by name, None if the host has none."""
    return value_or(None, lambda: conn.networkLookupByName(name), "NO_NETWORK")


def get(conn: Any, name: object) -> Any:
    """Return a network by name; raise VirtError if the host has none."""
    network = find(conn, str(name))
    if network is None:
        raise VirtError(
            f"no network called {name!r} on this host; virt.list_networks shows those that it has"
        )
    return network


def names(conn: Any) -> list[str]:
    """Return the names of all networks, sorted."""
    return sorted(network.name() for network in conn.listAllNetworks())


def info(conn: Any, name: object = None) -> dict[str, dict[str, Any]]:
    """Return ``{name: {uuid, bridge, autostart, active, persistent, leases}}`` of all, or one."""
    flags = {
        "autostart": libvirt.VIR_CONNECT_LIST_NETWORKS_AUTOSTART,
        "active": libvirt.VIR_CONNECT_LIST_NETWORKS_ACTIVE,
        "persistent": libvirt.VIR_CONNECT_LIST_NETWORKS_PERSISTENT,
    }
    uuids_by_flag = {
        key: {network.UUIDString() for network in conn.listAllNetworks(flag)}
        for key, flag in flags.items()
    }

    def read(network: Any) -> dict[str, Any]:
        uuid = network.UUIDString()
        flag_values = {key: int(uuid in uuids_by_flag[key]) for key in flags}
        return {
            "uuid": uuid,
            "bridge": xml.bridge_of(parse(network.XMLDesc(0))),
            **flag_values,
            "leases": _leases(network) if flag_values["active"] else [],
        }

    networks = [
        network for network in conn.listAllNetworks() if name is None or network.name() == str(name)
    ]
    return dict(read_existing(networks, read, "NO_NETWORK"))


def _leases(network: Any) -> list[dict[str, Any]]:
    # Some drivers have no leases, such as libvirt's test driver.
    leases = value_or([], network.DHCPLeases, "NO_SUPPORT")
    return [{**lease, "type": _FAMILIES.get(lease["type"], "unknown")} for lease in leases]


def read_leased_addresses(conn: Any, network_names: Collection[str]) -> dict[str, list[str]]:
    """Return ``{MAC: addresses}`` of the leases of some networks, by one call for each network."""
    if not network_names:
        return {}
    networks = [
        network
        for network in conn.listAllNetworks(libvirt.VIR_CONNECT_LIST_NETWORKS_ACTIVE)
        if network.name() in network_names
    ]
    out: dict[str, list[str]] = {}
    for _name, leases in read_existing(networks, _leases, "NO_NETWORK"):
        for lease in leases:
            out.setdefault(str(lease.get("mac")), []).append(str(lease.get("ipaddr")))
    return out


def find_host_only_subnets(conn: Any, network_names: Iterable[str]) -> list[str]:
    """Return the subnets of networks that only this host reaches: with NAT, and isolated ones."""
    out = []
    for name in network_names:
        network = find(conn, name)
        definition = xml.read(parse(network.XMLDesc(0))) if network is not None else None
        if definition is not None and definition.forward in (None, "nat"):
            nets = (ip_network(f"{ip.address}/{ip.prefix}", strict=False) for ip in definition.ips)
            out += [str(net) for net in nets]
    return out


def read_definition(network: Any) -> xml.Network:
    """Return a network's definition, which applies from its next start on."""
    return xml.read(parse(_definition_xml(network)))


def _definition_xml(network: Any) -> str:
    has_two = network.isPersistent() and network.isActive()
    flag = libvirt.VIR_NETWORK_XML_INACTIVE if has_two else 0
    # libvirt's test driver lacks the flag: return the running network's XML.
    return str(value_or(None, lambda: network.XMLDesc(flag), "INVALID_ARG") or network.XMLDesc(0))


def define(conn: Any, requested: xml.Network, *, autostart: bool, start: bool) -> None:
    """Define a network, and start it; undefine a network that cannot start."""
    if find(conn, requested.name) is not None:
        raise LibvirtRefused(
            f"network {requested.name!r} is there already; change it with virt.network_update"
        )
    network = conn.networkDefineXML(to_text(xml.build(requested)))
    try:
        if autostart:
            network.setAutostart(1)
        if start:
            network.create()
    except libvirt.libvirtError as exc:
        network.undefine()
        raise LibvirtRefused(f"network {requested.name!r} cannot be set up: {exc}") from exc


def update(conn: Any, requested: xml.Network, *, is_test: bool = False) -> bool:
    """Change a network's definition to a request; return whether that changes anything."""
    network = get(conn, requested.name)
    old_definition = read_definition(network)
    if network.isPersistent() and not xml.differs(requested, old_definition):
        return False
    if not is_test:
        conn.networkDefineXML(to_text(xml.build(xml.with_identity(requested, old_definition))))
    return True


def ensure_defined(
    conn: Any, requested: xml.Network, *, autostart: bool, running: bool, is_test: bool
) -> tuple[str, str]:
    """
    Define or change a network to match a request, and start it if it is to run.

    Returns what changes, "" for nothing, and a comment, both in Salt 3006's words.
    """
    name = requested.name
    network = find(conn, name)
    if network is None:
        if not is_test:
            define(conn, requested, autostart=autostart, start=running)
        change_words = "defined" + (", marked for autostart" if autostart else "")
        start_words = " and started" if running else ""
        return f"Network {change_words}{start_words}", f"Network {name} {change_words}{start_words}"
    old_definition = _definition_xml(network), int(network.autostart())
    change_words = _update_network(conn, network, requested, autostart=autostart, is_test=is_test)
    change, comment = (
        (f"Network {change_words}" if change_words else ""),
        f"Network {name} {change_words or 'unchanged'}",
    )
    if not running:
        return change, comment
    if network.isActive():
        return change, f"{comment} and is running"
    if not is_test:
        _start(conn, network, old_definition if change_words else None)
    return (f"{change} and started" if change else "Network started"), f"{comment} and started"


def _start(conn: Any, network: Any, old_definition: tuple[str, int] | None) -> None:
    """Start a network; if that fails, restore its former definition and autostart flag."""
    try:
        network.create()
    except libvirt.libvirtError as exc:
        if old_definition is not None:
            conn.networkDefineXML(old_definition[0])
            network.setAutostart(old_definition[1])
        definition_note = "" if old_definition is None else ", and is defined as it was"
        message = f"network {network.name()!r} cannot be started{definition_note}: {exc}"
        raise LibvirtRefused(message) from exc


def _update_network(
    conn: Any, network: Any, requested: xml.Network, *, autostart: bool, is_test: bool
) -> str:
    """Change an existing network to match a request; return what changes, "" for nothing."""
    steps = ["updated"] if update(conn, requested, is_test=is_test) else []
    if bool(network.autostart()) != autostart:
        steps.append("autostart flag changed")
        if not is_test:
            network.setAutostart(int(autostart))
    return ", ".join(steps)


def remove(conn: Any, name: object, *, is_test: bool) -> str:
    """Stop and undefine a network; return what was done, "" if there is none."""
    network = find(conn, str(name))
    if network is None:
        return ""
    is_active, is_persistent = network.isActive(), network.isPersistent()
    interface_count = xml.connections(parse(network.XMLDesc(0))) if is_active else 0
    if interface_count:
        raise VirtError(
            f"network {name!r} has {interface_count} interfaces of running VMs; stop the VMs or "
            "detach them"
        )
    if not is_test:
        if is_active:
            network.destroy()
        if is_persistent:
            network.undefine()
    steps = ["stopped"] * bool(is_active) + ["undefined"] * bool(is_persistent)
    return f"Network {' and '.join(steps)}"
