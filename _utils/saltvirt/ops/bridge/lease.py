"""The lease of a port that a bridge takes over: whether it can be, and whether it has been."""

import time
from collections.abc import Iterable, Mapping

from saltvirt.errors import VirtError
from saltvirt.net import dhcp
from saltvirt.net.change import Manager
from saltvirt.net.leases import Lease
from saltvirt.net.snapshot import Snapshot

# A server that looks whether an address is in use before it gives it takes a few seconds.
_LEASE_S = 20


class LeaseLost(VirtError):
    """Nobody would renew the lease, or the server gave another; everything was put back."""


def read_leases(manager: Manager, names: Iterable[str]) -> dict[str, Lease]:
    """Return ``{link: lease}`` of the leases that the host's manager renews."""
    all_leases = {name: manager.lease(name) for name in names}
    return {name: lease for name, lease in all_leases.items() if lease}


def client_id(leases: Mapping[str, Lease]) -> str | None:
    """Return by what the server knows who has the lease, None if there is none."""
    return next((lease.client_id for lease in leases.values()), None)


def refuse_unanswered(
    old_snapshot: Snapshot, leases: Mapping[str, Lease], names: Iterable[str]
) -> None:
    """Raise LeaseLost if no DHCP server would give the lease again; nothing was changed yet."""
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
    """Wait until a link's lease is in its manager's hands, with the address that it had before."""
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
