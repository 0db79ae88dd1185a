"""What systemd-networkd's own files put on a link: VLANs and others that it makes with it."""

from collections.abc import Iterable

# Only the file of the link below names these; without it they are not made at the next boot.
_KEYS = ("VLAN", "MACVLAN", "MACVTAP", "IPVLAN", "IPVTAP", "VXLAN", "IPoIB", "Xfrm", "Tunnel")


def file_of(state: str) -> str:
    """Return the file that a link is set by, of what networkd has written about it; "" for none."""
    rows = (line.partition("=") for line in state.splitlines())
    return next((value for key, _equals, value in rows if key == "NETWORK_FILE"), "")


def of(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return ``[(key, value)]`` of what a link's file, and those beside it, put on the link."""
    return list(dict.fromkeys(pair for text in texts for pair in _pairs(text)))


def _pairs(text: str) -> list[tuple[str, str]]:
    section, out = "", []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line
        key, _equals, value = (part.strip() for part in line.partition("="))
        # Of a bridge's ports, VLAN= of another section are the tags that they pass.
        if section == "[Network]" and key in _KEYS and value:
            out += [(key, one) for one in value.split()]
    return out
