"""A server of images on this host may redirect to itself."""

import urllib.request

import pytest
from saltvirt.core.http import connection


@pytest.mark.parametrize(
    ("first", "second"),
    [("::1", "127.0.0.1"), ("127.0.0.1", "::1"), ("::ffff:127.0.0.1", "::1")],
)
def test_a_server_on_this_host_may_redirect_to_itself_by_another_name(monkeypatch, first, second):
    """The client uses the address of localhost that answers."""
    assert len(connections_by_redirects(monkeypatch, first, second)) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [("::1", "127.0.0.2"), ("192.0.2.1", "::1"), ("::1", "169.254.169.254"), ("::1", "fe80::1")],
)
def test_a_redirect_to_other_addresses_that_only_this_host_reaches_is_refused(
    monkeypatch, first, second
):
    with pytest.raises(OSError, match=f"the server leads to {second}|leads to 127.0.0.1"):
        connections_by_redirects(monkeypatch, first, second)


def connections_by_redirects(monkeypatch, *peers):
    """Return the connections of redirects to servers with these addresses."""
    peers_left = list(peers)

    class Made:
        def getpeername(self):
            return peers_left.pop(0), 80

        def close(self):
            pass

    monkeypatch.setattr(connection.socket, "create_connection", lambda *_a, **_k: Made())
    connector, request = connection._Connector(), urllib.request.Request("http://localhost/x")
    return [connector.to(request)(("localhost", 80)) for _ in peers]
