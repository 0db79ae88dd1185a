"""Empty disks for a VM that arrives by libvirt's own means, as Salt 3006 made them."""

import json
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import asloaded
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.libvirt import connect
from saltvirt.migration.host import incomingfiles
from saltvirt.storage import sharing

MIB = 1 << 20


def disk(path, **more):
    """Return a disk as virt.get_disks describes it."""
    return {"file": str(path), "file format": "qcow2", "virtual size": 8 * MIB, **more}


def info(path):
    """Return qemu-img's description of a file."""
    argv = ["qemu-img", "info", "--output=json", path]
    return json.loads(subprocess.check_output(argv, text=True))


@pytest.fixture
def seed(hypervisor):
    """A function that makes disks, on a host with a VM web1."""
    with hypervisor.libvirt() as conn:
        hypervisor.init(start=False)
        yield lambda disks, force=False: incomingfiles.seed(conn, hypervisor.settings, disks, force)


def test_disks_are_made_as_described(seed, tmp_path):
    base = tmp_path / "base.raw"
    base.write_bytes(bytes(MIB))
    backing = {"backing file": {"file": str(base), "file format": "raw"}}

    seed({"vda": disk(tmp_path / "new/a", **backing)})

    image_info = info(tmp_path / "new/a")
    assert (image_info["format"], image_info["virtual-size"]) == ("qcow2", 8 * MIB)
    assert image_info["full-backing-filename"] == str(base)
    assert (tmp_path / "new/a").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_there_is_replaced_by_force_alone_and_then_all_are_made(seed, tmp_path):
    existing_file, new_file = tmp_path / "there", tmp_path / "anew"
    existing_file.write_text("somebody's")
    with pytest.raises(
        StorageError, match=f"disk vdb: {existing_file} is there already; force=True"
    ):
        seed({"vda": disk(new_file), "vdb": disk(existing_file)})
    assert existing_file.read_text() == "somebody's" and not new_file.exists()

    seed({"vda": disk(new_file), "vdb": disk(existing_file)}, force=True)

    assert info(existing_file)["format"] == info(new_file)["format"] == "qcow2"


def test_a_disk_of_a_vm_here_stays_even_with_force(hypervisor, seed, tmp_path):
    path = Path(hypervisor.settings.images, "web1_data.qcow2")
    before = path.read_bytes()
    with pytest.raises(StorageError, match="VM 'web1' has it"):
        seed({"vda": disk(tmp_path / "new"), "vdb": disk(path)}, force=True)

    assert path.read_bytes() == before and not (tmp_path / "new").exists()


def test_no_disk_is_made_if_one_of_them_cannot_be(seed, tmp_path):
    existing_file, before = tmp_path / "a", sorted(tmp_path.rglob("*"))
    existing_file.write_text("somebody's")
    missing_backing = {"backing file": {"file": str(tmp_path / "no"), "file format": "raw"}}

    with pytest.raises(StorageError):
        seed(
            {"vda": disk(existing_file), "vdb": disk(tmp_path / "b", **missing_backing)}, force=True
        )

    assert existing_file.read_text() == "somebody's"
    assert {*tmp_path.rglob("*")} - {*before} == {existing_file}


def test_a_file_that_appears_while_it_waits_is_not_replaced(
    hypervisor, seed, tmp_path, monkeypatch
):
    real_lock = incomingfiles.reservations.host_lock

    @contextmanager
    def lock_after_write(settings):
        (tmp_path / "late").write_text("another's")
        with real_lock(settings):
            yield

    monkeypatch.setattr(incomingfiles.reservations, "host_lock", lock_after_write)
    with pytest.raises(StorageError, match="late is there already"):
        seed({"vda": disk(tmp_path / "late")})

    assert (tmp_path / "late").read_text() == "another's"


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_disk_that_other_hosts_may_have_is_not_replaced_even_with_force(
    hypervisor, tmp_path, monkeypatch, is_declared
):
    shared = [str(tmp_path / "san")] if is_declared else []
    settings = replace(hypervisor.settings, shared_paths=shared)
    # Mocked: no test mounts a network file system.
    monkeypatch.setattr(sharing, "_is_networked", lambda path: "san" in path.parts)
    (tmp_path / "san").mkdir()
    (tmp_path / "san/d").write_text("another host's")
    with hypervisor.libvirt() as conn, pytest.raises(StorageError, match="may be another host's"):
        incomingfiles.seed(conn, settings, {"vda": disk(tmp_path / "san/d")}, force=True)

    assert (tmp_path / "san/d").read_text() == "another host's"


def test_a_file_that_is_on_record_for_a_vm_is_not_made(hypervisor, seed, tmp_path, monkeypatch):
    monkeypatch.setattr(
        incomingfiles.reservations, "coming_files", lambda _s, _name: {str(tmp_path / "d"): "web9"}
    )
    with pytest.raises(StorageError, match="is to be a file of VM 'web9'"):
        seed({"vda": disk(tmp_path / "d")})

    assert not (tmp_path / "d").exists()


POOLS = (
    "<pool type='dir'><name>disks</name><target><path>{}</path></target></pool>",
    "<pool type='rbd'><name>ceph</name><source><host name='h'/><name>x</name></source></pool>",
)


@pytest.fixture
def pools(seed, hypervisor, tmp_path):
    """A pool that has a folder, and one that has none."""
    with connect.open_connection(hypervisor.settings, readonly=False) as conn:
        new_pools = [
            conn.storagePoolDefineXML(pool_xml.format(tmp_path / "disks")) for pool_xml in POOLS
        ]
        (tmp_path / "disks").mkdir()
        yield
        for pool in new_pools:
            pool.undefine()


def test_a_volume_is_made_where_its_pool_has_its_folder(seed, pools, tmp_path):
    seed({"vda": disk("disks/web1")})

    assert info(tmp_path / "disks/web1")["virtual-size"] == 8 * MIB


@pytest.mark.parametrize("name", ["disks/../x", "disks/a/b", "ceph/web1", "http://x/y", "", "x"])
def test_a_disk_without_a_place_here_is_refused_before_any_is_made(seed, pools, tmp_path, name):
    before = sorted(tmp_path.rglob("*"))
    disks = {"vda": disk(tmp_path / "made"), "vdb": disk(name)}
    with pytest.raises(StorageError, match="disk vdb: .* is neither a path nor POOL/VOLUME"):
        seed(disks)
    with pytest.raises(StorageError, match="disk vdb: virtual size not given"):
        seed({**disks, "vdb": {"file": "/x", "file format": "raw"}})

    assert sorted(tmp_path.rglob("*")) == before


def test_the_function_of_3006_is_there(hypervisor, tmp_path):
    module = asloaded.module("_modules/virt_migrate.py")
    with hypervisor.libvirt():
        opts = {
            "virt": {"connection": {"uri": "test:///default"}, "state_dir": str(tmp_path / "s")}
        }
        module.__opts__, module.__pillar__, module.__grains__ = opts, {}, {}
        assert module.seed_non_shared_migrate({"vda": disk(tmp_path / "d")}) is True

    assert info(tmp_path / "d")["virtual-size"] == 8 * MIB
