"""Which addresses this host has learned of VMs on its bridges, by the kernel's table."""

import contextlib

import pytest
from saltvirt.core.salt import lazyimport
from saltvirt.network.bridge import links

MAC = "52:54:00:00:00:01"


class Message(dict):
    """A message of netlink: values of its header, and attributes."""

    def get_attr(self, name):
        """Return an attribute, None if it has none of that name."""
        return self["attrs"].get(name)


def link(index, name, below=None):
    """Return a link; ``below`` is the one that a VLAN is of."""
    return Message(index=index, attrs={"IFLA_IFNAME": name, "IFLA_LINK": below})


def neighbour(address, index=2, mac=MAC, state=0x04):
    """Return a neighbour that is known of."""
    return Message(ifindex=index, state=state, attrs={"NDA_DST": address, "NDA_LLADDR": mac})


@pytest.fixture
def learned(monkeypatch):
    """A function that has the kernel say which neighbours there are, and returns ours."""

    def ask(rows, wanted):
        class Kernel:
            def get_links(self):
                return [link(2, "br0"), link(3, "br1"), link(4, "br0.10", 2)]

            def get_neighbours(self, family):
                return [one for one in rows if (":" in one.get_attr("NDA_DST")) == (family == 10)]

        monkeypatch.setattr(links, "refuse_if_impossible", lambda: None)
        monkeypatch.setattr(links, "_open_netlink", lambda: contextlib.nullcontext(Kernel()))
        return links.neighbours(wanted)

    return ask


def test_the_mac_on_its_bridge_says_whose_an_address_is(learned):
    rows = [
        neighbour("2001:db8::7"),
        neighbour("192.0.2.7"),
        neighbour("192.0.2.8", mac="52:54:00:00:00:02"),
        neighbour("192.0.2.9", index=3),
        neighbour("192.0.2.10", index=4),
        neighbour("192.0.2.11", index=99),
    ]

    found = learned(rows, [("br0", MAC.upper())])

    assert found == ["192.0.2.7", "192.0.2.10", "2001:db8::7"]


@pytest.mark.parametrize(
    ("state", "is_known"),
    [(0x01, False), (0x20, False), (0x40, False), (0x02, True), (0x04, True), (0x80, True)],
)
def test_only_who_has_answered_is_a_neighbour(learned, state, is_known):
    assert bool(learned([neighbour("192.0.2.7", state=state)], [("br0", MAC)])) is is_known


def test_a_vm_on_no_bridge_has_no_neighbours(learned):
    assert learned([neighbour("192.0.2.7")], []) == []


def test_without_pyroute2_it_is_said(monkeypatch):
    monkeypatch.setattr(lazyimport, "is_missing", lambda _module: True)

    with pytest.raises(links.LinkError, match="pyroute2"):
        links.neighbours([("br0", MAC)])


@pytest.mark.slow
def test_the_kernel_of_this_machine_is_understood():
    if lazyimport.is_missing(links.pyroute2):
        pytest.skip("no pyroute2 here")

    assert links.neighbours([("no-such-bridge", MAC)]) == []
