"""A volume that is made for a VM on its way here is neither deleted nor resized."""

import contextlib

import faces
import libvirt
import onrecord
import pytest
from saltvirt.core import locks
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt import connect, reservations
from saltvirt.storage import vmvolumes

POOL = "<pool type='dir'><name>p1</name><target><path>/srv/p1</path></target></pool>"
VOLUME = "<volume><name>web1_data.qcow2</name><capacity>1048576</capacity></volume>"
PATH = "/srv/p1/web1_data.qcow2"


@pytest.fixture
def pool(fresh_driver):
    """A pool with a volume, on a host of libvirt's test driver."""
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as conn:
        pool = conn.storagePoolDefineXML(POOL)
        pool.create()
        pool.createXML(VOLUME)
        yield pool
        with contextlib.suppress(libvirt.libvirtError):
            for volume in pool.listAllVolumes():
                volume.delete()
            pool.destroy()
            pool.undefine()


def delete_pool(state_dir):
    state = faces.load("states", "virt_pool", {"state_dir": state_dir})
    answer = state.pool_deleted("p1", purge=True)
    if not answer["result"]:
        raise StorageError(answer["comment"])


def delete_volume(state_dir):
    faces.load("modules", "virt_volume", {"state_dir": state_dir}).volume_delete(
        "p1", "web1_data.qcow2"
    )


def resize_volume(state_dir):
    faces.load("modules", "virt_volume", {"state_dir": state_dir}).volume_resize(
        "p1", "web1_data.qcow2", 2
    )


@pytest.fixture(params=[delete_pool, delete_volume, resize_volume])
def call(request, tmp_path):
    return lambda: request.param(str(tmp_path))


@pytest.fixture
def folder(tmp_path):
    return reservations.folder(HostSettings(state_dir=str(tmp_path)))


@pytest.mark.parametrize("phase", [moveprotocol.PREPARING, moveprotocol.READY])
def test_a_volume_of_a_vm_that_is_sent_here_stays(pool, folder, call, phase):
    with records.hold_record(folder, "arrival", "web1") as record:
        record.begin("t1", phase, **onrecord.arrival(paths=[PATH]))

    with pytest.raises(StorageError, match="VM 'web1', which is .* on its way here; wait until"):
        call()

    assert [volume.info()[1] for volume in pool.listAllVolumes()] == [1 << 20]


@pytest.mark.parametrize("facts", [{"paths": [PATH]}, {"taken": [PATH]}])
def test_a_volume_of_a_vm_that_is_being_built_stays(pool, folder, call, facts):
    with records.hold_record(folder, "build", "web1") as record:
        record.begin("t1", moveprotocol.MAKING, **onrecord.build(**facts))
        with pytest.raises(StorageError, match="VM 'web1', which is being built here"):
            call()

    assert [volume.info()[1] for volume in pool.listAllVolumes()] == [1 << 20]


def test_no_build_takes_a_volume_between_the_look_and_its_end(pool, call, tmp_path, monkeypatch):
    # Builds record the volumes that they take under the same lock.
    lock_states = []
    monkeypatch.setattr(
        vmvolumes,
        "refuse_open",
        lambda *_: lock_states.append(locks.is_held(tmp_path / "claims.lock")),
    )
    delete = libvirt.virStorageVol.delete

    def delete_and_look(volume, flags=0):
        lock_states.append(locks.is_held(tmp_path / "claims.lock"))
        return delete(volume, flags)

    monkeypatch.setattr(libvirt.virStorageVol, "delete", delete_and_look)
    # The test driver does not resize.
    with contextlib.suppress(connect.LibvirtRefused):
        call()

    assert lock_states[0] and all(lock_states)


def test_a_volume_that_an_interrupted_build_left_is_removed_by_hand(pool, folder, call):
    with records.hold_record(folder, "build", "web1") as record:
        record.begin("t1", moveprotocol.MAKING, **onrecord.build(paths=[PATH]))

    # The test driver does not resize.
    with contextlib.suppress(connect.LibvirtRefused):
        call()


def test_a_volume_of_an_arrived_vm_is_in_use_only_if_libvirt_reports_it(pool, folder, call):
    with records.hold_record(folder, "arrival", "web1") as record:
        record.begin("t1", moveprotocol.ARRIVED, **onrecord.arrival(paths=[PATH]))

    with contextlib.suppress(connect.LibvirtRefused):
        call()
