"""
Edit the stanzas of a bridge and its ports in the text of /etc/network/interfaces.

Pure functions. All other text, with comments and `source` lines, stays byte by byte.
"""

import fnmatch
import ipaddress
import re
from collections.abc import Collection, Iterable

from saltvirt.network.managers import stanzas
from saltvirt.network.managers.linkconfig import LinkConfig
from saltvirt.network.managers.stanzas import Block, Entry
from saltvirt.network.managers.tools import PersistenceError

_PresentRoutes = Collection[tuple[str, str]]
_ROUTING = re.compile(r"(\S*/)?(ip\s+(-\S+\s+)*(a|addr|address|r|ro|route)|route|ifconfig)\b")
# Routes to nowhere, and commands without an address or route, are right on any link.
_NOWHERE = {"blackhole", "unreachable", "prohibit", "throw", "reject"}
_HARMLESS = {"flush", "show", "list", "get"}
_VERBS = {"add", "a", "append", "replace", "change", "del", "delete"}
_BETWEEN = {"-net", "-host", "unicast", "to", "dev", "local"}
_NO_TARGET = {"netmask", "broadcast", "gw", "metric", "mss", "window", "irtt", "via", "src"}


def is_moved(part: str, link_names: Iterable[str], present_routes: _PresentRoutes) -> bool | None:
    """
    Return whether a hook sets an address or route that moves to the bridge; None if unclear.

    link_names
        The names of the bridge and its ports.
    present_routes
        ``[(address or destination, gateway or "")]`` that exist or will be written.
    """
    if not _ROUTING.match(part):
        return False
    words = [word.strip("\"'") for word in part.split()]
    if _NOWHERE & {*words} or _HARMLESS & {*words[1:4]}:
        return False
    names = {*link_names, "$IFACE", "${IFACE}"}
    tool = words[0].rpartition("/")[2]
    if tool == "ifconfig":
        return _is_ifconfig_moved(words[1:], names, present_routes)
    link = _link(words, is_last=tool == "route")
    if link is not None and link not in names:
        return False
    return _is_present(words, present_routes) or None


def _is_ifconfig_moved(
    words: list[str], names: Collection[str], present_routes: _PresentRoutes
) -> bool | None:
    addresses = [
        word
        for previous_word, word in zip(words, words[1:], strict=False)
        if previous_word not in _NO_TARGET and _plain(word)
    ]
    if not addresses or words[0].partition(":")[0] not in names or addresses[0] == "0.0.0.0":
        return False
    return any(_is_same_destination(addresses[0], dst) for dst, _via in present_routes) or None


def _link(words: list[str], *, is_last: bool) -> str | None:
    if "dev" in words[:-1]:
        return words[words.index("dev") + 1]
    if is_last and words[-2] not in _NO_TARGET and not _plain(words[-1]):
        return words[-1]
    return None


def _is_present(words: list[str], present_routes: _PresentRoutes) -> bool:
    arguments = _arguments(words)
    if not arguments or "table" in arguments:
        return False
    hops = [
        next_word
        for word, next_word in zip(arguments, arguments[1:], strict=False)
        if word in ("via", "gw")
    ]
    gateway = hops[0] if hops else None
    return any(
        _is_same_destination(arguments[0], dst) and gateway in (None, hop)
        for dst, hop in present_routes
    )


def _arguments(words: list[str]) -> list[str]:
    """Return the arguments after a command's verb, without filler words."""
    at = next((n for n, word in enumerate(words) if n and word in _VERBS), len(words))
    return [word for word in words[at + 1 :] if word not in _BETWEEN]


def _plain(text: str) -> str | None:
    """Return an address or a network in its usual form, None for other texts."""
    if text in ("default", "0.0.0.0/0", "::/0"):
        return "default"
    try:
        return str(ipaddress.ip_interface(text))
    except ValueError:
        return None


def _is_same_destination(text: str, present_text: str) -> bool:
    address, present_address = _plain(text), _plain(present_text)
    if address is None or present_address is None or "/" in text:
        return address == present_address is not None
    # The prefix may be given apart, as a netmask.
    return address.partition("/")[0] == present_address.partition("/")[0]


