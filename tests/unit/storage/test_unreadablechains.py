"""While a disk is out of reach, nothing goes that it may be based on, whoever is asked to do it."""

import re
import subprocess
from pathlib import Path

import pytest
import verdicts
from saltvirt.core.errors import StorageError
from saltvirt.libvirt.domains import lifecycle
from saltvirt.seeding import golden
from saltvirt.storage import policies, trash, unreadablechains, usage, vmvolumes
from saltvirt.storage.images import cachedimages
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.vm.create.host import existing
from test_doctor_facts import LEFT, assert_not_put_away, built, look, path_of, undefine_quietly

__all__ = ["built"]
VM = """<domain type='test'><name>deep</name><memory unit='MiB'>64</memory><os><type>hvm</type></os>
<devices><disk type='{}' device='disk'><driver name='qemu' type='qcow2'/><source {}/>
<target dev='vda'/></disk></devices></domain>"""
POOL = "<pool type='dir'><name>p1</name><target><path>{}</path></target></pool>"


def overlay(path, *below):
    """Make a disk, over another one if that is given."""
    path.parent.mkdir(exist_ok=True)
    argv = ["qemu-img", "create", "-q", "-f", "qcow2"]
    argv += ["-F", "qcow2", "-b", below[0]] if below else []
    subprocess.run([*argv, path, "8M"], check=True)
    return path


def define(conn, host, text):
    """Define a VM, now and for the connections after this."""
    lifecycle.define(conn, text)
    (host.definitions / "deep.xml").write_text(text)


def test_a_disk_of_the_first_version_of_qcow_is_in_reach(hypervisor, tmp_path):
    """QEMU and libvirt still take it."""
    base, top = overlay(tmp_path / "base.qcow2"), tmp_path / "top.qcow"
    argv = ["qemu-img", "create", "-q", "-f", "qcow", "-F", "qcow2", "-b", base, top]
    subprocess.run(argv, check=True)
    text = VM.format("file", f"file='{top}'").replace("type='qcow2'", "type='qcow'")
    with hypervisor.libvirt() as conn:
        define(conn, hypervisor, text)

        assert unreadablechains.reasons(conn, hypervisor.settings) == {}
        known = usage.index(conn, hypervisor.settings).references(policies.DELETE)
        assert str(base) in known

        base.unlink()
        assert list(unreadablechains.reasons(conn, hypervisor.settings)) == ["deep"]


@pytest.fixture
def chain(hypervisor, tmp_path):
    """A VM's disk, whose middle file is on a file system that is not mounted, and its base."""
    base = overlay(Path(hypervisor.settings.images, "base.qcow2"))
    middle = overlay(tmp_path / "middle.qcow2", base)
    top = overlay(tmp_path / "top.qcow2", middle)
    middle.unlink()
    return VM.format("file", f"file='{top}'"), base


def test_no_volume_is_wiped_no_image_replaced_and_no_file_taken(hypervisor, chain):
    text, base = chain
    images = hypervisor.settings.images
    with hypervisor.libvirt() as conn:
        define(conn, hypervisor, text)
        pool = conn.storagePoolDefineXML(POOL.format(images))
        pool.create()
        pool.createXML("<volume><name>base.qcow2</name><capacity>1024</capacity></volume>")
        try:
            wipeable = (conn, hypervisor.settings, "p1", base.name, OtherHostsUsage())
            assert "middle.qcow2 of VM 'deep' " in vmvolumes.judge_wipe(*wipeable)[0].reason
            with pytest.raises(StorageError, match="is not replaced: .*middle.qcow2 of VM 'deep' "):
                golden._target(hypervisor.settings, "base", {"folder": images, "replace": True})
            with pytest.raises(
                StorageError,
                match="base.qcow2 is there already, and stays: .*this host cannot",
            ):
                existing.refuse_used(conn, hypervisor.settings, "web2", [str(base)])
        finally:
            pool.destroy()
            pool.undefine()


def unread(disk):
    """Have a disk not be readable, as root's is not on NFS with root_squash."""
    disk.unlink()
    # What is at its beginning cannot be read, whoever asks.
    disk.symlink_to("/proc/self/mem")


def damaged(disk):
    """Have the header of a disk be none that is known."""
    with disk.open("r+b") as out:
        out.seek(4)
        out.write(b"\0\0\0\x09")


