"""Each element of a domain is read as it was built, through real text: read(build(x)) == x."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
from elements import DECLARED, DOMAINS, SECRETS
from hypothesis import find, given, settings
from hypothesis import strategies as st
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Vm
from saltvirt.vm import profiles
from saltvirt.xml import element, parse, tag, to_text
from saltvirt.xml.domain import clock, cputune, domain, graphics, memory, nic, osboot
from saltvirt.xml.storage import secret
from sizes import sizes

MIDONET = {"type": "midonet", "interfaceid": "09b11c53-8b5c-4eeb-8f00-d84eaa0aaa4f"}


# A field of a network: the names of elements without a field.
FIELDS_WITHOUT_INPUT = {"others"}


def parsed(*elements):
    """Return a domain with elements, written as text and parsed again."""
    return parse(to_text(tag("domain", None, *elements)))


def test_every_declared_class_is_tested_here():
    folder = Path(domain.__file__).parents[1]
    sources = "".join(path.read_text() for path in folder.rglob("*.py"))

    our_classes = {cls for cls in element.DECLARED if cls.__module__.startswith("saltvirt.")}
    assert our_classes == {*DECLARED, domain.Domain}
    assert len(our_classes) == sources.count("\n@element.declare(")


@sizes(quick=25, full=100)
@pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_an_element_is_read_as_it_was_built(cls, size):
    tried = {field.name: set() for field in fields(cls) if field.name not in FIELDS_WITHOUT_INPUT}

    @settings(max_examples=size)
    @given(content=DECLARED[cls])
    def compared(content):
        for name, values in tried.items():
            values.add(repr(getattr(content, name)))
        if element.DECLARED[cls]:
            (built,) = parsed(element.build(content))
        else:
            built = parsed(*element.build_parts(content))
        assert element.read(cls, built) == content

    compared()
    # A few examples may all have the same value: look on until the strategy gives another one.
    for name in [name for name, values in tried.items() if len(values) < 2]:
        find(
            DECLARED[cls],
            lambda content, name=name: repr(getattr(content, name)) not in tried[name],
        )


@given(content=SECRETS)
def test_a_secret_is_read_as_it_was_built(content):
    (built,) = parsed(secret.build(content))

    assert secret.read(built) == content


@pytest.mark.slow
@sizes(quick=25, full=200)
def test_a_domain_is_read_as_it_was_built(size):
    @settings(max_examples=size, deadline=None)
    @given(content=DOMAINS)
    def compared(content):
        assert domain.read(parse(to_text(element.build(content)))) == content

    compared()


INTERFACES = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("bridge"), "source": st.just("br0")},
        optional={
            "vlan": st.sampled_from([7, [1, "3-5"], {"tags": [9], "native": 2}]),
            "filter": st.sampled_from(["clean-traffic", {"ip": "192.0.2.7"}]),
            "bandwidth": st.sampled_from([{"in": 7}, {"out": {"average": 1, "burst": 9}}]),
            "queues": st.integers(1, 256),
            "mtu": st.integers(68, 65535),
            "guest": st.just("dhcp"),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.just("bridge"), "source": st.just("ovs0")},
        optional={"virtualport": st.sampled_from(["openvswitch", MIDONET])},
    ),
    st.fixed_dictionaries({"network": st.just("lan")}, optional={"portgroup": st.just("web")}),
    st.fixed_dictionaries(
        {"type": st.just("direct"), "source": st.just("eno1")},
        optional={"mode": st.sampled_from(["vepa", "private"])},
    ),
    st.fixed_dictionaries(
        {"type": st.just("hostdev"), "source": st.sampled_from(["0000:03:10.2", "sriov"])}
    ),
    st.sampled_from([{"type": "user"}, {"type": "ethernet"}, {"type": "vdpa", "source": "/dev/v"}]),
)


@given(entries=st.lists(INTERFACES, max_size=4))
def test_every_nic_of_a_call_is_read_as_it_was_built(entries):
    entries_with_names = [{**entry, "name": f"eth{number}"} for number, entry in enumerate(entries)]

    for interface in map(nic.from_call, profiles.nics("vm", {}, None, entries_with_names)):
        (element,) = parsed(nic.build(interface))
        assert nic.read(element) == interface


@pytest.mark.parametrize(
    ("amount", "unit", "size_kib"),
    [
        ("8", "GiB", 8 * 2**20),
        ("8192", "MiB", 8 * 2**20),
        ("1073741824", "b", 2**20),
        ("1", "G", 2**20),
        (" 4096\n", None, 4096),
        ("1000", "KB", 977),
        ("9007199254740991", "KiB", 2**53 - 1),
        ("9007199254740993", "KiB", 2**53 + 1),
        ("", None, 0),
        ("lots", "KiB", 0),
        ("1", "parsec", 0),
    ],
)
def test_memory_is_read_in_any_unit(amount, unit, size_kib):
    (element,) = parsed(tag("memory", {"unit": unit}, text=amount))

    assert memory.read(tag("domain", None, element)).size_kib == size_kib


@pytest.mark.parametrize("text", ["a\0b", "\x1b[2J", "\ud800", "\uffff"])
def test_a_character_that_xml_cannot_hold_is_refused_by_name(text):
    with pytest.raises(BadArgument, match="cmdline: .* has a control character"):
        osboot.build(osboot.Os(cmdline=text))
    with pytest.raises(BadArgument, match="^address: "):
        nic.build(nic.Interface(mac=text))


def test_a_password_is_not_in_the_text_of_its_element():
    assert "s3cret" not in repr(graphics.from_call({"type": "vnc", "password": "s3cret"}))


def test_a_clock_that_is_off_by_no_number_is_refused():
    assert clock.from_call({"adjustment": "-3600"}).attributes["adjustment"] == "-3600"
    with pytest.raises(BadArgument, match="^clock:adjustment: 'soon' is not a whole number"):
        clock.from_call({"adjustment": "soon"})


def test_a_cache_of_a_processor_without_a_size_is_refused_by_name():
    with pytest.raises(BadArgument, match="^cpu:tuning:cachetune:size"):
        cputune.from_call({"cachetune": {"0-1": {0: {"level": 3, "type": "both"}}}})


def test_schedulers_caches_and_bandwidths_of_a_cpu_mapping():
    tune = cputune.from_call(
        {
            "vcpusched": [{"vcpus": "0-1", "scheduler": "fifo", "priority": 1}],
            "emulatorsched": [{"scheduler": "idle"}],
            "cachetune": {
                "0-1": {0: {"level": 3, "type": "both", "size": "4m"}, "monitor": {"0": 3}}
            },
            "memorytune": {"0-1": {0: 60}},
        }
    )

    assert tune.scheds == (
        ("vcpusched", {"vcpus": "0-1", "scheduler": "fifo", "priority": "1"}),
        ("emulatorsched", {"scheduler": "idle"}),
    )
    assert tune.parts == (
        cputune.Part(
            name="cachetune",
            vcpus="0-1",
            rows=(
                ("cache", {"id": "0", "level": "3", "type": "both", "size": "4", "unit": "MiB"}),
                ("monitor", {"vcpus": "0", "level": "3"}),
            ),
        ),
        cputune.Part(
            name="memorytune", vcpus="0-1", rows=(("node", {"id": "0", "bandwidth": "60"}),)
        ),
    )


def test_the_guest_type_is_that_of_the_call():
    vm = Vm(name="vm", cpu=1, vcpus=1, memory=1, memory_mib=1)

    assert osboot.from_call(vm).type == "hvm"
    assert osboot.from_call(replace(vm, os_type="linux")).type == "linux"
