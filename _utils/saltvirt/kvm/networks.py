"""libvirt's networks: looked at in bulk, defined, compared, started and removed."""

from collections.abc import Iterable
from ipaddress import ip_network
from typing import Any

from saltvirt.errors import LibvirtRefused, VirtError
from saltvirt.kvm.connect import libvirt
from saltvirt.xml import network as xml
from saltvirt.xml import parse, to_text

_FAMILIES = {0: "ipv4", 1: "ipv6"}


def find(conn: Any, name: str) -> Any:
    """Return a network by name, None if the host has none."""
    try:
        return conn.networkLookupByName(name)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_NETWORK:
            return None
        raise


def get(conn: Any, name: object) -> Any:
    """Return a network by name; raise VirtError if the host has none."""
    found = find(conn, str(name))
    if found is None:
        raise VirtError(
            f"no network called {name!r} on this host; virt.list_networks shows those that it has"
        )
    return found


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
    those = {
        key: {network.UUIDString() for network in conn.listAllNetworks(flag)}
        for key, flag in flags.items()
    }
    out = {}
    for network in conn.listAllNetworks():
        if name is not None and network.name() != str(name):
            continue
        uuid = network.UUIDString()
        is_one = {key: int(uuid in those[key]) for key in flags}
        try:
            out[network.name()] = {
                "uuid": uuid,
                "bridge": xml.bridge_of(parse(network.XMLDesc(0))),
                **is_one,
                "leases": _leases(network) if is_one["active"] else [],
            }
        except libvirt.libvirtError as exc:
            # It has been removed since the list was made.
            if exc.get_error_code() != libvirt.VIR_ERR_NO_NETWORK:
                raise
    return out


def _leases(network: Any) -> list[dict[str, Any]]:
    try:
        leases = network.DHCPLeases()
    except libvirt.libvirtError as exc:
        # A driver that hands out no leases, as libvirt's test driver.
        if exc.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
            raise
        return []
    return [{**one, "type": _FAMILIES.get(one["type"], "unknown")} for one in leases]


def behind_host(conn: Any, wanted: Iterable[str]) -> list[str]:
    """Return the subnets of networks that only this host reaches: with NAT, and isolated ones."""
    out = []
    for name in wanted:
        network = find(conn, name)
        found = xml.read(parse(network.XMLDesc(0))) if network is not None else None
        if found is not None and found.forward in (None, "nat"):
            nets = (ip_network(f"{ip.address}/{ip.prefix}", strict=False) for ip in found.ips)
            out += [str(net) for net in nets]
    return out


def defined(network: Any) -> xml.Network:
    """Return what the definition of a network says: what its next start makes."""
    return xml.read(parse(_definition(network)))


def _definition(network: Any) -> str:
    if not (network.isPersistent() and network.isActive()):
        return str(network.XMLDesc(0))
    try:
        return str(network.XMLDesc(libvirt.VIR_NETWORK_XML_INACTIVE))
    except libvirt.libvirtError as exc:
        # libvirt's test driver does not know the flag: it shows what runs.
        if exc.get_error_code() != libvirt.VIR_ERR_INVALID_ARG:
            raise
        return str(network.XMLDesc(0))


def define(conn: Any, wanted: xml.Network, *, autostart: bool, start: bool) -> None:
    """Define a network, and start it; one that cannot be started is not left defined."""
    if find(conn, wanted.name) is not None:
        raise LibvirtRefused(
            f"network {wanted.name!r} is there already; change it with virt.network_update"
        )
    network = conn.networkDefineXML(to_text(xml.build(wanted)))
    try:
        if autostart:
            network.setAutostart(1)
        if start:
            network.create()
    except libvirt.libvirtError as exc:
        network.undefine()
        raise LibvirtRefused(f"network {wanted.name!r} cannot be set up: {exc}") from exc


def update(conn: Any, wanted: xml.Network, *, is_test: bool = False) -> bool:
    """Have a network defined as wanted; return whether that changes its definition."""
    network = get(conn, wanted.name)
    old = defined(network)
    if network.isPersistent() and not xml.differs(wanted, old):
        return False
    if not is_test:
        conn.networkDefineXML(to_text(xml.build(xml.with_identity(wanted, old))))
    return True


def keep(
    conn: Any, wanted: xml.Network, *, autostart: bool, running: bool, is_test: bool
) -> tuple[str, str]:
    """
    Have a network defined as wanted, and started if it is to run.

    Returns what changes, "" for nothing, and a comment, both in 3006's words.
    """
    name = wanted.name
    found = find(conn, name)
    if found is None:
        if not is_test:
            define(conn, wanted, autostart=autostart, start=running)
        done = "defined" + (", marked for autostart" if autostart else "")
        end = " and started" if running else ""
        return f"Network {done}{end}", f"Network {name} {done}{end}"
    before = _definition(found), int(found.autostart())
    done = _redefined(conn, found, wanted, autostart=autostart, is_test=is_test)
    change, comment = (f"Network {done}" if done else ""), f"Network {name} {done or 'unchanged'}"
    if not running:
        return change, comment
    if found.isActive():
        return change, f"{comment} and is running"
    if not is_test:
        _start(conn, found, before if done else None)
    return (f"{change} and started" if change else "Network started"), f"{comment} and started"


def _start(conn: Any, network: Any, before: tuple[str, int] | None) -> None:
    """Start a network; if that fails, have its definition and its flag as they were before."""
    try:
        network.create()
    except libvirt.libvirtError as exc:
        if before is not None:
            conn.networkDefineXML(before[0])
            network.setAutostart(before[1])
        as_it_was = "" if before is None else ", and is defined as it was"
        why = f"network {network.name()!r} cannot be started{as_it_was}: {exc}"
        raise LibvirtRefused(why) from exc


def _redefined(
    conn: Any, found: Any, wanted: xml.Network, *, autostart: bool, is_test: bool
) -> str:
    """Have a network that is there defined as wanted; return what changes, "" for nothing."""
    steps = ["updated"] if update(conn, wanted, is_test=is_test) else []
    if bool(found.autostart()) != autostart:
        steps.append("autostart flag changed")
        if not is_test:
            found.setAutostart(int(autostart))
    return ", ".join(steps)


def remove(conn: Any, name: object, *, is_test: bool) -> str:
    """Stop and undefine a network; return what was done, "" if there is none."""
    network = find(conn, str(name))
    if network is None:
        return ""
    is_active, is_persistent = network.isActive(), network.isPersistent()
    used = xml.connections(parse(network.XMLDesc(0))) if is_active else 0
    if used:
        raise VirtError(
            f"network {name!r} has {used} interfaces of running VMs; stop the VMs or detach them"
        )
    if not is_test:
        if is_active:
            network.destroy()
        if is_persistent:
            network.undefine()
    steps = ["stopped"] * bool(is_active) + ["undefined"] * bool(is_persistent)
    return f"Network {' and '.join(steps)}"
