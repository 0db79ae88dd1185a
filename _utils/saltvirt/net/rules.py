"""Firewall rules that let the other hypervisors in and nobody else: text from plain data."""

import hashlib
import ipaddress

from saltvirt.errors import BadArgument

BACKENDS = ("nftables", "iptables", "firewalld")


def ports(values):
    """Return ports as ``[(first, last)]`` from numbers and texts like ``49152-49215``."""
    out = []
    for value in values if isinstance(values, list | tuple) else [values]:
        first, _dash, last = str(value).partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            raise BadArgument("ports", f"{value!r} is neither a port nor a range like 49152-49215")
        pair = (int(first), int(last or first))
        if not 1 <= pair[0] <= pair[1] <= 65535:
            raise BadArgument("ports", f"{value!r} is out of range; give ports from 1 to 65535")
        out.append(pair)
    if not out:
        raise BadArgument("ports", "none are given")
    return sorted(set(out))


def networks(values):
    """Return addresses and networks in their usual form, sorted: ``{4: [...], 6: [...]}``."""
    out = {4: set(), 6: set()}
    for value in values:
        try:
            network = ipaddress.ip_network(str(value), strict=False)
        except ValueError:
            raise BadArgument("peers", f"{value!r} is neither an address nor a network") from None
        out[network.version].add(network)
    merged = {v: sorted(ipaddress.collapse_addresses(found)) for v, found in out.items()}
    return {version: [_short(network) for network in found] for version, found in merged.items()}


def _short(network):
    is_single = network.num_addresses == 1
    return str(network.network_address) if is_single else str(network)


def _span(pair, dash):
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]}{dash}{pair[1]}"


def digest(*parts):
    """Return a short digest that marks rules, so that another run knows them again."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def nftables(table, port_pairs, peers):
    """Return a table of its own for nft, which replaces itself in one step, and its mark."""
    wanted = ", ".join(_span(pair, "-") for pair in port_pairs)
    mark = digest("nftables", table, port_pairs, peers)
    lines = [f"table inet {table}", f"delete table inet {table}", f"table inet {table} {{"]
    for version, kind in ((4, "ipv4_addr"), (6, "ipv6_addr")):
        lines += [f"\tset peers{version} {{", f"\t\ttype {kind}", "\t\tflags interval"]
        if peers[version]:
            lines.append(f"\t\telements = {{ {', '.join(peers[version])} }}")
        lines.append("\t}")
    lines += [
        "\tchain input {",
        "\t\ttype filter hook input priority filter - 5; policy accept;",
        f'\t\tiif "lo" accept comment "{mark}"',
        f"\t\ttcp dport {{ {wanted} }} ip saddr @peers4 accept",
        f"\t\ttcp dport {{ {wanted} }} ip6 saddr @peers6 accept",
        f"\t\ttcp dport {{ {wanted} }} reject with tcp reset",
        "\t}",
        "}",
    ]
    return "\n".join(lines) + "\n", mark


def iptables(chain, port_pairs, peers, version):
    """Return a chain of its own for iptables-restore --noflush, and its mark."""
    wanted = ",".join(_span(pair, ":") for pair in port_pairs)
    mark = digest("iptables", chain, port_pairs, peers[version])
    match = f"-p tcp -m multiport --dports {wanted}"
    lines = ["*filter", f":{chain} - [0:0]"]
    lines.append(f"-A {chain} -i lo -m comment --comment {mark} -j RETURN")
    lines += [f"-A {chain} -s {peer} {match} -j ACCEPT" for peer in peers[version]]
    lines += [f"-A {chain} {match} -j REJECT --reject-with tcp-reset", "COMMIT"]
    return "\n".join(lines) + "\n", mark


def rich_rules(port_pairs, peers):
    """Return the rich rules of firewalld, which lets nobody else in by itself."""
    return [
        f'rule family="ipv{version}" source address="{peer}" '
        f'port port="{_span(pair, "-")}" protocol="tcp" accept'
        for version in (4, 6)
        for peer in peers[version]
        for pair in port_pairs
    ]


def is_ours(rule, port_pairs):
    """Return whether a rich rule opens one of these ports to an address."""
    words = {f'port port="{_span(pair, "-")}" protocol="tcp" accept' for pair in port_pairs}
    return "source address=" in rule and any(rule.endswith(word) for word in words)
