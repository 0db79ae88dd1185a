"""A volume's content is read and written whole, or one line of error names the reason."""

import os

import libvirt
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.libvirt.storage import transfer, volumes


class Stream(libvirt.virStream):
    """A stream of libvirt's with these parts of a volume in it, which records what is sent."""

    def __init__(self, parts=()):
        self.parts, self.sent, self.holes = list(parts), b"", []

    def __del__(self):
        pass

    def recv(self, _length):
        return self.parts.pop(0) if self.parts else b""

    def send(self, data):
        self.sent += data
        return len(data)

    def sendHole(self, length, _flags=0):  # noqa: N802
        self.holes.append(length)
        return 0

    def finish(self):
        pass

    def abort(self):
        pass


class Connection:
    """A connection with one stream and one volume."""

    kind, capacity, allocation = libvirt.VIR_STORAGE_VOL_FILE, 3 << 20, 0

    def __init__(self, *parts):
        self.stream = Stream(parts)

    def newStream(self, _flags):  # noqa: N802
        return self.stream

    def download(self, *_args):
        pass

    upload = download

    def info(self):
        return self.kind, self.capacity, self.allocation


@pytest.fixture(autouse=True)
def volume(monkeypatch):
    monkeypatch.setattr(volumes, "lookup", lambda conn, *_names: conn)
    monkeypatch.setattr(volumes, "refuse_running", lambda *_names: None)


WHOLE = {"offset": 0, "length": 0, "is_sparse": False}


def write_until_full(room):
    """Return a ``write`` that fails as on a disk with so much room."""
    write, remaining_room = os.write, [room]

    def writing(handle, data):
        if not remaining_room[0]:
            raise OSError(28, "No space left on device")
        count = write(handle, bytes(data)[: remaining_room[0]])
        remaining_room[0] -= count
        return count

    return writing


def test_a_volume_is_downloaded_whole_though_a_part_is_written_first(tmp_path, monkeypatch):
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real_write(handle, bytes(data)[:3]))

    transfer.download(Connection(b"12345", b"6789"), "p1", "v1", str(tmp_path / "new"), **WHOLE)

    monkeypatch.undo()
    assert (tmp_path / "new").read_bytes() == b"123456789"


@pytest.mark.parametrize("room", [3, 5, 8])
def test_a_full_disk_is_an_error_and_leaves_no_file(tmp_path, monkeypatch, room):
    monkeypatch.setattr(os, "write", write_until_full(room))

    with pytest.raises(StorageError, match="^cannot write .*/new: No space left on device$"):
        transfer.download(Connection(b"12345", b"6789"), "p1", "v1", f"{tmp_path}/new", **WHOLE)

    assert list(tmp_path.iterdir()) == []


def test_a_read_error_is_reported(tmp_path, monkeypatch):
    (tmp_path / "there").write_bytes(b"123456789")
    conn = Connection()

    def fails(_handle, _count):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "read", fails)

    with pytest.raises(StorageError, match="^cannot read .*/there: Input/output error$"):
        transfer.upload(conn, "p1", "v1", str(tmp_path / "there"), **WHOLE)


def test_a_file_that_gets_shorter_meanwhile_is_not_taken_for_whole(tmp_path):
    file, conn = tmp_path / "file", Connection()
    file.write_bytes(b"x" * (1 << 20))

    def send(data):
        os.truncate(file, 1 << 19)
        return len(data)

    conn.stream.send = send

    with pytest.raises(StorageError, match="cannot read .*/file: it has become shorter meanwhile"):
        transfer.upload(conn, "p", "v", str(file), **WHOLE)


def test_the_cut_part_of_a_file_is_no_hole(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x" * 8192)
    with file.open("rb") as handle:
        window = transfer._Window(handle.fileno(), 0)
        assert window.section() == [True, 8192]
        window.read(4096)
        os.truncate(file, 4096)

        with pytest.raises(OSError, match="shorter"):
            window.section()


@pytest.mark.parametrize(
    ("kind", "capacity", "allocation", "offset", "skips"),
    [
        pytest.param(libvirt.VIR_STORAGE_VOL_FILE, 3 << 20, 0, 0, True, id="new"),
        pytest.param(libvirt.VIR_STORAGE_VOL_FILE, 3 << 20, 4096, 0, False, id="written to"),
        pytest.param(libvirt.VIR_STORAGE_VOL_FILE, 4 << 20, 0, 0, False, id="longer"),
        pytest.param(libvirt.VIR_STORAGE_VOL_FILE, 4 << 20, 0, 1 << 20, True, id="to its end"),
        pytest.param(libvirt.VIR_STORAGE_VOL_BLOCK, 4 << 20, 4 << 20, 0, True, id="device"),
    ],
)
def test_holes_are_left_out_only_where_nothing_is_lost_or_left(
    tmp_path, kind, capacity, allocation, offset, skips
):
    # libvirt 9.0 keeps a file's old content in a hole, and truncates the file behind it.
    with (tmp_path / "file").open("wb") as file:
        file.write(b"x" * (1 << 20))
        file.seek(2 << 20)
        file.write(b"y" * (1 << 20))
    conn = Connection()
    conn.kind, conn.capacity, conn.allocation = kind, capacity, allocation
    options = {"offset": offset, "length": 0, "is_sparse": True}

    transfer.upload(conn, "p", "v", str(tmp_path / "file"), **options)

    assert conn.stream.holes == ([1 << 20] if skips else [])
    content = (tmp_path / "file").read_bytes()
    assert conn.stream.sent == (content.replace(b"\0", b"") if skips else content)
