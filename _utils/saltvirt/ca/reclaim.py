"""
Revoke other hosts' certificates with names of a host that became known later.

A host is certified for names that it reports, unless they are another host's. A host that joins
later may have such a name as its id, or by the operator's word (``virt:pki:names``): from then on
no other host may pose as it. A mere report, as of addresses, revokes nothing: otherwise each
hypervisor could have all others' certificates revoked.
"""

import logging
from collections.abc import Collection, Mapping
from datetime import datetime

from saltvirt.ca import enrolled, policy
from saltvirt.ca.authorities import Authorities

log = logging.getLogger(__name__)


def reclaim_names(
    authorities: Authorities,
    register: enrolled.Register,
    host: str,
    names_by_host: Mapping[str, Collection[str]],
    now: datetime,
) -> dict[str, list[str]]:
    """
    Revoke the certificates of other hosts that have a name or an address of this one.

    host
        The id of a hypervisor that the master knows.
    names_by_host
        ``virt:pki:names``; a name that it gives to two hosts stays with both.

    Returns ``{other host: [revoked serial]}``. The other hosts get new certificates, without these
    names, at their next ``virt.keys``.
    """
    own_names = policy.assigned(host, names_by_host.get(host) or ())
    revoked_by_host = {}
    for other_id in register.hosts():
        names = own_names - policy.assigned(other_id, names_by_host.get(other_id) or ())
        if other_id == host or not _may_have(register.read(other_id).certified_names(now), names):
            continue
        with register.hold_lock(other_id):
            serials = _revoke_certificates(authorities, register, other_id, names, now)
        if serials:
            revoked_by_host[other_id] = serials
            log.warning(
                "revoked certificates of %s with a name of %s: %s; it gets others at its next "
                "virt.keys",
                *(other_id, host, ", ".join(serials)),
            )
    return revoked_by_host


def _may_have(certified_names: set[str], names: set[str]) -> bool:
    return enrolled.MORE in certified_names or not certified_names.isdisjoint(names)


def _revoke_certificates(
    authorities: Authorities,
    register: enrolled.Register,
    other_id: str,
    names: set[str],
    now: datetime,
) -> list[str]:
    """Revoke a host's certificates with any of these names; return the serials."""
    revoked_serials = authorities.revoked()
    good_rows = [
        row
        for row in authorities.issued()
        if row["host"] == other_id
        and row["serial"] not in revoked_serials
        and datetime.fromisoformat(row["not_after"]) > now
    ]
    rows = [row for row in good_rows if not names.isdisjoint(row["names"])]
    authorities.revoke(rows, now)
    kept_names = {name for row in good_rows if row not in rows for name in row["names"]}
    record = register.read(other_id)
    register.write(
        other_id, record.without(record.certified_names(now) - kept_names - {enrolled.MORE})
    )
    return [row["serial"] for row in rows]
