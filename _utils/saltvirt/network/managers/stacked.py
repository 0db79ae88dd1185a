"""Settings of a link's systemd-networkd file that its bridge or port needs as well."""

from collections.abc import Iterable, Iterator

# Stacked links that only the lower link's file names; without these keys no boot creates them.
_KEYS = ("VLAN", "MACVLAN", "MACVTAP", "IPVLAN", "IPVTAP", "VXLAN", "IPoIB", "Xfrm", "Tunnel")
# Settings of a lease; without these another default route may win.
_LEASE = {
    *("RouteMetric", "RouteTable", "UseRoutes", "UseGateway"),
    *("UseDNS", "UseDomains", "UseNTP", "UseMTU", "UseHostname"),
}


def networkd_file(state: str) -> str:
    """Return the file that configures a link, from networkd's state of the link, or ""."""
    rows = (line.partition("=") for line in state.splitlines())
    return next((value for key, _equals, value in rows if key == "NETWORK_FILE"), "")


def link_settings(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return ``[(key, value)]`` of the stacked links in a link's file and drop-ins."""
    # VLAN= in another section names the tags that a bridge's port passes.
    rows = ((key, value) for s, key, value in _rows(texts) if s == "Network" and key in _KEYS)
    return list(dict.fromkeys((key, word) for key, value in rows for word in value.split()))


def lease_settings(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return ``[(key, value)]`` of the lease settings in these files."""
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
