"""What systemd-networkd's file of a link says that its bridge's must say too, or its port's."""

from collections.abc import Iterable, Iterator

# Only the file of the link below names these; without it they are not made at the next boot.
_KEYS = ("VLAN", "MACVLAN", "MACVTAP", "IPVLAN", "IPVTAP", "VXLAN", "IPoIB", "Xfrm", "Tunnel")
# What of a lease counts: without these another default route may win.
_LEASE = {
    *("RouteMetric", "RouteTable", "UseRoutes", "UseGateway"),
    *("UseDNS", "UseDomains", "UseNTP", "UseMTU", "UseHostname"),
}


def file_of(state: str) -> str:
    """Return the file that a link is set by, of what networkd has written about it; "" for none."""
    rows = (line.partition("=") for line in state.splitlines())
    return next((value for key, _equals, value in rows if key == "NETWORK_FILE"), "")


def link_settings(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return ``[(key, value)]`` of what a link's file, and those beside it, put on the link."""
    # Of a bridge's ports, VLAN= of another section are the tags that they pass.
    rows = ((key, value) for s, key, value in _rows(texts) if s == "Network" and key in _KEYS)
    return list(dict.fromkeys((key, word) for key, value in rows for word in value.split()))


def lease_settings(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return ``[(key, value)]`` of what those files make of a lease."""
    values = {key: value for s, key, value in _rows(texts) if s in ("DHCPv4", "DHCP") and value}
    return [(key, value) for key, value in values.items() if key in _LEASE]


def _rows(texts: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield ``(section, key, value)`` of each line."""
    for text in texts:
        section = ""
        for line in map(str.strip, text.splitlines()):
            if line.startswith("["):
                section = line.strip("[]")
            key, _equals, value = (part.strip() for part in line.partition("="))
            yield section, key, value