_HOOKS = ("up", "post-up", "pre-up", "down", "post-down", "pre-down")
# The addressing of an interface: removed from a port, rewritten for a bridge.
_ADDRESSING = ("address", "netmask", "broadcast", "network", "gateway", "pointopoint", "scope")
# Options that belong to the addresses and exist only here: they move with them.
_GOES_ALONG = (
    "dns-search",
    "dns-domain",
    "dns-nameservers",
    "dns-nameserver",
    "dns-sortlist",
    "dns-options",
    "metric",
)
_OF_DHCP = ("hostname", "leasehours", "leasetime", "vendor", "client")
_OF_BRIDGE = (
    "bridge_ports",
    "bridge_stp",
    "bridge_fd",
    "bridge-ports",
    "bridge-stp",
    "bridge-fd",
    "hwaddress",
    "mtu",
)
_PART = re.compile(r";|&&|\|\|")
_OWN = re.compile(r"up ip (-6 )?(address|route) replace \S+( via \S+)? dev \S+")
_INDENT = "    "


def names(text: str) -> set[str]:
    """Return the names of the interfaces that have a stanza."""
    return {
        block.words[1]
        for block in stanzas.blocks(text)
        if block.words[:1] == ["iface"] and len(block.words) > 1
    }


def is_leased(text: str, name: str) -> bool:
    """Return whether an interface gets its IPv4 address by DHCP."""
    return any(
        block.is_iface(name, "inet") and block.words[3:4] == ["dhcp"]
        for block in stanzas.blocks(text)
    )


def sources(text: str) -> list[tuple[str, str]]:
    """Return ``[(keyword, pattern)]`` of the files that this text sources."""
    return [
        (entry.words[0], word)
        for entry in stanzas.entries(text)
        if entry.words[:1] in (["source"], ["source-directory"])
        for word in entry.words[1:]
    ]


def refuse_elsewhere(text: str, path: str, interface_names: Iterable[str]) -> None:
    """Raise PersistenceError if a sourced file sets one of these interfaces."""
    for name in sorted(names(text).intersection(interface_names)):
        raise PersistenceError(
            f"{path} sets {name}, and only /etc/network/interfaces is edited: move "
            f"the stanzas of {name} there"
        )
    refuse_unclear(text, path, interface_names)


def refuse_unclear(text: str, path: str, interface_names: Iterable[str]) -> None:
    """Raise PersistenceError if these interfaces' stanzas cannot be edited safely."""
    for block in stanzas.blocks(text):
        words = block.words
        for name in interface_names:
            _refuse_aliases(words, path, name)
            if words[:2] == ["iface", name]:
                _refuse_stanza(words, path, name)


def _refuse_aliases(words: list[str], path: str, name: str) -> None:
    first, other_words = words[:1], words[1:]
    if first == ["iface"] and other_words and other_words[0].startswith(f"{name}:"):
        raise PersistenceError(
            f"{path} has {other_words[0]}, whose address would stay on {name}: add that "
            f"address to {name} itself by an 'up ip address add' line"
        )
    if any(fnmatch.fnmatch(name, pattern) for pattern in _mapped(words)):
        raise PersistenceError(
            f"{path} maps {name} to another stanza ({' '.join(words)}), which is not "
            f"followed: write 'iface {name} ...' instead"
        )


def _mapped(words: list[str]) -> list[str]:
    """Return the interface patterns that a line maps to stanzas of other names."""
    if words[:1] == ["mapping"]:
        return [word.lstrip("/") for word in words[1:]]
    if _is_bringing_up(words):
        return [word.partition("=")[0].lstrip("/") for word in words[1:] if "=" in word]
    return []


def _is_bringing_up(words: list[str]) -> bool:
    return bool(words) and (words[0] == "auto" or words[0].startswith("allow-"))


def _refuse_stanza(words: list[str], path: str, name: str) -> None:
    if "inherits" in words:
        raise PersistenceError(
            f"{path}: {name} inherits from another stanza, which is not followed: "
            "write its options out"
        )


