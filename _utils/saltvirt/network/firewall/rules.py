"""
Firewall rules that let only the other hypervisors in: text from plain data.

A guest on a NAT network sends with its host's address, which the peers let in. So this host refuses
to forward packets to these ports of peers; a host's own packets are not forwarded. A peer may have
further addresses: in the networks that this host shares with peers, it drops all packets to these
ports that got this host's address by source NAT.

A guest with a forwarded port can send itself a packet with a peer's address, so that the kernel
takes the guest's connection for a reply. So SYN packets are checked in both directions. A peer
behind this host (a hypervisor that is a VM) is let through with its own address, if its packets
come from the link that routes to this address: guests on other links cannot forge it.
"""

import hashlib
import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from saltvirt.core.errors import BadArgument

# A range of ports, first and last; addresses and networks by the version of IP.
_Span = tuple[int, int]
Peers = Mapping[int, Collection[str]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,27}")  # 28 characters are what iptables takes

_MARK = "@mark@"
# The suffix of the table for forwarded packets only.
BESIDE = "_forward"

# The mark of this project's tables and chains, in any version.
_OUR_TABLE = re.compile(r'^\s*iif "?lo"? accept comment "[0-9a-f]{24}"\s*$', re.MULTILINE)
_OUR_CHAIN = re.compile(
    r'^-A \S+ -i lo -m comment --comment "?[0-9a-f]{24}"? -j RETURN\s*$', re.MULTILINE
)
# A table without rules: flushed, or never filled.
_SET = re.compile(r"\bset (peers|near)[46] \{.*?\n\t\}", re.DOTALL)
_HOOK = (
    r"chain (?P<hook>input|forward|postrouting) \{\s*"
    r"type filter hook (?P=hook) [^\n]*policy accept;\s*\}"
)
_BARE = re.compile(r"table inet \S+ \{\s*(" + _HOOK + r"\s*)*\}")


# Names of distributions' own tables, which may be loaded later and collide with ours.
_THEIRS = {"filter", "nat", "mangle", "raw", "security", "firewalld"}
_BUILT_IN = {
    "INPUT",
    "OUTPUT",
    "FORWARD",
    "PREROUTING",
    "POSTROUTING",
    "ACCEPT",
    "DROP",
    "QUEUE",
    "RETURN",
    "REJECT",
    "LOG",
}


