"""Files and programs of network managers: files replaced in one step, programs ended in time."""

import os
import sys
import time
from pathlib import Path

import pytest
from saltvirt.network.managers import change, tools


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "folder").write_text("")

    with pytest.raises(tools.PersistenceError, match="^cannot write .*/folder/file: "):
        change.put(str(tmp_path / "folder/file"), b"x")


def test_put_follows_a_link_but_replaces_one_to_a_device(tmp_path):
    target, link, masked = (tmp_path / name for name in ("there", "link", "masked"))
    target.write_text("old")
    link.symlink_to(target)
    masked.symlink_to("/dev/null")

    change.put(link, b"new")
    change.put(masked, b"unit")

    assert (target.read_text(), link.is_symlink()) == ("new", True)
    assert (masked.read_text(), masked.is_symlink()) == ("unit", False)
    assert not Path("/dev/null").is_file()


def test_a_program_that_fails_or_is_missing_is_an_error_of_one_line():
    assert tools.run(["echo", "so"]) == "so"
    with pytest.raises(tools.PersistenceError, match="^sh -c echo no; false failed: no$"):
        tools.run(["sh", "-c", "echo no; false"])
    with pytest.raises(tools.PersistenceError, match="^/nowhere/nmcli failed: No such file"):
        tools.run(["/nowhere/nmcli"])


@pytest.mark.slow
def test_a_program_that_takes_too_long_ends_with_all_that_it_has_begun(tmp_path):
    note = tmp_path / "pid"
    with pytest.raises(tools.PersistenceError, match="did not end within 1 s"):
        tools.run(["sh", "-c", f"sleep 60 & echo $! > {note}; wait"], timeout_s=1)

    pid = note.read_text().strip()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < deadline, "what it has begun still runs"
        time.sleep(0.05)


def test_a_program_that_stays_in_the_background_is_not_waited_for():
    started_s = time.monotonic()
    pid = tools.run(
        [
            sys.executable,
            "-c",
            "import os, subprocess\n"
            "print(subprocess.Popen(['sleep', '30'], start_new_session=True).pid)",
        ]
    )
    assert time.monotonic() - started_s < 15
    os.kill(int(pid), 9)
