"""
The text of /etc/network/interfaces: the stanzas of a bridge and its ports, and nothing else of it.

Pure functions. What others have written, comments and `source` lines too, stays as it is, byte by
byte; only the stanzas of the bridge and of its ports are written anew.
"""

import fnmatch
import re
from dataclasses import dataclass, field

from saltvirt.net import hooks
from saltvirt.net.tools import KeepError

_ALONE = ("auto", "source", "source-directory", "no-auto-down", "no-scripts", "rename")
_HOOKS = ("up", "post-up", "pre-up", "down", "post-down", "pre-down")
# What says which addresses an interface has: a port has none, a bridge has those it was given.
_ADDRESSING = ("address", "netmask", "broadcast", "network", "gateway", "pointopoint", "scope")
# What belongs to the addresses, but is nowhere else: it goes with them.
_GOES_ALONG = ("dns-search", "dns-domain", "dns-nameservers", "dns-nameserver", "dns-sortlist",
               "dns-options", "metric")  # fmt: skip
_OF_DHCP = ("hostname", "leasehours", "leasetime", "vendor", "client")
_OF_BRIDGE = ("bridge_ports", "bridge_stp", "bridge_fd", "bridge-ports", "bridge-stp", "bridge-fd",
              "hwaddress", "mtu")  # fmt: skip
_PART = re.compile(r";|&&|\|\|")
_OWN = re.compile(r"up ip (-6 )?(address|route) replace \S+( via \S+)? dev \S+")
_INDENT = "    "
# A backslash at the end of the file continues nothing, and would if it came elsewhere.
_END = "\\ \t\r\n"


@dataclass(slots=True)
class _Entry:
    """A line as ifupdown reads it; it may be several in the file."""

    words: list
    lines: list


@dataclass(slots=True)
class _Block:
    """A stanza, or comments and empty lines between two (``words`` is empty then)."""

    words: list
    entries: list = field(default_factory=list)

    def is_iface(self, name, family=None):
        return (self.words[:2] == ["iface", name]
                and family in (None, *self.words[2:3]))  # fmt: skip

    def options(self):
        return self.entries[1:]


def _entries(text):
    lines = text.rstrip(_END).split("\n")
    while lines:
        own = [lines.pop(0)]
        if own[0].lstrip().startswith("#"):
            yield _Entry([], own)
            continue
        while own[-1].endswith("\\") and lines:
            own.append(lines.pop(0))
        yield _Entry(" ".join(line.removesuffix("\\") for line in own).split(), own)


def _is_head(words):
    return bool(words) and (words[0] in (*_ALONE, "iface", "mapping")
                            or words[0].startswith("allow-"))  # fmt: skip


def _blocks(text):
    out = [_Block([])]
    for entry in _entries(text):
        if _is_head(entry.words):
            out.append(_Block(entry.words, [entry]))
        elif entry.words or out[-1].words[:1] in (["iface"], ["mapping"]) or not out[-1].words:
            out[-1].entries.append(entry)
        else:
            out.append(_Block([], [entry]))
    return [part for block in out for part in _without_tail(block)]


def _without_tail(block):
    """Return a stanza, and what stands between its last option and the next stanza."""
    end = len(block.entries)
    while block.words and end and not block.entries[end - 1].words:
        end -= 1
    tail = block.entries[end:]
    return [_Block(block.words, block.entries[:end]), *([_Block([], tail)] if tail else [])]


def _text(blocks):
    lines = [line for block in blocks for entry in block.entries for line in entry.lines]
    return "\n".join(lines).rstrip(_END) + "\n"


def names(text):
    """Return the names of the interfaces that have a stanza."""
    return {block.words[1] for block in _blocks(text) if block.words[:1] == ["iface"]
            and len(block.words) > 1}  # fmt: skip


def is_leased(text, name):
    """Return whether an interface gets its IPv4 address by DHCP."""
    return any(block.is_iface(name, "inet") and block.words[3:4] == ["dhcp"]
               for block in _blocks(text))  # fmt: skip


def sources(text):
    """Return ``[(keyword, pattern)]`` of the files that are read beside this one."""
    return [(entry.words[0], word) for entry in _entries(text)
            if entry.words[:1] in (["source"], ["source-directory"]) for word in entry.words[1:]]


def refuse_elsewhere(text, path, wanted):
    """Raise KeepError if a file that is read beside the main one sets one of these interfaces."""
    for name in sorted(names(text).intersection(wanted)):
        raise KeepError(f"{path} sets {name}, and only /etc/network/interfaces is edited: move "
                        f"the stanzas of {name} there")  # fmt: skip
    refuse_unclear(text, path, wanted)


def refuse_unclear(text, path, wanted):
    """Raise KeepError if what a file says of these interfaces cannot be edited safely."""
    for block in _blocks(text):
        words = block.words
        for name in wanted:
            _refuse_aliases(words, path, name)
            if words[:2] == ["iface", name]:
                _refuse_stanza(words, path, name)


