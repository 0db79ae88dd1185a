"""What a purge spares: what was put back, folders of others, files that are mounted twice."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from saltvirt.storage import policies, usage
from saltvirt.vm.purge.host import purge
from saltvirt.vm.recovery.host import unfinished
from test_purge_host import built, kill, left, purged

__all__ = ["built"]


@pytest.mark.parametrize("is_anew", [False, True])
def test_a_file_that_an_operator_has_put_back_meanwhile_stays(built, monkeypatch, is_anew):
    path = Path(built.settings.images) / "web1_data.qcow2"
    monkeypatch.setattr(unfinished, "remove", kill)
    built.dies(lambda: purged(built))
    monkeypatch.undo()
    if is_anew:
        path.unlink()
    path.write_bytes(b"of a backup")
    os.utime(path)

    with built.libvirt() as conn:
        unfinished.settle(conn, built.settings)

    assert left(built) == ([path.name], [], [])


@pytest.mark.parametrize("what", ["nothing", "a pool", "the usual one", "a mount", "another file"])
def test_a_purge_takes_the_folder_with_it_that_is_nothing_else(hypervisor, tmp_path, what):
    folder = tmp_path / "own"
    folder.mkdir()
    if what == "a mount":
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
    if what == "another file":
        (folder / "notes").touch()
    settings = hypervisor.settings
    if what == "the usual one":
        settings = replace(settings, storagepool=str(folder))
    pool = f"<pool type='dir'><name>own</name><target><path>{folder}</path></target></pool>"
    try:
        with hypervisor.libvirt() as conn:
            hypervisor.init(disks=[{"name": "data", "size": 8, "pool": str(folder)}])
            made = conn.storagePoolCreateXML(pool) if what == "a pool" else None
            purge.purge(conn, settings, "web1", dirs=True)
            if made is not None:
                made.destroy()
        is_there, has_disk = folder.exists(), any(folder.glob("web1*"))
    finally:
        if what == "a mount":
            subprocess.run(["umount", folder], check=True)

    assert (is_there, has_disk) == (what != "nothing", False)


def test_a_disk_that_another_vm_has_by_a_second_mount_of_its_folder_stays(built, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    other = (
        "<domain type='test'><name>db1</name><uuid>4dea22b3-1d52-d8f3-2516-782e98ab3fa9</uuid>"
        "<memory>65536</memory><os><type>hvm</type></os><devices><disk type='file' device='disk'>"
        f"<driver name='qemu' type='qcow2'/><source file='{again}/web1_data.qcow2'/>"
        "<target dev='vdz' bus='virtio'/></disk></devices></domain>"
    )
    subprocess.run(["mount", "--bind", built.settings.images, again], check=True)
    try:
        with built.libvirt() as conn:
            conn.defineXML(other)
            purge.purge(conn, built.settings, "web1")
    finally:
        subprocess.run(["umount", again], check=True)

    assert built.files() == ["web1_data.qcow2"]


@pytest.mark.parametrize("days", [0, 7])
def test_a_device_that_a_vm_has_as_a_file_stays(built, days, tmp_path, caplog):
    # As operators name a logical volume or a disk; none of them is made by this test.
    device = tmp_path / "vg-web1"
    device.symlink_to("/dev/null")
    settings = replace(built.settings, trash_days=days)
    with built.libvirt() as conn:
        text = conn.lookupByName("web1").XMLDesc(2)
        old = f"{built.settings.images}/web1_data.qcow2"
        conn.defineXML(text.replace(old, str(device)))
        purge.purge(conn, settings, "web1")

    assert device.is_symlink() and f"{device} stays: it is a device" in caplog.text


def test_a_device_on_record_stays_too(built, tmp_path):
    device = tmp_path / "vg-web1"
    device.symlink_to("/dev/null")
    with built.libvirt() as conn:
        index = usage.index(conn, built.settings)
        assert unfinished.remove(built.settings, index, policies.DELETE, [str(device)]) == []

    assert device.is_symlink()


def test_of_a_link_it_is_said_what_stays(built, tmp_path, caplog):
    path = Path(built.settings.images) / "web1_data.qcow2"
    path.rename(tmp_path / "elsewhere.qcow2")
    path.symlink_to(tmp_path / "elsewhere.qcow2")

    purged(built)

    assert left(built) == ([], [], []) and (tmp_path / "elsewhere.qcow2").exists()
    assert f"{path} is a link; what it leads to stays: {tmp_path}/elsewhere.qcow2" in caplog.text
