"""Remove a bridge; its addresses, routes and lease go to its one port."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saltvirt.net import bridgeplan, leases, links, managers, persistence, resolver, watchdog
from saltvirt.net.change import Change, Manager
from saltvirt.net.leases import Lease
from saltvirt.net.linkconfig import LinkConfig
from saltvirt.net.snapshot import Snapshot
from saltvirt.ops.bridge import confirm, lease


@dataclass(frozen=True, slots=True, kw_only=True)
class _Removal:
    """What is to be done to be without a bridge."""

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
    """Remove a bridge, or with ``is_test`` look what that would be; return the changes."""
    links.refuse_if_impossible()
    removal = _decide(name, persist_by)
    if removal.change and not is_test:
        _carry_out(opts, removal, removal.change, confirm_timeout_s)
    return removal.changes


def _decide(name: str, persist_by: str) -> _Removal:
    """Find out what is to be done; refuse what cannot be."""
    ports = tuple(links.ports_of(name))
    before = links.read((name, *ports))
    _name, manager = managers.find(persist_by, (name, *ports))
    changes: dict[str, Any] = dict.fromkeys(manager.files_of(name), "removed")
    held: Mapping[str, Lease] = {}
    heir = None
    if name in before["links"]:
        _refuse(before, name, ports)
        held = lease.held(manager, (name, *ports))
        wanted = bridgeplan.without(before, name, ports)
        changes = {**bridgeplan.describe(bridgeplan.operations(before, wanted)), **changes}
        if len(ports) == 1:
            heir = _heir(manager, before, wanted, ports[0], held)
    return _Removal(
        name=name,
        ports=ports,
        before=before,
        manager=manager,
        held=held,
        heir=heir,
        change=manager.forgetting(name, ports, heir) if changes else None,
        changes=changes,
    )


def _refuse(before: Snapshot, name: str, ports: Sequence[str]) -> None:
    if before["links"][name]["kind"] != "bridge":
        raise bridgeplan.BridgeRefused(f"{name!r} is not a bridge")
    # A definition may call a VM's link as it likes; the kernel knows what it is.
    kinds = {port: before["links"][port]["kind"] for port in ports if port in before["links"]}
    guests = [p for p in ports if p.startswith(("vnet", "tap")) or kinds.get(p) == "tun"]
    if guests:
        raise bridgeplan.BridgeRefused(f"VMs use {name!r} ({', '.join(guests)}); stop them first")


def _heir(
    manager: Manager, before: Snapshot, wanted: Snapshot, port: str, held: Mapping[str, Lease]
) -> LinkConfig:
    """Return what a bridge's port is given; refuse what would not be there after a reboot."""
    dhcp = leases.is_there(before, held)
    if dhcp:
        leases.refuse_idle(dhcp, manager.runs(), manager.title)
    bridgeplan.refuse_unmovable(before)
    if manager.writes_heir:
        persistence.refuse_unpersistable(wanted, port, dhcp)
    servers, search = resolver.configured()
    return persistence.link_config(
        wanted,
        port,
        ports=(),
        dhcp=dhcp,
        dns=servers,
        search=search,
        seen=persistence.seen(before),
        leased=[one.address for one in held.values()],
    )


def _carry_out(opts: Mapping[str, Any], removal: _Removal, change: Change, limit_s: int) -> None:
    leased = removal.heir if removal.heir and removal.heir.dhcp else None
    if leased:
        lease.refuse_unanswered(removal.before, removal.held, [removal.name])
    how = f"without {removal.name}"
    with confirm.safely(removal.before, removal.names, change, limit_s):
        change.before_links()
        if removal.name in removal.before["links"]:
            watchdog.settle(lambda: _take_apart(removal.name, removal.names))
            confirm.confirm(opts, limit_s, how)
        change.after_links()
        if leased:
            lease.wait(removal.manager, leased.name, removal.held)
        confirm.confirm(opts, limit_s, how)


def _take_apart(name: str, names: Sequence[str]) -> None:
    """Remove a bridge, or what its manager, which was told first, has left of it."""
    now = links.read(names)
    if name in now["links"]:
        links.execute(bridgeplan.operations(now, bridgeplan.without(now, name, names[1:])))
