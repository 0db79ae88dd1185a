"""One run of a bridge: what is refused before anything changes, and what is watched."""

import contextlib

import pytest
from saltvirt.errors import BadArgument, VirtError
from saltvirt.net import keepers
from saltvirt.ops import bridge
from test_net import BR0, address, link, route

HOST = {"links": {"eth0": link(addresses=[address("10.0.0.4/16")])},
        "routes": [route("default", "10.0.0.1", "eth0")]}  # fmt: skip


class Keeper(keepers.Nothing):
    """A manager that has a bridge in its files, and holds no lease."""

    title, writes_heir = "systemd-networkd", False

    def __init__(self, *, runs=True):
        self.is_running, self.told = runs, []

    def runs(self):
        """Return whether it runs."""
        return self.is_running

    def kept_in(self, name):
        """Return one file."""
        return [f"/etc/{name}"]

    def holder(self, _link):
        """Return nothing."""
        return

    def give_back(self, _change):
        """Note it."""
        self.told.append("given back")


@pytest.fixture
def found(monkeypatch):
    """Give a host a network and its manager; the guard is noted."""
    host = {"seen": HOST, "keeper": Keeper(), "name": "networkd", "watched": []}

    @contextlib.contextmanager
    def safely(_before, names, _change, _limit_s):
        host["watched"].append(names)
        yield

    monkeypatch.setattr(bridge.links, "refuse_if_impossible", lambda: None)
    monkeypatch.setattr(bridge.links, "names", lambda: ["eth0"])
    monkeypatch.setattr(bridge.links, "ports_of", lambda _bridge: [])
    monkeypatch.setattr(bridge.links, "read", lambda _names: host["seen"])
    monkeypatch.setattr(bridge.keepers, "find", lambda *_given: (host["name"], host["keeper"]))
    monkeypatch.setattr(bridge, "_safely", safely)
    return host


def look():
    """Look at what one bridge over the host's link would need."""
    work = bridge.Work(opts={"file_client": "local"}, request=bridge.Request(bridge=BR0))
    work.look()
    return work


def test_a_manager_that_does_not_run_is_refused_for_a_static_address_too(found):
    found["keeper"] = Keeper(runs=False)
    with pytest.raises(BadArgument, match="systemd-networkd does not run here, so nobody would"):
        look()

    found.update(keeper=keepers.Nothing(), name="none")
    assert look().kept.addresses == ("10.0.0.4/16",)


def test_what_cannot_be_kept_is_no_matter_where_nobody_keeps_it(found):
    outside = route("default", "172.31.1.1", "eth0", is_onlink=True)
    found["seen"] = {**HOST, "routes": [outside]}
    with pytest.raises(VirtError, match="gateway outside the subnet"):
        look()

    found.update(keeper=keepers.Nothing(), name="none")
    look()


def test_files_of_a_bridge_that_is_not_there_are_removed_under_the_guard_too(found):
    found["seen"] = {"links": {}, "routes": []}

    def remove(*, is_test):
        return bridge.remove({"file_client": "local"}, "br0", confirm_timeout_s=1,
                             persist_by="auto", is_test=is_test)  # fmt: skip

    assert remove(is_test=True) == {"/etc/br0": "removed"} and not found["watched"]
    assert remove(is_test=False) == {"/etc/br0": "removed"}
    assert found["watched"] == [("br0",)] and found["keeper"].told == ["given back"]


def test_search_domains_are_found_where_the_name_servers_are(tmp_path, monkeypatch):
    path = tmp_path / "resolv.conf"
    path.write_text("# x\nnameserver 10.0.0.53\nsearch . corp.example b\nnameserver fd00::53\n")
    monkeypatch.setattr(bridge, "_RESOLVERS", (str(path),))

    assert bridge._resolver() == (("10.0.0.53", "fd00::53"), ("corp.example", "b"))
    path.write_text("search .\n")
    assert bridge._resolver() == ((), ())
