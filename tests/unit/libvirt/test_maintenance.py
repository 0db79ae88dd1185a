"""The evacuation notes and the maintenance flag of a host, in real files."""

import multiprocessing
import time
from pathlib import Path

import pytest
from saltvirt.core.errors import BadArgument, StorageError
from saltvirt.core.model import Requirements
from saltvirt.libvirt import maintenance, reservations


def test_where_vms_were_evacuated_to_is_noted_and_forgotten(host):
    web = {"hosts": ["h2", "h3"], "uuid": "u1", "proof": "p1"}
    db = {"hosts": ["h2"]}

    assert maintenance.note_evacuated(host, None) == {}
    assert maintenance.note_evacuated(host, {"web": web, "db": db}) == {"web": web, "db": db}
    assert maintenance.note_evacuated(host, None)["web"] == web
    assert maintenance.note_evacuated(host, {"web": None, "other": None}) == {"db": db}
    assert maintenance.note_evacuated(host, {"db": {**db, "hosts": []}}) == {}
    assert not (Path(host.state_dir) / "evacuated.json").exists()
    with pytest.raises(BadArgument, match="vms: hosts is missing"):
        maintenance.note_evacuated(host, {"web": {"uuid": "u1"}})


@pytest.mark.parametrize("text", ["{", "[1]", '{"web": 1}', '{"web": {"hosts": 1}}'])
def test_notes_that_cannot_be_read_are_an_error_and_stay(host, text):
    path = Path(host.state_dir) / "evacuated.json"
    path.parent.mkdir()
    path.write_text(text)

    with pytest.raises(StorageError, match="evacuated.json.* remove it, and bring them back"):
        maintenance.note_evacuated(host, {"web": {"hosts": ["h2"]}})

    assert path.read_text() == text


def test_notes_that_are_no_mapping_of_names_are_refused(host):
    with pytest.raises(BadArgument, match="vms: 'web' is not a mapping"):
        maintenance.note_evacuated(host, "web")
    with pytest.raises(BadArgument, match="vms"):
        maintenance.note_evacuated(host, {"web": 1})


def note(host, number):
    """Note a VM, as one of several moves that end at once."""
    maintenance.note_evacuated(host, {f"vm{number}": {"hosts": ["h2"]}})


def test_notes_of_several_at_once_are_all_kept(host):
    context = multiprocessing.get_context("fork")
    noting = [context.Process(target=note, args=(host, number)) for number in range(12)]
    for process in noting:
        process.start()
    for process in noting:
        process.join()

    assert sorted(maintenance.note_evacuated(host, {})) == sorted(f"vm{n}" for n in range(12))


def set_flag(host, has_looked):
    """Set the flag in a process of its own, after the build has looked for it."""
    has_looked.wait(10)
    maintenance.set_flag(host, "on")


@pytest.mark.slow
def test_a_build_that_began_before_the_flag_is_coming_after_it(host):
    # The build looks for the flag just before it is set; its VM is not on record yet.
    context, flags = multiprocessing.get_context("fork"), []
    has_looked = context.Event()
    # This process is started first: a later one would inherit an open lock and hold it too.
    process = context.Process(target=set_flag, args=(host, has_looked), daemon=True)
    process.start()

    def look():
        flags.append(maintenance.is_on(host))
        has_looked.set()
        time.sleep(0.5)
        flags.append(maintenance.is_on(host))

    with reservations.reserve(host, Requirements(name="web", vcpus=1, memory_mib=64), "u1", look):
        process.join(10)
        assert flags == [False, False]
        assert maintenance.is_on(host) and list(reservations.read_coming_vms(host)) == ["web"]
