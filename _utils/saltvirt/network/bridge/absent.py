"""Remove a bridge; its addresses, routes and lease go to its only port."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saltvirt.network.bridge import bridgeplan, confirm, leases, links, portlease, present
from saltvirt.network.bridge.leases import Lease
from saltvirt.network.bridge.snapshot import Snapshot
from saltvirt.network.managers import managers, persistence
from saltvirt.network.managers.change import Change, Manager
from saltvirt.network.managers.linkconfig import LinkConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class _Removal:
    """The steps that remove a bridge."""

    name: str
    ports: tuple[str, ...]
    before: Snapshot
    manager: Manager
    held: Mapping[str, Lease]
    heir: LinkConfig | None
    change: Change | None
    changes: dict[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the links that take part."""
        return (self.name, *self.ports)


def remove(
    opts: Mapping[str, Any],
    name: str,
    *,
    confirm_timeout_s: int,
    persist_by: str,
    is_test: bool,
) -> dict[str, Any]:
    """Remove a bridge, unless ``is_test``; return the changes."""
    links.refuse_if_impossible()
    removal = _decide(name, persist_by)
    if removal.change and not is_test:
        _carry_out(opts, removal, removal.change, confirm_timeout_s)
    return removal.changes


def _decide(name: str, persist_by: str) -> _Removal:
    """Return the steps that remove a bridge; refuse what is impossible."""
    ports = tuple(links.ports_of(name))
    old_snapshot = links.read((name, *ports))
    _name, manager = managers.find(persist_by, (name, *ports))
    changes: dict[str, Any] = dict.fromkeys(manager.files_of(name), "removed")
    leases_by_link: Mapping[str, Lease] = {}
    port_config = None
    if name in old_snapshot["links"]:
        _refuse(old_snapshot, name, ports)
        leases_by_link = portlease.read_leases(manager, (name, *ports))
        target = bridgeplan.without_bridge(old_snapshot, name, ports)
        changes = {**bridgeplan.describe(bridgeplan.operations(old_snapshot, target)), **changes}
        if len(ports) == 1:
            port_config = _port_config(manager, old_snapshot, target, ports[0], leases_by_link)
    return _Removal(
        name=name,
        ports=ports,
        before=old_snapshot,
        manager=manager,
        held=leases_by_link,
        heir=port_config,
        change=manager.forgetting(name, ports, port_config) if changes else None,
        changes=changes,
    )


def _refuse(old_snapshot: Snapshot, name: str, ports: Sequence[str]) -> None:
    if old_snapshot["links"][name]["kind"] != "bridge":
        raise bridgeplan.BridgeRefused(f"{name!r} is not a bridge")
    # A definition may give a VM's link any name; the kernel knows its kind.
    kinds = {
        port: old_snapshot["links"][port]["kind"] for port in ports if port in old_snapshot["links"]
    }
    guests = [
        port_name
        for port_name in ports
        if port_name.startswith(("vnet", "tap")) or kinds.get(port_name) == "tun"
    ]
    if guests:
        raise bridgeplan.BridgeRefused(f"VMs use {name!r} ({', '.join(guests)}); stop them first")


def _port_config(
    manager: Manager,
    old_snapshot: Snapshot,
    target: Snapshot,
    port: str,
    leases_by_link: Mapping[str, Lease],
) -> LinkConfig:
    """Return the port's configuration without the bridge; refuse what a reboot would lose."""
    dhcp = leases.is_any_leased(old_snapshot, leases_by_link)
    if dhcp:
        leases.refuse_idle(dhcp, manager.runs(), manager.title)
    bridgeplan.refuse_unmovable(old_snapshot)
    if manager.writes_heir:
        persistence.refuse_unpersistable(target, port, dhcp)
    servers, search = present.read_resolver()
    return persistence.link_config(
        target,
        port,
        ports=(),
        dhcp=dhcp,
        dns=servers,
        search=search,
        seen=persistence.list_destinations(old_snapshot),
        leased=[link_lease.address for link_lease in leases_by_link.values()],
    )


def _carry_out(opts: Mapping[str, Any], removal: _Removal, change: Change, limit_s: int) -> None:
    dhcp_port = removal.heir if removal.heir and removal.heir.dhcp else None
    if dhcp_port:
        portlease.refuse_unanswered(removal.before, removal.held, [removal.name])
    condition = f"without {removal.name}"
    with confirm.watch_change(removal.before, removal.names, change, limit_s):
        change.before_links()
        if removal.name in removal.before["links"]:
            confirm.settle(lambda: _take_apart(removal.name, removal.names))
            confirm.confirm(opts, limit_s, condition)
        change.after_links()
        if dhcp_port:
            portlease.wait_for_lease(removal.manager, dhcp_port.name, removal.held)
        confirm.confirm(opts, limit_s, condition)


def _take_apart(name: str, names: Sequence[str]) -> None:
    """Remove what is left of a bridge after its manager has acted."""
    snapshot = links.read(names)
    if name in snapshot["links"]:
        links.execute(
            bridgeplan.operations(snapshot, bridgeplan.without_bridge(snapshot, name, names[1:]))
        )
