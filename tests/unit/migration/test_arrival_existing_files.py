"""What somebody else has made where a VM comes is neither written over nor removed."""

from dataclasses import replace
from pathlib import Path

import pytest
from saltvirt.core.errors import VirtError
from saltvirt.libvirt import reservations
from test_arrival import moving, prepare

__all__ = ["moving"]


@pytest.mark.parametrize("how", ["push", "copy"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_file_of_another_host_that_shares_the_folder_stays(end, moving, monkeypatch, how, which):
    path = Path(moving.disks[which].path)
    looked = reservations.refuse_taken

    def faster(settings, name, paths):
        looked(settings, name, paths)
        if str(path) in paths:
            # That one has a record on its own host alone.
            path.write_bytes(b"another's")

    disks = [replace(one, how=how, virtual_bytes=1 << 20) for one in moving.disks]
    monkeypatch.setattr(reservations, "refuse_taken", faster)
    with pytest.raises(VirtError, match=f"cannot make {path}: File exists"):
        prepare(end, replace(moving, disks=disks))

    assert path.read_bytes() == b"another's"
    assert end.hypervisor.files() == [path.name] and end.record("arrival") is None
