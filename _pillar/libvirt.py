"""
On-demand external pillar ``libvirt``: certificates for the hypervisor that asks.

The name is in Salt's default ``on_demand_ext_pillar``, so no setting of the master is needed.
Who gets one, and what goes into it, is decided here, from the authenticated minion id; see
:mod:`saltvirt.fleet.membership` and :mod:`saltvirt.pki.policy`. After an update of this file the
master must be restarted: a running one keeps the code it has loaded.
"""

import logging
import shlex
from typing import Any

import salt.utils.minions
from saltvirt import compat, config, wire
from saltvirt.errors import MasterError, VirtError
from saltvirt.fleet import masterconfig, masterrelease, masteruser, membership
from saltvirt.fleet.refusals import Refusals
from saltvirt.pki import answer, authorities, ca, policy, store

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
    Answer a hypervisor's question for certificates.

    certificates
        ``{purpose: certificate request}``; empty to learn only what would be written.
    version
        What the host understands; that of a host with an earlier release is 1.
    more, unknown
        What no hypervisor of this release sends; it is refused here, as Salt would log all of it.

    Returns ``{"libvirt_pki": {trust, certificates, names, addresses, subject, peers, own}}``, see
    :class:`saltvirt.pki.answer.Answer`, or ``{"libvirt_pki": {"error": one line}}`` if the master
    refuses.
    """
    if certificates is None and not (more or unknown):
        return {}
    try:
        with masteruser.as_master_user(__opts__):
            masterrelease.refuse_old()
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
        # Salt would log it here, and the host would look for the cause in the wrong place.
        error = f"no certificate can be made: {' '.join(str(exc).split())}"
    _refusals.note(minion_id, error)
    return {"libvirt_pki": {"error": error}}


def _answer(minion_id: str, certificates: Any) -> dict[str, Any]:
    settings = config.master_settings(__opts__)
    members = membership.read_members(__opts__)
    members.refuse_stranger(minion_id)
    # Without a request a host is told the lists of revoked certificates all the same.
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
    # What hosts say of their VMs decides of a firewall's rule, and of nothing in a certificate. An
    # address that this host has as well, such as that of libvirt's NAT network, leads to itself;
    # what others have in common stays: one of them could take an address from another so.
    peers = {
        host: [address for address in policy.reachable(grains) if address not in own_addresses]
        for host, grains in grains_by_host.items()
        if host not in guests
    }
    return {**wire.plain(host_answer), "peers": peers, "own": own_addresses}


def _guests(members: membership.Members, hosts: list[str], minion_id: str) -> dict[str, list[str]]:
    """Return the VMs that would be taken for hypervisors; refuse if one of them asks."""
    guests = membership.find_last_seen_guests(__opts__, members, hosts)
    asking_guests = {vm: on for vm, on in guests.items() if vm.casefold() == minion_id.casefold()}
    membership.refuse_guests(members, asking_guests)
    return guests
