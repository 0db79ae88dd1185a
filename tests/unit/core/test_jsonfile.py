"""A file of versioned JSON: its damage, its changes, and its lock."""

import json
import threading

import pytest
from saltvirt.core import files
from saltvirt.core.errors import MasterError
from saltvirt.core.jsonfile import JsonFile


def names(path, **more):
    """Return a file of a set of names."""
    return JsonFile(
        path=path,
        parse=lambda content: set(map(str, content["names"])),
        plain=lambda value: {"names": sorted(value)},
        empty=set,
        **more,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "names.json"


def test_a_missing_file_is_empty_and_a_change_makes_it(path):
    file = names(path)

    assert file.read() == set()
    assert file.change(lambda value: value | {"a"}) == {"a"}
    assert json.loads(path.read_text()) == {"version": 1, "names": ["a"]}
    assert path.stat().st_mode & 0o777 == 0o600 and file.read() == {"a"}
    assert [entry.name for entry in path.parent.iterdir()] == ["names.json"]


def test_nothing_is_written_and_no_lock_is_taken_while_nothing_changes(path, monkeypatch):
    file = names(path)
    file.change(lambda value: value | {"a"})
    monkeypatch.setattr(files, "write", lambda *_args: pytest.fail("it was written"))

    assert file.change(lambda value: value | {"a"}) == {"a"}


def test_concurrent_changes_lose_nothing(path):
    file = names(path)

    def change(number):
        for n in range(20):
            file.change(lambda value: value | {f"{number}-{n}"})  # noqa: B023 (it runs at once)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(file.read()) == 80


DAMAGED = ["", "[]", "7", '{"names": ["a"]}', '{"version": 1}', '{"version": 9, "names": ["a"]}']


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_named_with_its_remedy_and_stays(path, text):
    file = names(path, remedy="move it away", error=MasterError)
    path.parent.mkdir()
    path.write_text(text)

    for act in (file.read, lambda: file.change(lambda value: value | {"a"})):
        with pytest.raises(MasterError, match=rf"^{path} cannot be read \(.*\); move it away$"):
            act()
    assert path.read_text() == text


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_cache_is_replaced(path, text, caplog):
    file = names(path)
    path.parent.mkdir()
    path.write_text(text)

    assert file.read() == set() and "it is written anew" in caplog.text
    assert file.change(lambda value: value | {"a"}) == {"a"}
    assert file.read() == {"a"}


@pytest.mark.parametrize("remedy", ["", "move it away"])
def test_only_a_cache_may_stay_unwritten(path, remedy, caplog):
    file = names(path, remedy=remedy)
    path.parent.write_text("a file where the folder should be")

    if remedy:
        with pytest.raises(OSError):
            file.change(lambda value: value | {"a"})
    else:
        assert file.change(lambda value: value | {"a"}) == {"a"}
        assert f"{path} cannot be written" in caplog.text
