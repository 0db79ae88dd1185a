"""What the master writes into a certificate: decided from what it knows, never from a request."""

import ipaddress
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.pki.ca import PkiError

PURPOSES = {
    "libvirt-server": "server",
    "libvirt-client": "client",
    "qemu-server": "server",
    "qemu-client": "client",
    "vnc-server": "server",
}
# RFC 5280, ub-common-name.
_MAX_CN = 64
# More than any host has; each becomes a part of a certificate, and of the others' firewalls.
_MAX_ADDRESSES = 64
# So much of what one host says is looked at.
_MAX_REPORTED = 256
_NAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
    r"(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """
    What the master knows of all minions but the one that asks.

    ids
        Their ids: the names of accepted keys.
    assigned
        What is another's by the master's word: ids, and what ``virt:pki:names`` gives it.
    said
        Names and addresses that other hypervisors say they have. What a guest says does not count.
    holders
        ``{name or address: hypervisor}`` of certificates that were given out, to whomever.
    """

    ids: frozenset[str] = frozenset()
    assigned: frozenset[str] = frozenset()
    said: frozenset[str] = frozenset()
    holders: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        ids: Iterable[str] = (),
        hypervisors: Mapping[str, Mapping[str, Any]] | None = None,
        names: Iterable[Iterable[str]] = (),
        holders: Mapping[str, str] | None = None,
    ) -> "Known":
        """Return it of the others' ids, ``{hypervisor: grains}`` and configured names."""
        ids = frozenset(ids)
        assigned_texts = {minion_id.lower() for minion_id in ids} | {
            _normalize(text) for texts in names for text in texts
        }
        reported_texts = {
            text for grains in (hypervisors or {}).values() for text in claims(grains)
        }
        return cls(
            ids=ids,
            assigned=frozenset(assigned_texts),
            said=frozenset(reported_texts),
            holders=holders or {},
        )

    def leaves(self, minion_id: str, text: str) -> bool:
        """Return whether a host may be certified for a name or an address that it says it has."""
        holder = self.holders.get(text)
        if text in self.assigned:
            return False
        return holder == minion_id or (holder is None and text not in self.said)


def subjects(
    minion_id: str,
    grains: Mapping[str, Any],
    known_hosts: Known,
    extra: Iterable[str] = (),
) -> tuple[list[str], list[str]]:
    """
    Return ``(names, addresses)`` that a host may be reached by.

    minion_id
        The authenticated id; always the first name.
    grains
        What the host says of itself: believed only where nobody else can be meant.
    known
        What the master knows of all others.
    extra
        Names and addresses that the operator configured for this host; they are taken as they are.
    """
    refuse_id(minion_id)
    refuse_rival(minion_id, known_hosts.ids, extra)
    names, addresses = _configured_subjects(minion_id, extra)
    own_name = minion_id.lower()
    # What is not of its id's first label may be the name of a host that is not here yet.
    reported_names = [
        name
        for name in _reported_names(grains)
        if name.partition(".")[0] == own_name.partition(".")[0]
    ]
    names = [
        own_name,
        *(candidate for candidate in reported_names if known_hosts.leaves(minion_id, candidate)),
        *names,
    ]
    reported_addresses = [
        address for address in reachable(grains) if known_hosts.leaves(minion_id, address)
    ]
    return list(dict.fromkeys(names)), list(dict.fromkeys([*reported_addresses, *addresses]))


def _configured_subjects(minion_id: str, extra: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the names and the addresses that the operator has configured for a host."""
    names, addresses = [], []
    for text in extra:
        try:
            addresses.append(str(ipaddress.ip_address(text)))
        except ValueError:
            if not str(text).isascii():
                raise PkiError(
                    f"virt:pki:names: {minion_id}: {text!r} is not a name of ASCII "
                    "letters; write it as xn--..."
                ) from None
            names.append(str(text).lower())
    return names, addresses


def assigned(minion_id: str, extra: Iterable[str]) -> set[str]:
    """Return the names and addresses that are a host's by the master's word."""
    return {minion_id.lower(), *map(_normalize, extra)}


def _normalize(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return str(text).lower()


def claims(grains: Mapping[str, Any]) -> set[str]:
    """Return the names and addresses that a host says it has."""
    return {*_reported_names(grains), *reachable(grains)}


def _reported_names(grains: object) -> list[str]:
    """Return the host names that a host says it has."""
    values = [grains.get(name) for name in ("fqdn", "host")] if isinstance(grains, Mapping) else []
    names = [name.lower() for name in values if isinstance(name, str)]
    return [name for name in names if _NAME.fullmatch(name) and "localhost" not in name]


def is_name(text: str) -> bool:
    """Return whether a text is a host name: what else an id may be has no certificate."""
    return _NAME.fullmatch(text) is not None


def refuse_id(minion_id: str) -> None:
    """Raise PkiError if an id cannot be a certificate's name."""
    if not is_name(minion_id):
        raise PkiError(f"the minion id {minion_id!r} is not a host name, so it cannot be certified")
    if len(minion_id) > _MAX_CN:
        raise PkiError(
            f"the minion id {minion_id!r} has {len(minion_id)} characters; a certificate's name "
            f"holds {_MAX_CN}, so give the minion a shorter id"
        )


def refuse_rival(minion_id: str, other_ids: Iterable[str], extra: Iterable[str]) -> None:
    """
    Raise PkiError for an id by which another minion is reached: its holder could pose as that one.

    extra
        What the operator configured for this host: where the id is listed, it is right.
    """
    if minion_id.lower() in (str(text).lower() for text in extra):
        return
    for other_id in sorted(other_ids):
        if minion_id.lower() != other_id.lower():
            continue
        raise PkiError(
            f"the minion id {minion_id!r} differs from the id {other_id!r} of another minion only "
            "in "
            "upper and lower case: remove the wrong one's key (salt-key -d), or list "
            f"{minion_id!r} for itself in virt:pki:names if both are right"
        )


def _address(text: object) -> str | None:
    """Return an address in its usual form, None for one that reaches no other host."""
    try:
        address = ipaddress.ip_address(str(text))
    except ValueError:
        return None
    # A certificate has no scope: 2001:db8::2%x would be written as the 2001:db8::2 of another.
    if getattr(address, "scope_id", None) is not None:
        return None
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_link_local or address.is_multicast:
        return None
    return None if address.is_unspecified else str(address)


def reachable(grains: Mapping[str, Any]) -> list[str]:
    """Return the addresses a host may be reached by, of what it says of itself."""
    addresses = dict.fromkeys(
        addresses for addresses in map(_address, _reported_addresses(grains)) if addresses
    )
    return list(addresses)[:_MAX_ADDRESSES]


def _reported_addresses(grains: object) -> Iterator[object]:
    """Return what a host says of its addresses; it may say anything, and much of it."""
    for kind in ("ipv4", "ipv6"):
        values = grains.get(kind) if isinstance(grains, Mapping) else None
        yield from (
            itertools.islice(values, _MAX_REPORTED) if isinstance(values, list | tuple) else ()
        )


def purposes(requests: object) -> dict[str, str]:
    """Return ``{purpose: request}`` of a host's question, maybe empty; refuse any other shape."""
    if not isinstance(requests, dict) or len(requests) > len(PURPOSES):
        raise PkiError("a question is a mapping of purposes to requests")
    unknown = sorted(str(purpose) for purpose in requests if purpose not in PURPOSES)
    if unknown:
        raise PkiError(f"purpose {unknown[0][:40]!r}; one of {', '.join(PURPOSES)}")
    return dict(requests)
