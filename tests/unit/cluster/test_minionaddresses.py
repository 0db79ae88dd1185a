"""The addresses of VMs in their minions' grains, only for minions with an accepted key."""

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
        """Return the last grains of a minion of this name."""
        self.asked.append(name)
        return GRAINS.get(name)


class Keys:
    """Stand for the master's keys."""

    def __init__(self, _opts):
        pass

    def accepted(self):
        """All but old1."""
        return ["web1", "db1", "odd1", "new1", "hyper1"]


def test_only_valid_addresses_of_vms_with_a_key_are_read(monkeypatch):
    monkeypatch.setattr(compat, "Grains", Grains)
    monkeypatch.setattr(compat, "KeyStore", Keys)
    opts = {"asked": []}

    addresses = minionaddresses.read_first(opts, ["web1", "db1", "old1", "odd1", "new1"])

    assert addresses == {"web1": "192.0.2.7"}
    assert opts["asked"] == ["web1", "db1", "odd1", "new1"]


def test_no_store_is_opened_without_names(monkeypatch):
    monkeypatch.setattr(compat, "KeyStore", None)

    assert minionaddresses.read_first({}, []) == {}
