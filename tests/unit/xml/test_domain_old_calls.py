"""Calls in the form of Salt 3006, and values in libvirt's own units."""

import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.vm import valuekinds
from saltvirt.xml import parse
from saltvirt.xml.domain import chardev, clock, cpu, cputune, graphics, hostdev, nic
from saltvirt.xml.node import nodedev


@pytest.mark.parametrize(
    ("options", "size", "unit"),
    [
        ({"size": 768}, "768", "KiB"),
        ({"size": "768"}, "768", "KiB"),
        ({"size": 3072}, "3", "MiB"),
        ({"size": 3, "unit": "MiB"}, "3", "MiB"),
        ({"size": "2m", "unit": "KiB"}, "2", "MiB"),
    ],
)
def test_the_size_of_a_cache_is_in_kib_and_written_as_libvirt_does_it(options, size, unit):
    request = {"cachetune": {"0": {0: {"level": 3, "type": "both", **options}}}}
    tune = cputune.from_call(request)

    ((_name, row),) = tune.parts[0].rows
    assert (row["size"], row["unit"]) == (size, unit)
    # The same request again is no change.
    assert cputune.apply_changes(tune, request) == tune


def test_features_have_the_name_of_3006s_states_too():
    options = {"feature": {"lahf": "optional", "pcid": "disable"}, "features": {"pcid": "require"}}
    expected = {"lahf": "optional", "pcid": "require"}

    assert cpu.from_call(options, "kvm").features == expected
    assert cpu.apply_changes(cpu.from_call(1, "kvm"), options).features == expected
    assert cpu.apply_changes(cpu.from_call(options, "kvm"), {"feature": None}).features == expected


@pytest.mark.parametrize("key", ["feature", "features"])
def test_one_feature_is_accepted_in_the_form_of_3006s_states(key):
    options = {"model": "core2duo", key: {"policy": "optional", "name": "lahf_lm"}}
    cpu_ = cpu.from_call(options, "kvm")

    valuekinds.check({"cpu": options})
    assert cpu_.features == {"lahf_lm": "optional"}
    assert cpu.apply_changes(cpu_, options) == cpu_
    with pytest.raises(BadArgument, match="cpu:.*:lahf_lm: 'x'; one of force"):
        valuekinds.check({"cpu": {key: {"policy": "x", "name": "lahf_lm"}}})


@pytest.mark.parametrize("quota", [18446744073709551, "18446744073709551", 17592186044415, -1])
def test_the_largest_quota_of_each_libvirt_is_taken(quota):
    valuekinds.check({"cpu": {"tuning": {"quota": quota, "period": 2**64 - 1}}})


@pytest.mark.parametrize(
    ("options", "attributes", "catchup"),
    [
        ({"catchup": {"slew": 1, "limit": 2}}, {}, {"slew": "1", "limit": "2"}),
        ({"catchup": {"slew": 1}, "slew": 3}, {}, {"slew": "3"}),
        ({"catchup": True}, {"tickpolicy": "catchup"}, None),
        ({"catchup": True, "tickpolicy": "delay"}, {"tickpolicy": "delay"}, None),
        ({"catchup": None}, {}, None),
    ],
)
def test_a_timer_that_catches_up(options, attributes, catchup):
    (timer,) = clock.from_call({"timers": {"rtc": options}}).timers

    assert timer == clock.Timer(attributes={"name": "rtc", **attributes}, catchup=catchup)


@pytest.mark.parametrize("catchup", ["fast", {"speed": 1}])
def test_a_timer_that_catches_up_in_no_way_is_refused(catchup):
    with pytest.raises(BadArgument, match="^clock:timers:rtc:catchup"):
        clock.from_call({"timers": {"rtc": {"catchup": catchup}}})


@pytest.mark.parametrize(
    ("ports_of_call", "ports"),
    [
        ([{}, {}], ["0", "1"]),
        ([{"target_port": 1}, {}, {}], ["1", "0", "2"]),
        ([{}, {"target_port": "0"}], ["1", "0"]),
    ],
)
def test_each_port_has_a_number_of_its_own(ports_of_call, ports):
    for kind, devices in (("serial", (ports_of_call, None)), ("console", (None, ports_of_call))):
        devices_ = chardev.from_call(*devices, None)

        assert [device.element for device in devices_] == [kind] * len(ports_of_call)
        assert [device.target["port"] for device in devices_] == ports


@pytest.mark.parametrize("key", ["host", "port", "protocol", "tls"])
def test_a_port_with_an_option_of_tcp_is_of_type_tcp(key):
    (device,) = chardev.from_call([{key: "127.0.0.1" if key == "host" else 1}], None, None)

    assert device.type == "tcp" and device.source["host"] == "127.0.0.1"


def test_a_port_for_tls_is_not_chosen_anew():
    display = graphics.from_call({"type": "spice", "tls_port": 5999})

    assert (display.autoport, display.tls_port, display.port) == (False, "5999", None)


@pytest.mark.parametrize("adjustment", [3600, "reset", "9"])
def test_a_clock_of_a_time_zone_has_no_adjustment(adjustment):
    # Salt 3006 wrote both, and libvirt ignored the adjustment.
    zone = {"offset": "timezone", "timezone": "CEST"}

    clock_ = clock.from_call({"timezone": "CEST", "adjustment": adjustment})
    assert clock_.attributes == zone
    assert clock.apply_changes(clock_, {"timezone": "CEST", "adjustment": adjustment}) == clock_
    for earlier_options in (
        {"adjustment": 9},
        {"adjustment": "reset"},
        {"utc": False, "adjustment": 9},
    ):
        assert (
            clock.apply_changes(clock.from_call(earlier_options), {"timezone": "CEST"}).attributes
            == zone
        )
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
def test_the_error_for_an_impossible_device_differs_from_that_for_a_missing_one(name, reason):
    with pytest.raises(BadArgument, match=f"^host_devices: {reason}"):
        hostdev.refuse_unknown(name, {"pci_0000_03_00_0"})
    hostdev.refuse_unknown("pci_0000_03_00_0", {"pci_0000_03_00_0"})


@pytest.mark.parametrize("content", ["", "<address type='pci' domain='0' bus='3'/>"])
def test_a_nic_that_is_a_device_has_an_empty_source(content):
    element = parse(
        "<interface type='hostdev'><mac address='52:54:00:00:00:01'/>"
        f"<source>{content}</source></interface>"
    )

    assert nic.describe(element)["source"] == {}
