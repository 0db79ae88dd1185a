"""A definition that was kept of a VM that has moved is removed alone, never as the VM."""

from dataclasses import replace

import pytest
from saltvirt.core.errors import StorageError, VirtError
from saltvirt.libvirt.domains import lifecycle
from saltvirt.vm.purge.host import purge
from saltvirt.xml.domain import tpm


def test_a_purge_that_was_queued_does_not_take_the_kept_definition_for_the_vm(hypervisor):
    """While it was queued, somebody moved the VM by hand, with undefinesource=False."""
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        uuid = lifecycle.uuid(conn, "web1")  # what the runner is told by virt.presence
        lifecycle.destroy(conn, "web1")
        lifecycle.mark_moved(conn, "web1", "hyper2")

        with pytest.raises(VirtError, match="moved to hyper2"):
            purge.purge(conn, hypervisor.settings, "web1", uuid=uuid)


def test_a_definition_that_was_only_kept_is_removed_alone(hypervisor):
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        lifecycle.mark_moved(conn, "web1", "hyper2")
        purge.undefine(conn, hypervisor.settings, "web1")

    assert hypervisor.domains() == [] and len(hypervisor.files()) == 3


def test_a_purge_leaves_the_state_of_a_tpm_to_the_host_that_has_the_vm(
    hypervisor, monkeypatch, tmp_path
):
    """Its disks are here twice, the state is on storage that both hosts have."""
    monkeypatch.setattr(tpm, "_STATES", str(tmp_path / "swtpm"))
    settings = replace(hypervisor.settings, shared_paths=[str(tmp_path / "swtpm")])
    element = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm></devices>"
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        lifecycle.destroy(conn, "web1")
        lifecycle.mark_moved(conn, "web1", "hyper2")
        # libvirt's test driver knows no TPM.
        xml = lifecycle.xml(conn, "web1").replace("</devices>", element)
        monkeypatch.setattr(lifecycle, "xml", lambda *_: xml)

        with pytest.raises(StorageError, match="has moved to hyper2.*all hosts share .*/swtpm/"):
            purge.purge(conn, settings, "web1")

    assert len(hypervisor.files()) == 3
