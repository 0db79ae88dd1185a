"""A libvirt that takes a connection and says nothing ends in one line, in bounded time."""

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
    """A daemon's socket that takes connections, and what came to it; it answers when it is told."""
    monkeypatch.setattr(connect, "OPEN_S", 1)
    path, taken = tmp_path / "libvirt-sock", []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(8)

        def take():
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        yield f"qemu+unix:///system?socket={path}", taken
        server.shutdown(socket.SHUT_RDWR)
        for one in taken:
            one.close()
        thread.join(5)
    # libvirt's own threads see the end of the socket.
    deadline = time.monotonic() + 5
    while connect._HUNG and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize("user", [None, "me"])
def test_a_connection_has_a_deadline(silent, readonly, user):
    uri, taken = silent
    settings = HostSettings(uri=uri, username=user, password=user)
    begun = time.monotonic()

    with (
        pytest.raises(HostUnreachable) as refused,
        connect.open_connection(settings, readonly=readonly),
    ):
        pass

    assert time.monotonic() - begun < 4 and len(taken) == 1
    said = str(refused.value)
    assert said.startswith(f"libvirt does not answer at {uri}: no answer within 1 s; ")
    assert "\n" not in said


def test_a_process_that_asks_again_and_again_keeps_one_thread(silent):
    """Such as the engine, which asks every few seconds as long as libvirt hangs."""
    uri, taken = silent
    before = threading.active_count()

    for _time in range(3):
        with pytest.raises(HostUnreachable), connect.open_connection(HostSettings(uri=uri)):
            pass

    assert len(taken) == 1 and threading.active_count() <= before + 1


def test_it_is_asked_anew_once_it_has_ended(silent):
    uri, taken = silent
    with pytest.raises(HostUnreachable), connect.open_connection(HostSettings(uri=uri)):
        pass

    taken[0].close()
    with pytest.raises(HostUnreachable), connect.open_connection(HostSettings(uri=uri)):
        pass

    assert len(taken) == 2


def test_the_engine_goes_on(silent):
    uri, _taken = silent

    with pytest.raises(TimeoutError, match="no answer within 1 s"):
        events._open_listening(uri, [], "tag", print).__enter__()


def test_another_hosts_libvirt_has_a_deadline_too(monkeypatch):
    """Its port takes the connection; libvirt's client has no certificates here, and is played."""
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
    begun, closed = threading.Event(), threading.Event()

    class Late:
        def close(self):
            closed.set()

    def opening():
        begun.wait(5)
        return Late()

    with pytest.raises(TimeoutError):
        connect.open_in_time(opening, "late:///")
    begun.set()

    assert closed.wait(5)