def _refuse_aliases(words, path, name):
    first, rest = words[:1], words[1:]
    if first == ["iface"] and rest and rest[0].startswith(f"{name}:"):
        raise KeepError(f"{path} has {rest[0]}, whose address would stay on {name}: add that "
                        f"address to {name} itself by an 'up ip address add' line")  # fmt: skip
    patterns = [word.lstrip("/") for word in rest] if first == ["mapping"] else []
    if first and (first == ["auto"] or first[0].startswith("allow-")):
        patterns = [word.partition("=")[0].lstrip("/") for word in rest if "=" in word]
    if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
        raise KeepError(f"{path} maps {name} to another stanza ({' '.join(words)}), which is not "
                        f"followed: write 'iface {name} ...' instead")  # fmt: skip


def _refuse_stanza(words, path, name):
    if "inherits" in words:
        raise KeepError(f"{path}: {name} inherits from another stanza, which is not followed: "
                        "write its options out")  # fmt: skip


def refuse_dhcpv6(text, path, wanted):
    """Raise KeepError if one of these interfaces has a lease of IPv6: its client stays there."""
    for block in _blocks(text):
        for name in wanted:
            if block.is_iface(name, "inet6") and block.words[3:4] == ["dhcp"]:
                raise KeepError(f"{path}: {name} has its IPv6 address by DHCPv6, which nobody "
                                "would renew on another interface: make it static, or 'inet6 "
                                "auto'")  # fmt: skip


def _is_routing(entry, name, kept):
    """Return whether a hook gives addresses or routes that the bridge is given instead."""
    if entry.words[:1] == [] or entry.words[0] not in _HOOKS:
        return False
    said = " ".join(entry.words)
    # What was written for this link itself is written anew.
    if _OWN.fullmatch(said) and entry.words[-1] == name:
        return True
    parts = [part.strip() for part in _PART.split(" ".join(entry.words[1:]))]
    parts = [part for part in parts if part not in ("true", ":", "")]
    seen = [*kept.seen, *kept.routes, *((a, "") for a in kept.addresses),
            *(("default", g) for g in kept.gateways)]  # fmt: skip
    found = [hooks.is_moved(part, (name, kept.name, *kept.ports), seen) for part in parts]
    if None in found:
        raise KeepError(f"/etc/network/interfaces: '{said}' sets what {name} does not have now, so "
                        "nobody can tell whether the bridge shall have it: remove it, or carry it "
                        "out first")  # fmt: skip
    if any(found) and not all(found):
        raise KeepError(f"/etc/network/interfaces: '{said}' sets routes and does something else: "
                        "make two lines of it")  # fmt: skip
    return any(found)


def _left(blocks, name, dropped, kept, family=None):
    """Return the options of an interface that are none of these, and no address or route."""
    found = [entry for block in blocks if block.is_iface(name, family)
             for entry in block.options()]  # fmt: skip
    return [entry for entry in found if entry.words[:1] == [] or (
        entry.words[0] not in (*_ADDRESSING, *dropped)
        and not _is_routing(entry, name, kept))]  # fmt: skip


def _going(blocks, name, kept):
    """Return the options of an interface that go where its addresses go."""
    wanted = (*_GOES_ALONG, *(_OF_DHCP if kept.dhcp else ()))
    options = [entry for block in blocks if block.is_iface(name, "inet")
               for entry in block.options()]  # fmt: skip
    return [entry for entry in options if entry.words and entry.words[0] in wanted]


def _entry(line, indent=_INDENT):
    return _Entry(line.split(), [f"{indent}{line}"])


def _routes(kept):
    """Return the hooks for what has no option of its own."""
    version4 = [a for a in kept.addresses if ":" not in a]
    more = [a for a in kept.addresses if kept.dhcp or a not in version4[:1]]
    out = [f"up ip address replace {a} dev {kept.name}" for a in more]
    # Those on the link first: gateways may be reached by them.
    for dst, via in (*sorted(kept.routes, key=lambda r: bool(r[1])), *(
            ("default", g) for g in kept.gateways if kept.dhcp or ":" in g)):  # fmt: skip
        ip = "ip -6" if ":" in dst + via else "ip"
        hop = f" via {via}" if via else ""
        out.append(f"up {ip} route replace {dst}{hop} dev {kept.name}")
    return out


def _stanza(kept, own, others):
    """Return the block of an interface: ``own`` says what only a bridge has."""
    version4 = [a for a in kept.addresses if ":" not in a]
    method = "dhcp" if kept.dhcp else ("static" if version4 else "manual")
    lines = []
    if method == "static":
        lines = [f"address {version4[0]}",
                 *(f"gateway {g}" for g in kept.gateways if ":" not in g)]  # fmt: skip
    lines += own
    said = {entry.words[0] for entry in others if entry.words}
    if kept.dns and "dns-nameservers" not in said:
        lines.append(f"dns-nameservers {' '.join(kept.dns)}")
    if kept.search and not said & {"dns-search", "dns-domain"}:
        lines.append(f"dns-search {' '.join(kept.search)}")
    head = _entry(f"iface {kept.name} inet {method}", indent="")
    hooks = list(map(_entry, _routes(kept)))
    return _Block(head.words, [head, *map(_entry, lines), *others, *hooks])