def table_name(value: object) -> str:
    """Return the name if it can name a table, a chain, a unit and a file."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise BadArgument(
            "name",
            f"{value!r} cannot name rules: use up to 28 letters, digits and "
            "'_', beginning with a letter",
        )
    return value


def refuse_beside(name: str) -> None:
    """Refuse a name reserved for the table of another rule set."""
    if name.endswith(BESIDE):
        raise BadArgument(
            "name",
            f"{name!r} is what the table beside {name.removesuffix(BESIDE)!r} is called; "
            f"choose a name that does not end with {BESIDE}",
        )


def refuse_table(name: str) -> None:
    """Refuse the name of a table that distributions use."""
    if name in _THEIRS:
        raise BadArgument(
            "name",
            f"{name!r} is what a host's own tables are called; choose " "another, like salt_virt",
        )


def chain_name(name: str) -> str:
    """Return the name of the chain; refuse one that is built into iptables."""
    chain = name.upper().replace("_", "-")
    if chain in _BUILT_IN:
        raise BadArgument(
            "name",
            f"{name!r} would be the chain {chain}, which is built into "
            "iptables; choose another, like salt_virt",
        )
    return chain


def is_our_table(listing: str) -> bool:
    """Return whether ``nft list table`` shows a table of ours, or one without rules."""
    return bool(_OUR_TABLE.search(listing) or _BARE.fullmatch(_SET.sub("", listing).strip()))


def is_our_chain(listing: str) -> bool:
    """Return whether ``iptables -S CHAIN`` shows a chain of ours, or one without rules."""
    return bool(_OUR_CHAIN.search(listing) or "-A " not in listing)


def ports(values: Any) -> list[_Span]:
    """Return ports as ``[(first, last)]`` from numbers and texts like ``49152-49215``."""
    out: list[_Span] = []
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


def networks(values: Iterable[object]) -> dict[int, list[str]]:
    """Return addresses and networks in their usual form, sorted: ``{4: [...], 6: [...]}``."""
    out: dict[int, set[Any]] = {4: set(), 6: set()}
    for value in values:
        try:
            network = ipaddress.ip_network(str(value), strict=False)
        except ValueError:
            raise BadArgument("peers", f"{value!r} is neither an address nor a network") from None
        out[network.version].add(network)
    networks_by_version = {
        v: sorted(ipaddress.collapse_addresses(members)) for v, members in out.items()
    }
    return {
        version: [_short(network) for network in members]
        for version, members in networks_by_version.items()
    }


def _short(network: Network) -> str:
    is_single = network.num_addresses == 1
    return str(network.network_address) if is_single else str(network)


def _span(pair: _Span, dash: str) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]}{dash}{pair[1]}"


def _add_mark(lines: Iterable[str]) -> tuple[str, str]:
    """Return a text with its mark filled in, and the mark: a digest to recognise the text by."""
    text = "\n".join(lines) + "\n"
    mark = hashlib.sha256(text.encode()).hexdigest()[:24]
    return text.replace(_MARK, mark), mark


def nftables(
    table: str,
    port_pairs: Iterable[_Span],
    peers: Peers,
    near: Peers,
    *,
    lets_in: bool = True,
    sees_ways: bool = True,
) -> tuple[str, str]:
    """
    Return the text of an nft table that replaces the present one, and its mark.

    near
        The networks in which peers may have further addresses.
    lets_in
        Whether the table also restricts incoming connections. Defaults to True.
    sees_ways
        Whether the kernel supports ``fib saddr . iif`` in a forward chain; without it no peer
        behind this host is let through. Defaults to True.
    """
    port_set = ", ".join(_span(pair, "-") for pair in port_pairs)
    lines = [replacing(table, f"table inet {table} {{")]
    lines += [*_sets("peers", peers), *_sets("near", near)]
    if lets_in:
        lines += [
            *_chain("input"),
            _answers(port_set),
            f"\t\ttcp dport {{ {port_set} }} ip saddr @peers4 accept",
            f"\t\ttcp dport {{ {port_set} }} ip6 saddr @peers6 accept",
            f"\t\ttcp dport {{ {port_set} }} reject with tcp reset",
            "\t}",
        ]
    lines += [*_chain("forward"), *(_accept_lines(port_set) if sees_ways else [])]
    lines += [*_reject_lines(port_set), "\t}"]
    lines += [*_hooked("postrouting", "srcnat + 50"), *_drop_lines(port_set), "\t}"]
    return _add_mark([*lines, "}"])


_FAMILIES = (("ip", 4), ("ip6", 6))


def _connection_matches(port_set: str) -> tuple[str, str]:
    """Return matches for packets of a connection's initiator, and for any SYN packet."""
    to = f"tcp dport {{ {port_set} }}"
    # Replies to a peer's own connection from such a port match neither.
    return f"ct direction original {to}", f"tcp flags & (syn | ack) == syn {to}"


def _answers(port_set: str) -> str:
    # The kernel may use one of these ports for an outgoing connection of this host.
    to = f"tcp dport {{ {port_set} }}"
    return f"\t\tct direction reply {to} tcp flags & (syn | ack) != syn accept"


def _accept_lines(port_set: str) -> list[str]:
    original_match, _syn_match = _connection_matches(port_set)
    return [
        f"\t\t{ip} saddr @peers{n} fib saddr . iif oif exists {original_match} {ip} daddr "
        f"@peers{n} accept"
        for ip, n in _FAMILIES
    ]


def _reject_lines(port_set: str) -> list[str]:
    return [
        f"\t\t{to} {ip} daddr @peers{n} reject with tcp reset"
        for to in _connection_matches(port_set)
        for ip, n in _FAMILIES
    ]


