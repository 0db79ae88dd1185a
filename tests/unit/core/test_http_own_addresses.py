"""A server of images may not redirect to this host's addresses or its cloud's metadata."""

import json
import socket
import subprocess
import sys
import urllib.request

import pytest
from saltvirt.core.http import connection

# In a network of its own: 10.9.1.2 stands for the server of an image, 10.9.0.1 is this host's own
# address. The server there stands for a service that its firewall keeps from all others.
SCRIPT = r"""
import http.server, json, pathlib, sys, threading
from saltvirt.core.http import connection, web
from saltvirt.core.writelimit import Room

class Secret(http.server.BaseHTTPRequestHandler):
    asked = []
    def do_GET(self):
        self.asked.append(self.path)
        self.send_response(200); self.end_headers(); self.wfile.write(b"secret")
    def log_message(self, *_args): pass

class Leads(Secret):
    def do_GET(self):
        self.send_response(302); self.send_header("Location", TO); self.end_headers()

def serve(kind, address, port):
    server = http.server.ThreadingHTTPServer((address, port), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()

serve(Secret, "0.0.0.0", 9999)
serve(Leads, "10.9.1.2", 8080)
room = Room(max_bytes=1 << 20, reserve_bytes=0, limit_s=20)
out = {}
def fetch(url):
    part = pathlib.Path(sys.argv[1])
    part.unlink(missing_ok=True)
    try:
        web.fetch(url, part, lambda *_a: None, None, room.meter("x", str(part.parent)))
        return part.read_text()
    except Exception as exc:
        return str(exc)
for TO in sys.argv[2:]:
    out[TO] = fetch("http://10.9.1.2:8080/x")
asked = len(Secret.asked)
out["typed"] = fetch("http://10.9.0.1:9999/")
print(json.dumps({"out": out, "asked": asked}))
"""
OWN = (
    "http://10.9.0.1:9999/",
    "http://127.0.0.1:9999/",
    "http://localhost:9999/",
    "http://localhost.:9999/",
    "http://0.0.0.0:9999/",
    "http://0:9999/",
    "http://2130706433:9999/",
    "http://[::ffff:10.9.0.1]:9999/",
    "http://[::ffff:127.0.0.1]:9999/",
    "http://own.example.org:9999/",
)


def test_no_redirect_reaches_this_hosts_own_addresses(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost localhost.\n10.9.0.1 own.example.org\n")
    script = tmp_path / "led.py"
    script.write_text(SCRIPT)
    utils = connection.__file__.rpartition("/saltvirt/")[0]
    inside = (
        f"mount --bind {hosts} /etc/hosts && ip link set lo up && ip addr add 10.9.0.1/32 dev lo "
        '&& ip addr add 10.9.1.2/32 dev lo && exec "$@"'
    )
    words = ["unshare", "-nm", "sh", "-c", inside, "sh", sys.executable, script, tmp_path / "part"]

    process = subprocess.run(
        [*map(str, words), *OWN],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": utils},
    )

    results = json.loads(process.stdout.splitlines()[-1])
    # The operator's own URL may name this host.
    assert results["out"].pop("typed") == "secret"
    for url, answer in results["out"].items():
        assert "which only this host reaches; give the URL of the file itself" in answer, url
    # No connection was opened.
    assert results["asked"] == 0


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.170.2"),
        *("100.100.100.200", "168.63.129.16", "192.0.0.192"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fd20:ce::254"),
        *("fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00:a9fe:a9fe::1"),
        # IPv4 in IPv6: mapped, compatible, NAT64 (both prefixes), 6to4, Teredo.
        *(
            "::ffff:169.254.169.254",
            "::ffff:127.0.0.1",
            "::169.254.169.254",
            "::ffff:100.100.100.200",
        ),
        *("64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:a9fe:a9fe::1", "2002:7f00:1::"),
        "2001:0:a9fe:a9fe::",
    ],
)
def test_addresses_that_only_this_host_reaches(address):
    assert connection._is_own(address)


@pytest.mark.parametrize(
    "address",
    [
        "192.0.2.1",
        "10.200.201.202",
        "2001:db8::1",
        "::ffff:192.0.2.1",
        "64:ff9b::c000:201",
        "fd00::1",
    ],
)
def test_addresses_that_other_hosts_reach(address):
    assert not connection._is_own(address)


class FakeSocket:
    """Stand for a socket, of which the code reads only the peer's address."""

    def __init__(self, peer):
        self.peer, self.is_closed = peer, False

    def getpeername(self):
        """Return the peer's address."""
        return self.peer, 80

    def close(self):
        """Record the call."""
        self.is_closed = True


def test_a_name_is_looked_up_once(monkeypatch):
    """A hostile name server would give another address the second time (DNS rebinding)."""
    addresses = iter(["198.51.100.7", "127.0.0.1"])
    looked_up_names, connected_names = [], []

    def look_up(host, port, **_options):
        looked_up_names.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(addresses), port))]

    def reach(address, *_args, **_options):
        connected_names.append(address[0])
        return FakeSocket("198.51.100.1" if len(connected_names) == 1 else address[0])

    monkeypatch.setattr(connection.socket, "getaddrinfo", look_up)
    monkeypatch.setattr(connection.socket, "create_connection", reach)
    connector, request = (
        connection._Connector(),
        urllib.request.Request("http://images.example.org/x"),
    )

    connector.to(request)(("images.example.org", 80))
    connector.to(request)(("elsewhere.example.org", 80))

    assert looked_up_names == ["elsewhere.example.org"]
    assert connected_names == ["images.example.org", "198.51.100.7"]


def test_of_several_addresses_a_public_one_is_used(monkeypatch):
    address_infos = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80))
        for address in ("127.0.0.1", "198.51.100.7")
    ]
    monkeypatch.setattr(connection.socket, "getaddrinfo", lambda *_a, **_k: address_infos)
    monkeypatch.setattr(
        connection.socket, "create_connection", lambda to, *_a, **_k: FakeSocket(to[0])
    )
    connector, request = (
        connection._Connector(),
        urllib.request.Request("http://images.example.org/x"),
    )
    connector.to(request)(("198.51.100.1", 80))

    assert connector.to(request)(("both.example.org", 80)).peer == "198.51.100.7"


def test_a_name_with_a_metadata_address_is_refused(monkeypatch):
    """An attacker may let the name of a server that the operator trusts resolve to it."""
    fake_socket = FakeSocket("169.254.169.254")
    monkeypatch.setattr(connection.socket, "create_connection", lambda *_a, **_k: fake_socket)
    connector, request = (
        connection._Connector(),
        urllib.request.Request("http://images.example.org/x"),
    )

    with pytest.raises(OSError, match="leads to 169.254.169.254, which only this host reaches"):
        connector.to(request)(("images.example.org", 80))

    assert fake_socket.is_closed


def test_an_address_of_this_host_is_not_requested_through_a_proxy(monkeypatch):
    monkeypatch.setattr(
        connection.socket, "create_connection", lambda *_a, **_k: FakeSocket("10.0.0.9")
    )
    way, request = connection._Connector(), urllib.request.Request("http://images.example.org/x")
    request.set_proxy("proxy.example.org:3128", "http")
    way.to(request)(("proxy.example.org", 3128))

    for url in ("http://169.254.169.254/latest", "http://[fd00:ec2::254]/"):
        led = urllib.request.Request(url)
        led.set_proxy("proxy.example.org:3128", "http")
        with pytest.raises(OSError, match="which only this host reaches"):
            way.to(led)(("proxy.example.org", 3128))