def refuse_dhcpv6(text: str, path: str, interface_names: Iterable[str]) -> None:
    """Raise PersistenceError if one of these interfaces uses DHCPv6."""
    for block in stanzas.blocks(text):
        for name in interface_names:
            if block.is_iface(name, "inet6") and block.words[3:4] == ["dhcp"]:
                raise PersistenceError(
                    f"{path}: {name} has its IPv6 address by DHCPv6, which nobody "
                    "would renew on another interface: make it static, or 'inet6 "
                    "auto'"
                )


def _is_routing(entry: Entry, name: str, config: LinkConfig) -> bool:
    """Return whether a hook sets addresses or routes that move to the bridge."""
    if not entry.words or entry.words[0] not in _HOOKS:
        return False
    hook_text = " ".join(entry.words)
    # Hooks that this module wrote for this link are written anew.
    if _OWN.fullmatch(hook_text) and entry.words[-1] == name:
        return True
    parts = [part.strip() for part in _PART.split(" ".join(entry.words[1:]))]
    parts = [part for part in parts if part not in ("true", ":", "")]
    link_names, present_routes = (name, config.name, *config.ports), _present_routes(config)
    verdicts = [is_moved(part, link_names, present_routes) for part in parts]
    if None in verdicts:
        raise PersistenceError(
            f"/etc/network/interfaces: '{hook_text}' sets what {name} does not have now, so "
            "nobody can tell whether the bridge shall have it: remove it, or carry it "
            "out first"
        )
    if any(verdicts) and not all(verdicts):
        raise PersistenceError(
            f"/etc/network/interfaces: '{hook_text}' sets routes and does something else: "
            "make two lines of it"
        )
    return any(verdicts)


def _present_routes(config: LinkConfig) -> list[tuple[str, str]]:
    """Return present and future ``[(address or destination, gateway or "")]``."""
    addresses = [(address, "") for address in config.addresses]
    gateways = [("default", gateway) for gateway in config.gateways]
    return [*config.seen, *config.routes, *addresses, *gateways]


def _remaining_options(
    blocks: list[Block],
    name: str,
    excluded_keys: Collection[str],
    config: LinkConfig,
    family: str | None = None,
) -> list[Entry]:
    """Return the options of an interface but these, addresses and routes."""
    options = [
        entry for block in blocks if block.is_iface(name, family) for entry in block.options()
    ]
    return [
        entry
        for entry in options
        if entry.words[:1] == []
        or (
            entry.words[0] not in (*_ADDRESSING, *excluded_keys)
            and not _is_routing(entry, name, config)
        )
    ]


def _options_with_addresses(blocks: list[Block], name: str, config: LinkConfig) -> list[Entry]:
    """Return the options of an interface that move with its addresses."""
    moved_keys = (*_GOES_ALONG, *(_OF_DHCP if config.dhcp else ()))
    options = [
        entry for block in blocks if block.is_iface(name, "inet") for entry in block.options()
    ]
    return [entry for entry in options if entry.words and entry.words[0] in moved_keys]


def _entry(line: str, indent: str = _INDENT) -> Entry:
    return Entry(line.split(), [f"{indent}{line}"])


def _routes(config: LinkConfig) -> list[str]:
    """Return the hooks for addresses and routes that have no option."""
    in_option = () if config.dhcp else _of_ipv4(config.addresses)[:1]
    other_addresses = [a for a in config.addresses if a not in in_option]
    # Routes without a gateway first: they may reach the gateways.
    routes = sorted(config.routes, key=lambda route: bool(route[1]))
    gateways = [g for g in config.gateways if config.dhcp or ":" in g]
    return [
        *(f"up ip address replace {a} dev {config.name}" for a in other_addresses),
        *(_route_hook(dst, via, config.name) for dst, via in routes),
        *(_route_hook("default", gateway, config.name) for gateway in gateways),
    ]


def _route_hook(dst: str, via: str, link: str) -> str:
    ip = "ip -6" if ":" in dst + via else "ip"
    hop = f" via {via}" if via else ""
    return f"up {ip} route replace {dst}{hop} dev {link}"


