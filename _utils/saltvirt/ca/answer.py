"""Answer a host that requests certificates."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from saltvirt.ca import ca, enrolled, policy
from saltvirt.ca.authorities import LIBVIRT, USES, Authorities, Trust

# Of request and answer.
VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """
    The master's answer to an authenticated host.

    trust
        ``{use: Trust}``; each use has a CA of its own.
    certificates
        ``{purpose: PEM}`` of the requested certificates.
    names, addresses, subject
        What every certificate of this host contains.
    """

    trust: dict[str, Trust]
    names: list[str]
    addresses: list[str]
    subject: str
    certificates: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """
    The host that asks, and the master's knowledge of all others.

    grains
        The host's own report.
    hypervisors
        ``{id: grains}`` of all other hypervisors.
    minions
        The ids of all other accepted minions.
    """

    id: str
    grains: Mapping[str, Any]
    hypervisors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    minions: Collection[str] = ()


def answer(
    authorities: Authorities,
    host: Host,
    requests: object,
    *,
    options: Mapping[str, Any],
    now: datetime,
    check: Callable[[], object] = lambda: None,
) -> Answer:
    """
    Return the answer to an authenticated host.

    check
        Raises if this host may have no certificates any more. A command that disallows it records
        that first, and then revokes its certificates in a turn of its own
        (:meth:`saltvirt.ca.enrolled.Register.hold_lock`).
    requests
        ``{purpose: request PEM}``; of a request only the public key is used. Empty: nothing is
        signed, and the answer has what would be written.
    options
        ``{"days", "key_type", "organization", "requests_per_hour", "requests_per_day",
        "names": {host: [...]}}``, each optional.

    Certificates that other hosts got for a name of this one, before its id was known, are revoked
    (:mod:`saltvirt.ca.enrolled`).
    """
    keys = {p: ca.read_request(pem) for p, pem in policy.purposes(requests).items()}
    register = enrolled.Register(authorities.folder)
    names_by_host = options.get("names") or {}
    policy.refuse_id(host.id)
    extra = names_by_host.get(host.id) or ()
    policy.refuse_rival(host.id, host.minions, extra)
    # Before this host's turn, as two hosts with each other's names would deadlock.
    enrolled.reclaim_names(authorities, register, host.id, names_by_host, now)
    with register.hold_lock(host.id):
        known_hosts = policy.KnownHosts.from_reports(
            ids=host.minions,
            hypervisors=host.hypervisors,
            names=(
                host_names for host_id, host_names in names_by_host.items() if host_id != host.id
            ),
            holders=register.holders([host.id, *host.hypervisors]),
        )
        names, addresses = policy.subjects(host.id, host.grains, known_hosts, extra)
        kind = options.get("key_type", "ecdsa")
        # First libvirt's CA, which waits for an import of a backup.
        authorities.stores[LIBVIRT].authority(now, kind=kind)
        authorities.prune_daily(now)
        host_answer = Answer(
            trust={use: authorities.trust(use, now, kind=kind) for use in USES},
            names=names,
            addresses=addresses,
            subject=ca.subject(host.id, options.get("organization")).rfc4514_string(),
        )
        if keys:
            check()
            record = register.read(host.id).with_request(host.id, now, options)
            until = now + timedelta(days=_days(options))
            register.write(host.id, record.with_names((*names, *addresses), until, now))
            host_answer = replace(
                host_answer,
                certificates=_sign_all(authorities, host, host_answer, keys, options, now),
            )
    return host_answer


def _sign_all(
    authorities: Authorities,
    host: Host,
    host_answer: Answer,
    keys: Mapping[str, ca.PublicKey],
    options: Mapping[str, Any],
    now: datetime,
) -> dict[str, str]:
    certificates = {}
    for purpose, key in keys.items():
        ca_store = authorities.store_for(purpose)
        signer = ca_store.authority(now)
        certificate = ca.sign(
            signer,
            key,
            minion_id=host.id,
            role=policy.PURPOSES[purpose],
            names=host_answer.names,
            addresses=host_answer.addresses,
            now=now,
            days=_days(options),
            organization=options.get("organization"),
        )
        ca_store.note(
            host.id, purpose, certificate, (*host_answer.names, *host_answer.addresses), signer
        )
        certificates[purpose] = ca.certificate_pem(certificate).decode()
    return certificates


def _days(options: Mapping[str, Any]) -> int:
    return int(options.get("days", 90))
