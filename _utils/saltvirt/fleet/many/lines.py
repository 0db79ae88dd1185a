"""Lines that say a few of many things."""

from collections.abc import Iterable, Mapping

from saltvirt import terminal

# So many names, or reasons, are listed in a line.
_MOST = 3


def no_place(why: Mapping[str, str]) -> str:
    """Return one line for ``{host: why not}``: each reason once."""
    hosts: dict[str, list[str]] = {}
    for host, reason in sorted(why.items()):
        hosts.setdefault(reason, []).append(host)
    most = sorted(hosts.items(), key=lambda item: -len(item[1]))[:_MOST]
    said = "; ".join(f"{reason} ({some(there)})" for reason, there in most)
    return f"no host fits: {said}{'; …' if len(hosts) > _MOST else ''}"


def some(names: Iterable[str]) -> str:
    """Return the first few of some names, and how many more there are."""
    return terminal.some(names, _MOST)