def _drop_lines(port_set: str) -> list[str]:
    original_match, syn_match = _connection_matches(port_set)
    # This chain runs after source NAT, which for replies undoes destination NAT. Packets cannot be
    # rejected here. A packet with a socket is this host's own.
    matches = (f"ct status snat {original_match}", f"ct direction reply ct status dnat {syn_match}")
    return [
        "\t\tmeta skuid >= 0 accept",
        *(
            f"\t\t{to} {ip} daddr @{set_name}{n} drop"
            for set_name in ("peers", "near")
            for to in matches
            for ip, n in _FAMILIES
        ),
    ]


def holds_back(text: str) -> bool:
    """Return whether the text of a table drops all that this release drops."""
    match = re.search(r"tcp dport \{ ([^}]*) \}", text)
    port_set = match[1] if match else ""
    return {*_reject_lines(port_set), *_drop_lines(port_set)} <= set(text.splitlines())


def replacing(table: str, text: str) -> str:
    """Return a table's text so that it replaces the present table atomically."""
    return f"table inet {table}\ndelete table inet {table}\n{text}"


def _sets(name: str, addresses: Peers) -> list[str]:
    lines = []
    for version, kind in ((4, "ipv4_addr"), (6, "ipv6_addr")):
        lines += [f"\tset {name}{version} {{", f"\t\ttype {kind}", "\t\tflags interval"]
        if addresses[version]:
            lines.append(f"\t\telements = {{ {', '.join(addresses[version])} }}")
        lines.append("\t}")
    return lines


def _chain(hook: str) -> list[str]:
    return [*_hooked(hook, "filter - 5"), f'\t\tiif "lo" accept comment "{_MARK}"']


def _hooked(hook: str, priority: str) -> list[str]:
    return [
        f"\tchain {hook} {{",
        f"\t\ttype filter hook {hook} priority {priority}; policy accept;",
    ]


def iptables(
    chain: str, port_pairs: Iterable[_Span], peers: Peers, version: int
) -> tuple[str, str]:
    """
    Return the text of a chain for iptables-restore --noflush, and its mark.

    The text ends with the jump to the chain, for boots; see :func:`without_jump`.
    """
    port_list = ",".join(_span(pair, ":") for pair in port_pairs)
    match = f"-p tcp -m multiport --dports {port_list}"
    lines = ["*filter", f":{chain} - [0:0]"]
    lines.append(f"-A {chain} -i lo -m comment --comment {_MARK} -j RETURN")
    # As in :func:`_answers`.
    answers = "-m tcp ! --tcp-flags SYN,ACK SYN -m conntrack --ctdir REPLY"
    lines.append(f"-A {chain} {match} {answers} -j RETURN")
    lines += [f"-A {chain} -s {peer} {match} -j ACCEPT" for peer in peers[version]]
    lines += [f"-A {chain} {match} -j REJECT --reject-with tcp-reset"]
    lines += [_jump(chain), "COMMIT"]
    return _add_mark(lines)


def without_jump(text: str, chain: str) -> str:
    """Return the chain without the jump: the chain is replaced atomically while in use."""
    return text.replace(_jump(chain) + "\n", "")


def restoring(chain: str, listing: str) -> str:
    """Return the text that restores a chain from the output of ``iptables -S CHAIN``."""
    rules = [line for line in listing.splitlines() if line.startswith("-A ")]
    return "\n".join(["*filter", f":{chain} - [0:0]", *rules, "COMMIT"]) + "\n"


def _jump(chain: str) -> str:
    return f"-I INPUT 1 -j {chain}"


def rich_rules(port_pairs: Iterable[_Span], peers: Peers) -> list[str]:
    """Return the rich rules of firewalld, which blocks all other sources by default."""
    return [
        f'rule family="ipv{version}" source address="{peer}" '
        f'port port="{_span(pair, "-")}" protocol="tcp" accept'
        for version in (4, 6)
        for peer in peers[version]
        for pair in port_pairs
    ]


def rich_changes(
    expected_rules: Collection[str], present_rules: Collection[str], our_rules: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return the rules to add and those to remove; rules of others stay."""
    return (
        [rule for rule in expected_rules if rule not in present_rules],
        [rule for rule in present_rules if rule in our_rules and rule not in expected_rules],
    )
