"""What calls of Salt 3006 say in their own way, and what libvirt counts in its own units."""

import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.vm import valuekinds
from saltvirt.xml import parse
from saltvirt.xml.domain import chardev, clock, cpu, cputune, graphics, hostdev, nic
from saltvirt.xml.node import nodedev


@pytest.mark.parametrize(
    ("given", "size", "unit"),
    [
        ({"size": 768}, "768", "KiB"),
        ({"size": "768"}, "768", "KiB"),
        ({"size": 3072}, "3", "MiB"),
        ({"size": 3, "unit": "MiB"}, "3", "MiB"),
        ({"size": "2m", "unit": "KiB"}, "2", "MiB"),
    ],
)
def test_a_cache_is_counted_in_kib_and_written_as_libvirt_does_it(given, size, unit):
    asked = {"cachetune": {"0": {0: {"level": 3, "type": "both", **given}}}}
    tune = cputune.from_call(asked)

    ((_name, row),) = tune.parts[0].rows
    assert (row["size"], row["unit"]) == (size, unit)
    # What is there is no change when it is asked for again.
    assert cputune.apply_changes(tune, asked) == tune


def test_features_have_the_name_of_3006s_states_too():
    given = {"feature": {"lahf": "optional", "pcid": "disable"}, "features": {"pcid": "require"}}
    both = {"lahf": "optional", "pcid": "require"}

    assert cpu.from_call(given, "kvm").features == both
    assert cpu.apply_changes(cpu.from_call(1, "kvm"), given).features == both
    assert cpu.apply_changes(cpu.from_call(given, "kvm"), {"feature": None}).features == both


@pytest.mark.parametrize("key", ["feature", "features"])
def test_one_feature_is_taken_as_3006s_states_showed_it(key):
    given = {"model": "core2duo", key: {"policy": "optional", "name": "lahf_lm"}}
    made = cpu.from_call(given, "kvm")

    valuekinds.check({"cpu": given})
    assert made.features == {"lahf_lm": "optional"}
    assert cpu.apply_changes(made, given) == made
    with pytest.raises(BadArgument, match="cpu:.*:lahf_lm: 'x'; one of force"):
        valuekinds.check({"cpu": {key: {"policy": "x", "name": "lahf_lm"}}})


@pytest.mark.parametrize("most", [18446744073709551, "18446744073709551", 17592186044415, -1])
def test_the_largest_quota_of_each_libvirt_is_taken(most):
    valuekinds.check({"cpu": {"tuning": {"quota": most, "period": 2**64 - 1}}})


@pytest.mark.parametrize(
    ("given", "attributes", "catchup"),
    [
        ({"catchup": {"slew": 1, "limit": 2}}, {}, {"slew": "1", "limit": "2"}),
        ({"catchup": {"slew": 1}, "slew": 3}, {}, {"slew": "3"}),
        ({"catchup": True}, {"tickpolicy": "catchup"}, None),
        ({"catchup": True, "tickpolicy": "delay"}, {"tickpolicy": "delay"}, None),
        ({"catchup": None}, {}, None),
    ],
)
def test_a_timer_that_catches_up(given, attributes, catchup):
    (timer,) = clock.from_call({"timers": {"rtc": given}}).timers

    assert timer == clock.Timer(attributes={"name": "rtc", **attributes}, catchup=catchup)


@pytest.mark.parametrize("given", ["fast", {"speed": 1}])
def test_a_timer_that_catches_up_in_no_way_is_refused(given):
    with pytest.raises(BadArgument, match="^clock:timers:rtc:catchup"):
        clock.from_call({"timers": {"rtc": {"catchup": given}}})


@pytest.mark.parametrize(
    ("given", "ports"),
    [
        ([{}, {}], ["0", "1"]),
        ([{"target_port": 1}, {}, {}], ["1", "0", "2"]),
        ([{}, {"target_port": "0"}], ["1", "0"]),
    ],
)
def test_each_port_has_a_number_of_its_own(given, ports):
    for kind, devices in (("serial", (given, None)), ("console", (None, given))):
        made = chardev.from_call(*devices, None)

        assert [one.element for one in made] == [kind] * len(given)
        assert [one.target["port"] for one in made] == ports


@pytest.mark.parametrize("key", ["host", "port", "protocol", "tls"])
def test_who_names_what_only_tcp_has_means_tcp(key):
    (made,) = chardev.from_call([{key: "127.0.0.1" if key == "host" else 1}], None, None)

    assert made.type == "tcp" and made.source["host"] == "127.0.0.1"


def test_a_port_for_tls_is_not_chosen_anew():
    display = graphics.from_call({"type": "spice", "tls_port": 5999})

    assert (display.autoport, display.tls_port, display.port) == (False, "5999", None)


@pytest.mark.parametrize("adjustment", [3600, "reset", "9"])
def test_a_clock_of_a_time_zone_has_no_adjustment(adjustment):
    # Salt 3006 wrote both, and libvirt passed the adjustment over.
    zone = {"offset": "timezone", "timezone": "CEST"}

    made = clock.from_call({"timezone": "CEST", "adjustment": adjustment})
    assert made.attributes == zone
    assert clock.apply_changes(made, {"timezone": "CEST", "adjustment": adjustment}) == made
    for had in ({"adjustment": 9}, {"adjustment": "reset"}, {"utc": False, "adjustment": 9}):
        assert clock.apply_changes(clock.from_call(had), {"timezone": "CEST"}).attributes == zone
    with pytest.raises(BadArgument, match="clock:adjustment"):
        clock.from_call({"timezone": "CEST", "adjustment": "soon"})


@pytest.mark.parametrize("name", ["pci_1002_71c4", "pci_0000_03_00_0", "mygpu"])
def test_the_address_of_a_device_is_that_of_its_xml(name):
    device = nodedev.read(
        f"<device><name>{name}</name><capability type='pci'><domain>0</domain><bus>3</bus>"
        "<slot>16</slot><function>2</function></capability></device>"
    )

    address = {"domain": "0x0000", "bus": "0x03", "slot": "0x10", "function": "0x2"}
    assert hostdev.from_call(device) == hostdev.Hostdev(type="pci", address=address)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pci_0000_09_00_0", "'pci_0000_09_00_0' is not a device of this host; list them with"),
        ("usb_9_9", "'usb_9_9' is not a device of this host"),
        ("net_eno2_52_54_00_bb_00_02", "'net_.*': a VM can get only PCI and USB devices"),
        ("mdev_4b20d080", "'mdev_4b20d080': a VM can get only PCI"),
    ],
)
def test_a_device_that_no_vm_can_have_is_told_apart_from_one_that_is_not_there(name, reason):
    with pytest.raises(BadArgument, match=f"^host_devices: {reason}"):
        hostdev.refuse_unknown(name, {"pci_0000_03_00_0"})
    hostdev.refuse_unknown("pci_0000_03_00_0", {"pci_0000_03_00_0"})


@pytest.mark.parametrize("within", ["", "<address type='pci' domain='0' bus='3'/>"])
def test_a_nic_that_is_a_device_has_an_empty_source(within):
    element = parse(
        "<interface type='hostdev'><mac address='52:54:00:00:00:01'/>"
        f"<source>{within}</source></interface>"
    )

    assert nic.describe(element)["source"] == {}
