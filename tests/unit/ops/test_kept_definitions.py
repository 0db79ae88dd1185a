"""A definition that was kept of a VM that has moved is removed alone, never as the VM."""

import pytest
from saltvirt.errors import VirtError
from saltvirt.kvm import lifecycle
from saltvirt.ops import purge


def test_a_purge_that_was_queued_does_not_take_the_kept_definition_for_the_vm(hypervisor):
    """While it was queued, somebody moved the VM by hand, with undefinesource=False."""
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        uuid = lifecycle.uuid(conn, "web1")  # what the runner is told by virt.presence
        lifecycle.destroy(conn, "web1")
        lifecycle.keep_moved(conn, "web1", "hyper2")

        with pytest.raises(VirtError, match="moved to hyper2"):
            purge.purge(conn, hypervisor.settings, "web1", uuid=uuid)


def test_a_definition_that_was_only_kept_is_removed_alone(hypervisor):
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        lifecycle.keep_moved(conn, "web1", "hyper2")
        purge.undefine(conn, hypervisor.settings, "web1")

    assert hypervisor.domains() == [] and len(hypervisor.files()) == 3
