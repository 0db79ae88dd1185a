"""The seed that a VM had is its seed again, in the format that its name says."""

import subprocess
from pathlib import Path

import pytest
from saltvirt.core.errors import StorageError
from saltvirt.libvirt.domains import lifecycle
from saltvirt.vm.purge.host import purge
from saltvirt.xml.edit import readdomain


def seeds(hypervisor):
    """Return the path and the format of the seeds that web1's definition names."""
    text = (hypervisor.definitions / "web1.xml").read_text()
    found = readdomain.disk_sources(readdomain.domain(text))
    return [(one["path"], one["format"]) for one in found if "_seed." in one["path"]]


def undefine(hypervisor, conn):
    """Forget web1."""
    lifecycle.destroy(conn, "web1")
    purge.undefine(conn, hypervisor.settings, "web1")


def test_the_seed_of_an_older_release_is_its_vms_again_and_stays_raw(hypervisor):
    images = Path(hypervisor.settings.images)
    old, new = images / "web1_seed.iso", images / "web1_seed.iso.qcow2"
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        undefine(hypervisor, conn)
        # Its guest may have written what looks like a qcow2.
        new.rename(old)

        assert hypervisor.init() is True

        assert seeds(hypervisor) == [(str(old), "raw")]
        purge.purge(conn, hypervisor.settings, "web1")
    assert hypervisor.files() == []


def test_a_seed_that_is_no_qcow2_or_is_based_on_a_file_is_not_taken(hypervisor):
    seed = Path(hypervisor.settings.images) / "web1_seed.iso.qcow2"
    (hypervisor.root / "shadow").write_bytes(bytes(65536))
    argv = [
        "qemu-img",
        "create",
        "-q",
        "-f",
        "qcow2",
        "-F",
        "raw",
        "-b",
        hypervisor.root / "shadow",
    ]
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        undefine(hypervisor, conn)
        seed.unlink()
        subprocess.run([*argv, seed], check=True)

        with pytest.raises(StorageError, match="seed .*qcow2 is there already .*; remove it"):
            hypervisor.init()
