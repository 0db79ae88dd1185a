"""A file below a disk, as after a snapshot, is no VM's disk again because a call names it."""

import subprocess

import pytest
from saltvirt.core.errors import StorageError
from saltvirt.libvirt.domains import lifecycle
from saltvirt.seeding import golden
from saltvirt.storage.images import cache
from saltvirt.vm.update.host import apply, request
from test_update_calls import DEFAULTS

ALONE = {"image": None, "seed": False, "pub_key": None, "priv_key": None, "start": False}


def qemu_img(*words):
    """Run qemu-img."""
    subprocess.run(["qemu-img", *map(str, words)], check=True, capture_output=True)


@pytest.fixture
def disks(tmp_path):
    """What a call says that names a file as a VM's disk."""
    qemu_img("create", "-f", "qcow2", tmp_path / "old.qcow2", "8M")
    return [{"name": "system", "source_file": str(tmp_path / "old.qcow2")}]


def test_a_file_below_the_snapshot_of_a_vm_is_taken_by_no_call(hypervisor, tmp_path, disks):
    old, new = disks[0]["source_file"], str(tmp_path / "new.snap1")
    with hypervisor.libvirt() as conn:
        hypervisor.init(disks=disks, **ALONE)
        asked = request.from_call(hypervisor.settings, "web1", {**DEFAULTS, "disks": disks})
        assert not apply.update(hypervisor.context, asked)["definition"]
        # As virt.snapshot with external=True does it.
        qemu_img("create", "-f", "qcow2", "-F", "qcow2", "-b", old, new)
        conn.defineXML(lifecycle.secure_xml(conn, "web1").replace(old, new))

        with pytest.raises(
            StorageError, match="would be written to .*a disk of VM 'web1' is based on it"
        ):
            apply.update(hypervisor.context, asked)
        with pytest.raises(
            StorageError, match="would be written to .*a disk of VM 'web1' is based on it"
        ):
            hypervisor.init("web2", disks=disks, **ALONE)

        assert lifecycle.file_paths(conn, "web1") == [new]


def test_a_golden_image_is_taken_as_an_image_alone(hypervisor, disks):
    path = disks[0]["source_file"]
    with hypervisor.libvirt():
        golden.cache.adopt(hypervisor.settings, path, golden.validation.validate(path))
        kept = [*cache.folder_path(hypervisor.settings).glob("*.qcow2")]
        assert [one.samefile(path) for one in kept] == [False]

        with pytest.raises(StorageError, match="would be written to .*it is a golden image"):
            hypervisor.init(disks=disks, **ALONE)
        disks[0]["source_file"] = str(kept[0])
        with pytest.raises(StorageError, match="is a cached image"):
            hypervisor.init(disks=disks, **ALONE)
