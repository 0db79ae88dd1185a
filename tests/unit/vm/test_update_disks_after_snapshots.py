"""A disk that goes on in another file since an external snapshot is still that disk."""

import subprocess
from pathlib import Path

import pytest
from saltvirt.core.errors import StorageError
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import ownermark
from saltvirt.vm.purge.host import removed
from saltvirt.vm.update.host import apply, request
from test_update_calls import DEFAULTS
from updatekit import IDLE

VM = """<domain type='test'><name>web1</name><memory unit='MiB'>64</memory>
<os><type arch='i686'>hvm</type></os><on_reboot>restart</on_reboot><devices>
<disk type='file' device='disk'><driver name='qemu' type='{}'/>
<source file='{}'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""


@pytest.fixture
def top(hypervisor):
    """The newest file of a disk of which two snapshots were taken."""
    images = Path(hypervisor.settings.images)
    images.mkdir()
    files = [images / f"web1_system.{end}" for end in ("qcow2", "monday", "tuesday")]
    for below, one in zip((None, *files), files, strict=False):
        words = ["-b", below, "-F", "qcow2"] if below else []
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *words, one, "8M"], check=True)
    return files[-1]


@pytest.fixture
def update(hypervisor):
    """Return a function that says of a VM which disks it is to have."""
    with hypervisor.libvirt():

        def call(*disks):
            given = {**DEFAULTS, "stop_on_reboot": None, "disks": list(disks)}
            wanted = request.from_call(hypervisor.settings, "web1", given)
            return apply.update(hypervisor.context, wanted)

        yield call


@pytest.mark.parametrize("given", [{}, {"size": 8}, {"image": "image.qcow2"}])
def test_it_is_known_by_its_name(hypervisor, update, top, given):
    if "image" in given:
        given = {"image": str(hypervisor.root / given["image"])}
    with hypervisor.libvirt() as conn:
        conn.defineXML(VM.format("qcow2", top))

        assert update({"name": "system", **given}) == IDLE


def test_it_grows_where_it_goes_on(hypervisor, update, top):
    with hypervisor.libvirt() as conn:
        conn.defineXML(VM.format("qcow2", top))

        (grown,) = update({"name": "system", "size": 16})["disk"]["updated"]

    assert str(top) in grown
    said = subprocess.run(["qemu-img", "info", top], check=True, capture_output=True, text=True)
    assert "virtual size: 16 MiB" in said.stdout


def test_a_raw_disk_is_not_known_by_what_its_guest_has_written(hypervisor, update, top):
    with hypervisor.libvirt() as conn:
        conn.defineXML(VM.format("raw", top))

        with pytest.raises(StorageError, match="is there already"):
            update({"name": "system", "size": 8})

        assert lifecycle.file_paths(conn, "web1") == [str(top)]


def test_what_a_snapshot_has_left_below_an_added_disk_goes_with_its_vm(hypervisor, update, top):
    added = top.with_name("web1_data.qcow2")
    with hypervisor.libvirt() as conn:
        conn.defineXML(VM.format("qcow2", top))
        update({"name": "system"}, {"name": "data", "size": 8})
        upper = added.with_suffix(".before")
        words = ["-b", added, "-F", "qcow2", upper]
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *words], check=True)
        conn.defineXML(lifecycle.secure_xml(conn, "web1").replace(str(added), str(upper)))

        own = removed.find_own_files(conn, hypervisor.settings, "web1", False)

        assert ownermark.read_owner(added).uuid == lifecycle.uuid(conn, "web1")
    assert {str(added), str(upper)} <= set(own)
