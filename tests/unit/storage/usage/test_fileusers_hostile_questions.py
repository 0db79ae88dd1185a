"""What one host says of the files that another host, or anybody, asks it about."""

import os
import pty
import sys
from pathlib import Path

from saltvirt.storage import diskpaths, fileusers, sharing
from usagekit import disk_image

FREE = {"used_by": [], "doubts": []}


def users(host, path):
    """Return what a host answers about one file."""
    (answer,) = fileusers.file_users(host.conn, host.settings, [str(path)]).values()
    return {"used_by": answer.used_by, "doubts": answer.doubts}


def test_a_pipe_that_a_caller_names_is_not_waited_for(host):
    pipe = host.root / "pipe"
    os.mkfifo(pipe)

    assert users(host, pipe) == FREE
    with diskpaths.keep_from_qemu(pipe):
        pass


def test_a_character_device_that_a_caller_names_is_not_opened(host):
    """A watchdog that is opened resets the host."""
    controller, terminal = pty.openpty()
    path = os.ttyname(terminal)
    opened = []

    def note(event, args):
        if event == "open" and args[0] == path and not args[2] & os.O_PATH:
            opened.append(args)

    sys.addaudithook(note)
    try:
        assert users(host, path) == FREE
        with diskpaths.keep_from_qemu(path):
            pass
    finally:
        os.close(controller)
        os.close(terminal)

    assert opened == []


def test_a_file_whose_name_ends_with_a_space_is_found(host):
    path = disk_image(host.images / "data.qcow2 ")
    host.define("web1", path)

    assert "VM 'web1' has it as a disk" in users(host, path)["used_by"][0]
    assert sharing.usage_from_replies({"free": [str(path)]}).free == {str(path)}


def test_a_suggested_command_is_one_whatever_a_vm_is_called(host):
    name = "web1;id>x '$(id)' #"
    domain = host.define(name, host.file)
    domain.create()
    domain.managedSave()

    reasons = users(host, host.file)["used_by"]

    assert any("managedsave-remove 'web1;id>x '\"'\"'$(id)'\"'\"' #'" in one for one in reasons)


def test_a_mount_is_read_whatever_its_folder_is_called(monkeypatch):
    # Mocked: a test mounts nothing. The kernel escapes blanks, tabs and newlines alone.
    text = (
        "25 30 0:24 / /mnt/a\x0bb\u2028c\rd rw - nfs4 s:/ rw\n26 30 0:25 / / rw - ext4 /dev/a rw\n"
    )
    monkeypatch.setattr(Path, "read_bytes", lambda _path: text.encode())

    assert sharing._file_systems_by_device() == {"0:24": "nfs4", "0:25": "ext4"}
