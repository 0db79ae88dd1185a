"""A disk is made of no more files than each libvirt can start a VM with."""

import subprocess

import pytest
from saltvirt.core.errors import LibvirtRefused, StorageError
from saltvirt.libvirt.domains import lifecycle, snapshots
from saltvirt.storage import chains

pytestmark = pytest.mark.usefixtures("tmp_path")


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """Return the files of a disk, each above the one before it: 23 of them."""
    folder = tmp_path_factory.mktemp("deep")
    files = [folder / f"{number}.qcow2" for number in range(23)]
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", files[0], "1M"], check=True)
    for below, above in zip(files, files[1:], strict=False):
        overlay = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", below, "-F", "qcow2", "-u"]
        subprocess.run([*overlay, above, "1M"], check=True)
    return [str(one) for one in files]


def test_files_below_a_disk_are_counted(deep):
    assert [chains.count_below(deep[at]) for at in (0, 1, 20, 22)] == [0, 1, 20, 22]


def test_a_disk_may_have_twenty_files_below_it(deep):
    chains.refuse_too_deep("disk 'system'", deep[20])
    chains.refuse_too_deep("disk 'system'", deep[19], more=1)

    for at, more in ((21, 0), (20, 1)):
        with pytest.raises(StorageError, match="disk 'system': .* files below it, and a disk may"):
            chains.refuse_too_deep("disk 'system'", deep[at], more=more)


def vm(monkeypatch, path):
    monkeypatch.setattr(lifecycle, "file_paths", lambda _conn, _name: [path])
    monkeypatch.setattr(lifecycle, "overlays_by_vm", lambda _conn: {"web1": {path}, "web2": {path}})


def test_the_twenty_first_external_snapshot_is_refused(deep, monkeypatch):
    taken = []
    monkeypatch.setattr(snapshots, "take", lambda *_args, **how: taken.append(how["is_external"]))
    how = {"is_external": True, "is_quiesced": False}

    vm(monkeypatch, deep[19])
    chains.take(None, "web1", "s20", **how)
    vm(monkeypatch, deep[20])
    with pytest.raises(LibvirtRefused, match="has 20 files below it.*delete an external snapshot"):
        chains.take(None, "web1", "s21", **how)
    # An internal one adds no file.
    chains.take(None, "web1", "s21", is_external=False, is_quiesced=False)

    assert taken == [True, False]


def test_disks_that_are_too_deep_already_are_named(deep, monkeypatch):
    vm(monkeypatch, deep[20])
    assert chains.find_too_deep(None) == {}

    vm(monkeypatch, deep[21])
    assert chains.find_too_deep(None) == {"web1": [deep[21]], "web2": [deep[21]]}
