"""What this host asks for names."""

from collections.abc import Sequence
from pathlib import Path

_PATHS = ("/run/systemd/resolve/resolv.conf", "/etc/resolv.conf")


def read_resolver() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the name servers and the search domains that this host has now."""
    path = next((path for path in map(Path, _PATHS) if path.exists()), None)
    rows = [line.split() for line in path.read_text().splitlines()] if path else []
    all_servers = [row[1] for row in rows if row[:1] == ["nameserver"] and len(row) > 1]
    # One of a link (fe80::1%eth0) is a router's word for this link alone, and comes again.
    servers = [server for server in all_servers if "%" not in server]
    return tuple(servers), tuple(domain for domain in _search(rows) if domain != ".")


def _search(rows: Sequence[list[str]]) -> list[str]:
    """Return what the last line of search domains says."""
    domain_lists = [row[1:] for row in rows if row[:1] in (["search"], ["domain"])]
    return domain_lists[-1] if domain_lists else []
