"""Lines that name a few of many things."""

from collections.abc import Iterable, Mapping

from saltvirt.core import terminal

# How many names, or reasons, a line lists.
_MOST = 3


def no_place(reasons_by_host: Mapping[str, str]) -> str:
    """Return one line for ``{host: reason}``: the most frequent reasons, each once."""
    hosts_by_reason: dict[str, list[str]] = {}
    for host, reason in sorted(reasons_by_host.items()):
        hosts_by_reason.setdefault(reason, []).append(host)
    top_reasons = sorted(hosts_by_reason.items(), key=lambda item: -len(item[1]))[:_MOST]
    reasons_text = "; ".join(f"{reason} ({first_few(hosts)})" for reason, hosts in top_reasons)
    return f"no host fits: {reasons_text}{'; …' if len(hosts_by_reason) > _MOST else ''}"


def first_few(names: Iterable[str]) -> str:
    """Return the first few of some names, and how many more there are."""
    return terminal.join_some(names, _MOST)
