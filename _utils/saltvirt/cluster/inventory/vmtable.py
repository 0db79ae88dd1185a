"""The table of ``salt-run virt.list``: the VMs of all hosts, and those last seen on silent ones."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.cluster import minionaddresses
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import lastlisted, listing
from saltvirt.cluster.inventory.listing import Look
from saltvirt.cluster.progress import format_age, format_s
from saltvirt.cluster.rpc import waits
from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.findings import NO_ANSWER
from saltvirt.core.units import MIB
from saltvirt.core.vmfilter import VmFilter
from saltvirt.placement.shownvms import ListedVm

TITLES = ("NAME", "HOST", "STATE", "CPU", "MEMORY", "DISK", "ADDRESS", "AGE")
SIZES = ("MEMORY", "DISK")
# For so many VMs without a lease the master's grains are read: each is a file.
_MOST_GRAINS = 1000
# The mark of an address that only the untrusted VM vouches for.
_OF_THE_VM = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """
    One VM.

    is_past
        Whether this is how the VM was when its host last answered.
    """

    name: str
    host: str
    row: ListedVm | None
    is_past: bool = False

    @property
    def state(self) -> str:
        if not self.is_past:
            return self.row.state if self.row else ""
        return f"was {self.row.state}" if self.row else "last seen there"


# The keys of ``sort`` beside those of hosts; sizes and ages in descending order.
SORT_KEYS: Mapping[str, Callable[[_Line], Any]] = {
    "name": lambda line: (),
    "state": lambda line: line.state,
    "cpu": lambda line: -(line.row.cpu if line.row else 0),
    "memory": lambda line: -(line.row.mem_mib if line.row else 0),
    "disk": lambda line: -((line.row and line.row.disk_mib) or 0),
    "age": lambda line: (line.row and line.row.created) or 0,
}


def split_sort(sort: Any) -> tuple[str | None, Any]:
    """Return a call's ``sort`` as a key of VMs, or as one of hosts; the other is None."""
    return (sort, None) if sort in SORT_KEYS else (None, sort)


def show(cloud: Cloud, look: Look, vm_sort: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """
    Return the answer of ``virt.list``, and its view, see :mod:`saltvirt.entry.views`.

    vm_sort
        A key of :data:`SORT_KEYS`. Without it the VMs are sorted by name, or by hosts if the look
        sorts these.
    """
    answer, rows_by_host = listing.listed_rows(cloud, look)
    lines = [
        _Line(name=name, host=host, row=row)
        for host, rows in rows_by_host.items()
        for name, row in sorted(rows.items())
    ]
    last_seen = answer.get("last_seen", {})
    lines += _past_lines(cloud, look, last_seen)
    if vm_sort is not None or look.sort == "host":
        lines.sort(key=lambda line: (SORT_KEYS[vm_sort or "name"](line), line.name, line.host))
    addresses, is_whole = _addresses(cloud, lines)
    now = time.time()
    said = _host_lines(cloud, answer, now)
    if addresses:
        said.append(f"{_OF_THE_VM} after an address: the VM itself has reported it")
    if not is_whole:
        said.append(
            f"addresses that only the VMs' minions know are shown for {_MOST_GRAINS} VMs at most; "
            "choose VMs by name= or host="
        )
    if not lines:
        said.insert(0, "no such VMs" if look.vms.is_narrow or look.hosts else "no VMs")
    return answer, {
        "titles": list(TITLES),
        "rows": [_row(line, addresses, now) for line in lines],
        "sizes": list(SIZES),
        "said": said,
    }


def _past_lines(cloud: Cloud, look: Look, last_seen: Mapping[str, list[str]]) -> list[_Line]:
    """Return the VMs of hosts without an answer, as far as they pass for those of the call."""
    rows_by_host = lastlisted.read(cloud.opts, last_seen)
    state_filter = VmFilter(state=look.vms.state)
    lines = [
        _Line(name=name, host=host, row=rows_by_host.get(host, {}).get(name), is_past=True)
        for host, names in sorted(last_seen.items())
        for name in names
    ]
    # Nobody knows the tags of these.
    return [
        line
        for line in lines
        if not look.vms.tag and state_filter.takes(line.name, line.row.state if line.row else "")
    ]


def _addresses(cloud: Cloud, lines: list[_Line]) -> tuple[dict[str, str], bool]:
    """Return ``{name: address}`` by the master's grains, and whether all were looked up."""
    without = [
        line.name
        for line in lines
        if line.row and not line.is_past and line.row.state == "running" and not line.row.address
    ]
    found = minionaddresses.read_first(cloud.opts, without[:_MOST_GRAINS])
    return found, len(without) <= _MOST_GRAINS


def _row(line: _Line, addresses: Mapping[str, str], now: float) -> list[Any]:
    row = line.row or ListedVm(state="")
    address = row.address
    if not address and not line.is_past and line.name in addresses:
        address = f"{addresses[line.name]} {_OF_THE_VM}"
    return [
        line.name,
        line.host,
        line.state,
        row.cpu or None,
        row.mem_mib * MIB or None,
        row.disk_mib * MIB if row.disk_mib is not None else None,
        address,
        format_age(now - row.created) if row.created else None,
    ]


def _host_lines(cloud: Cloud, answer: Mapping[str, Any], now: float) -> list[str]:
    """Return why hosts gave no answer, and which VMs several hosts have."""
    since, last_seen = waits.silent_since(cloud.opts), answer.get("last_seen", {})
    reasons = {
        host: f"{NO_ANSWER} (for {format_s(max(0.0, now - since[host]))})"
        if host in since
        else NO_ANSWER
        for host in answer.get("unreachable", ())
    }
    reasons |= answer.get("failed", {})
    reasons = {
        **{host: "is no hypervisor of this master any more" for host in last_seen},
        **reasons,
    }
    out = [
        f"{host}: {reason}" + (f"; {_past_text(last_seen[host])}" if host in last_seen else "")
        for host, reason in sorted(reasons.items())
    ]
    for name, hosts in sorted(answer.get("duplicates", {}).items()):
        out.append(f"VM {name!r} is on {' and '.join(hosts)}: remove all but one, on their hosts")
    return out


def _past_text(names: list[str]) -> str:
    is_one = len(names) == 1
    return f"its {'VM is' if is_one else f'{len(names)} VMs are'} shown as last seen"


def is_vm_name(cloud: Cloud, first: Any, name: Any) -> bool:
    """
    Return whether the first argument of ``virt.list`` means VMs: if no hypervisor matches it.

    name
        The call's ``name``; if it is given, the first argument means hosts.
    """
    if first is None or name is not None:
        return False
    try:
        listing.select_hosts(cloud, Look(hosts=arguments.names("host", first)))
    except BadArgument:
        return True
    return False


def refuse_unknown(first: Any, vms: VmFilter, answer: Mapping[str, Any]) -> None:
    """
    Raise BadArgument if an argument that is no hypervisor is no VM's name either.

    Its VMs may have other states and tags than those of the call, which is no mistake then.
    """
    if not (vms.state or vms.tag) and not set(answer) - {"unreachable", "failed"}:
        raise BadArgument(
            "host",
            f"{first!r} matches no hypervisor and no VM; salt-run virt.list shows all VMs, "
            "salt-run virt.host_info all hypervisors",
        )
