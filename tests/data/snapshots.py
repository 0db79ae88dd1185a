"""Snapshots of a host's network, and a kernel that carries steps out on one."""

from saltvirt.network.bridge import bridgeplan

BR0 = bridgeplan.Bridge(name="br0", ports=("eth0",))


def link(**given):
    """Return a link of a snapshot."""
    usual = {
        "kind": None,
        "master": None,
        "up": True,
        "mtu": 1500,
        "mac": "52:00:00:00:00:01",
        "bridge": None,
        "addresses": [],
        "vlans": [],
    }
    return {**usual, **given}


def address(text, valid_s=None, scope=0):
    """Return an address of a snapshot."""
    return {"address": text, "broadcast": None, "scope": scope, "valid_s": valid_s}


def route(dst, gateway, oif, **given):
    """Return a route of a snapshot."""
    usual = {
        "family": 2,
        "dst": dst,
        "gateway": gateway,
        "oif": oif,
        "table": 254,
        "scope": 0,
        "priority": None,
        "prefsrc": None,
        "proto": 4,
        "type": 1,
        "is_multipath": False,
    }
    return {**usual, **given}


class Kernel:
    """Carries steps out on a snapshot, as the kernel would."""

    def __init__(self, snapshot):
        self.links = {
            name: {**one, "addresses": list(one["addresses"]), "vlans": list(one["vlans"])}
            for name, one in snapshot["links"].items()
        }
        self.routes = list(snapshot["routes"])

    def create(self, name, value):
        self.links[name] = {**value, "addresses": [], "up": False, "bridge": {}, "vlans": []}

    def delete(self, name, _value):
        assert not self.links.pop(name)["addresses"]
        self.routes = [r for r in self.routes if r["oif"] != name]

    def master(self, name, value):
        self.links[name]["master"] = value

    def set(self, name, value):
        self.links[name].update(value)

    def bridge(self, name, value):
        self.links[name]["bridge"] = {**self.links[name]["bridge"], **value}

    def up(self, name, value):
        self.links[name]["up"] = value

    def vlan(self, name, value):
        self.links[name]["vlans"].append(value)

    def del_address(self, name, value):
        self.links[name]["addresses"].remove(value)
        self.routes = [r for r in self.routes if r["oif"] != name]

    def add_address(self, name, value):
        others = [
            a["address"]
            for one, link in self.links.items()
            for a in link["addresses"]
            if one != name
        ]
        assert value["address"] not in others, "an address on two links"
        mine = [a for a in self.links[name]["addresses"] if a["address"] != value["address"]]
        self.links[name]["addresses"] = [*mine, value]

    def del_route(self, _name, value):
        self.routes = [r for r in self.routes if r != value]

    def route(self, name, value):
        assert self.links[name]["up"], "a route over a link that is down"
        self.routes = [r for r in self.routes if r != value] + [value]


def carried_out(snapshot, steps):
    """Return the snapshot after the steps."""
    kernel = Kernel(snapshot)
    for verb, name, value in steps:
        getattr(kernel, verb)(name, value)
    return {"links": kernel.links, "routes": kernel.routes}


def same(one, other):
    """Return whether two snapshots mean the same."""

    def key(route_):
        return str(sorted(route_.items(), key=str))

    def plain(snapshot):
        return {
            n: {**li, "addresses": sorted(map(str, li["addresses"]))}
            for n, li in snapshot["links"].items()
        }

    return plain(one) == plain(other) and (
        sorted(map(key, one["routes"])) == sorted(map(key, other["routes"]))
    )
