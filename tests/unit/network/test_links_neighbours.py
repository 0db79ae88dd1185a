"""The addresses of VMs on this host's bridges, from the kernel's neighbour table."""

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


def link(index, name, parent_index=None):
    """Return a link; ``parent_index`` is the parent link of a VLAN."""
    return Message(index=index, attrs={"IFLA_IFNAME": name, "IFLA_LINK": parent_index})


def neighbour(address, index=2, mac=MAC, state=0x04):
    """Return a known neighbour."""
    return Message(ifindex=index, state=state, attrs={"NDA_DST": address, "NDA_LLADDR": mac})


@pytest.fixture
def learn_addresses(monkeypatch):
    """A function that sets the kernel's neighbours, and returns the addresses of the VMs."""

    def ask(rows, macs):
        class Kernel:
            def get_links(self):
                return [link(2, "br0"), link(3, "br1"), link(4, "br0.10", 2)]

            def get_neighbours(self, family):
                return [row for row in rows if (":" in row.get_attr("NDA_DST")) == (family == 10)]

        monkeypatch.setattr(links, "refuse_if_impossible", lambda: None)
        monkeypatch.setattr(links, "_open_netlink", lambda: contextlib.nullcontext(Kernel()))
        return links.neighbours(macs)

    return ask


def test_an_address_belongs_to_the_vm_with_its_mac_on_the_bridge(learn_addresses):
    rows = [
        neighbour("2001:db8::7"),
        neighbour("192.0.2.7"),
        neighbour("192.0.2.8", mac="52:54:00:00:00:02"),
        neighbour("192.0.2.9", index=3),
        neighbour("192.0.2.10", index=4),
        neighbour("192.0.2.11", index=99),
    ]

    addresses = learn_addresses(rows, [("br0", MAC.upper())])

    assert addresses == ["192.0.2.7", "192.0.2.10", "2001:db8::7"]


@pytest.mark.parametrize(
    ("state", "is_known"),
    [(0x01, False), (0x20, False), (0x40, False), (0x02, True), (0x04, True), (0x80, True)],
)
def test_only_a_neighbour_that_has_answered_counts(learn_addresses, state, is_known):
    assert bool(learn_addresses([neighbour("192.0.2.7", state=state)], [("br0", MAC)])) is is_known


def test_a_vm_on_no_bridge_has_no_neighbours(learn_addresses):
    assert learn_addresses([neighbour("192.0.2.7")], []) == []


def test_a_missing_pyroute2_is_an_error(monkeypatch):
    monkeypatch.setattr(lazyimport, "is_missing", lambda _module: True)

    with pytest.raises(links.LinkError, match="pyroute2"):
        links.neighbours([("br0", MAC)])


@pytest.mark.slow
def test_the_kernel_of_this_machine_is_understood():
    if lazyimport.is_missing(links.pyroute2):
        pytest.skip("no pyroute2 here")

    assert links.neighbours([("no-such-bridge", MAC)]) == []
