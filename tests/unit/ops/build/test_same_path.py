"""Two VMs whose disks would have one path are never both built."""

import pytest
from saltvirt import records
from saltvirt.errors import StorageError
from saltvirt.ops import reservations
from saltvirt.ops.build import do


@pytest.mark.parametrize("purpose", ["build", "arrival"])
def test_a_path_that_another_is_about_to_make_is_refused(hypervisor, purpose):
    path = f"{hypervisor.settings.images}/a_b_c.qcow2"
    place = reservations.folder(hypervisor.settings)
    noted = {"paths": [path], **dict.fromkeys(("vcpus", "memory_mib", "disk_mib"), 0)}
    noted |= {"affinity": [], "anti_affinity": [], "uuid": "4dea22b3-1d52-d8f3-2516-782e98ab3fa9"}

    with hypervisor.libvirt(), records.held(place, purpose, "a_b") as other:
        # It has looked, and not made its file yet.
        other.begin("t1", "making" if purpose == "build" else "preparing", **noted)
        with pytest.raises(StorageError, match="a_b_c.qcow2 is to be a file of VM 'a_b'"):
            hypervisor.init("a", disks=[{"name": "b_c", "size": 8}])

    assert hypervisor.files() == []


def test_what_was_made_since_it_was_looked_for_stays(hypervisor, monkeypatch):
    with hypervisor.libvirt():
        fetch = do._fetch_minion

        def meanwhile(*args):
            (path,) = [one for one in args[1].paths if "data" in one]
            with open(path, "w") as handle:
                handle.write("somebody's")
            return fetch(*args)

        hypervisor.init("other")
        monkeypatch.setattr(do, "_fetch_minion", meanwhile)
        with pytest.raises(StorageError, match="web1_data.qcow2 is there already"):
            hypervisor.init("web1")

    assert [one for one in hypervisor.files() if one.startswith("web1")] == ["web1_data.qcow2"]
