"""The addresses of VMs that their minions told the master; only of those with an accepted key."""

from saltvirt.cluster import minionaddresses
from saltvirt.core.salt import compat

GRAINS = {
    "web1": {"ipv4": ["127.0.0.1", "192.0.2.7"], "ipv6": ["fe80::1", "2001:db8::7"]},
    "db1": {"ipv4": "text", "ipv6": [5, None]},
    "old1": {"ipv4": ["192.0.2.9"]},
    "odd1": "no mapping",
}


class Grains:
    """Stand for the master's cache."""

    def __init__(self, opts):
        self.asked = opts["asked"]

    def of(self, name):
        """Return what a minion of this name sent last."""
        self.asked.append(name)
        return GRAINS.get(name)


class Keys:
    """Stand for the master's keys."""

    def __init__(self, _opts):
        pass

    def accepted(self):
        """All but old1."""
        return ["web1", "db1", "odd1", "new1", "hyper1"]


def test_only_vms_with_a_key_are_looked_up_and_only_for_what_is_an_address(monkeypatch):
    monkeypatch.setattr(compat, "Grains", Grains)
    monkeypatch.setattr(compat, "KeyStore", Keys)
    opts = {"asked": []}

    found = minionaddresses.read_first(opts, ["web1", "db1", "old1", "odd1", "new1"])

    assert found == {"web1": "192.0.2.7"}
    assert opts["asked"] == ["web1", "db1", "odd1", "new1"]


def test_nothing_is_opened_for_nothing(monkeypatch):
    monkeypatch.setattr(compat, "KeyStore", None)

    assert minionaddresses.read_first({}, []) == {}
