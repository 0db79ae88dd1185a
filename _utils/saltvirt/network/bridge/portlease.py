"""Check that a bridge can take over a port's DHCP lease, and that it has."""

import time
from collections.abc import Iterable, Mapping

from saltvirt.core.errors import VirtError
from saltvirt.network.bridge import dhcp
from saltvirt.network.bridge.leases import Lease
from saltvirt.network.bridge.snapshot import Snapshot
from saltvirt.network.managers.change import Manager

# A server that probes an address before it offers it takes a few seconds.
_LEASE_S = 20


class LeaseLost(VirtError):
    """The lease would be lost, or its address would change; nothing stays changed."""


def read_leases(manager: Manager, names: Iterable[str]) -> dict[str, Lease]:
    """Return ``{link: lease}`` of the leases that the host's manager renews."""
    all_leases = {name: manager.lease(name) for name in names}
    return {name: lease for name, lease in all_leases.items() if lease}


def client_id(leases: Mapping[str, Lease]) -> str | None:
    """Return the DHCP client id of the first lease, None without a lease."""
    return next((lease.client_id for lease in leases.values()), None)


def refuse_unanswered(
    old_snapshot: Snapshot, leases: Mapping[str, Lease], names: Iterable[str]
) -> None:
    """Raise LeaseLost if no DHCP server offers the lease again; change nothing."""
    for link in (name for name in names if name in leases):
        old_lease, mac = leases[link], old_snapshot["links"][link]["mac"] or ""
        address = dhcp.request_offer(link, mac, old_lease.client_id)
        if address is None:
            raise LeaseLost(
                f"no DHCP server answers over {link}, so its lease could not be "
                "taken over; nothing was changed"
            )
        if old_lease.client_id and address != old_lease.address:
            raise LeaseLost(
                f"the DHCP server would give {address} instead of {old_lease.address}: "
                f"reserve that for {mac}, or make it static; nothing was changed"
            )


def wait_for_lease(manager: Manager, link: str, leases: Mapping[str, Lease]) -> None:
    """Wait until the manager has a link's lease; raise LeaseLost without the old address."""
    old_addresses = {lease.address for lease in leases.values()}
    deadline = time.monotonic() + _LEASE_S
    while not (lease := manager.lease(link)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if lease is None:
        raise LeaseLost(
            f"{manager.title} has no lease for {link} after {_LEASE_S} s; links, "
            "addresses, routes and files are as they were"
        )
    if old_addresses and lease.address not in old_addresses:
        raise LeaseLost(
            f"the DHCP server gives {link} the address {lease.address} instead of "
            f"{', '.join(sorted(old_addresses))}: reserve it there for this MAC, or give "
            "addresses; everything is as it was"
        )
