"""The changes of a call in an element: nothing else in it is changed."""

from pathlib import Path

import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.xml import parse, to_text
from saltvirt.xml.domain import (
    chardev,
    clock,
    cpu,
    cputune,
    domain,
    features,
    memory,
    numatune,
    osboot,
    vcpu,
)
from saltvirt.xml.edit import amend
from saltvirt.xml.edit.merging import format_cpus, merge

DATA = Path(__file__).resolve().parents[2] / "data"
FILES = sorted([*DATA.glob("domains/*.xml"), *DATA.glob("foreign/*.xml")])


def unchanged_parts(content):
    """Yield each part of a domain, and the same part after an empty call."""
    yield content.memory, memory.apply_changes(content.memory, {})
    yield content.vcpus, vcpu.apply_changes(content.vcpus, {})
    yield content.cpu, cpu.apply_changes(content.cpu, {})
    yield content.cputune, cputune.apply_changes(content.cputune, {})
    yield content.numatune, numatune.apply_changes(content.numatune, {})
    yield content.features, features.apply_changes(content.features, {})
    yield content.clock, clock.apply_changes(content.clock, {})
    yield content.os, osboot.apply_changes(content.os, {})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_empty_call_changes_nothing_of_a_domain(path):
    for before, after in unchanged_parts(domain.read(parse(path.read_text()))):
        assert after == before


def test_parts_without_a_field_stay_when_others_change():
    root = parse(
        "<domain><cpu mode='custom' migratable='on'><maxphysaddr mode='emulate'/>"
        "<topology sockets='2' dies='1' cores='1' threads='1'/></cpu></domain>"
    )
    old = domain.read(root).cpu
    changed = cpu.apply_changes(old, {"topology": {"cores": 2}, "features": {"lahf": "require"}})

    assert amend.change_children(root, [cpu.build(old)], [cpu.build(changed)])

    text = to_text(root)
    assert '<maxphysaddr mode="emulate" />' in text and 'migratable="on"' in text
    assert '<topology sockets="2" dies="1" cores="2" threads="1" />' in text


def test_an_element_is_removed_with_its_last_part():
    root = parse("<domain><memtune><hard_limit unit='KiB'>9</hard_limit></memtune></domain>")
    old = memory.read(root)
    amend.change_children(root, memory.build(old), memory.build(without_limits(old)))

    assert root.find("memtune") is None


def without_limits(old):
    """Return the memory without its limits."""
    return memory.apply_changes(memory.Memory(size_kib=9, current_kib=9), {"hard_limit": None})


def test_foreign_parts_of_the_same_element_stay():
    root = parse("<domain><features><kvm><hidden state='on'/></kvm></features></domain>")
    for hint, expected_count in ((True, 2), (None, 1)):
        old = domain.read(root).features
        changed = features.apply_changes(old, {"kvm-hint-dedicated": hint})
        amend.change_children(root, [features.build(old)], [features.build(changed)])
        assert len(root.find("features/kvm")) == expected_count


@pytest.mark.parametrize(
    ("cpu_set", "expected"),
    [("0,1,2", "0-2"), ("0-3,^2", "0-1,3"), (5, "5"), ("3,1", "1,3"), ("all", "all"), ("", "")],
)
def test_sets_of_cpus_are_compared_as_libvirt_writes_them(cpu_set, expected):
    assert format_cpus(cpu_set) == expected


def test_null_removes_and_ids_are_a_whole():
    mapping = {
        "a": 1,
        "b": {"c": 2, "d": 3},
        "features": {"x": "require"},
        "numa": {"0": {"cpus": 1}},
    }

    assert merge(mapping, {"a": None, "b": {"c": None}}) == {
        "b": {"d": 3},
        "features": {"x": "require"},
        "numa": {"0": {"cpus": 1}},
    }
    assert merge(mapping, {"features": {"y": "disable", "x": None}})["features"] == {"y": "disable"}
    assert merge(mapping, {"numa": {0: {"memory": 5}}})["numa"] == {"0": {"cpus": 1, "memory": 5}}
    assert merge(mapping, {"numa": {1: {"cpus": 2}}})["numa"] == {"1": {"cpus": 2}}
    assert "b" not in merge(mapping, {"b": None})


def test_firmware_comes_and_goes_whole():
    firmware = osboot.apply_changes(osboot.Os(), {"loader": "/f/CODE.fd", "nvram": "/f/VARS.fd"})
    assert firmware.loader.attributes == {"readonly": "yes", "type": "pflash"}
    assert firmware.nvram.attributes == {"template": "/f/VARS.fd"}

    # `efi: True` changes nothing of the firmware that libvirt has found for it.
    assert osboot.apply_changes(firmware, {"efi": True}) == firmware
    for removal in ({"efi": False}, {"loader": None, "nvram": None}):
        assert osboot.apply_changes(firmware, removal) == osboot.Os()
    with pytest.raises(BadArgument, match="go together"):
        osboot.apply_changes(osboot.Os(), {"loader": "/f/CODE.fd"})


def test_the_order_of_boot_devices_is_that_of_the_call():
    root = parse("<domain><os><type>hvm</type><boot dev='hd'/><boot dev='network'/></os></domain>")
    osboot.amend_domain(root, osboot.apply_changes(domain.read(root).os, {}, ("network", "hd")))

    assert domain.read(root).os.boot == ("network", "hd")


def test_a_quoted_no_is_no():
    clock_ = clock.from_call({"utc": "no", "timers": {"hpet": {"present": "no"}}})
    (port,) = chardev.from_call([{"type": "tcp", "port": 23023, "tls": "no"}], None, None)

    assert clock_.attributes == {"offset": "localtime"}
    assert clock_.timers[0].attributes == {"name": "hpet", "present": "no"}
    assert port.source["tls"] == "no"
