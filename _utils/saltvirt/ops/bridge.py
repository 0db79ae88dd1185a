"""Make a bridge over ports that carry the host's own traffic, without ever losing the host."""

import socket
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from saltvirt import undo
from saltvirt.errors import BadArgument, VirtError
from saltvirt.net import guard, keepers, lasting, leases, links, plan, probe

_RESOLVERS = ("/run/systemd/resolve/resolv.conf", "/etc/resolv.conf")
# The guard acts if the job itself did not: after the job's own time has passed.
_GRACE_S = 90
# A server that looks whether an address is in use before it gives it takes a few seconds.
_LEASE_S = 20


class NoWayBack(VirtError):
    """The master cannot be reached over the new bridge; everything was put back."""


class LeaseLost(VirtError):
    """Nobody would renew the lease, or the server gave another; everything was put back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A bridge as a state asked for it."""

    bridge: plan.Bridge
    dhcp: bool | None = None
    dns: tuple[str, ...] | None = None
    persist: str = "auto"
    confirm_timeout_s: int = 30


def master_address(opts):
    """Return ``(address, port)`` of the minion's master, None for a minion without one."""
    if opts.get("file_client") == "local" and not opts.get("master_uri"):
        return None
    uri = opts.get("master_uri") or ""
    host, _colon, port = uri.removeprefix("tcp://").rpartition(":")
    if host and port.isdigit():
        return host.strip("[]"), int(port)
    master = opts.get("master")
    if not isinstance(master, str):
        return None
    return master, int(opts.get("master_port", 4506))


def is_reached(address, timeout_s):
    """Return whether the master takes a connection within ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection(address, timeout=min(2, left)):
                return True
        except OSError:
            time.sleep(min(0.3, left))
    return False


def _resolver():
    """Return the name servers and the search domains that this host has now."""
    for path in map(Path, _RESOLVERS):
        if path.exists():
            rows = [line.split() for line in path.read_text().splitlines()]
            found = [row[1:] for row in rows if row[:1] in (["search"], ["domain"])]
            return (tuple(row[1] for row in rows if row[:1] == ["nameserver"] and len(row) > 1),
                    tuple(d for d in (found or [[]])[-1] if d != "."))  # fmt: skip
    return (), ()


@dataclass(slots=True, kw_only=True)
class Work:
    """One run: look, plan, change under a guard, confirm, keep."""

    opts: dict
    request: Request
    kept: object = None
    _names: tuple = ()
    _before: dict = field(default_factory=dict)
    _keeper: object = None
    _held: dict = field(default_factory=dict)
    _steps: list = field(default_factory=list)
    _pending: dict = field(default_factory=dict)

    def look(self):
        """Find out what is to be done, and keep it here; refuse what cannot be."""
        links.refuse_if_impossible()
        request, bridge = self.request, self.request.bridge
        self._names = (bridge.name, *bridge.ports)
        self._before = links.read(self._names)
        plan.refuse_impossible(self._before, bridge, links.names())
        wanted = plan.target(self._before, bridge)
        manager, self._keeper = keepers.find(request.persist, self._names)
        held = _held(self._keeper, self._names)
        title, leased = self._keeper.title, leases.is_there(self._before, held)
        dhcp = leases.is_kept(request.dhcp, bridge.addresses, leased)
        leases.refuse_foreign(self._before, held, bridge.name, title)
        if manager != "none" or dhcp:
            leases.refuse_idle(dhcp, self._keeper.runs(), title)
            lasting.refuse_unkeepable(wanted, bridge.name, dhcp)
        self.kept = lasting.kept(
            wanted, bridge.name, ports=bridge.ports, vlans=bridge.vlans, dhcp=dhcp,
            leased=[lease.address for lease in held.values()],
            is_new_lease=dhcp and not leased and bridge.addresses is None,
            client_id=_client_id(held) if dhcp else None, seen=lasting.seen(self._before),
            **_asked(request, dhcp))  # fmt: skip
        if self.kept.vlan_filtering and manager in ("netplan", "ifupdown"):
            raise BadArgument("persist", f"{manager} cannot keep VLAN filtering of a bridge; give "
                              "persist=networkd or networkmanager")  # fmt: skip
        if manager == "networkmanager" and any(
            self._before["links"][port]["kind"] == "bond" for port in bridge.ports
        ):
            raise BadArgument("ports", "NetworkManager keeps a bond's master in the bond's own "
                              "connection: set it there, and give persist=none")  # fmt: skip
        self._steps = plan.operations(self._before, wanted)
        self._pending = self._keeper.pending(self.kept)
        self._held = held

    def plan(self):
        """Return the changes that :meth:`run` would make."""
        self.look()
        changes = _changes(self._steps, self._pending)
        if self._is_lease_to_take():
            taken = f"its lease is renewed by {self._keeper.title}"
            changes[self.kept.name] = [*changes.get(self.kept.name, []), taken]
        return changes

    def _is_lease_to_take(self):
        return self.kept.dhcp and self.kept.name not in self._held

    def run(self):
        """Make the bridge and keep it; return the changes, or put everything back and raise."""
        changes = self.plan()
        if changes:
            self._change()
        return changes

    def _change(self):
        limit_s, how = self.request.confirm_timeout_s, f"over {self.request.bridge.name}"
        master = master_address(self.opts)
        if master and not is_reached(master, limit_s):
            raise NoWayBack(f"the master {master[0]} cannot be reached before anything is changed, "
                            "so nothing could be confirmed; nothing was changed")  # fmt: skip
        if self._is_lease_to_take():
            _refuse_unanswered(self._before, self._held, self.request.bridge.ports)
        change = self._keeper.keeping(self.kept)
        with _safely(self._before, self._names, change, limit_s):
            change.before_links()
            links.execute(self._steps)
            _confirm(self.opts, limit_s, how)
            change.after_links()
            if self.kept.dhcp:
                _await_lease(self._keeper, self.kept.name, self._held)
            # A manager that runs has now taken the bridge: the way must still be there.
            _confirm(self.opts, limit_s, how)


def remove(opts, name, *, confirm_timeout_s, persist_by, is_test):
    """Remove a bridge; its addresses, routes and lease go to its one port. Return the changes."""
    links.refuse_if_impossible()
    names = (name, *links.ports_of(name))
    before = links.read(names)
    _manager, keeper = keepers.find(persist_by, names)
    forgotten = dict.fromkeys(keeper.kept_in(name), "removed")
    if name not in before["links"]:
        if forgotten and not is_test:
            change = keeper.forgetting(name, (), None)
            with _safely(before, names, change, confirm_timeout_s):
                change.before_links()
                change.after_links()
                _confirm(opts, confirm_timeout_s, f"without {name}")
        return forgotten
    _refuse_removal(before, name, names[1:])
    held = _held(keeper, names)
    wanted = plan.without(before, name, names[1:])
    steps = plan.operations(before, wanted)
    heir = None
    if len(names) == 2:
        heir = _heir(keeper, before, wanted, names[1], held)
    change = keeper.forgetting(name, names[1:], heir)
    if not is_test:
        if heir and heir.dhcp:
            _refuse_unanswered(before, held, [name])
        with _safely(before, names, change, confirm_timeout_s):
            change.before_links()
            guard.settle(lambda: _take_apart(name, names))
            _confirm(opts, confirm_timeout_s, f"without {name}")
            change.after_links()
            if heir and heir.dhcp:
                _await_lease(keeper, heir.name, held)
            _confirm(opts, confirm_timeout_s, f"without {name}")
    return {**_changes(steps, {}), **forgotten}


def _heir(keeper, before, wanted, port, held):
    """Return what a bridge's port is given; refuse what would not be there after a reboot."""
    dhcp = leases.is_there(before, held)
    if dhcp:
        leases.refuse_idle(dhcp, keeper.runs(), keeper.title)
    plan.refuse_unmovable(before)
    if keeper.writes_heir:
        lasting.refuse_unkeepable(wanted, port, dhcp)
    servers, search = _resolver()
    return lasting.kept(wanted, port, ports=(), dhcp=dhcp, dns=servers, search=search,
                        seen=lasting.seen(before),
                        leased=[lease.address for lease in held.values()])  # fmt: skip


