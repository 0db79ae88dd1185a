"""The findings in a disk are only words: the disk may have taken over the program."""

import json

import libvirt
import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.core.options.config import HostSettings
from saltvirt.seeding import inspection, install
from saltvirt.storage.images import cache, cachedimages

STEERING = "debian \x1b]0;title\x07\x1b[2J12\nhyper2: all is well"
SHOWN = r"debian \x1b]0;title\x07\x1b[2J12 hyper2: all is well"


@pytest.mark.parametrize("arch", ["x/../../secret", "x#", "x?y=", "..", "", "a b", "x" * 99])
def test_a_processor_leads_to_no_other_file_and_no_other_server(arch):
    inspected = inspection.parse_content({"root": "/dev/sda1", "arch": arch})

    with pytest.raises(BadArgument, match="write the file's name instead"):
        install.decide(["https://example.org/{arch}/salt.tar.xz"], inspected.arch)


@pytest.mark.parametrize("arch", ["x86_64", "aarch64", "ppc64le"])
def test_a_processor_is_known(arch):
    assert inspection.parse_content({"root": "/dev/sda1", "arch": arch}).arch == arch


def test_a_system_is_called_by_one_line_that_steers_no_terminal():
    inspected = inspection.parse_content({"root": None, "os": STEERING, "datasources": [STEERING]})

    assert [inspected.os] == inspected.datasources == [SHOWN]


def test_a_list_of_images_steers_no_terminal_either(tmp_path):
    settings, digest = HostSettings(images=str(tmp_path), uri="test:///default"), "a" * 64
    base = cache.ensure_folder(settings)
    note = {"source": "salt://a", "format": "raw", "size_bytes": 512, "stat": [512, 1]}
    cache.note_path(base, digest).write_text(json.dumps(note))
    cache.inspection_path(settings, digest).write_text(
        json.dumps({"os": STEERING, "has_minion": True})
    )

    conn = libvirt.open("test:///default")
    try:
        (row,) = cachedimages.list_images(conn, settings).values()
    finally:
        conn.close()

    assert row["os"] == SHOWN and row["has_minion"] is True
