"""Where a server of images may lead: on this host, to itself."""

import urllib.request

import pytest
from saltvirt.core.http import connection


@pytest.mark.parametrize(
    ("first", "then"),
    [("::1", "127.0.0.1"), ("127.0.0.1", "::1"), ("::ffff:127.0.0.1", "::1")],
)
def test_a_server_on_this_host_leads_to_itself_by_another_name(monkeypatch, first, then):
    """Of localhost that address is taken which answers."""
    assert len(led(monkeypatch, first, then)) == 2


@pytest.mark.parametrize(
    ("first", "then"),
    [("::1", "127.0.0.2"), ("192.0.2.1", "::1"), ("::1", "169.254.169.254"), ("::1", "fe80::1")],
)
def test_not_to_what_else_this_host_alone_reaches(monkeypatch, first, then):
    with pytest.raises(OSError, match=f"the server leads to {then}|leads to 127.0.0.1"):
        led(monkeypatch, first, then)


def led(monkeypatch, *peers):
    """Return the connections of a way by some addresses."""
    left = list(peers)

    class Made:
        def getpeername(self):
            return left.pop(0), 80

        def close(self):
            pass

    monkeypatch.setattr(connection.socket, "create_connection", lambda *_a, **_k: Made())
    way, request = connection._Connector(), urllib.request.Request("http://localhost/x")
    return [way.to(request)(("localhost", 80)) for _ in peers]
