"""
What the appliance's user cannot reach while it has a network: this host, and its networks.

A table of nftables of our own, by user. It is loaded before each appliance that gets a network, and
stays: it is about that user alone. Undo: ``nft delete table inet salt_virt_appliance``.
Source: nft(8), meta skuid.
"""

import ipaddress
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from saltvirt import connection
from saltvirt.errors import SeedError

TABLE = "salt_virt_appliance"
# This host; what is on its links; everybody at once.
_ALWAYS = (
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "255.255.255.255/32",
    "::1/128",
    "fe80::/10",
    "ff00::/8",
)
_IP = ("-4", "-6")
_SBIN = "/usr/sbin:/sbin"


def own_networks(listed: str) -> list[str]:
    """Return the networks of all addresses in what ``ip -json address`` has printed."""
    found = []
    for link in json.loads(listed):
        for one in link.get("addr_info", ()):
            if one.get("local"):
                found.append(f"{one['local']}/{one['prefixlen']}")
                if one.get("address"):  # the other end of a line
                    found.append(one["address"])
    return found


def own_links(listed: str) -> list[str]:
    """Return what is reached without a gateway, of what ``ip -json route`` has printed."""
    rows = json.loads(listed or "[]")
    direct = [row["dst"] for row in rows if row.get("dev") and not {"gateway", "via"} & {*row}]
    # A line that everything goes to has the others at its end, not on the link.
    return [one for one in direct if one != "default"]


def resolvers(text: str) -> list[str]:
    """Return the name servers that a resolv.conf has, whose names the guest is told by."""
    rows = [row.split() for row in text.splitlines()]
    named = [row[1].partition("%")[0] for row in rows if len(row) > 1 and row[0] == "nameserver"]
    return [name for name in named if _is_address(name)]


def rules(uids: Iterable[int], networks: Iterable[str], servers: Iterable[str]) -> str:
    """Return the table: names are asked for, and nothing else goes to this host's networks."""
    shut = _by_family([*_ALWAYS, *networks])
    asked = _by_family(servers)
    lines = [
        f"{family} daddr {{ {hosts} }} {protocol} dport 53 accept"
        for family, hosts in asked
        for protocol in ("udp", "tcp")
    ]
    # What a cloud tells its machine is reached by a gateway, too.
    shut += _by_family(connection.METADATA)
    lines += ['oif "lo" reject', *(f"{family} daddr {{ {nets} }} reject" for family, nets in shut)]
    body = "\n".join(f"        {line}" for line in lines)
    return f"""\
table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
    chain appliance {{
{body}
    }}
    chain output {{
        type filter hook output priority filter; policy accept;
        meta skuid {{ {", ".join(map(str, uids))} }} jump appliance
    }}
}}
"""


def put_up(uids: Iterable[int], masters: Iterable[str]) -> None:
    """Load the table; raise SeedError if it cannot be: then the appliance gets no network."""
    listed = _ran(["ip", "-json", "address"], "iproute2")
    try:
        servers = resolvers(Path("/etc/resolv.conf").read_text(errors="replace"))
    except OSError:
        servers = []
    # An address of DHCPv6, or of a rented server, says nothing of the network that it is in.
    ways = [_ran(["ip", "-json", one, "route", "show", "table", "all"], "iproute2") for one in _IP]
    links = [one for way in ways for one in own_links(way)]
    text = rules(uids, [*own_networks(listed), *links, *masters], servers)
    _ran(["nft", "-f", "-"], "nftables", text)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _by_family(networks: Iterable[str]) -> list[tuple[str, str]]:
    """Return ``[(nftables' name of the family, its networks)]``: none is part of another."""
    read = [ipaddress.ip_network(one, strict=False) for one in networks]
    v4 = ipaddress.collapse_addresses(n for n in read if isinstance(n, ipaddress.IPv4Network))
    v6 = ipaddress.collapse_addresses(n for n in read if isinstance(n, ipaddress.IPv6Network))
    both = (("ip", ", ".join(map(str, v4))), ("ip6", ", ".join(map(str, v6))))
    return [(family, shown) for family, shown in both if shown]


def _ran(argv: Sequence[str], package: str, told: str | None = None) -> str:
    why = "the appliance gets no network without its rules"
    program = shutil.which(argv[0], path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")
    if not program:
        raise SeedError(
            f"{argv[0]} is missing on this host, and {why}; install {package}, or give "
            "install_from= and leave virt:seed:install_network out"
        )
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            input=told,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise SeedError(f"{argv[0]} failed, and {why}: {exc}") from exc
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SeedError(f"{argv[0]} failed, and {why}: {lines[0]}")
    return done.stdout
