"""What calls of Salt 3006 say in their own way, and what libvirt counts in its own units."""

import pytest
from saltvirt import valuekinds
from saltvirt.errors import BadArgument
from saltvirt.xml import chardev, clock, cpu, cputune, graphics


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
    tune = cputune.of(asked)

    ((_name, row),) = tune.parts[0].rows
    assert (row["size"], row["unit"]) == (size, unit)
    # What is there is no change when it is asked for again.
    assert cputune.changed(tune, asked) == tune


def test_features_have_the_name_of_3006s_states_too():
    given = {"feature": {"lahf": "optional", "pcid": "disable"}, "features": {"pcid": "require"}}
    both = {"lahf": "optional", "pcid": "require"}

    assert cpu.of(given, "kvm").features == both
    assert cpu.changed(cpu.of(1, "kvm"), given).features == both
    assert cpu.changed(cpu.of(given, "kvm"), {"feature": None}).features == both


@pytest.mark.parametrize("key", ["feature", "features"])
def test_one_feature_is_taken_as_3006s_states_showed_it(key):
    given = {"model": "core2duo", key: {"policy": "optional", "name": "lahf_lm"}}
    made = cpu.of(given, "kvm")

    valuekinds.check({"cpu": given})
    assert made.features == {"lahf_lm": "optional"}
    assert cpu.changed(made, given) == made
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
    (timer,) = clock.of({"timers": {"rtc": given}}).timers

    assert timer == clock.Timer(attributes={"name": "rtc", **attributes}, catchup=catchup)


@pytest.mark.parametrize("given", ["fast", {"speed": 1}])
def test_a_timer_that_catches_up_in_no_way_is_refused(given):
    with pytest.raises(BadArgument, match="^clock:timers:rtc:catchup"):
        clock.of({"timers": {"rtc": {"catchup": given}}})


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
        made = chardev.of(*devices, None)

        assert [one.element for one in made] == [kind] * len(given)
        assert [one.target["port"] for one in made] == ports


@pytest.mark.parametrize("key", ["host", "port", "protocol", "tls"])
def test_who_names_what_only_tcp_has_means_tcp(key):
    (made,) = chardev.of([{key: "127.0.0.1" if key == "host" else 1}], None, None)

    assert made.type == "tcp" and made.source["host"] == "127.0.0.1"


def test_a_port_for_tls_is_not_chosen_anew():
    display = graphics.of({"type": "spice", "tls_port": 5999})

    assert (display.autoport, display.tls_port, display.port) == (False, "5999", None)
