"""What a call changes of an element, and that it touches nothing else."""

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


def nothing(said):
    """Yield each part of a domain, and what it is when a call has changed nothing of it."""
    yield said.memory, memory.apply_changes(said.memory, {})
    yield said.vcpus, vcpu.apply_changes(said.vcpus, {})
    yield said.cpu, cpu.apply_changes(said.cpu, {})
    yield said.cputune, cputune.apply_changes(said.cputune, {})
    yield said.numatune, numatune.apply_changes(said.numatune, {})
    yield said.features, features.apply_changes(said.features, {})
    yield said.clock, clock.apply_changes(said.clock, {})
    yield said.os, osboot.apply_changes(said.os, {})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_call_that_says_nothing_changes_nothing_of_a_domain(path):
    for now, then in nothing(domain.read(parse(path.read_text()))):
        assert then == now


def test_what_no_field_is_for_stays_beside_what_changes():
    root = parse(
        "<domain><cpu mode='custom' migratable='on'><maxphysaddr mode='emulate'/>"
        "<topology sockets='2' dies='1' cores='1' threads='1'/></cpu></domain>"
    )
    now = domain.read(root).cpu
    wanted = cpu.apply_changes(now, {"topology": {"cores": 2}, "features": {"lahf": "require"}})

    assert amend.change_children(root, [cpu.build(now)], [cpu.build(wanted)])

    text = to_text(root)
    assert '<maxphysaddr mode="emulate" />' in text and 'migratable="on"' in text
    assert '<topology sockets="2" dies="1" cores="2" threads="1" />' in text


def test_an_element_goes_with_the_last_that_it_said():
    root = parse("<domain><memtune><hard_limit unit='KiB'>9</hard_limit></memtune></domain>")
    now = memory.read(root)
    amend.change_children(root, memory.build(now), memory.build(tag_free(now)))

    assert root.find("memtune") is None


def tag_free(now):
    """Return memory without its limits."""
    return memory.apply_changes(memory.Memory(size_kib=9, current_kib=9), {"hard_limit": None})


def test_other_things_said_in_the_same_place_stay():
    root = parse("<domain><features><kvm><hidden state='on'/></kvm></features></domain>")
    for hint, there in ((True, 2), (None, 1)):
        now = domain.read(root).features
        wanted = features.apply_changes(now, {"kvm-hint-dedicated": hint})
        amend.change_children(root, [features.build(now)], [features.build(wanted)])
        assert len(root.find("features/kvm")) == there


@pytest.mark.parametrize(
    ("given_", "written"),
    [("0,1,2", "0-2"), ("0-3,^2", "0-1,3"), (5, "5"), ("3,1", "1,3"), ("all", "all"), ("", "")],
)
def test_sets_of_cpus_are_compared_as_libvirt_writes_them(given_, written):
    assert format_cpus(given_) == written


def test_null_removes_and_ids_are_a_whole():
    now = {"a": 1, "b": {"c": 2, "d": 3}, "features": {"x": "require"}, "numa": {"0": {"cpus": 1}}}

    assert merge(now, {"a": None, "b": {"c": None}}) == {
        "b": {"d": 3},
        "features": {"x": "require"},
        "numa": {"0": {"cpus": 1}},
    }
    assert merge(now, {"features": {"y": "disable", "x": None}})["features"] == {"y": "disable"}
    assert merge(now, {"numa": {0: {"memory": 5}}})["numa"] == {"0": {"cpus": 1, "memory": 5}}
    assert merge(now, {"numa": {1: {"cpus": 2}}})["numa"] == {"1": {"cpus": 2}}
    assert "b" not in merge(now, {"b": None})


def test_firmware_comes_and_goes_whole():
    now = osboot.apply_changes(osboot.Os(), {"loader": "/f/CODE.fd", "nvram": "/f/VARS.fd"})
    assert now.loader.attributes == {"readonly": "yes", "type": "pflash"}
    assert now.nvram.attributes == {"template": "/f/VARS.fd"}

    # Of what libvirt has found for it, `efi: True` is nothing new.
    assert osboot.apply_changes(now, {"efi": True}) == now
    for gone in ({"efi": False}, {"loader": None, "nvram": None}):
        assert osboot.apply_changes(now, gone) == osboot.Os()
    with pytest.raises(BadArgument, match="go together"):
        osboot.apply_changes(osboot.Os(), {"loader": "/f/CODE.fd"})


def test_the_order_of_boot_devices_is_what_they_say():
    root = parse("<domain><os><type>hvm</type><boot dev='hd'/><boot dev='network'/></os></domain>")
    osboot.amend_domain(root, osboot.apply_changes(domain.read(root).os, {}, ("network", "hd")))

    assert domain.read(root).os.boot == ("network", "hd")


def test_a_quoted_no_is_no():
    said = clock.from_call({"utc": "no", "timers": {"hpet": {"present": "no"}}})
    (port,) = chardev.from_call([{"type": "tcp", "port": 23023, "tls": "no"}], None, None)

    assert said.attributes == {"offset": "localtime"}
    assert said.timers[0].attributes == {"name": "hpet", "present": "no"}
    assert port.source["tls"] == "no"
