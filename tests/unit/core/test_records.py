"""Records are written before the steps they describe, and survive a killed process."""

import json
import multiprocessing
import os
import signal

import onrecord
import pytest
from saltvirt.core import locks
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records

WHOLE = (
    '{"version": 1, "purpose": "build", "name": "web1", "token": "t", "phase": "making", '
    '"since": 0, "facts": FACTS}'
).replace("FACTS", json.dumps(onrecord.build()))


@pytest.fixture
def folder(tmp_path):
    """A host's folder of records, which does not exist yet."""
    return tmp_path / "state" / "records"


def test_a_phase_is_on_the_disk_before_anything_else_happens(folder):
    with records.hold_record(folder, "build", "web1") as record:
        record.begin("t1", "making", **onrecord.build())
        record.enter("defining", secrets=[])
        stored = records.read_record(folder, "build", "web1")

    assert (stored.token, stored.phase, stored.facts) == (
        "t1",
        "defining",
        {**onrecord.build(), "secrets": []},
    )
    assert records.read_records(folder, "build") == [stored]


def test_an_ended_record_is_gone_with_its_lock(folder):
    with records.hold_record(folder, "build", "web1") as record:
        record.begin("t1", "making", **onrecord.build())
        record.end()

    assert list((folder / "build").iterdir()) == []


def test_a_record_outlives_the_process_that_wrote_it(folder):
    def build():
        with records.hold_record(folder, "build", "web1") as record:
            record.begin("t1", "making", **onrecord.build())
            os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=build)
    process.start()
    process.join()

    assert not records.is_live(folder, "build", "web1")
    assert records.read_record(folder, "build", "web1").phase == "making"


def test_a_held_record_is_locked_for_others(folder):
    with (
        records.hold_record(folder, "build", "web1") as record,
        records.hold_record(folder, "build", "web1") as no,
    ):
        record.begin("t1", "making", **onrecord.build())

        assert no is None
        assert records.is_live(folder, "build", "web1")


def test_reading_a_record_does_not_block_others(folder, tmp_path):
    lock = tmp_path / "lock"
    lock.touch()
    with open(lock) as looking:
        assert not locks.is_held(lock)
        with locks.hold_lock(lock, wait=False) as handle:
            assert handle is not None and looking


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", ".", "a/b", "web 1", "ü"])
def test_no_name_leads_to_another_folder(folder, name):
    with records.hold_record(folder, "order", name) as record:
        record.begin("t1", "placing")
        assert record.path.resolve().parent == (folder / "order").resolve()

    assert records.read_record(folder, "order", name).name == name
    assert [entry.name for entry in records.read_records(folder, "order")] == [name]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"version": 1, "name": "web1"}', "cannot be read"),
        ('{"version": 9, "name": "web1"}', "is of version 9"),
        (WHOLE.replace(json.dumps(onrecord.build()), "null"), "cannot be read"),
        (WHOLE.replace('"making"', "7"), "cannot be read"),
        (WHOLE.replace("0,", '"now",'), "cannot be read"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(folder, text, reason):
    (folder / "build").mkdir(parents=True)
    (folder / "build" / "web1.json").write_text(text)

    with pytest.raises(StorageError, match=reason):
        records.read_record(folder, "build", "web1")


def test_a_record_that_cannot_be_read_hides_no_other(folder):
    for name in ("db1", "web 1"):
        with records.hold_record(folder, "build", name) as record:
            record.begin("t1", "making", **onrecord.build())
    broken_record = folder / "build" / "web%201.json"
    broken_record.write_text("{")

    assert [entry.name for entry in records.read_records(folder, "build")] == ["db1"]
    ((name, reason),) = records.find_unreadable(folder, "build").items()
    assert name == "web 1" and f"the record {broken_record} cannot be read" in reason


def test_a_crash_in_the_middle_of_a_write_leaves_the_phase_before(folder):
    with records.hold_record(folder, "build", "web1") as record:
        record.begin("t1", "making", **onrecord.build())
        # An interrupted write leaves a part beside the record.
        (record.path.parent / ".1-web1.json.part").write_text("{")

    assert [entry.phase for entry in records.read_records(folder, "build")] == ["making"]


@pytest.mark.parametrize("point", ["build.before-defining", "build.defining", "build.end"])
def test_a_test_may_end_a_process_at_any_phase(folder, tmp_path, monkeypatch, point):
    monkeypatch.setenv(records.FAULTS, str(tmp_path / "faults"))
    (tmp_path / "faults").write_text(f"{point} kill")

    def build():
        with records.hold_record(folder, "build", "web1") as record:
            record.begin("t1", "making", **onrecord.build())
            record.enter("defining")
            record.end()

    process = multiprocessing.get_context("fork").Process(target=build)
    process.start()
    process.join()

    phases = [entry.phase for entry in records.read_records(folder, "build")]
    assert process.exitcode == -signal.SIGKILL
    assert phases == {"build.before-defining": ["making"], "build.defining": ["defining"]}.get(
        point, []
    )
    assert (tmp_path / "faults.reached").exists()


def test_records_are_unreadable_for_others(folder):
    with records.hold_record(folder, "build", "web1") as record:
        record.begin("t1", "making", **onrecord.build())

        assert record.path.stat().st_mode & 0o777 == 0o600
        assert record.path.parent.stat().st_mode & 0o777 == 0o700
        assert json.loads(record.path.read_text())["version"] == records.VERSION


def test_the_folders_of_the_first_record_survive_a_crash_with_it(folder, monkeypatch):
    synced = []
    monkeypatch.setattr(records.files, "sync_folder", lambda path: synced.append(path))

    with records.hold_record(folder, "build", "web1"):
        pass

    assert synced == [folder.parent.parent, folder.parent, folder]


def test_a_record_that_cannot_be_written_is_one_line(folder, monkeypatch):
    def full(_path, _data):
        raise OSError(28, "No space left on device")

    with records.hold_record(folder, "build", "web1") as record:
        monkeypatch.setattr(records.files, "write", full)
        with pytest.raises(StorageError, match="cannot write the record .*web1.json: No space"):
            record.begin("t1", "making", **onrecord.build())
