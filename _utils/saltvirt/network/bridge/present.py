"""Make a bridge over ports with the host's own traffic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt.core.errors import BadArgument
from saltvirt.network.bridge import bridgeplan, confirm, leases, links, portlease
from saltvirt.network.bridge.leases import Lease
from saltvirt.network.bridge.snapshot import Snapshot
from saltvirt.network.managers import managers, persistence
from saltvirt.network.managers.change import Manager
from saltvirt.network.managers.linkconfig import LinkConfig

_PATHS = ("/run/systemd/resolve/resolv.conf", "/etc/resolv.conf")


def read_resolver() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return this host's present name servers and search domains."""
    path = next((path for path in map(Path, _PATHS) if path.exists()), None)
    rows = [line.split() for line in path.read_text().splitlines()] if path else []
    all_servers = [row[1] for row in rows if row[:1] == ["nameserver"] and len(row) > 1]
    # A link-local server (fe80::1%eth0) comes from router advertisements of one link.
    servers = [server for server in all_servers if "%" not in server]
    return tuple(servers), tuple(domain for domain in _search(rows) if domain != ".")


def _search(rows: Sequence[list[str]]) -> list[str]:
    """Return the search domains of the last line that has them."""
    domain_lists = [row[1:] for row in rows if row[:1] in (["search"], ["domain"])]
    return domain_lists[-1] if domain_lists else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A bridge as a state requests it."""

    bridge: bridgeplan.Bridge
    dhcp: bool | None = None
    dns: tuple[str, ...] | None = None
    persist: str = "auto"
    confirm_timeout_s: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The steps for a request, and the configuration that survives a reboot."""

    request: Request
    before: Snapshot
    steps: list[bridgeplan.Step]
    manager: Manager
    config: LinkConfig
    held: Mapping[str, Lease]
    pending: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the links that take part."""
        return (self.config.name, *self.config.ports)

    @property
    def has_lease_to_take(self) -> bool:
        """Return whether the bridge uses DHCP, and its manager has no lease for it yet."""
        return self.config.dhcp and self.config.name not in self.held

    def changes(self) -> dict[str, Any]:
        """Return the changes as users read them; empty if all is in order."""
        name = self.config.name
        out: dict[str, Any] = {
            **bridgeplan.describe(self.steps),
            **dict.fromkeys(self.pending, "written"),
        }
        if self.has_lease_to_take:
            lease_note = f"its lease is renewed by {self.manager.title}"
            out[name] = [*out.get(name, []), lease_note]
        return out


def decide(request: Request) -> Decision:
    """Return the steps for a request; refuse what is impossible."""
    links.refuse_if_impossible()
    bridge = request.bridge
    names = (bridge.name, *bridge.ports)
    old_snapshot = links.read(names)
    bridgeplan.refuse_impossible(old_snapshot, bridge, links.names())
    if bridge.gateway is not None:
        other_links = links.read(set(links.names()).difference(names))
        bridgeplan.refuse_displacing(bridge.gateway, other_links["routes"])
    target = bridgeplan.target(old_snapshot, bridge)
    kind, manager = managers.find(request.persist, names)
    leases_by_link = portlease.read_leases(manager, names)
    is_leased = leases.is_any_leased(old_snapshot, leases_by_link)
    dhcp = leases.uses_dhcp(request.dhcp, bridge.addresses, is_leased)
    leases.refuse_foreign(old_snapshot, leases_by_link, bridge.name, manager.title)
    if kind != "none" or dhcp:
        leases.refuse_idle(dhcp, manager.runs(), manager.title)
        persistence.refuse_unpersistable(target, bridge.name, dhcp)
    config = persistence.link_config(
        target,
        bridge.name,
        ports=bridge.ports,
        vlans=bridge.vlans,
        dhcp=dhcp,
        leased=[link_lease.address for link_lease in leases_by_link.values()],
        is_new_lease=dhcp and not is_leased and bridge.addresses is None,
        client_id=portlease.client_id(leases_by_link) if dhcp else None,
        seen=persistence.list_destinations(old_snapshot),
        **_resolver(request, dhcp),
    )
    _refuse_unsupported(kind, config, old_snapshot)
    return Decision(
        request=request,
        before=old_snapshot,
        steps=bridgeplan.operations(old_snapshot, target),
        manager=manager,
        config=config,
        held=leases_by_link,
        pending=manager.pending(config),
    )


def _resolver(request: Request, dhcp: bool) -> dict[str, Any]:
    """Return the name servers and search domains to keep; with DHCP the lease gives them."""
    servers, search = ((), ()) if dhcp else read_resolver()
    return {
        "dns": servers if request.dns is None else request.dns,
        "search": search,
        "is_dns_asked": request.dns is not None,
    }


def _refuse_unsupported(kind: str, config: LinkConfig, old_snapshot: Snapshot) -> None:
    """Raise BadArgument for settings that a kind of manager cannot keep."""
    if config.vlan_filtering and kind in ("netplan", "ifupdown"):
        raise BadArgument(
            "persist",
            f"{kind} cannot keep VLAN filtering of a bridge; give persist=networkd or "
            "networkmanager",
        )
    kinds = {old_snapshot["links"][port]["kind"] for port in config.ports}
    if kind == "networkmanager" and "bond" in kinds:
        raise BadArgument(
            "ports",
            "NetworkManager keeps a bond's master in the bond's own "
            "connection: set it there, and give persist=none",
        )


def make(opts: Mapping[str, Any], request: Request, *, is_test: bool) -> dict[str, Any]:
    """Make the bridge and persist it; return the changes, or put everything back and raise."""
    decision = decide(request)
    changes = decision.changes()
    if changes and not is_test:
        _carry_out(opts, decision)
    return changes


def _carry_out(opts: Mapping[str, Any], decision: Decision) -> None:
    config, limit_s = decision.config, decision.request.confirm_timeout_s
    condition = f"over {config.name}"
    confirm.refuse_unconfirmable(opts, limit_s)
    if decision.has_lease_to_take:
        portlease.refuse_unanswered(decision.before, decision.held, config.ports)
    change = decision.manager.persisting(config)
    with confirm.watch_change(decision.before, decision.names, change, limit_s):
        change.before_links()
        links.execute(decision.steps)
        confirm.confirm(opts, limit_s, condition)
        change.after_links()
        if config.dhcp:
            portlease.wait_for_lease(decision.manager, config.name, decision.held)
        # A running manager has now taken over the bridge, so check once more.
        confirm.confirm(opts, limit_s, condition)
