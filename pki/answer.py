"""The master's answer to a host that asks for certificates."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from saltvirt.pki import ca, enrolled, policy, reclaim
from saltvirt.pki.authorities import LIBVIRT, USES, Authorities, Trust

# Of the question and the answer; hosts of a release with one CA for all send none.
VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """
    What an authenticated host needs.

    trust
        ``{use: Trust}``; each use has a CA of its own.
    certificates
        ``{purpose: PEM}`` of those that were wanted.
    names, addresses, subject
        What is written into every certificate of this host.
    """

    trust: dict[str, Trust]
    names: list[str]
    addresses: list[str]
    subject: str
    certificates: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """
    Who asks, and what the master knows of all others.

    grains
        What this host says of itself.
    hypervisors
        ``{id: grains}`` of all other hypervisors.
    minions
        The ids of all other minions whose keys are accepted.
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
    Return what an authenticated host needs.

    check
        Raises if this host may have nothing, any more. Whoever shuts it out says so first, and then
        revokes what it has in a turn of its own (:meth:`saltvirt.pki.enrolled.Register.turn`).
    wanted
        ``{purpose: request PEM}``; of a request only the public key is used. Empty: nothing is
        signed, the answer says what would be written.
    options
        ``{"days", "key_type", "organization", "requests_per_hour", "requests_per_day",
        "names": {host: [...]}}``, each optional.

    Certificates of other hosts that have a name of this one, from before its id was known, are
    revoked (:mod:`saltvirt.pki.reclaim`).
    """
    keys = {p: ca.read_request(pem) for p, pem in policy.purposes(requests).items()}
    register = enrolled.Register(authorities.folder)
    names_by_host = options.get("names") or {}
    policy.refuse_id(host.id)
    extra = names_by_host.get(host.id) or ()
    policy.refuse_rival(host.id, host.minions, extra)
    # Before its own turn: two hosts that have each other's names would wait for each other.
    reclaim.reclaim(authorities, register, host.id, names_by_host, now)
    with register.turn(host.id):
        known_hosts = policy.Known.of(
            ids=host.minions,
            hypervisors=host.hypervisors,
            names=(
                host_names for host_id, host_names in names_by_host.items() if host_id != host.id
            ),
            holders=register.holders([host.id, *host.hypervisors]),
        )
        names, addresses = policy.subjects(host.id, host.grains, known_hosts, extra)
        kind = options.get("key_type", "ecdsa")
        # First, as it waits for an import of a backup.
        authorities.stores[LIBVIRT].authority(now, kind=kind)
        authorities.prune_daily(now)
        authorities.separate([host.id, *host.hypervisors], now)
        host_answer = Answer(
            trust={use: authorities.trust(use, now, kind=kind) for use in USES},
            names=names,
            addresses=addresses,
            subject=ca.subject(host.id, options.get("organization")).rfc4514_string(),
        )
        if keys:
            check()
            record = register.read(host.id).counted(host.id, now, options)
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
        ca_store = authorities.of(purpose)
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