@pytest.mark.parametrize("spoil", [unread, damaged])
@pytest.mark.parametrize("depth", [0, 1])
def test_what_cannot_be_read_may_be_based_on_anything(hypervisor, tmp_path, spoil, depth):
    base = overlay(Path(hypervisor.settings.images, "base.qcow2"))
    spoilt = top = overlay(tmp_path / "disk.qcow2", base)
    for number in range(depth):
        top = overlay(tmp_path / f"{number}.qcow2", top)
    spoil(spoilt)
    with hypervisor.libvirt() as conn:
        define(conn, hypervisor, VM.format("file", f"file='{top}'"))

        why = "disk.qcow2 of VM 'deep' is based on, as it cannot be read .*"
        with pytest.raises(StorageError, match=f"this host cannot tell what disk .*/{why}"):
            cachedimages.prune(conn, hypervisor.settings, None, is_dry=True)
        with pytest.raises(
            StorageError, match=f"base.qcow2 is there already, .*host cannot tell .*{why}"
        ):
            existing.refuse_used(conn, hypervisor.settings, "web2", [str(base)])


def test_a_raw_file_below_a_disk_need_not_be_read(hypervisor, tmp_path):
    raw = tmp_path / "raw"
    raw.write_bytes(bytes(1 << 20))
    top = tmp_path / "disk.qcow2"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", raw, top]
    subprocess.run(argv, check=True)
    unread(raw)
    with hypervisor.libvirt() as conn:
        define(conn, hypervisor, VM.format("file", f"file='{top}'"))

        assert unreadablechains.reasons(conn, hypervisor.settings) == {}


@pytest.mark.parametrize("is_volume", [False, True])
def test_the_doctor_judges_no_file(built, chain, is_volume):
    text = VM.format("volume", "pool='gone' volume='top.qcow2'") if is_volume else chain[0]
    undefine_quietly(built)
    left = [path_of(built, name) for kind, name in LEFT if kind == "disk"]
    with built.libvirt() as conn:
        define(conn, built, text)

    said = look(built)

    assert said.files == [] and "deep" in said.unreadable
    assert_not_put_away(built, *left)


@pytest.mark.parametrize("is_volume", [False, True])
def test_a_definition_that_was_only_kept_holds_nothing_up(hypervisor, chain, is_volume):
    text = VM.format("volume", "pool='gone' volume='top.qcow2'") if is_volume else chain[0]
    with hypervisor.libvirt() as conn:
        define(conn, hypervisor, text)
        with pytest.raises(StorageError, match="this host cannot tell what .* of VM 'deep' is"):
            cachedimages.prune(conn, hypervisor.settings, None, is_dry=True)
        lifecycle.mark_moved(conn, "deep", "hyper2")

        cachedimages.prune(conn, hypervisor.settings, None, is_dry=True)

        lifecycle.start(conn, "deep")
        with pytest.raises(StorageError, match="this host cannot tell what .* of VM 'deep' is"):
            cachedimages.prune(conn, hypervisor.settings, None, is_dry=True)
        lifecycle.destroy(conn, "deep")


def test_nothing_is_written_over_while_an_entry_of_the_trash_is_out_of_reach(keeping, tmp_path):
    disk = overlay(tmp_path / "mounted.qcow2")
    with trash.fill_trash(keeping.settings, "web2", reason="a test") as drop:
        drop(verdicts.free(disk))
    (tmp_path / trash.FOLDER).rename(tmp_path / "away")

    verdict = usage.index(None, keeping.settings).verdict(policies.BASE, "/srv/v")
    assert re.match("entry 'web2-.*' of the trash may be based on it:", verdict.reason)


def test_the_trash_is_read_once_however_many_files_are_there_already(
    keeping, tmp_path, monkeypatch
):
    base = overlay(tmp_path / "base.qcow2")
    with trash.fill_trash(keeping.settings, "web2", reason="a test") as drop:
        drop(verdicts.free(overlay(tmp_path / "top.qcow2", base)))
    asked = []
    for name in ("find_unreadable_entries", "backing_files", "backing_files_beside"):
        usual = getattr(unreadablechains, name)
        monkeypatch.setattr(
            unreadablechains, name, lambda *of, u=usual, n=name: asked.append(n) or u(*of)
        )
    paths = [str(tmp_path / f"{number}.qcow2") for number in range(20)]

    with keeping.libvirt() as conn:
        existing.refuse_used(conn, keeping.settings, "web3", paths)
        assert sorted(asked) == ["backing_files", "backing_files_beside", "find_unreadable_entries"]
        with pytest.raises(StorageError, match="base.qcow2 .*entry web2-.* is based on it"):
            existing.refuse_used(conn, keeping.settings, "web3", [*paths, str(base)])
