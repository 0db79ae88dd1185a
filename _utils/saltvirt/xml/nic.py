"""<interface>."""

from saltvirt.xml import tag

_SOURCE = {"bridge": "bridge", "network": "network", "direct": "dev", "vdpa": "dev"}


def element(nic):
    """Return the <interface> of one NIC."""
    key = _SOURCE.get(nic.type)
    attributes = {key: nic.source} if key and nic.source else None
    if nic.type == "direct" and attributes:
        attributes["mode"] = "bridge"
    kind = nic.type
    if nic.type == "hostdev":
        kind, attributes = "network", {"network": nic.source}
    vlan = nic.extra.get("vlan")
    return tag(
        "interface",
        {"type": kind},
        tag("source", attributes) if attributes else None,
        tag("mac", {"address": nic.mac}),
        tag("mtu", {"size": nic.extra["mtu"]}) if "mtu" in nic.extra else None,
        tag("vlan", None, tag("tag", {"id": vlan})) if vlan is not None else None,
        tag("model", {"type": nic.model}),
    )
