"""
DHCP leases of links as each client records them, and the checks that depend on them.

Pure functions; ``leases_by_link`` has the leases that the host's network manager renews.
"""

import ipaddress
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from saltvirt.core.errors import BadArgument
from saltvirt.network.bridge.snapshot import Snapshot

_LEASE_TIME = 51  # RFC 2132, section 9.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """An IPv4 lease that a client renews; ``client_id`` is the DHCP client identifier in hex."""

    address: str
    client_id: str | None = None
    lasts_s: int | None = None


def _lease(
    address: str | None, client_id: str | None = None, lasts: str | None = None
) -> Lease | None:
    try:
        address = str(ipaddress.IPv4Address(address or ""))
    except ValueError:
        return None
    client_id = (client_id or "").replace(":", "").lower()
    return Lease(
        address=address,
        client_id=client_id if re.fullmatch("([0-9a-f]{2})+", client_id) else None,
        lasts_s=int(lasts) if lasts and lasts.isdigit() else None,
    )


def from_networkd(text: str) -> Lease | None:
    """Return the lease in systemd-networkd's lease file of a link, or None."""
    rows = (line.partition("=") for line in text.splitlines())
    values = {key: value for key, _equals, value in rows}
    return _lease(values.get("ADDRESS"), values.get("CLIENTID"), values.get("LIFETIME"))


def from_networkctl(text: str) -> Lease | None:
    """Return the lease in the output of ``networkctl --json=short status``, or None."""
    status = json.loads(text)
    client = status.get("DHCPv4Client") or {}
    options = ((client.get("Lease") or {}).get("Message") or {}).get("options") or []
    lease_s = next(
        (int(entry["data"], 16) for entry in options if entry["tag"] == _LEASE_TIME), None
    )
    address = next(
        (
            entry.get("AddressString")
            for entry in status.get("Addresses") or []
            if entry.get("ConfigSource") == "DHCPv4"
        ),
        None,
    )
    return _lease(
        address,
        bytes(client.get("ClientIdentifier") or []).hex(),
        str(lease_s) if lease_s else None,
    )


def from_networkmanager(text: str) -> Lease | None:
    """Return the lease in the output of ``nmcli -t -f DHCP4 device show``, or None."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        _label, _colon, option = line.partition(":")
        key, _is, value = option.partition(" = ")
        values.setdefault(key, value)
    return _lease(
        values.get("ip_address"),
        values.get("dhcp_client_identifier"),
        values.get("dhcp_lease_time"),
    )


def from_dhclient(text: str) -> Lease | None:
    """Return the newest lease in a lease file of dhclient, or None; without a client id."""
    block = text.rpartition("lease {")[2]
    address = re.search(r"^\s*fixed-address ([0-9.]+);", block, re.MULTILINE)
    lasts = re.search(r"^\s*option dhcp-lease-time (\d+);", block, re.MULTILINE)
    return _lease(address and address[1], lasts=lasts and lasts[1])


def for_link(text: str, link: str) -> str:
    """Return dhclient's lease file for another link, with the same DUID and so the same address."""
    return re.sub(r'^(\s*interface) ".*";', rf'\1 "{link}";', text, flags=re.MULTILINE)


def _expiring_addresses(snapshot: Snapshot) -> list[str]:
    return [
        a["address"]
        for link in snapshot["links"].values()
        for a in link["addresses"]
        if a["valid_s"] is not None and ":" not in a["address"]
    ]


def is_any_leased(snapshot: Snapshot, leases_by_link: Mapping[str, Lease]) -> bool:
    """Return whether a link has a lease, or an IPv4 address with a limited lifetime."""
    return bool(leases_by_link or _expiring_addresses(snapshot))


def uses_dhcp(
    requested_dhcp: bool | None, addresses: Collection[str] | None, has_lease: bool
) -> bool:
    """
    Return whether a bridge uses DHCP: as requested, else if its ports have a lease.

    requested_dhcp, addresses
        ``dhcp`` and ``addresses`` of the state; None if not given.
    """
    if requested_dhcp is False and has_lease and addresses is None:
        raise BadArgument(
            "dhcp",
            "False on a host whose address is leased: give the addresses " "that it shall have",
        )
    return has_lease and addresses is None if requested_dhcp is None else requested_dhcp


def refuse_foreign(
    snapshot: Snapshot, leases_by_link: Mapping[str, Lease], bridge: str, title: str
) -> None:
    """Raise BadArgument if a port's lease would be lost, or is renewed by another manager."""
    if len({lease.address for lease in leases_by_link.values()}) > 1:
        raise BadArgument(
            "ports",
            f"{' and '.join(sorted(leases_by_link))} have a lease each, and a bridge "
            "has one: give addresses to one of them first",
        )
    expiring_addresses = _expiring_addresses(snapshot)
    # An existing bridge may have a lease without a client: its manager takes it over.
    if expiring_addresses and not leases_by_link and bridge not in snapshot["links"]:
        raise BadArgument(
            "persist",
            f"{expiring_addresses[0]} is leased, and {title} does not renew that "
            "lease: give persist=... of the manager that does, or make the address static first",
        )


def refuse_idle(dhcp: bool, runs: bool, title: str) -> None:
    """Raise BadArgument if the manager that has to keep the bridge does not run."""
    if runs:
        return
    if dhcp:
        raise BadArgument(
            "persist",
            f"{title} does not run here, so nobody would renew the lease "
            "of the bridge: start it, or make the address static first",
        )
    raise BadArgument(
        "persist",
        f"{title} does not run here, so nobody would bring up the bridge "
        "at the next boot: start and enable it, or give persist=... of a manager that does",
    )
