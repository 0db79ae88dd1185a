"""NIC and disk profiles in all their spellings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saltvirt.core import nics
from saltvirt.core.errors import BadArgument
from saltvirt.vm import profiles, shownprofiles

SPELLINGS = {
    "list of names": [{"eth0": {"bridge": "br1", "model": "e1000"}}],
    "list with name": [{"name": "eth0", "bridge": "br1", "model": "e1000"}],
    "mapping": {"eth0": {"bridge": "br1", "model": "e1000"}},
    "type and source": [{"name": "eth0", "type": "bridge", "source": "br1", "model": "e1000"}],
}


@pytest.mark.parametrize("profile", SPELLINGS.values(), ids=SPELLINGS)
def test_the_four_spellings_of_a_nic_profile_mean_the_same(profile):
    (nic,) = profiles.nics("vm", {"lan": profile}, "lan", None)

    assert (nic.name, nic.type, nic.source, nic.model) == ("eth0", "bridge", "br1", "e1000")


def test_several_disks_of_one_entry_are_each_a_disk_as_with_3006():
    profile = [{"system": {"size": 8}, "data": {"size": 16}}, {"more": None}]

    made = profiles.disks({"two": profile}, "two", None, None)

    assert [(one.name, one.size_mib) for one in made] == [
        ("system", 8),
        ("data", 16),
        ("more", None),
    ]
    with pytest.raises(BadArgument, match="has no 'name'"):
        profiles.disks({"two": [{"size": 8, "format": "qcow2"}]}, "two", None, None)


def test_without_configuration_there_is_one_virtio_nic_on_br0():
    (nic,) = profiles.nics("vm", {}, "default", None)

    assert (nic.name, nic.type, nic.source, nic.model) == ("eth0", "bridge", "br0", "virtio")


@pytest.mark.parametrize("profiled", [True, False])
def test_a_nic_that_says_nothing_is_on_br0_as_with_3006(profiled):
    configured = {"lan": [{"eth0": {}}]} if profiled else {}
    asked = [{"name": "eth1", "mac": "52:54:00:aa:bb:01"}]

    made = profiles.nics("vm", configured, "lan" if profiled else None, asked)

    assert [(n.name, n.type, n.source) for n in made] == [
        *([("eth0", "bridge", "br0")] if profiled else []),
        ("eth1", "bridge", "br0"),
    ]


def test_interfaces_override_the_profile_by_name_and_add_to_it():
    made = profiles.nics(
        "vm",
        {},
        "default",
        [{"name": "eth0", "source": "br9"}, {"name": "eth1", "network": "net0"}],
    )

    assert [(n.name, n.type, n.source) for n in made] == [
        ("eth0", "bridge", "br9"),
        ("eth1", "network", "net0"),
    ]


@pytest.mark.parametrize(
    ("profiled", "said", "placed"),
    [
        ({"bridge": "br7"}, {"type": "network", "source": "lan"}, ("network", "lan")),
        ({"bridge": "br7"}, {"source": "br9"}, ("bridge", "br9")),
        ({"bridge": "br7"}, {"network": "lan"}, ("network", "lan")),
        ({"network": "lan"}, {"bridge": "br9"}, ("bridge", "br9")),
        ({"network": "lan"}, {"type": "bridge"}, ("bridge", "br0")),
        ({"bridge": "br7"}, {"type": "user"}, ("user", None)),
        ({"bridge": "br7"}, {"type": "bridge", "model": "e1000"}, ("bridge", "br7")),
        ({"network": "lan"}, {"mac": "52:54:00:aa:bb:01"}, ("network", "lan")),
    ],
)
def test_what_a_call_says_of_a_nic_counts_in_every_spelling(profiled, said, placed):
    (made,) = profiles.nics("vm", {"p": {"eth0": profiled}}, "p", [{"name": "eth0", **said}])

    assert (made.type, made.source) == placed


@given(st.text(min_size=1), st.text(min_size=1))
def test_macs_are_stable_unicast_and_locally_administered(vm, nic):
    mac = nics.mac_for(vm, nic)

    first = int(mac[:2], 16)
    assert mac == nics.mac_for(vm, nic)
    assert first & 2 and not first & 1


def test_macs_of_twenty_thousand_vms_differ():
    assert len({nics.mac_for(f"vm{n}", "eth0") for n in range(20000)}) == 20000


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"name": "eth0", "type": "carrier-pigeon"}, "carrier-pigeon"),
        ({"name": "eth0", "mac": "01:00:00:00:00:01"}, "not a unicast MAC"),
        ({"name": "eth0", "mac": "nonsense"}, "not a unicast MAC"),
        ({"name": "eth0", "mac": "52:00:00:00:00:01\n"}, "not a unicast MAC"),
        ({"name": "eth0", "bandwith": 7}, "bandwith"),
        ({"name": "eth1", "type": "network"}, "no source"),
        ({"bridge": "br0", "model": "virtio"}, "no 'name'"),
        ({"name": "a", "type": "direct"}, "say which link of the host"),
        ({"name": "a", "source": "br0", "vlan": 5000}, "vlan: 5000 is out of range"),
        ({"name": "a", "source": "br0", "vlan": []}, "no tag is given"),
        ({"name": "a", "type": "user", "vlan": 7}, "vlan is for bridge, network"),
        ({"name": "a", "source": "br0", "mode": "vepa"}, "mode is for direct"),
        ({"name": "a", "type": "direct", "source": "e", "mode": "fast"}, "'fast'; one of bridge"),
        ({"name": "a", "source": "br0", "mtu": 9}, "mtu: 9 is out of range"),
        ({"name": "a", "source": "br0", "queues": 0}, "queues: 0 is out of range"),
        ({"name": "a", "source": "br0", "bandwidth": 7}, "write {in: 1024"),
        ({"name": "a", "source": "br0", "bandwidth": {"in": {"peak": 7}}}, "has no 'average'"),
        ({"name": "a", "source": "br0", "bandwidth": {"in": {"average": 7, "peak": 1}}}, "below"),
        ({"name": "a", "source": "br0", "bandwidth": {"up": 7}}, "'up'"),
        ({"name": "a", "source": "br0", "filter": {"ip": "here"}}, "'here' is not an IP address"),
        ({"name": "a", "source": "br0", "filter": {"ip": "fd00::7"}}, "knows IPv4 addresses al"),
        ({"name": "a", "source": "br0", "filter": {"name": "a b"}}, "cannot name a filter"),
        ({"name": "a", "source": "o", "virtualport": "ovs"}, "'ovs'; one of openvswitch"),
        (
            {"name": "a", "source": "o", "virtualport": "openvswitch", "filter": "clean-traffic"},
            "do not reach",
        ),
        ({"name": "a", "source": "br0", "mac": "52:54:00:00:00:01", "model": "a b"}, "model"),
    ],
)
def test_a_bad_interface_is_refused_with_its_name(entry, why):
    with pytest.raises(BadArgument, match=why):
        profiles.nics("vm", {}, "default", [entry])


def test_two_interfaces_with_one_mac_are_refused():
    same = [{"name": name, "source": "br0", "mac": "52:54:00:00:00:01"} for name in ("a", "b")]

    with pytest.raises(BadArgument, match="interface 'b': has the MAC .* of interface 'a'"):
        profiles.nics("vm", {}, None, same)


def test_of_a_port_only_what_libvirt_itself_writes_in_small_letters_is_written_so():
    text = "09B11C53-8B5C-4EEB-8F00-D84EAA0AAA4F"
    port = {"type": "openvswitch", "interfaceid": text, "profileid": text}

    (made,) = profiles.nics("vm", {}, None, {"a": {"bridge": "ovs0", "virtualport": port}})

    said = made.extra["virtualport"]["parameters"]
    assert said == {"interfaceid": text.lower(), "profileid": text}


def test_what_nics_need_of_a_host_is_told_apart():
    made = profiles.nics(
        "vm",
        {},
        None,
        {
            "a": {"bridge": "br0", "vlan": 7},
            "b": {"network": "lan", "vlan": 8},
            "c": {"type": "direct", "source": "eno1"},
            "d": {"bridge": "ovs0", "virtualport": "openvswitch", "vlan": 9},
        },
    )

    assert nics.host_needs(made) == {
        "bridges": ("br0",),
        "networks": ("lan",),
        "links": ("eno1", "ovs0"),
        "bridge_vlans": True,
    }
    assert nics.host_needs(made[1:])["bridge_vlans"] is False


def test_an_unknown_profile_is_refused_with_those_there_are():
    with pytest.raises(BadArgument, match="no profile 'dmz'.*default, lan"):
        profiles.nics("vm", {"lan": []}, "dmz", None)


def test_the_image_becomes_the_first_disk_that_is_empty():
    extra = [
        {"name": "iso", "device": "cdrom", "source_file": "/x.iso"},
        {"name": "data", "size": 100},
    ]

    system, iso, data = profiles.disks({}, "default", extra, "salt://a.img")

    assert (system.image, system.size_mib, system.target) == ("salt://a.img", 8192, "vda")
    assert (iso.image, iso.device, iso.target) == (None, "cdrom", "hda")
    assert (data.image, data.size_mib, data.target) == (None, 100, "vdb")


def test_an_image_no_disk_can_take_is_an_error_and_never_ignored():
    with pytest.raises(BadArgument, match="^image: "):
        profiles.disks({}, None, None, "salt://a.img")


def test_only_a_size_somebody_asked_for_can_be_too_small_for_an_image():
    (implied,) = profiles.disks({}, "default", None, "salt://a")
    (asked,) = profiles.disks({}, "default", [{"name": "system", "size": 10}], "salt://a")

    assert (implied.is_sized_by_user, asked.is_sized_by_user) == (False, True)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"name": "../../etc/x", "size": 1}, "use letters"),
        ({"name": "d", "size": 0}, "at least 1 MiB"),
        ({"name": "d", "size": "big"}, "is not a size"),
        ({"name": "d", "size": 1, "model": "punchcard"}, "punchcard"),
        ({"name": "d", "size": 1, "device": "tape"}, "tape"),
        ({"name": "d", "source_file": "relative.qcow2"}, "not an absolute path"),
        ({"name": "d", "sise": 1}, "did you mean 'size'"),
        ({"name": ["d"]}, r"the 'name' of an entry is \['d'\], which is no text"),
        ({"name": None}, "the 'name' of an entry is None, which is no text"),
    ],
)
def test_a_bad_disk_is_refused(entry, why):
    with pytest.raises(BadArgument, match=why):
        profiles.disks({}, "default", [entry], None)


def test_profiles_are_shown_in_the_old_shape():
    shown = shownprofiles.describe({}, {})

    assert shown["nic"]["default"] == [
        {"name": "eth0", "type": "bridge", "source": "br0", "model": "virtio"}
    ]
    assert shown["disk"]["default"] == [
        {"name": "system", "size": 8192, "device": "disk", "model": "virtio"}
    ]


def test_profiles_are_shown_whole_and_one_that_is_wrong_spoils_no_other():
    shown = shownprofiles.describe(
        {"lan": {"eth0": {"bridge": "br1", "mac": "52:54:00:aa:00:01"}}, "bad": [7]},
        {"big": [{"system": {"size": "2g", "io": "native"}}, {"cd": {"device": "cdrom"}}]},
    )

    assert shown["nic"]["lan"] == [
        {
            "name": "eth0",
            "type": "bridge",
            "source": "br1",
            "model": "virtio",
            "mac": "52:54:00:aa:00:01",
        }
    ]
    assert shown["nic"]["bad"] == [{"error": "nic profile 'bad': 7 is not a mapping"}]
    assert shown["disk"]["big"] == [
        {"name": "system", "size": 2048, "io": "native", "device": "disk", "model": "virtio"},
        {"name": "cd", "device": "cdrom", "model": "ide"},
    ]
    assert shown["disk"]["default"][0]["size"] == 8192


@pytest.mark.parametrize(
    "said",
    [{"type": "network", "source": "lan"}, {"network": "lan"}, {"bridge": "br7", "mtu": 1400}],
)
def test_a_single_nic_needs_no_name_without_a_profile(said):
    (made,) = profiles.nics("vm", {}, None, [said])
    (placed,) = profiles.placed_nics("vm", None, [said])

    assert made == placed == profiles.nics("vm", {}, None, [{"name": "eth0", **said}])[0]
    for profile, listed in (("default", [said]), (None, [said, said]), (None, [{"mtu": 1400}])):
        with pytest.raises(BadArgument, match="has no 'name'"):
            profiles.nics("vm", {}, profile, listed)


def test_queues_of_a_card_that_has_none_are_refused():
    with pytest.raises(BadArgument, match="queues are for model virtio, not for e1000"):
        profiles.nics("vm", {}, None, [{"name": "eth0", "model": "e1000", "queues": 2}])
    profiles.nics("vm", {}, None, [{"name": "eth0", "model": "virtio-transitional", "queues": 2}])
