"""A libvirt that accepts a connection and sends nothing is an error within bounded time."""

import socket
import threading
import time

import libvirt
import pytest
from saltvirt.core.errors import HostUnreachable
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect, events
from saltvirt.libvirt.domains import migrate


@pytest.fixture
def silent(tmp_path, monkeypatch):
    """A daemon's socket that accepts connections and never answers, and its connections."""
    monkeypatch.setattr(connect, "OPEN_S", 1)
    path, connections = tmp_path / "libvirt-sock", []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(8)

        def accept():
            while True:
                try:
                    connections.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"qemu+unix:///system?socket={path}", connections
        server.shutdown(socket.SHUT_RDWR)
        for connection in connections:
            connection.close()
        thread.join(5)
    # libvirt's own threads see the end of the socket.
    deadline = time.monotonic() + 5
    while connect._HUNG and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize("user", [None, "me"])
def test_a_connection_has_a_deadline(silent, readonly, user):
    uri, connections = silent
    settings = HostSettings(uri=uri, username=user, password=user)
    started_s = time.monotonic()

    with (
        pytest.raises(HostUnreachable) as excinfo,
        connect.open_connection(settings, readonly=readonly),
    ):
        pass

    assert time.monotonic() - started_s < 4 and len(connections) == 1
    message = str(excinfo.value)
    assert message.startswith(f"libvirt does not answer at {uri}: no answer within 1 s; ")
    assert "\n" not in message


def test_a_process_that_retries_keeps_one_thread(silent):
    """Such as the engine, which asks every few seconds as long as libvirt hangs."""
    uri, connections = silent
    before = threading.active_count()

    for _attempt in range(3):
        with pytest.raises(HostUnreachable), connect.open_connection(HostSettings(uri=uri)):
            pass

    assert len(connections) == 1 and threading.active_count() <= before + 1


def test_libvirt_is_asked_again_once_it_has_closed_the_connection(silent):
    uri, connections = silent
    with pytest.raises(HostUnreachable), connect.open_connection(HostSettings(uri=uri)):
        pass

    connections[0].close()
    with pytest.raises(HostUnreachable), connect.open_connection(HostSettings(uri=uri)):
        pass

    assert len(connections) == 2


def test_the_engine_goes_on(silent):
    uri, _connections = silent

    with pytest.raises(TimeoutError, match="no answer within 1 s"):
        events._open_listening(uri, [], "tag", print).__enter__()


def test_another_hosts_libvirt_has_a_deadline_too(monkeypatch):
    """The port accepts; libvirt's client has no certificates here, so its ``open`` is replaced."""
    monkeypatch.setattr(connect, "OPEN_S", 0.2)
    ended = threading.Event()
    monkeypatch.setattr(libvirt, "open", lambda _uri: ended.wait(5) and None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"qemu+tls://127.0.0.1:{server.getsockname()[1]}/system"
        with pytest.raises(
            migrate.MigrationFailed, match="libvirt does not answer: no answer within 0.2 s"
        ):
            migrate.target(uri).__enter__()
    ended.set()


def test_a_connection_that_comes_too_late_is_closed(monkeypatch):
    monkeypatch.setattr(connect, "OPEN_S", 0.1)
    may_open, is_closed = threading.Event(), threading.Event()

    class Late:
        def close(self):
            is_closed.set()

    def opening():
        may_open.wait(5)
        return Late()

    with pytest.raises(TimeoutError):
        connect.open_in_time(opening, "late:///")
    may_open.set()

    assert is_closed.wait(5)