def _of_ipv4(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if ":" not in text]


def _stanza(config: LinkConfig, bridge_lines: list[str], other_entries: list[Entry]) -> Block:
    """Return the block of an interface; ``bridge_lines`` are options of bridges."""
    method, lines = _method(config)
    lines = [
        *lines,
        *bridge_lines,
        *_resolver(config, {e.words[0] for e in other_entries if e.words}),
    ]
    head = _entry(f"iface {config.name} inet {method}", indent="")
    routes = list(map(_entry, _routes(config)))
    return Block(head.words, [head, *map(_entry, lines), *other_entries, *routes])


def _method(config: LinkConfig) -> tuple[str, list[str]]:
    """Return the method of an interface, and its address options."""
    if config.dhcp:
        return "dhcp", []
    addresses = _of_ipv4(config.addresses)
    if not addresses:
        return "manual", []
    gateways = [f"gateway {gateway}" for gateway in _of_ipv4(config.gateways)]
    return "static", [f"address {addresses[0]}", *gateways]


def _resolver(config: LinkConfig, present_keys: set[str]) -> list[str]:
    """Return options for name servers and search domains, unless present."""
    lines = []
    if config.dns and "dns-nameservers" not in present_keys:
        lines.append(f"dns-nameservers {' '.join(config.dns)}")
    if config.search and not present_keys & {"dns-search", "dns-domain"}:
        lines.append(f"dns-search {' '.join(config.search)}")
    return lines


def _replace_blocks(blocks: list[Block], name: str, new_blocks: list[Block]) -> list[Block]:
    """Return the blocks with an interface's blocks replaced, or appended."""
    positions = [at for at, block in enumerate(blocks) if block.is_iface(name)]
    new = _with_auto(blocks, name) + new_blocks
    if not positions:
        gap = (
            []
            if not stanzas.text_of(blocks).strip() or stanzas.text_of(blocks).endswith("\n\n")
            else [Block([], [Entry([], [""])])]
        )
        return [*_trimmed(blocks), *gap, *new]
    out = []
    for at, block in enumerate(blocks):
        if at == positions[0]:
            out += new
        if at not in positions:
            out.append(block)
    return out


def _trimmed(blocks: list[Block]) -> list[Block]:
    """Return the blocks without the empty lines at the end of the file."""
    out = [Block(block.words, list(block.entries)) for block in blocks]
    while out and (not out[-1].entries or not "".join(out[-1].entries[-1].lines).strip()):
        if out[-1].entries:
            out[-1].entries.pop()
        else:
            out.pop()
    return out


def _with_auto(blocks: list[Block], name: str) -> list[Block]:
    """Return the ``auto`` block of an interface, if the file has none."""
    auto = {word for block in blocks for word in block.words[1:] if _is_bringing_up(block.words)}
    if name in auto:
        return []
    line = _entry(f"auto {name}", indent="")
    return [Block(line.words, [line])]


def _inet6_blocks(blocks: list[Block], name: str) -> list[Block]:
    """Return the ``inet6 auto`` blocks of an interface."""
    return [
        block for block in blocks if block.is_iface(name, "inet6") and block.words[3:4] == ["auto"]
    ]


def _rename_blocks(blocks: list[Block], name: str, new_name: str) -> list[Block]:
    """Return the ``inet6 auto`` blocks under another interface name."""
    inet6_blocks = _inet6_blocks(blocks, name)
    heads = [_entry(f"iface {new_name} inet6 auto", indent="") for _block in inet6_blocks]
    return [
        Block(head.words, [head, *block.options()])
        for head, block in zip(heads, inet6_blocks, strict=True)
    ]


