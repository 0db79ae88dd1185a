"""Whom a host lets in already, by the files of its rules, while a peer's address is not known."""

import re
from collections.abc import Iterable, Sequence

from saltvirt.net.firewall import bootunits, rules

# Of nftables, of iptables, of firewalld: what this release and those before it have written.
_SETS = re.compile(r"\bset peers[46] \{[^}]*\belements = \{ ([^}]*) \}")
_SINGLE = re.compile(r'^-A \S+ -s (\S+) |\bsource address="([^"]+)"', re.MULTILINE)
_SHOWN = 5


def peers_in(text: str) -> set[str]:
    """Return the addresses and networks that a file of our rules lets in."""
    sets = [one for found in _SETS.finditer(text) for one in found[1].split(", ")]
    return {*sets, *(found[1] or found[2] for found in _SINGLE.finditer(text))}


def peers(name: str) -> set[str]:
    """Return whom the rules of a name let in, whichever backend has them."""
    paths = bootunits.RULES.glob(f"*-{rules.table_name(name)}.*")
    return {one for path in paths for one in peers_in(path.read_text(encoding="utf-8"))}


def staying(there: Iterable[str], wanted: Iterable[object]) -> list[str]:
    """Return those that are let in, and not wanted by what is known, in their usual form."""
    known = rules.networks(wanted)
    whole = rules.networks([*there, *known[4], *known[6]])
    return [one for version, found in whole.items() for one in found if one not in known[version]]


def note(stay: Sequence[str], unknown: Sequence[str]) -> str:
    """Return what is said of hypervisors whose addresses the master does not know."""
    if not unknown:
        return ""
    why = f"the master knows no address of {_listed(unknown)}, until: salt HOST "
    why += "saltutil.refresh_grains"
    return f"; {_listed(stay)} may still get in, as {why}" if stay else f"; {why}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
