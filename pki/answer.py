"""The master's answer to a host that asks for certificates."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from saltvirt.pki import ca, policy
from saltvirt.pki.store import Store


def answer(
    store: Store,
    minion_id: str,
    wanted: object,
    *,
    grains: Mapping[str, Any],
    others: Mapping[str, Mapping[str, Any]],
    options: Mapping[str, Any],
    now: datetime,
) -> dict[str, Any]:
    """
    Return what an authenticated host needs.

    ``{"ca", "crl", "certificates": {purpose: PEM}, "names", "addresses", "subject"}``.

    wanted
        ``{purpose: request PEM}``; of a request only the public key is used. Empty: nothing is
        signed, the answer says what would be written.
    grains, others
        What this host and all others say of themselves; see :func:`saltvirt.pki.policy.subjects`.
    options
        ``{"days", "key_type", "organization", "names": {host: [...]}}``, each optional.
    """
    keys = {p: ca.read_request(pem) for p, pem in policy.purposes(wanted).items()}
    extra = (options.get("names") or {}).get(minion_id) or ()
    names, addresses = policy.subjects(minion_id, grains, others, extra)
    authority = store.authority(now, kind=options.get("key_type", "ecdsa"))
    certificates = {}
    for purpose, key in keys.items():
        signed = ca.sign(
            authority,
            key,
            minion_id=minion_id,
            role=policy.PURPOSES[purpose],
            names=names,
            addresses=addresses,
            now=now,
            days=int(options.get("days", 90)),
            organization=options.get("organization"),
        )
        store.note(minion_id, purpose, signed)
        certificates[purpose] = ca.certificate_pem(signed).decode()
    return {
        "ca": store.bundle(now),
        "crl": store.revocations(now),
        "certificates": certificates,
        "names": names,
        "addresses": addresses,
        "subject": ca.subject(minion_id, options.get("organization")).rfc4514_string(),
    }
