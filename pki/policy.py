"""What the master writes into a certificate: decided from what it knows, never from a request."""

import ipaddress
import re
from collections.abc import Iterable, Mapping
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
_NAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
    r"(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)


def subjects(
    minion_id: str,
    grains: Mapping[str, Any],
    others: Mapping[str, Mapping[str, Any]],
    extra: Iterable[str] = (),
) -> tuple[list[str], list[str]]:
    """
    Return ``(names, addresses)`` that a host may be reached by.

    minion_id
        The authenticated id; always the first name.
    grains
        What the host says of itself: believed only where nobody else can be meant.
    others
        ``{minion id: its grains}`` of every other minion; what one of them has is nobody else's.
    extra
        Names and addresses that the operator configured for this host; they are taken as they are.
    """
    _refuse_id(minion_id, others, extra)
    foreign = _claimed_by(others)
    names, addresses = [minion_id.lower()], []
    for name in (str(grains.get("fqdn") or ""), str(grains.get("host") or "")):
        name = name.lower()
        if _NAME.fullmatch(name) and name not in foreign and "localhost" not in name:
            names.append(name)
    addresses += [address for address in reachable(grains) if address not in foreign]
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
    return list(dict.fromkeys(names)), list(dict.fromkeys(addresses))


def _refuse_id(
    minion_id: str, others: Mapping[str, Mapping[str, Any]], extra: Iterable[str]
) -> None:
    if not _NAME.fullmatch(minion_id):
        raise PkiError(f"the minion id {minion_id!r} is not a host name, so it cannot be certified")
    if len(minion_id) > _MAX_CN:
        raise PkiError(
            f"the minion id {minion_id!r} has {len(minion_id)} characters; a certificate's name "
            f"holds {_MAX_CN}, so give the minion a shorter id"
        )
    if minion_id.lower() not in (str(text).lower() for text in extra):
        _refuse_anothers(minion_id, others)


def _refuse_anothers(minion_id: str, others: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse an id by which another minion is reached: its holder could pose as that one."""
    for other in sorted(others):
        if minion_id.lower() != other.lower():
            continue
        raise PkiError(
            f"the minion id {minion_id!r} differs from the id {other!r} of another minion only in "
            "upper and lower case: remove the wrong one's key (salt-key -d), or list "
            f"{minion_id!r} for itself in virt:pki:names if both are right"
        )


def _claimed_by(others: Mapping[str, Mapping[str, Any]]) -> set[str]:
    claimed = set()
    for minion_id, grains in others.items():
        claimed |= {
            minion_id.lower(),
            str(grains.get("fqdn", "")).lower(),
            str(grains.get("host", "")).lower(),
        }
        claimed |= set(reachable(grains))
    return claimed - {""}


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
    texts = (*(grains.get("ipv4") or ()), *(grains.get("ipv6") or ()))
    return list(dict.fromkeys(found for found in map(_address, texts) if found))


def purposes(wanted: object) -> dict[str, str]:
    """Return ``{purpose: request}`` of a host's question, maybe empty; refuse any other shape."""
    if not isinstance(wanted, dict) or len(wanted) > len(PURPOSES):
        raise PkiError("a question is a mapping of purposes to requests")
    unknown = sorted(str(purpose) for purpose in wanted if purpose not in PURPOSES)
    if unknown:
        raise PkiError(f"purpose {unknown[0][:40]!r}; one of {', '.join(PURPOSES)}")
    return dict(wanted)
