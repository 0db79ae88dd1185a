"""Room is promised once: VMs that are being built or sent here count."""

import multiprocessing
import os
import signal

import onrecord
import pytest
from saltvirt.core.errors import NameTaken, ReservationRefused, StorageError
from saltvirt.core.journal import records
from saltvirt.core.model import Requirements
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import reservations
from saltvirt.vm.show.host import inspect

NEED = Requirements(name="vm1", vcpus=1, memory_mib=128, disk_mib=10, anti_affinity=("db",))


@pytest.fixture
def host(tmp_path):
    """Settings of a host with folders of the test."""
    return HostSettings(images=str(tmp_path / "images"), state_dir=str(tmp_path / "state"))


def reserve_and_wait(pipe, host):
    """Reserve room, and wait for a message or a kill."""
    with reservations.reserve(host, NEED, "u1", lambda: None) as record:
        pipe.send("there")
        pipe.recv()
        reservations.end(host, record)


@pytest.fixture
def builder(host):
    """A process that has reserved room."""
    context = multiprocessing.get_context("fork")
    parent_pipe, child_pipe = context.Pipe()
    process = context.Process(target=reserve_and_wait, args=(child_pipe, host))
    process.start()
    child_pipe.close()  # so that recv() fails at once if the builder dies
    assert parent_pipe.recv() == "there"
    yield process, parent_pipe
    process.kill()
    process.join()


def test_a_live_build_is_seen_and_its_name_is_taken(host, builder):
    process, pipe = builder

    assert reservations.read_coming_vms(host)["vm1"].memory_mib == 128
    assert reservations.read_coming_vms(host)["vm1"].anti_affinity == ["db"]
    assert reservations.find_unfinished(host) == []
    with (
        pytest.raises(NameTaken, match="being built on this host at this moment"),
        reservations.reserve(host, NEED, "u2", lambda: None),
    ):
        pass
    pipe.send("end")
    process.join()
    assert reservations.read_coming_vms(host) == {}
    assert os.listdir(reservations.folder(host) / "build") == []


def test_a_killed_builder_is_named_and_its_name_waits_to_be_settled(host, builder):
    process, _pipe = builder

    os.kill(process.pid, signal.SIGKILL)
    process.join()

    assert reservations.read_coming_vms(host) == {}
    assert reservations.find_unfinished(host) == ["vm1"]
    # Moving a VM of that name is refused without advice to purge: that would remove the moved VM.
    with pytest.raises(NameTaken, match="if it was interrupted, .*the minion's log says why$"):
        reservations.refuse_building(host, "vm1")
    with (
        pytest.raises(StorageError, match="interrupted virt.init of 'vm1' has left"),
        reservations.reserve(host, NEED, "u2", lambda: None),
    ):
        pass


def test_a_host_that_refuses_has_nothing_on_record(host):
    def refuse():
        raise ReservationRefused("vm1", ["no room"])

    with pytest.raises(ReservationRefused), reservations.reserve(host, NEED, "u1", refuse):
        pass

    assert os.listdir(reservations.folder(host) / "build") == []
    assert not (reservations.folder(host).parent / "claims.lock").exists()


def test_an_end_that_cannot_be_written_is_one_line_of_error(tmp_path):
    # A folder at this path stands for a file system that is full or read-only.
    (tmp_path / "claims.ended").mkdir()

    with pytest.raises(StorageError, match="cannot write .*/claims.ended: Is a directory"):
        reservations.end(HostSettings(state_dir=str(tmp_path)), None)


def test_a_state_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    host = HostSettings(state_dir=str(tmp_path / "file" / "state"))

    with (
        pytest.raises(StorageError, match="cannot make the folder"),
        reservations.reserve(host, NEED, "u1", lambda: None),
    ):
        pass


@pytest.mark.parametrize(
    ("phase", "counts"),
    [("preparing", True), ("ready", True), ("arrived", False), ("cancelled", False)],
)
def test_a_vm_that_is_sent_here_counts_until_it_is_here(host, phase, counts):
    with records.hold_record(reservations.folder(host), "arrival", "vm2") as record:
        record.begin("t1", phase, **onrecord.arrival(**reservations.room(NEED)))

    # No process works on it now; it counts all the same.
    assert ("vm2" in reservations.read_coming_vms(host)) is counts
    assert reservations.find_unfinished(host) == []


def test_a_coming_vm_takes_room_and_is_shown_with_its_groups(hypervisor):
    settings = hypervisor.settings
    with hypervisor.libvirt() as conn:
        before = inspect.host_info(conn, settings)
        with reservations.reserve(settings, NEED, "u1", lambda: None):
            during = inspect.host_info(conn, settings)

    assert during.building == ["vm1"]
    assert during.coming["vm1"].anti_affinity == ["db"]
    for kind, key, more in (
        ("cpu", "vcpus_committed", 1),
        ("memory", "committed_mib", 128),
        ("storage", "committed_mib", 10),
    ):
        assert getattr(getattr(during, kind), key) - getattr(getattr(before, kind), key) >= more
