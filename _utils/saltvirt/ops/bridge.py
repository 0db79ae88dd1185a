"""Make a bridge over ports that carry the host's own traffic, without ever losing the host."""

import socket
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from saltvirt import undo
from saltvirt.errors import BadArgument, VirtError
from saltvirt.net import guard, keepers, links, persist, plan

_RESOLVERS = ("/run/systemd/resolve/resolv.conf", "/etc/resolv.conf")
# The guard acts if the job itself did not: after the job's own time has passed.
_GRACE_S = 15


class NoWayBack(VirtError):
    """The master cannot be reached over the new bridge; everything was put back."""


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


def _nameservers():
    for path in map(Path, _RESOLVERS):
        if path.exists():
            rows = [line.split() for line in path.read_text().splitlines()]
            return tuple(row[1] for row in rows if row[:1] == ["nameserver"] and len(row) > 1)
    return ()


@dataclass(slots=True, kw_only=True)
class Work:
    """One run: look, plan, change under a guard, confirm, keep."""

    functions: object
    opts: dict
    request: Request
    _names: tuple = ()
    _before: dict = field(default_factory=dict)

    def look(self):
        """Return ``(steps, what is not kept yet, keeper, what to keep)``; refuse what cannot be."""
        links.refuse_if_impossible()
        bridge = self.request.bridge
        self._names = (bridge.name, *bridge.ports)
        self._before = links.read(self._names)
        plan.refuse_impossible(self._before, bridge, links.names())
        wanted = plan.target(self._before, bridge)
        manager, keeper = keepers.find(self.functions, self.request.persist)
        request = self.request
        kept = _kept(wanted, bridge.name, ports=bridge.ports, dhcp=request.dhcp, dns=request.dns,
                     vlans=bridge.vlans)  # fmt: skip
        if kept.vlan_filtering and manager in ("netplan", "ifupdown"):
            raise BadArgument("persist", f"{manager} cannot keep VLAN filtering of a bridge; give "
                              "persist=networkd or networkmanager")  # fmt: skip
        if manager == "networkmanager" and any(
            self._before["links"][port]["kind"] == "bond" for port in bridge.ports
        ):
            raise BadArgument("ports", "NetworkManager keeps a bond's master in the bond's own "
                              "connection: set it there, and give persist=none")  # fmt: skip
        return plan.operations(self._before, wanted), keeper.pending(kept), keeper, kept

    def plan(self):
        """Return the changes that :meth:`run` would make."""
        steps, pending, _keeper, _kept = self.look()
        return _changes(steps, pending)

    def run(self):
        """Make the bridge and keep it; return the changes, or put everything back and raise."""
        steps, pending, keeper, kept = self.look()
        if steps:
            self._change(steps, keeper, kept)
        elif pending:
            keeper.keep(kept)
        return _changes(steps, pending)

    def _change(self, steps, keeper, kept):
        limit_s, how = self.request.confirm_timeout_s, f"over {self.request.bridge.name}"
        master = master_address(self.opts)
        if master and not is_reached(master, limit_s):
            raise NoWayBack(f"the master {master[0]} cannot be reached before anything is changed, "
                            "so nothing could be confirmed; nothing was changed")  # fmt: skip
        with _safely(self._before, self._names, keeper, limit_s):
            links.execute(steps)
            _confirm(self.opts, limit_s, how)
            keeper.keep(kept)
            # A manager that runs has now read its files: the way must still be there.
            _confirm(self.opts, limit_s, how)


def remove(functions, opts, name, *, confirm_timeout_s, persist_by, is_test):
    """Remove a bridge; its addresses and routes go to its one port. Return the changes."""
    links.refuse_if_impossible()
    names = (name, *links.ports_of(name))
    before = links.read(names)
    _manager, keeper = keepers.find(functions, persist_by)
    forgotten = dict.fromkeys(keeper.kept_in(name), "removed")
    if name not in before["links"]:
        if forgotten and not is_test:
            keeper.forget(name, None)
        return forgotten
    if before["links"][name]["kind"] != "bridge":
        raise plan.BridgeRefused(f"{name!r} is no bridge")
    guests = [port for port in names[1:] if port.startswith(("vnet", "tap"))]
    if guests:
        raise plan.BridgeRefused(f"VMs use {name!r} ({', '.join(guests)}); stop them first")
    wanted = plan.without(before, name)
    steps = plan.operations(before, wanted)
    heir = _kept(wanted, names[1], dns=_nameservers()) if len(names) == 2 else None
    if not is_test:
        with _safely(before, names, keeper, confirm_timeout_s):
            links.execute(steps)
            _confirm(opts, confirm_timeout_s, f"without {name}")
            if forgotten:
                keeper.forget(name, heir)
            _confirm(opts, confirm_timeout_s, f"without {name}")
    return {**_changes(steps, {}), **forgotten}


@contextmanager
def _safely(before, names, keeper, limit_s):
    with (undo.on_sigterm(), undo.on_failure() as undone,
          guard.watched(before, names, 2 * limit_s + _GRACE_S)):  # fmt: skip
        undone.then(keeper.take_back)
        yield


def _confirm(opts, limit_s, how):
    master = master_address(opts)
    if master and not is_reached(master, limit_s):
        raise NoWayBack(f"the master {master[0]} cannot be reached {how} within {limit_s} s; "
                        "links, addresses, routes and files are as they were")  # fmt: skip


def _kept(wanted, name, *, ports=(), dhcp=None, dns=None, vlans=()):
    """Return what must be there after a reboot: a lease is kept by DHCP, the rest as it is."""
    made = wanted["links"][name]
    is_leased = any(a["valid_s"] is not None and ":" not in a["address"]
                    for a in made["addresses"])  # fmt: skip
    dhcp = is_leased if dhcp is None else dhcp
    static = [a["address"] for a in made["addresses"]
              if a["valid_s"] is None and a["scope"] == 0]  # fmt: skip
    routes = [r for r in wanted["routes"] if r["oif"] == name and r["gateway"]
              and r["table"] == 254]  # fmt: skip
    options = made["bridge"] or {}
    found = () if dhcp else _nameservers()
    return persist.Kept(
        name=name,
        ports=ports,
        dhcp=dhcp,
        addresses=tuple(() if dhcp else static),
        gateways=tuple(r["gateway"] for r in routes if r["dst"] == "default" and not dhcp),
        routes=tuple((r["dst"], r["gateway"]) for r in routes if r["dst"] != "default"),
        dns=found if dns is None else dns,
        mtu=made["mtu"],
        mac=made["mac"],
        stp=bool(options.get("stp", 0)),
        forward_delay_s=int(options.get("forward_delay_cs", 0)) // 100,
        vlan_filtering=bool(options.get("vlan_filtering", 0)),
        vlans=vlans,
        iaid=_iaid((*ports, name)) if dhcp else None,
    )


def _iaid(names):
    """Return the number by which systemd-networkd asked for a lease of these links, or None."""
    for name in names:
        index = Path(f"/sys/class/net/{name}/ifindex")
        lease = Path("/run/systemd/netif/leases") / (index.read_text().strip() or "0")
        for line in lease.read_text().splitlines() if index.exists() and lease.exists() else ():
            # RFC 4361: ff, four bytes of the number, then the host's own identifier.
            if line.startswith("CLIENTID=ff") and len(line) > len("CLIENTID=ff") + 8:
                return int(line.removeprefix("CLIENTID=ff")[:8], 16)
    return None


def _changes(steps, pending):
    return {**plan.describe(steps), **dict.fromkeys(pending, "written")}
