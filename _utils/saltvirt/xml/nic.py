"""<interface>."""

from saltvirt.nics import pci
from saltvirt.xml import tag

_SOURCE = {"bridge": "bridge", "network": "network", "direct": "dev", "vdpa": "dev",
           "ethernet": "dev"}  # fmt: skip


def element(nic):
    """Return the <interface> of one NIC."""
    extra, kind, source, attributes = nic.extra, nic.type, None, {"type": nic.type}
    address = pci(nic.source) if kind == "hostdev" else None
    if address:
        attributes["managed"] = "yes"
        source = tag("source", None, tag("address", address))
    elif kind == "hostdev":
        # A network that hands out devices of a pool.
        attributes["type"] = "network"
        source = tag("source", {"network": nic.source})
    elif kind in _SOURCE and nic.source:
        source = tag("source", {_SOURCE[kind]: nic.source, "portgroup": extra.get("portgroup"),
                                "mode": extra.get("mode", "bridge") if kind == "direct" else None})
    return tag(
        "interface",
        attributes,
        source,
        tag("mac", {"address": nic.mac}),
        tag("mtu", {"size": extra["mtu"]}) if "mtu" in extra else None,
        _vlan(extra["vlan"]) if "vlan" in extra else None,
        _virtualport(extra["virtualport"]) if "virtualport" in extra else None,
        _bandwidth(extra["bandwidth"]) if "bandwidth" in extra else None,
        _filter(extra["filter"]) if "filter" in extra else None,
        None if address else tag("model", {"type": nic.model}),
        tag("driver", {"queues": extra["queues"]}) if "queues" in extra else None,
    )


def _vlan(vlan):
    tags = [tag("tag", {"id": one, "nativeMode": "untagged" if one == vlan["native"] else None})
            for one in vlan["tags"]]  # fmt: skip
    return tag("vlan", {"trunk": "yes"} if vlan["trunk"] else None, *tags)


def _virtualport(port):
    parameters = tag("parameters", port["parameters"]) if port["parameters"] else None
    return tag("virtualport", {"type": port["type"]}, parameters)


def _bandwidth(limits):
    return tag("bandwidth", None, *[tag(side, values) for side, values in limits.items()])


def _filter(one):
    parameters = [tag("parameter", {"name": k, "value": v}) for k, v in one["parameters"]]
    return tag("filterref", {"filter": one["name"]}, *parameters)
