"""The name servers of this host."""

from collections.abc import Sequence
from pathlib import Path

_PATHS = ("/run/systemd/resolve/resolv.conf", "/etc/resolv.conf")


def read_resolver() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return this host's present name servers and search domains."""
    path = next((path for path in map(Path, _PATHS) if path.exists()), None)
    rows = [line.split() for line in path.read_text().splitlines()] if path else []
    all_servers = [row[1] for row in rows if row[:1] == ["nameserver"] and len(row) > 1]
    # A link-local server (fe80::1%eth0) comes from router advertisements of one link.
    servers = [server for server in all_servers if "%" not in server]
    return tuple(servers), tuple(domain for domain in _search(rows) if domain != ".")


def _search(rows: Sequence[list[str]]) -> list[str]:
    """Return the search domains of the last line that has them."""
    domain_lists = [row[1:] for row in rows if row[:1] in (["search"], ["domain"])]
    return domain_lists[-1] if domain_lists else []
