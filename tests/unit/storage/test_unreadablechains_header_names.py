"""A guest may write any name into the header that it makes its raw disk look like."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest
import verdicts
from saltvirt.storage import trash, unreadablechains


def header(path, name):
    """Write what looks like the header of an overlay, which names what is below it."""
    said = name.encode()
    head = b"QFI\xfb" + struct.pack(">IQIIQI", 2, 128, len(said), 16, 1 << 20, 0)
    path.write_bytes(head.ljust(128, b"\0") + said.ljust(1024, b"\0"))


@pytest.mark.parametrize("said", ["\\u0000x", "\\ud800x"])
def test_one_that_is_no_path_is_nothing(hypervisor, said):
    settings = replace(hypervisor.settings, trash_days=7)
    disk = Path(settings.images) / "web1_data.raw"
    disk.parent.mkdir(exist_ok=True)
    header(disk, f'json:{{"filename": "/{said}"}}')

    with trash.fill_trash(settings, "web1", reason="a test") as drop:
        drop(verdicts.free(disk))

    assert (
        unreadablechains.backing_files(settings) == {}
        and unreadablechains.backing_files_beside(settings, {disk.parent}) == set()
    )
    assert unreadablechains.find_unreadable_entries(settings) == {}
