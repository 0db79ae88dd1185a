"""
Take a host's names back from certificates that others were given before this host was known.

A host is certified for names that it reports, unless they are another's. A host that joins later
may have such a name as its id, or by the operator's word (``virt:pki:names``): from then on no
other host may pose as it. What a host merely reports, such as its addresses, takes nothing from
others: each hypervisor could have all others' certificates revoked by that.
"""

import logging
from collections.abc import Collection, Mapping
from datetime import datetime

from saltvirt.pki import enrolled, policy
from saltvirt.pki.authorities import Authorities

log = logging.getLogger(__name__)


def reclaim(
    authorities: Authorities,
    register: enrolled.Register,
    host: str,
    configured: Mapping[str, Collection[str]],
    now: datetime,
) -> dict[str, list[str]]:
    """
    Revoke the certificates of other hosts that have a name or an address of this one.

    host
        The id of a hypervisor that the master knows.
    configured
        ``virt:pki:names``; what it gives to two hosts is left to both.

    Returns ``{other host: [serial]}`` of those that were revoked. The other hosts get new ones,
    without these names, at their next ``virt.keys``.
    """
    own = policy.assigned(host, configured.get(host) or ())
    revoked = {}
    for other in register.hosts():
        names = own - policy.assigned(other, configured.get(other) or ())
        if other == host or not _may_have(register.read(other).has(now), names):
            continue
        with register.turn(other):
            serials = _revoked(authorities, register, other, names, now)
        if serials:
            revoked[other] = serials
            log.warning(
                "revoked certificates of %s with a name of %s: %s; it gets others at its next "
                "virt.keys",
                *(other, host, ", ".join(serials)),
            )
    return revoked


def _may_have(certified: set[str], names: set[str]) -> bool:
    return enrolled.MORE in certified or not certified.isdisjoint(names)


def _revoked(
    authorities: Authorities,
    register: enrolled.Register,
    other: str,
    names: set[str],
    now: datetime,
) -> list[str]:
    """Revoke what a host has with these names; return the serials."""
    gone = authorities.revoked()
    good = [
        row
        for row in authorities.issued()
        if row["host"] == other
        and row["serial"] not in gone
        and datetime.fromisoformat(row["not_after"]) > now
    ]
    # An earlier release has not noted the names in each: the newest one has them.
    rows = [row for row in good if row["names"] is None or not names.isdisjoint(row["names"])]
    authorities.revoke(rows, now)
    kept = {name for row in good if row not in rows for name in row["names"]}
    known = register.read(other)
    register.write(other, known.without(known.has(now) - kept - {enrolled.MORE}))
    return [row["serial"] for row in rows]
