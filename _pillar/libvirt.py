"""
On-demand external pillar ``libvirt``: certificates for the requesting hypervisor.

The name is in Salt's default ``on_demand_ext_pillar``, so no setting of the master is needed.
The master decides from the authenticated minion id who gets a certificate with which content; see
:mod:`saltvirt.cluster.membership` and :mod:`saltvirt.ca.policy`. After an update of this file the
master must be restarted: a running master keeps the loaded code.
"""

import logging
import shlex
from typing import Any

import salt.utils.minions
from saltvirt.ca import answer, authorities, ca, policy, store
from saltvirt.cluster import masterconfig, membership
from saltvirt.cluster.refusallog import Refusals
from saltvirt.core import wire
from saltvirt.core.errors import MasterError, VirtError
from saltvirt.core.options import config
from saltvirt.core.salt import compat, masteruser

log = logging.getLogger(__name__)
_refusals = Refusals(log, "no certificate")
__opts__: Any


def __virtual__() -> bool:
    """Load on every master."""
    return True


def ext_pillar(
    minion_id: str,
    pillar: Any,
    command: object = None,
    certificates: Any = None,
    version: object = 1,
    *more: object,
    **unknown: object,
) -> dict[str, Any]:
    """
    Answer a hypervisor's request for certificates.

    certificates
        ``{purpose: certificate request}``; empty to get only the trust and the names.
    version
        The version of the answer that the host understands; any other than the master's is refused.
    more, unknown
        Hypervisors of this release send none; refused here, because Salt would log the values.

    Returns ``{"libvirt_pki": {trust, certificates, names, addresses, subject, peers, own}}``, see
    :class:`saltvirt.ca.answer.Answer`, or ``{"libvirt_pki": {"error": one line}}`` if the master
    refuses.
    """
    if certificates is None and not (more or unknown):
        return {}
    try:
        with masteruser.as_master_user(__opts__):
            compat.refuse_old_master()
            if version != answer.VERSION or more or unknown:
                raise MasterError(
                    f"{minion_id} has the code of another release than the master; run: salt "
                    f"{shlex.quote(minion_id)} saltutil.sync_all"
                )
            return {"libvirt_pki": _answer(minion_id, certificates)}
    except (ca.PkiError, VirtError) as exc:
        error = str(exc)
    except OSError as exc:
        error = masteruser.explain_error(exc, __opts__)
    except ValueError as exc:
        # Salt would log this error on the master, and the host would report another cause.
        error = f"no certificate can be made: {' '.join(str(exc).split())}"
    _refusals.note(minion_id, error)
    return {"libvirt_pki": {"error": error}}


def _answer(minion_id: str, certificates: Any) -> dict[str, Any]:
    settings = config.master_settings(__opts__)
    members = membership.read_members(__opts__)
    members.refuse_stranger(minion_id)
    # Without a request the host still gets the revocation lists.
    masterconfig.refuse_missing(__opts__, is_change=bool(certificates))
    options = config.pki_options(settings)
    minion_ids = compat.KeyStore(__opts__).accepted()
    hosts = [host_id for host_id in minion_ids if members.has(host_id)]
    guests = _guests(members, hosts, minion_id)
    grains_by_host = {
        host_id: salt.utils.minions.get_minion_data(host_id, __opts__)[1] or {}
        for host_id in hosts
        if host_id != minion_id
    }
    host_answer = answer.answer(
        authorities.Authorities(membership.folder(__opts__)),
        answer.Host(
            id=minion_id,
            grains=__opts__["grains"],
            hypervisors=grains_by_host,
            minions=[minion for minion in minion_ids if minion != minion_id],
        ),
        certificates,
        options=options,
        now=store.utc_now(),
        check=lambda: membership.read_members(__opts__).refuse_stranger(minion_id),
    )
    own_addresses = policy.reachable(__opts__["grains"])
    # Hosts' statements about their VMs affect firewall rules only, no certificate. Leave out
    # addresses that this host has as well, such as that of libvirt's NAT network. Addresses that
    # several peers have stay: otherwise a peer could claim an address to exclude another.
    peers = {
        host: [address for address in policy.reachable(grains) if address not in own_addresses]
        for host, grains in grains_by_host.items()
        if host not in guests
    }
    return {**wire.plain(host_answer), "peers": peers, "own": own_addresses}


def _guests(members: membership.Members, hosts: list[str], minion_id: str) -> dict[str, list[str]]:
    """Return the VMs with ids of hypervisors; refuse if one of them is the requesting minion."""
    guests = membership.find_last_seen_guests(__opts__, members, hosts)
    asking_guests = {vm: on for vm, on in guests.items() if vm.casefold() == minion_id.casefold()}
    membership.refuse_guests(members, asking_guests)
    return guests
