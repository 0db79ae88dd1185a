"""Two VMs whose disks would have one path are never both built."""

import errno
import os
import signal
from pathlib import Path

import onrecord
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.libvirt import reservations
from saltvirt.storage import exclusivecreate, policies, usage
from saltvirt.vm.create.host import apply
from saltvirt.vm.recovery.host import unfinished


@pytest.mark.parametrize("purpose", ["build", "arrival"])
def test_a_path_that_another_is_about_to_make_is_refused(hypervisor, purpose):
    path = f"{hypervisor.settings.images}/a_b_c.qcow2"
    place = reservations.folder(hypervisor.settings)
    noted = onrecord.arrival(paths=[path])

    with hypervisor.libvirt(), records.hold_record(place, purpose, "a_b") as other:
        # It has looked, and not made its file yet.
        other.begin("t1", "making" if purpose == "build" else "preparing", **noted)
        with pytest.raises(StorageError, match="a_b_c.qcow2 is to be a file of VM 'a_b'"):
            hypervisor.init("a", disks=[{"name": "b_c", "size": 8}])

    assert hypervisor.files() == []


@pytest.mark.parametrize(
    ("purpose", "phase", "command"),
    [("departure", "leaving", "settle"), ("purge", "removing", "purge")],
)
def test_a_path_that_another_is_about_to_remove_is_refused(hypervisor, purpose, phase, command):
    path = f"{hypervisor.settings.images}/a_b_c.qcow2"
    place = reservations.folder(hypervisor.settings)
    noted = onrecord.departure(paths=[path])

    # Whoever was at it may have died; of a purge that is settled, so this one goes on.
    with hypervisor.libvirt(), records.hold_record(place, purpose, "a_b") as other:
        other.begin("t1", phase, **noted)
        with pytest.raises(
            StorageError, match=f"a_b_c.qcow2 is a file of VM 'a_b', .*salt-run virt.{command} a_b"
        ):
            hypervisor.init("a", disks=[{"name": "b_c", "size": 8}])

    assert hypervisor.files() == []


@pytest.mark.parametrize("said", [{"phase": "cancelled"}, {"phase": "handing", "leaves": False}])
def test_a_path_that_nobody_is_to_remove_is_free(hypervisor, said):
    path = f"{hypervisor.settings.images}/a_b_c.qcow2"
    place = reservations.folder(hypervisor.settings)
    with records.hold_record(place, "departure", "a_b") as other:
        other.begin("t1", said.pop("phase"), **onrecord.departure(paths=[path], **said))

    with hypervisor.libvirt():
        assert hypervisor.init("a", disks=[{"name": "b_c", "size": 8}]) is True


@pytest.mark.parametrize("purpose", ["build", "arrival"])
def test_a_file_that_is_being_made_for_another_stays(hypervisor, purpose, caplog):
    images = Path(hypervisor.settings.images)
    images.mkdir()
    (images / "real").mkdir()
    (images / "link").symlink_to("real")
    mine, its, linked = images / "mine", images / "its", images / "real" / "its"
    for path in (mine, its, linked):
        path.write_text("new")
    place = reservations.folder(hypervisor.settings)
    with records.hold_record(place, purpose, "a_b") as other:
        noted = onrecord.arrival(paths=[str(its), str(images / "link" / "its")])
        other.begin("t1", "making" if purpose == "build" else "preparing", **noted)

    with hypervisor.libvirt() as conn:

        def removed(name, paths):
            index = usage.index(conn, hypervisor.settings, but=[name], going=paths)
            return unfinished.remove(hypervisor.settings, index, policies.UNDO, paths)

        paths = [str(path) for path in (mine, its, linked)]
        assert removed("a", paths) == [str(mine)]
        assert its.exists() and linked.exists() and f"{its} stays: " in caplog.text
        assert removed("a_b", [str(its)]) == [str(its)]


def test_what_was_made_since_it_was_looked_for_stays(hypervisor, monkeypatch):
    with hypervisor.libvirt():
        fetch = apply._fetch_minion

        def meanwhile(*args):
            (path,) = [one for one in args[1].paths if "data" in one]
            with open(path, "w") as handle:
                handle.write("somebody's")
            return fetch(*args)

        hypervisor.init("other")
        monkeypatch.setattr(apply, "_fetch_minion", meanwhile)
        with pytest.raises(StorageError, match="web1_data.qcow2 is there already"):
            hypervisor.init("web1")

    assert [one for one in hypervisor.files() if one.startswith("web1")] == ["web1_data.qcow2"]


@pytest.fixture
def other_host(hypervisor, monkeypatch):
    """Another host, which makes a file between this one's last look and its own file."""
    make = exclusivecreate.link_mark

    def first(mark, path):
        if path.endswith("_data.qcow2"):
            Path(path).write_text("another host's")
        return make(mark, path)

    monkeypatch.setattr(exclusivecreate, "link_mark", first)


def left(hypervisor):
    """Return the names of all that VMs have in the folder, hidden files too."""
    names = {one.name for one in Path(hypervisor.settings.images).iterdir()}
    return sorted(names - {"base"})


def test_of_two_hosts_that_share_a_folder_one_makes_a_file(hypervisor, other_host):
    with (
        hypervisor.libvirt(),
        pytest.raises(StorageError, match="web1_data.qcow2 is there already"),
    ):
        hypervisor.init("web1")

    assert left(hypervisor) == ["web1_data.qcow2"]
    assert (Path(hypervisor.settings.images) / "web1_data.qcow2").read_text() == "another host's"
    assert hypervisor.domains() == [] and hypervisor.open_records() == []


@pytest.mark.parametrize("step", ["link", "unlink", "note"])
def test_a_builder_that_is_killed_as_it_makes_a_file_leaves_none_and_takes_no_other(
    hypervisor, monkeypatch, step
):
    """Killed as it links the file, as it has that on record, as it removes the first name."""
    part = {"link": os, "note": records.LockedRecord, "unlink": Path}[step]
    real = getattr(part, step)

    def kill(subject, *args, **given):
        is_it = {"link": True, "note": given.get("begun"), "unlink": ".salt-virt-" in str(subject)}[
            step
        ]
        return os.kill(os.getpid(), signal.SIGKILL) if is_it else real(subject, *args, **given)

    with monkeypatch.context() as dying:
        dying.setattr(part, step, kill)
        hypervisor.dies(hypervisor.init)
    before = left(hypervisor)
    with hypervisor.libvirt() as conn:
        unfinished.settle(conn, hypervisor.settings)

    assert before and left(hypervisor) == []


def test_a_file_that_cannot_be_had_on_record_is_taken_back(hypervisor, monkeypatch):
    note = records.LockedRecord.note

    def full(held, **facts):
        if facts.get("begun"):
            raise StorageError("the disk is full")
        note(held, **facts)

    monkeypatch.setattr(records.LockedRecord, "note", full)
    with hypervisor.libvirt(), pytest.raises(StorageError, match="the disk is full"):
        hypervisor.init("web1")

    assert left(hypervisor) == [] and hypervisor.open_records() == []


def test_a_file_system_without_hard_links_will_do(hypervisor, monkeypatch, request):
    def refuse(*_args):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with hypervisor.libvirt():
        assert hypervisor.init("web1") is True
        request.getfixturevalue("other_host")
        with pytest.raises(StorageError, match="web2_data.qcow2 is there already"):
            hypervisor.init("web2")

    assert [one for one in hypervisor.files() if one.startswith("web2")] == ["web2_data.qcow2"]
