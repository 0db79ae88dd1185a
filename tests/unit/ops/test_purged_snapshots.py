"""What an external snapshot has left below a VM's disks is purged, and nothing of others."""

import subprocess
from pathlib import Path

import pytest
from saltvirt.ops import owned, purge


@pytest.mark.parametrize("is_others", [False, True])
def test_what_an_external_snapshot_has_left_below_its_disk_goes_too(hypervisor, is_others):
    with hypervisor.libvirt():
        hypervisor.init()
    images = Path(hypervisor.settings.images)
    below, upper = images / "web1_data.qcow2", images / "web1_data.before"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", below, upper]
    subprocess.run(argv, check=True)
    path = hypervisor.definitions / "web1.xml"
    path.write_text(path.read_text().replace(str(below), str(upper)))
    if is_others:
        # Another VM that somebody has made over it.
        owned.mark(below, "db1", "11111111-1111-1111-1111-111111111111")

    with hypervisor.libvirt() as conn:
        purge.purge(conn, hypervisor.settings, "web1")

    assert hypervisor.files() == ([below.name] if is_others else [])