def _put(blocks, name, made):
    """Return the blocks with those of an interface in the place of what it had."""
    found = [at for at, block in enumerate(blocks) if block.is_iface(name)]
    new = _with_auto(blocks, name) + made
    if not found:
        gap = [] if not _text(blocks).strip() or _text(blocks).endswith("\n\n") else [
            _Block([], [_Entry([], [""])])]  # fmt: skip
        return [*_trimmed(blocks), *gap, *new]
    out = []
    for at, block in enumerate(blocks):
        if at == found[0]:
            out += new
        if at not in found:
            out.append(block)
    return out


def _trimmed(blocks):
    """Return the blocks without the empty lines at the end of the file."""
    out = [_Block(block.words, list(block.entries)) for block in blocks]
    while out and (not out[-1].entries or not "".join(out[-1].entries[-1].lines).strip()):
        if out[-1].entries:
            out[-1].entries.pop()
        else:
            out.pop()
    return out


def _with_auto(blocks, name):
    """Return the line that brings an interface up at boot, if there is none."""
    auto = {word for block in blocks for word in block.words[1:]
            if block.words[0] == "auto" or block.words[0].startswith("allow-")}  # fmt: skip
    if name in auto:
        return []
    line = _entry(f"auto {name}", indent="")
    return [_Block(line.words, [line])]


def _asking(blocks, name):
    """Return the blocks by which an interface asks routers for its IPv6 addresses."""
    return [block for block in blocks if block.is_iface(name, "inet6")
            and block.words[3:4] == ["auto"]]  # fmt: skip


def _renamed(blocks, name, other):
    """Return the same blocks for another interface."""
    found = _asking(blocks, name)
    heads = [_entry(f"iface {other} inet6 auto", indent="") for _block in found]
    return [_Block(head.words, [head, *block.options()])
            for head, block in zip(heads, found, strict=True)]  # fmt: skip


def with_bridge(text, kept):
    """Return the text that keeps a bridge; its ports have no addresses, and all else they had."""
    blocks = _blocks(text)
    old = blocks
    is_asking = any(block.is_iface(kept.name, "inet6") for block in old)
    for port in kept.ports:
        # What goes to the bridge as a whole does not stay here as well.
        gone = [] if is_asking else _asking(old, port)
        rest = [block for block in old if not any(block is one for one in gone)]
        options = _left(old, port, (*_GOES_ALONG, *_OF_DHCP), kept, "inet")
        options += [entry for entry in _left(rest, port, (), kept, "inet6")
                    if not entry.words or entry.words[0] in _HOOKS]  # fmt: skip
        head = _entry(f"iface {port} inet manual", indent="")
        blocks = _put(blocks, port, [_Block(head.words, [head, *options])])
    return _text(_put(blocks, kept.name, _bridge(old, kept)))


def _bridge(old, kept):
    is_there = any(block.is_iface(kept.name, "inet") for block in old)
    dropped = (*_OF_BRIDGE, *(("dns-nameservers",) if kept.is_dns_asked else ()),
               *(() if kept.dhcp else _OF_DHCP))  # fmt: skip
    others = _left(old, kept.name, dropped, kept, "inet") if is_there else [
        entry for port in kept.ports for entry in _going(old, port, kept)
        if entry.words[0] not in dropped]  # fmt: skip
    own = [f"bridge_ports {' '.join(kept.ports) or 'none'}",
           f"bridge_stp {'on' if kept.stp else 'off'}", f"bridge_fd {kept.forward_delay_s}",
           f"hwaddress {kept.mac}", f"mtu {kept.mtu}"]  # fmt: skip
    asking = [block for block in old if block.is_iface(kept.name, "inet6")]
    if not asking:
        asking = [block for port in kept.ports for block in _renamed(old, port, kept.name)]
    return [_stanza(kept, own, others), *(b for b in asking if b.words[3:4] != ["static"])]


def without_bridge(text, name, heir):
    """Return the text without a bridge; its port, if it has one heir, gets what the bridge had."""
    old = _blocks(text)
    blocks = [block for block in map(lambda b: _unnamed(b, name), old) if block.entries]
    if heir:
        others = _left(old, heir.name, (), heir, "inet") + _going(old, name, heir)
        asking = [block for block in old if block.is_iface(heir.name, "inet6")]
        made = [_stanza(heir, [], others), *(asking or _renamed(old, name, heir.name))]
        blocks = _put(blocks, heir.name, made)
    return _text(_trimmed(blocks))


def _unnamed(block, name):
    """Return a block without an interface: its stanza, and its name among those of a line."""
    if block.is_iface(name):
        return _Block([])
    if block.words[:1] == ["auto"] or (block.words and block.words[0].startswith("allow-")):
        left = [word for word in block.words if word != name]
        if left != block.words:
            return _Block(left, [_entry(" ".join(left), indent="")] if left[1:] else [])
    return block
