"""An image that is built anew is put in the place of no file that a VM has, or is based on."""

from pathlib import Path

import pytest
from saltvirt.errors import StorageError
from saltvirt.ops.images import golden


def test_what_a_vm_has_or_is_based_on_by_its_path_is_not_replaced(hypervisor):
    images = Path(hypervisor.settings.images)
    with hypervisor.libvirt():
        hypervisor.init()
        (images / "free.qcow2").touch()
        given = {"folder": str(images), "replace": True}

        assert golden._target(hypervisor.settings, "free", given) == images / "free.qcow2"
        with pytest.raises(StorageError, match="is a VM's disk, or one is based on it"):
            golden._target(hypervisor.settings, "web1_system", given)
