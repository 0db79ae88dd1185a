"""Decide what is written into a certificate, by what the master knows, never by a request."""

import ipaddress
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.ca.ca import PkiError

PURPOSES = {
    "libvirt-server": "server",
    "libvirt-client": "client",
    "qemu-server": "server",
    "qemu-client": "client",
    "vnc-server": "server",
}
# RFC 5280, ub-common-name.
_MAX_CN = 64
# More than any host has; each goes into a certificate, and into other hosts' firewalls.
_MAX_ADDRESSES = 64
# How many values of a host's report are read.
_MAX_REPORTED = 256
_NAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
    r"(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHosts:
    """
    The master's knowledge, to judge the report of a host.

    ids
        Ids of the other minions: the names of accepted keys.
    assigned
        Other minions' ids, and the names that ``virt:pki:names`` gives to other hosts.
    reported
        Names and addresses that other hypervisors report. Guests' reports do not count.
    holders
        ``{name or address: hypervisor}`` of issued certificates, the asking host's, too.
    """

    ids: frozenset[str]
    assigned: frozenset[str]
    reported: frozenset[str]
    holders: Mapping[str, str]

    @classmethod
    def from_reports(
        cls,
        ids: Collection[str],
        hypervisors: Mapping[str, Mapping[str, Any]],
        names: Iterable[Iterable[str]],
        holders: Mapping[str, str],
    ) -> "KnownHosts":
        """Return the knowledge of others' ids, ``{hypervisor: grains}`` and configured names."""
        return cls(
            ids=frozenset(ids),
            assigned=frozenset(map(str.lower, ids)).union(
                _normalize(text) for texts in names for text in texts
            ),
            reported=frozenset().union(*map(claims, hypervisors.values())),
            holders=holders,
        )

    def allows(self, minion_id: str, text: str) -> bool:
        """Return whether a host may be certified for a name or an address that it reports."""
        holder = self.holders.get(text)
        if text in self.assigned:
            return False
        return holder == minion_id or (holder is None and text not in self.reported)


def subjects(
    minion_id: str,
    grains: Mapping[str, Any],
    known_hosts: KnownHosts,
    extra: Iterable[str],
) -> tuple[list[str], list[str]]:
    """
    Return ``(names, addresses)`` that a host may be reached by.

    minion_id
        The authenticated id; always the first name.
    grains
        The host's own report: believed only where no other host can be meant.
    known_hosts
        The master's knowledge of all others.
    extra
        Names and addresses that the operator configured for this host; they are taken as they are.
    """
    refuse_id(minion_id)
    refuse_rival(minion_id, known_hosts.ids, extra)
    names, addresses = _configured_subjects(minion_id, extra)
    own_name = minion_id.lower()
    # A name with another first label than the id's may be that of a host that is not here yet.
    reported_names = [
        name
        for name in _reported_names(grains)
        if name.partition(".")[0] == own_name.partition(".")[0]
    ]
    names = [
        own_name,
        *(candidate for candidate in reported_names if known_hosts.allows(minion_id, candidate)),
        *names,
    ]
    reported_addresses = [
        address for address in reachable(grains) if known_hosts.allows(minion_id, address)
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
    """Return the names and addresses that the master assigns to a host."""
    return {minion_id.lower(), *map(_normalize, extra)}


def _normalize(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return str(text).lower()


def claims(grains: Mapping[str, Any]) -> set[str]:
    """Return the names and addresses that a host reports."""
    return {*_reported_names(grains), *reachable(grains)}


def _reported_names(grains: object) -> list[str]:
    """Return the host names that a host reports."""
    values = [grains.get(name) for name in ("fqdn", "host")] if isinstance(grains, Mapping) else []
    names = [name.lower() for name in values if isinstance(name, str)]
    return [name for name in names if _NAME.fullmatch(name) and "localhost" not in name]


def is_name(text: str) -> bool:
    """Return whether a text is a host name; other ids get no certificate."""
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
    Raise PkiError for an id that differs only in case from another minion's, and could pose as it.

    extra
        What the operator configured for this host; an id that is listed there is right.
    """
    if minion_id.lower() in (str(text).lower() for text in extra):
        return
    for other_id in sorted(other_ids):
        if minion_id.lower() != other_id.lower():
            continue
        raise PkiError(
            f"the minion id {minion_id!r} differs from the id {other_id!r} of another minion only "
            "in upper and lower case: remove the wrong one's key (salt-key -d), or list "
            f"{minion_id!r} for itself in virt:pki:names if both are right"
        )


def _address(text: object) -> str | None:
    """Return an address in its usual form, None for an address that reaches no other host."""
    try:
        address = ipaddress.ip_address(str(text))
    except ValueError:
        return None
    # A certificate has no scope: 2001:db8::2%x would become the 2001:db8::2 of another host.
    if getattr(address, "scope_id", None) is not None:
        return None
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_link_local or address.is_multicast:
        return None
    return None if address.is_unspecified else str(address)


def reachable(grains: Mapping[str, Any]) -> list[str]:
    """Return the addresses in a host's report by which other hosts may reach it."""
    addresses = dict.fromkeys(
        address for address in map(_address, _reported_addresses(grains)) if address
    )
    return list(addresses)[:_MAX_ADDRESSES]


def _reported_addresses(grains: object) -> Iterator[object]:
    """Yield the values that a host reports as addresses, unchecked, and not too many."""
    for kind in ("ipv4", "ipv6"):
        values = grains.get(kind) if isinstance(grains, Mapping) else None
        yield from (
            itertools.islice(values, _MAX_REPORTED) if isinstance(values, list | tuple) else ()
        )


def purposes(requests: object) -> dict[str, str]:
    """Return ``{purpose: request}`` of a host's call, maybe empty; refuse any other shape."""
    if not isinstance(requests, dict) or len(requests) > len(PURPOSES):
        raise PkiError("a question is a mapping of purposes to requests")
    unknown = sorted(str(purpose) for purpose in requests if purpose not in PURPOSES)
    if unknown:
        raise PkiError(f"purpose {unknown[0][:40]!r}; one of {', '.join(PURPOSES)}")
    return dict(requests)
