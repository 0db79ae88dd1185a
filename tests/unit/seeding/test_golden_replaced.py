"""A rebuilt image replaces no file that a VM has, or is based on."""

import dataclasses
import subprocess
from pathlib import Path

import pytest
import verdicts
from saltvirt.core import files
from saltvirt.core.errors import StorageError
from saltvirt.seeding import golden
from saltvirt.storage import trash, vmvolumes
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.vm.create.host import existing

POOL = "<pool type='dir'><name>p1</name><target><path>{}</path></target></pool>"


def test_a_vms_file_or_its_base_is_not_replaced(hypervisor):
    images = Path(hypervisor.settings.images)
    with hypervisor.libvirt():
        hypervisor.init()
        (images / "free.qcow2").touch()
        options = {"folder": str(images), "replace": True}

        assert golden._target(hypervisor.settings, "free", options) == images / "free.qcow2"
        with pytest.raises(
            StorageError, match="web1_system.qcow2 is not replaced: VM 'web1' has it"
        ):
            golden._target(hypervisor.settings, "web1_system", options)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_base_of_a_disk_in_the_trash_is_not_replaced(keeping, is_own):
    images = Path(keeping.settings.images)
    for name, backing in (("base", ()), ("upper", ("-F", "qcow2", "-b", "base.qcow2"))):
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", *backing, f"{images}/{name}.qcow2", "1M"]
        subprocess.run(argv, check=True)
    with trash.fill_trash(keeping.settings, "web2", reason="a test") as add_file:
        add_file(verdicts.free(f"{images}/upper.qcow2"))
    # Hosts that share a folder have records of their own.
    other_settings = dataclasses.replace(keeping.settings, state_dir=f"{images}/other")
    settings = keeping.settings if is_own else other_settings
    expected_entry = "web2-[0-9a-f]{8}" if is_own else "of another host"

    with pytest.raises(
        StorageError,
        match=rf"/base.qcow2 is not replaced: .*in the trash \(entry {expected_entry}\)",
    ):
        golden._target(settings, "base", {"folder": str(images), "replace": True})
    with keeping.libvirt() as conn:
        with pytest.raises(StorageError, match="/base.qcow2 is .*in the trash .* is based on it"):
            existing.refuse_used(conn, settings, "web3", [f"{images}/base.qcow2"])
        pool = conn.storagePoolDefineXML(POOL.format(images))
        pool.create()
        pool.createXML("<volume><name>base.qcow2</name><capacity>1024</capacity></volume>")
        (verdict,) = vmvolumes.judge_wipe(conn, settings, "p1", "base.qcow2", OtherHostsUsage())
        assert "in the trash" in verdict.reason
        pool.destroy()
        pool.undefine()


def test_a_crash_leaves_the_old_image_or_the_whole_new_one(hypervisor, tmp_path, monkeypatch):
    folder = tmp_path / "golden"
    folder.mkdir()
    part, target = folder / "part", folder / "web.qcow2"
    part.write_text("new")
    target.write_text("old")
    calls = []
    for name in ("make_durable", "sync_folder"):
        monkeypatch.setattr(
            files, name, lambda path, name=name: calls.append((name, path, target.read_text()))
        )

    options = {"folder": str(folder), "replace": True}
    golden._place(hypervisor.settings, part, "web", options)

    calls_in_folder = [call for call in calls if call[1] in (part, folder)]
    assert calls_in_folder == [("make_durable", part, "old"), ("sync_folder", folder, "new")]
