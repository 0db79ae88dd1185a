"""No image goes while the pool of a VM's volume is gone: nobody knows what that is based on."""

import hashlib
import subprocess

import libvirt
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.storage.images import cache, cachedimages

VM = """<domain type='test'><name>web1</name><memory unit='MiB'>64</memory><os><type>hvm</type></os>
<devices><disk type='volume' device='disk'><driver name='qemu' type='{}'/>
<source pool='fast' volume='web1.qcow2'/><target dev='vda'/></disk></devices></domain>"""
POOL = "<pool type='dir'><name>fast</name><target><path>{}</path></target></pool>"


@pytest.fixture
def settings(tmp_path):
    return HostSettings(images=str(tmp_path / "images"), state_dir=str(tmp_path / "state"))


@pytest.fixture
def digest(tmp_path, settings):
    """The digest of a host's image, over which there is a disk in the folder of a pool."""
    source, disk = tmp_path / "source.qcow2", tmp_path / "fast/web1.qcow2"
    disk.parent.mkdir()
    create = ["qemu-img", "create", "-q", "-f", "qcow2"]
    subprocess.run([*create, source, "8M"], check=True)
    got = cache.obtain(
        str(source), saltenv="base", settings=settings, opts={}, progress=lambda _done, _total: None
    )
    subprocess.run([*create, "-F", "qcow2", "-b", got.path, disk], check=True)
    return hashlib.sha256(source.read_bytes()).hexdigest()


@pytest.fixture
def conn():
    conn = libvirt.open("test:///default")
    yield conn
    conn.lookupByName("web1").undefine()
    conn.close()


@pytest.mark.parametrize("prune", [cachedimages.begin, cachedimages.find_used])
def test_an_image_stays_until_the_pool_is_defined_again(tmp_path, conn, settings, digest, prune):
    conn.defineXML(VM.format("qcow2"))

    with pytest.raises(
        StorageError, match="volume fast/web1.qcow2 of VM 'web1' .* define it again"
    ):
        prune(conn, settings, [digest])

    pool = conn.storagePoolDefineXML(POOL.format(tmp_path / "fast"))
    assert prune(conn, settings, [digest])["kept"] == {digest: "used by web1"}
    pool.undefine()


def test_what_is_raw_is_based_on_nothing(conn, settings, digest):
    conn.defineXML(VM.format("raw"))

    assert list(cachedimages.prune(conn, settings, None, is_dry=True)["removed"]) == [digest]