def _refuse_removal(before, name, ports):
    if before["links"][name]["kind"] != "bridge":
        raise plan.BridgeRefused(f"{name!r} is no bridge")
    guests = [port for port in ports if port.startswith(("vnet", "tap"))]
    if guests:
        raise plan.BridgeRefused(f"VMs use {name!r} ({', '.join(guests)}); stop them first")


def _take_apart(name, names):
    """Remove a bridge, or what its manager, which was told first, has left of it."""
    now = links.read(names)
    if name in now["links"]:
        links.execute(plan.operations(now, plan.without(now, name, names[1:])))


@contextmanager
def _safely(before, names, change, limit_s):
    with undo.on_sigterm(), guard.watched(before, names, change, 2 * limit_s + _GRACE_S):
        yield


def _held(keeper, names):
    """Return ``{link: lease}`` of the leases that the host's manager renews."""
    found = {name: keeper.lease(name) for name in names}
    return {name: lease for name, lease in found.items() if lease}


def _client_id(held):
    return next((lease.client_id for lease in held.values()), None)


def _refuse_unanswered(before, held, names):
    """Raise LeaseLost if no DHCP server would give the lease again; nothing was changed yet."""
    for link in (name for name in names if name in held):
        had, mac = held[link], before["links"][link]["mac"]
        address = probe.offered(link, mac, had.client_id)
        if address is None:
            raise LeaseLost(f"no DHCP server answers over {link}, so its lease could not be "
                            "taken over; nothing was changed")  # fmt: skip
        if had.client_id and address != had.address:
            raise LeaseLost(f"the DHCP server would give {address} instead of {had.address}: "
                            f"reserve that for {mac}, or make it static; nothing was changed")


def _await_lease(keeper, link, held):
    """Wait until a link's lease is in its manager's hands, with the address that it had before."""
    had = {lease.address for lease in held.values()}
    deadline = time.monotonic() + _LEASE_S
    while not (lease := keeper.lease(link)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if lease is None:
        raise LeaseLost(f"{keeper.title} has no lease for {link} after {_LEASE_S} s; links, "
                        "addresses, routes and files are as they were")  # fmt: skip
    if had and lease.address not in had:
        raise LeaseLost(f"the DHCP server gives {link} the address {lease.address} instead of "
                        f"{', '.join(sorted(had))}: reserve it there for this MAC, or give "
                        "addresses; everything is as it was")  # fmt: skip


def _confirm(opts, limit_s, how):
    master = master_address(opts)
    if master and not is_reached(master, limit_s):
        raise NoWayBack(f"the master {master[0]} cannot be reached {how} within {limit_s} s; "
                        "links, addresses, routes and files are as they were")  # fmt: skip


def _asked(request, dhcp):
    """Return the name servers and search domains to be kept; a lease brings its own."""
    servers, search = ((), ()) if dhcp else _resolver()
    return {"dns": servers if request.dns is None else request.dns, "search": search,
            "is_dns_asked": request.dns is not None}  # fmt: skip


def _changes(steps, pending):
    return {**plan.describe(steps), **dict.fromkeys(pending, "written")}