def with_bridge(text: str, config: LinkConfig) -> str:
    """Return the text with a bridge; its ports keep all but their addresses."""
    blocks = stanzas.blocks(text)
    old = blocks
    is_asking = any(block.is_iface(config.name, "inet6") for block in old)
    for port in config.ports:
        # Blocks that move to the bridge do not stay at the port.
        moved_blocks = [] if is_asking else _inet6_blocks(old, port)
        kept_blocks = [
            block for block in old if not any(block is moved_block for moved_block in moved_blocks)
        ]
        options = _remaining_options(old, port, (*_GOES_ALONG, *_OF_DHCP), config, "inet")
        options += [
            entry
            for entry in _remaining_options(kept_blocks, port, (), config, "inet6")
            if not entry.words or entry.words[0] in _HOOKS
        ]
        head = _entry(f"iface {port} inet manual", indent="")
        blocks = _replace_blocks(blocks, port, [Block(head.words, [head, *options])])
    return stanzas.text_of(_replace_blocks(blocks, config.name, _bridge(old, config)))


def _bridge(old: list[Block], config: LinkConfig) -> list[Block]:
    # Ports of the present stanza stay, even if they are not requested.
    ports = dict.fromkeys([*config.ports, *_bridge_ports(old, config.name)])
    bridge_lines = [
        f"bridge_ports {' '.join(ports) or 'none'}",
        f"bridge_stp {'on' if config.stp else 'off'}",
        f"bridge_fd {config.forward_delay_s}",
        f"hwaddress {config.mac}",
        f"mtu {config.mtu}",
    ]
    inet6_blocks = [block for block in old if block.is_iface(config.name, "inet6")]
    if not inet6_blocks:
        inet6_blocks = [
            block for port in config.ports for block in _rename_blocks(old, port, config.name)
        ]
    stanza = _stanza(config, bridge_lines, _bridge_options(old, config))
    return [stanza, *(b for b in inet6_blocks if b.words[3:4] != ["static"])]


def _bridge_ports(blocks: list[Block], name: str) -> list[str]:
    options = [entry.words for b in blocks if b.is_iface(name) for entry in b.options()]
    port_lists = [
        words[1:] for words in options if words[:1] in (["bridge_ports"], ["bridge-ports"])
    ]
    return [port for words in port_lists for port in words if port != "none"]


def has_port_settings(text: str, name: str) -> bool:
    """Return whether a bridge's stanza has addressing that its ports would need."""
    blocks = stanzas.blocks(text)
    kinds = {block.words[3] for block in blocks if block.is_iface(name) and len(block.words) > 3}
    return bool(kinds - {"manual"} and _bridge_ports(blocks, name))


def _bridge_options(old: list[Block], config: LinkConfig) -> list[Entry]:
    """Return the options that a bridge keeps, or gets with its ports' addresses."""
    excluded_keys = (
        *_OF_BRIDGE,
        *(("dns-nameservers",) if config.is_dns_asked else ()),
        *(() if config.dhcp else _OF_DHCP),
    )
    if any(block.is_iface(config.name, "inet") for block in old):
        return _remaining_options(old, config.name, excluded_keys, config, "inet")
    moved_entries = [
        entry for port in config.ports for entry in _options_with_addresses(old, port, config)
    ]
    return [entry for entry in moved_entries if entry.words[0] not in excluded_keys]


def without_bridge(text: str, name: str, heir: LinkConfig | None) -> str:
    """Return the text without a bridge; ``heir``, if given, gets its settings."""
    old = stanzas.blocks(text)
    blocks = [block for block in map(lambda b: _without_interface(b, name), old) if block.entries]
    if heir:
        other_entries = _remaining_options(
            old, heir.name, (), heir, "inet"
        ) + _options_with_addresses(old, name, heir)
        inet6_blocks = [block for block in old if block.is_iface(heir.name, "inet6")]
        new_blocks = [
            _stanza(heir, [], other_entries),
            *(inet6_blocks or _rename_blocks(old, name, heir.name)),
        ]
        blocks = _replace_blocks(blocks, heir.name, new_blocks)
    return stanzas.text_of(_trimmed(blocks))


def _without_interface(block: Block, name: str) -> Block:
    """Return a block without an interface's stanza, or without its name in a line."""
    if block.is_iface(name):
        return Block([])
    if _is_bringing_up(block.words):
        other_words = [word for word in block.words if word != name]
        if other_words != block.words:
            return Block(
                other_words, [_entry(" ".join(other_words), indent="")] if other_words[1:] else []
            )
    return block
