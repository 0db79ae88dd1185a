"""
Who holds the lease of a link: what each client of DHCP says about it, and what follows from it.

Pure functions; ``held`` is ``{link: Lease}`` of what the host's manager renews.
"""

import ipaddress
import json
import re
from dataclasses import dataclass

from saltvirt.errors import BadArgument

_LEASE_TIME = 51  # RFC 2132, section 9.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """An IPv4 lease that somebody renews; ``client_id`` is what the server knows it by, in hex."""

    address: str
    client_id: str | None = None
    lasts_s: int | None = None


def _lease(address, client_id=None, lasts=None):
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


def of_networkd(text):
    """Return the lease in a file that systemd-networkd keeps for a link, or None."""
    said = dict(line.partition("=")[::2] for line in text.splitlines())
    return _lease(said.get("ADDRESS"), said.get("CLIENTID"), said.get("LIFETIME"))


def of_networkctl(text):
    """Return the lease in what ``networkctl --json=short status`` prints, or None."""
    said = json.loads(text)
    client = said.get("DHCPv4Client") or {}
    options = ((client.get("Lease") or {}).get("Message") or {}).get("options") or []
    lasts = next((int(one["data"], 16) for one in options if one["tag"] == _LEASE_TIME), None)
    address = next((one.get("AddressString") for one in said.get("Addresses") or []
                    if one.get("ConfigSource") == "DHCPv4"), None)  # fmt: skip
    return _lease(address, bytes(client.get("ClientIdentifier") or []).hex(), lasts and str(lasts))


def of_networkmanager(text):
    """Return the lease in what ``nmcli -t -f DHCP4 device show`` prints, or None."""
    said = {}
    for line in text.splitlines():
        _label, _colon, option = line.partition(":")
        key, _is, value = option.partition(" = ")
        said.setdefault(key, value)
    return _lease(said.get("ip_address"), said.get("dhcp_client_identifier"),
                  said.get("dhcp_lease_time"))  # fmt: skip


def of_dhclient(text):
    """Return the newest lease in a file of dhclient's, or None; it names its client by a DUID."""
    block = text.rpartition("lease {")[2]
    address = re.search(r"^\s*fixed-address ([0-9.]+);", block, re.MULTILINE)
    lasts = re.search(r"^\s*option dhcp-lease-time (\d+);", block, re.MULTILINE)
    return _lease(address and address[1], lasts=lasts and lasts[1])


def moved(text, link):
    """Return a file of dhclient's for another link: its DUID, and so its address, go along."""
    return re.sub(r'^(\s*interface) ".*";', rf'\1 "{link}";', text, flags=re.MULTILINE)


def _ending(snapshot):
    return [a["address"] for link in snapshot["links"].values() for a in link["addresses"]
            if a["valid_s"] is not None and ":" not in a["address"]]  # fmt: skip


def is_there(snapshot, held):
    """Return whether an IPv4 address of these links is leased: it ends, or is known to be."""
    return bool(held or _ending(snapshot))


def is_kept(asked, addresses, leased):
    """
    Return whether a bridge is kept by DHCP: as it was asked for, else as its ports are.

    asked, addresses
        ``dhcp`` and ``addresses`` of the state; None was not asked for.
    """
    if asked is False and leased and addresses is None:
        raise BadArgument("dhcp", "False on a host whose address is leased: give the addresses "
                          "that it shall have")  # fmt: skip
    return leased and addresses is None if asked is None else asked


def refuse_foreign(snapshot, held, bridge, title):
    """Raise BadArgument if a port's lease would be lost, or renewed by others than ``title``."""
    if len({lease.address for lease in held.values()}) > 1:
        raise BadArgument("ports", f"{' and '.join(sorted(held))} have a lease each, and a bridge "
                          "has one: give addresses to one of them first")  # fmt: skip
    ending = _ending(snapshot)
    # A bridge that has a lease nobody renews is taken in hand.
    if ending and not held and bridge not in snapshot["links"]:
        raise BadArgument("persist", f"{ending[0]} is leased, and {title} does not renew that "
                          "lease: give persist=... of who does, or make the address static first")


def refuse_idle(dhcp, runs, title):
    """Raise BadArgument if a bridge would be kept by a manager that does not run."""
    if runs:
        return
    if dhcp:
        raise BadArgument("persist", f"{title} does not run here, so nobody would renew the lease "
                          "of the bridge: start it, or make the address static first")
    raise BadArgument("persist", f"{title} does not run here, so nobody would bring up the bridge "
                      "at the next boot: start and enable it, or give persist=... of who does")
