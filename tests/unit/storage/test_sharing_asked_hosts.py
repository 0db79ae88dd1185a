"""On storage that other hosts see, a refusal names the command that asks them, for all files."""

import dataclasses
import os
import shutil
from pathlib import Path

import faces
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.storage import policies, putaway, sharing, snapshotguard, trash, vmvolumes
from saltvirt.storage.images import cachedimages
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.storage.verdict import Verdict
from saltvirt.vm.purge.host import purge, removed

POOL = "<pool type='dir'><name>p1</name><target><path>{}</path></target></pool>"
VOLUME = "<volume><name>a.raw</name><capacity>1048576</capacity></volume>"


@pytest.fixture
def shared(hypervisor, tmp_path):
    """A folder that other hosts see, with a file that no VM has."""
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "left1_system.raw").write_bytes(b"left" * 1000)
    hypervisor.settings = dataclasses.replace(hypervisor.settings, shared_paths=[str(folder)])
    with hypervisor.libvirt() as conn:
        hypervisor.conn, hypervisor.folder = conn, folder
        yield hypervisor


@pytest.fixture
def pool(shared):
    """A pool in that folder, with a volume."""
    made = shared.conn.storagePoolDefineXML(POOL.format(shared.folder))
    made.create()
    made.createXML(VOLUME)
    # The test driver makes no file.
    shutil.copy(shared.folder / "left1_system.raw", shared.folder / "a.raw")
    yield made
    made.destroy()
    made.undefine()


@pytest.mark.parametrize(
    ("function", "more", "call"),
    [
        ("volume_delete", (), "virt.volume_delete HOST p1 a.raw"),
        ("volume_upload", ("/f",), "virt.volume_upload HOST p1 a.raw FILE"),
        ("volume_wipe", (), "virt.volume_wipe HOST p1 a.raw"),
    ],
)
def test_a_refused_call_names_the_runners_same_function(shared, pool, function, more, call):
    opts = {"state_dir": shared.settings.state_dir, "shared_paths": shared.settings.shared_paths}
    virt = faces.load("modules", "virt_volume", opts)

    with pytest.raises(StorageError, match=f"ask all hosts: salt-run {call}; or"):
        getattr(virt, function)("p1", "a.raw", *more)


def test_a_volume_that_is_to_be_smaller_is_not_said_to_be_deleted(shared, pool):
    with pytest.raises(
        StorageError, match="salt-run virt.volume_resize HOST p1 a.raw SIZE shrink=True; or"
    ):
        vmvolumes.judge_resize(shared.conn, shared.settings, "p1", "a.raw", OtherHostsUsage(), True)


def test_all_files_of_snapshots_are_asked_about_at_once():
    verdicts = [
        (name, Verdict(path=path, policy=policies.MERGE, unasked=(path,)))
        for name, path in (("s1", "/a"), ("s2", "/b"))
    ]

    with pytest.raises(sharing.AskAll, match="salt-run virt.revert_snapshot web1 s1; or") as raised:
        snapshotguard._refuse("web1", verdicts, "virt.revert_snapshot web1 s1")

    assert raised.value.paths == ["/a", "/b"]


def test_a_purge_asks_about_devices_of_volumes_too(shared, monkeypatch):
    shared.init(start=False)
    volumes = [["vg", "web1_data"]]
    # Mocked: the test driver has no volume groups.
    monkeypatch.setattr(
        vmvolumes, "find_volumes", lambda *_, **__: vmvolumes.VmVolumes(volumes=volumes)
    )
    monkeypatch.setattr(
        vmvolumes.diskvolumes, "path_of", lambda *_: str(shared.folder / "web1_data")
    )

    with pytest.raises(sharing.AskAll) as raised:
        purge.purge(shared.conn, shared.settings, "web1")

    assert removed.find_shared_files(shared.conn, shared.settings, "web1") == raised.value.paths
    assert raised.value.paths == [str(shared.folder / "web1_data")]


def test_a_file_that_no_vm_has_goes_into_the_trash_once_all_hosts_were_asked(shared):
    path = str(shared.folder / "left1_system.raw")
    given = (shared.conn, shared.settings, path)

    with pytest.raises(sharing.AskAll, match=f"salt-run virt.trash_put HOST {path}; or"):
        putaway.put(*given)
    with pytest.raises(StorageError, match="left1_system.raw stays: hyper2: VM 'left1' has it"):
        putaway.put(*given, OtherHostsUsage(used={path: "hyper2: VM 'left1' has it as a disk"}))
    assert Path(path).exists()

    entry = putaway.put(*given, OtherHostsUsage(free=frozenset([path])))["entry"]
    assert not Path(path).exists()
    trash.restore(shared.settings, entry)
    # A host that cannot tell keeps no file out of the trash, from where it comes back.
    entry = putaway.put(*given, OtherHostsUsage(doubts={path: "hyper2 cannot be asked"}))["entry"]
    trash.restore(shared.settings, entry)
    assert Path(path).read_bytes().startswith(b"left")


@pytest.mark.parametrize(("own", "is_free"), [([], False), (["."], True), (["/elsewhere"], False)])
def test_a_host_alone_on_a_network_file_system_needs_no_master(
    hypervisor, monkeypatch, tmp_path, own, is_free
):
    # Mocked: a test mounts no NFS.
    device = os.stat(tmp_path).st_dev
    mounts = {f"{os.major(device)}:{os.minor(device)}": "nfs4"}
    monkeypatch.setattr(sharing, "_file_systems_by_device", lambda: mounts)
    own_paths = [str(tmp_path / one) for one in own]
    hypervisor.settings = dataclasses.replace(hypervisor.settings, own_paths=own_paths)
    with hypervisor.libvirt() as conn:
        hypervisor.init(start=False)
        digest = next(iter(cachedimages.list_images(conn, hypervisor.settings)))
        if not is_free:
            with pytest.raises(sharing.AskAll, match="list that in virt:own_paths$"):
                purge.purge(conn, hypervisor.settings, "web1")
            with pytest.raises(StorageError, match="list that in virt:own_paths$"):
                cachedimages.prune(conn, hypervisor.settings, None, is_dry=False)
            assert hypervisor.domains() == ["web1"]
            return
        purge.purge(conn, hypervisor.settings, "web1")
        assert hypervisor.files() == []
        assert list(
            cachedimages.prune(conn, hypervisor.settings, None, is_dry=False)["removed"]
        ) == [digest]


def test_what_is_declared_shared_is_no_hosts_own(hypervisor):
    path = f"{hypervisor.root}/shared/a.raw"
    both = [str(hypervisor.root)]
    settings = dataclasses.replace(hypervisor.settings, shared_paths=both, own_paths=both)

    assert sharing.is_shared(settings, path)


def test_a_volume_that_no_other_host_needs_is_free(shared, pool):
    given = (shared.conn, shared.settings, "p1", ["a.raw"])
    with pytest.raises(sharing.AskAll) as raised:
        vmvolumes.judge_deletion(*given)

    (verdict,) = vmvolumes.judge_deletion(
        *given, OtherHostsUsage(free=frozenset(raised.value.paths))
    )

    assert verdict.is_free
    # Another host can have another volume of that name in a pool that is its own.
    assert raised.value.paths == [str(shared.folder / "a.raw")]
    used = OtherHostsUsage(used={raised.value.paths[0]: "hyper2: VM 'db1' has it as a disk"})
    (verdict,) = vmvolumes.judge_deletion(*given, used)
    assert verdict.reason == "hyper2: VM 'db1' has it as a disk"
