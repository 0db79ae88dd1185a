"""A purge that was cut off is finished only as far as nothing has changed since."""

import os

import pytest
from saltvirt.core.errors import NoSuchVm, StorageError
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import sharing, trash
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.vm.purge.host import purge
from saltvirt.vm.recovery.host import unfinished
from test_purge_host import built, purged
from test_purge_spares_others import UUID, VM, cluster_disk, conn

__all__ = ["built", "cluster_disk", "conn"]


@pytest.fixture
def cut_off(hypervisor, conn, monkeypatch):
    """A function that purges a VM and dies before the first file is removed."""

    def purge_vm(name, *free):
        def die(*_given):
            raise KeyboardInterrupt

        with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
            dying.setattr(unfinished, "remove", die)
            elsewhere = OtherHostsUsage(free=frozenset(map(str, free)))
            purge.purge(conn, hypervisor.settings, name, elsewhere=elsewhere)

    return purge_vm


def test_disks_stay_if_an_operator_undefines_the_vm_after_its_purge_was_cut_off(built, caplog):
    built.dies(lambda: purged(built), "purge.removing")
    files = built.files()
    # As virsh undefine does, or a root file system that is restored from a backup.
    (built.definitions / "web1.xml").unlink()

    with built.libvirt() as conn:
        unfinished.settle(conn, built.settings)

    assert (built.files(), built.open_records()) == (files, [])
    assert "is gone, and not by its virt.purge" in caplog.text and "web1_data" in caplog.text


def test_a_shared_disk_goes_into_the_trash_if_its_purge_is_finished_later(
    hypervisor, conn, cluster_disk, cut_off
):
    cut_off("db1", cluster_disk)

    # By now another host can have a VM whose disk is based on it; that changes nothing in it.
    unfinished.settle(conn, hypervisor.settings)

    (record,) = trash.read_entries(hypervisor.settings)
    assert trash.files_of(record).keys() == {str(cluster_disk)}
    trash.restore(hypervisor.settings, record.name)
    assert cluster_disk.read_bytes().startswith(b"data of db1")


def test_a_file_stays_that_was_missing_when_its_vm_was_purged(hypervisor, conn, cut_off):
    disk = hypervisor.root / "web1.raw"
    lifecycle.define(conn, VM.format("web1", UUID, "raw", disk, ""))
    cut_off("web1")
    disk.write_bytes(b"restored from a backup")

    unfinished.settle(conn, hypervisor.settings)

    assert disk.exists() and hypervisor.open_records() == []


def test_a_file_stays_that_another_host_has_written_on_a_network_file_system(
    hypervisor, conn, cut_off, monkeypatch
):
    disk = hypervisor.root / "web1.raw"
    disk.write_bytes(b"old")
    lifecycle.define(conn, VM.format("web1", UUID, "raw", disk, ""))
    # Mocked: no test mounts one.
    monkeypatch.setattr(sharing, "_is_networked", lambda _path: True)
    cut_off("web1", disk)
    disk.write_bytes(b"new")
    # By the clock of that host, which is late.
    os.utime(disk, (1, 1))

    unfinished.settle(conn, hypervisor.settings)

    assert disk.read_bytes() == b"new"


def test_a_kept_definition_takes_nothing_from_a_network_file_system(hypervisor, conn, monkeypatch):
    disk = hypervisor.root / "web1.raw"
    disk.write_bytes(b"data")
    lifecycle.define(conn, VM.format("web1", UUID, "raw", disk, ""))
    lifecycle.mark_moved(conn, "web1", "hyper2")
    monkeypatch.setattr(sharing, "_is_networked", lambda _path: True)
    free = OtherHostsUsage(free=frozenset([str(disk)]))

    with pytest.raises(StorageError, match="has moved to hyper2.*virt.undefine web1"):
        purge.purge(conn, hypervisor.settings, "web1", elsewhere=free)

    assert disk.exists()


def test_an_empty_shared_disk_does_not_stop_the_end_of_a_purge(
    hypervisor, conn, cluster_disk, cut_off
):
    # As a raw disk is that no guest has written to.
    cluster_disk.write_bytes(b"")
    os.truncate(cluster_disk, 1 << 20)
    cut_off("db1", cluster_disk)

    unfinished.settle(conn, hypervisor.settings)

    assert hypervisor.open_records() == []


def test_a_purge_says_that_it_left_the_files_of_a_vm_that_went_in_another_way(built):
    built.dies(lambda: purged(built), "purge.removing")
    files = built.files()
    (built.definitions / "web1.xml").unlink()

    with pytest.raises(StorageError, match="these stay: .*web1_data.*virt.trash_put"):
        purged(built)

    assert (built.files(), built.open_records()) == (files, [])
    with pytest.raises(NoSuchVm):
        purged(built)
