"""
Keep the appliance's user, while it has a network, from this host and its networks.

This project's own nftables table, by user. It is loaded before each appliance with a network, and
stays, as it concerns that user only. Undo: ``nft delete table inet salt_virt_appliance``.
Source: nft(8), meta skuid.
"""

import ipaddress
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from saltvirt.core.errors import SeedError
from saltvirt.core.http import connection

TABLE = "salt_virt_appliance"
# This host; link-local addresses; multicast and broadcast.
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


def own_networks(output: str) -> list[str]:
    """Return the networks of all addresses in the output of ``ip -json address``."""
    networks = []
    for link in json.loads(output):
        for address in link.get("addr_info", ()):
            if address.get("local"):
                networks.append(f"{address['local']}/{address['prefixlen']}")
                if address.get("address"):  # the other end of a point-to-point link
                    networks.append(address["address"])
    return networks


def own_links(output: str) -> list[str]:
    """Return the destinations without a gateway in the output of ``ip -json route``."""
    rows = json.loads(output or "[]")
    direct = [row["dst"] for row in rows if row.get("dev") and not {"gateway", "via"} & {*row}]
    # A point-to-point default route: its destinations are beyond the link.
    return [destination for destination in direct if destination != "default"]


def resolvers(text: str) -> list[str]:
    """Return the name servers of a resolv.conf, which resolve names for the guest."""
    rows = [row.split() for row in text.splitlines()]
    addresses = [
        row[1].partition("%")[0] for row in rows if len(row) > 1 and row[0] == "nameserver"
    ]
    return [name for name in addresses if _is_address(name)]


def rules(uids: Iterable[int], networks: Iterable[str], servers: Iterable[str]) -> str:
    """Return the table: allow DNS, and reject everything else on this host's networks."""
    networks_by_family = _by_family([*_ALWAYS, *networks])
    servers_by_family = _by_family(servers)
    lines = [
        f"{family} daddr {{ {hosts} }} {protocol} dport 53 accept"
        for family, hosts in servers_by_family
        for protocol in ("udp", "tcp")
    ]
    # A cloud's metadata service may be behind a gateway, too.
    networks_by_family += _by_family(connection.METADATA)
    lines += [
        'oif "lo" reject',
        *(f"{family} daddr {{ {nets} }} reject" for family, nets in networks_by_family),
    ]
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
    """Load the table; raise SeedError on failure, as the appliance then gets no network."""
    address_output = _run_program(["ip", "-json", "address"], "iproute2")
    try:
        servers = resolvers(Path("/etc/resolv.conf").read_text(errors="replace"))
    except OSError:
        servers = []
    # The address of DHCPv6, or of a rented server, does not tell its network; the routes do.
    route_outputs = [
        _run_program(["ip", "-json", family, "route", "show", "table", "all"], "iproute2")
        for family in _IP
    ]
    links = [link for route_output in route_outputs for link in own_links(route_output)]
    text = rules(uids, [*own_networks(address_output), *links, *masters], servers)
    _run_program(["nft", "-f", "-"], "nftables", text)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _by_family(networks: Iterable[str]) -> list[tuple[str, str]]:
    """Return ``[(nftables' family, its networks)]``, with overlapping networks merged."""
    parsed_networks = [ipaddress.ip_network(network, strict=False) for network in networks]
    v4 = ipaddress.collapse_addresses(
        n for n in parsed_networks if isinstance(n, ipaddress.IPv4Network)
    )
    v6 = ipaddress.collapse_addresses(
        n for n in parsed_networks if isinstance(n, ipaddress.IPv6Network)
    )
    families = (("ip", ", ".join(map(str, v4))), ("ip6", ", ".join(map(str, v6))))
    return [(family, networks_text) for family, networks_text in families if networks_text]


def _run_program(argv: Sequence[str], package: str, stdin_text: str | None = None) -> str:
    consequence = "the appliance gets no network without its rules"
    program = shutil.which(argv[0], path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")
    if not program:
        raise SeedError(
            f"{argv[0]} is missing on this host, and {consequence}; install {package}, or give "
            "install_from= and leave virt:seed:install_network out"
        )
    try:
        result = subprocess.run(
            [program, *argv[1:]],
            input=stdin_text,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise SeedError(f"{argv[0]} failed, and {consequence}: {exc}") from exc
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        raise SeedError(f"{argv[0]} failed, and {consequence}: {lines[0]}")
    return result.stdout
