"""A file of another host in the place of a VM's file is neither written over nor removed."""

from dataclasses import replace
from pathlib import Path

import pytest
from saltvirt.core.errors import VirtError
from saltvirt.libvirt import reservations
from test_arrival import moving, prepare

__all__ = ["moving"]


@pytest.mark.parametrize("how", ["push", "copy"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_file_of_another_host_that_shares_the_folder_stays(end, moving, monkeypatch, how, number):
    path = Path(moving.disks[number].path)
    real_check = reservations.refuse_taken

    def write_after_check(settings, name, paths):
        real_check(settings, name, paths)
        if str(path) in paths:
            # The other host has its record only on itself.
            path.write_bytes(b"another's")

    disks = [replace(disk, how=how, virtual_bytes=1 << 20) for disk in moving.disks]
    monkeypatch.setattr(reservations, "refuse_taken", write_after_check)
    with pytest.raises(VirtError, match=f"cannot make {path}: File exists"):
        prepare(end, replace(moving, disks=disks))

    assert path.read_bytes() == b"another's"
    assert end.hypervisor.files() == [path.name] and end.record("arrival") is None
