"""A libvirt daemon accepts no clients while it reads its TLS files, and all clients afterwards."""

import socket

import pytest
from saltvirt.certificates.host import reload

USUAL = {"max-clients": "5000", "max-unauth-clients": "20"}


class Killed(BaseException):
    """The process is killed: no handler for its end runs."""


class Daemon:
    """Stand for libvirtd and virt-admin: virt-admin has no server in a test."""

    def __init__(self):
        self.limits, self.read_with, self.dies, self.is_deaf = dict(USUAL), [], False, False

    def run(self, argv, **_options):
        """Run a command of virt-admin."""
        command, words = argv[3], argv[5:]
        if command == "server-clients-set":
            if self.dies and len(self.read_with) > 0:
                raise Killed
            if self.is_deaf and self.read_with:
                return {"retcode": 1, "stdout": "", "stderr": "error: no"}
            self.limits = dict(zip([option[2:] for option in words[::2]], words[1::2], strict=True))
        if command == "server-update-tls":
            self.read_with.append(self.limits)
        output = "".join(
            f"{name:20}: {self.limits[key]}\n"
            for name, key in (
                ("nclients_max", "max-clients"),
                ("nclients_unauth_max", "max-unauth-clients"),
            )
        )
        return {"retcode": 0, "stdout": output, "stderr": ""}


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """A daemon with a socket for its clients."""
    monkeypatch.setattr(reload, "_CLIENTS_SOCKET", str(tmp_path / "sock"))
    monkeypatch.setattr(reload, "_NOTES", str(tmp_path / "run"))
    with socket.socket(socket.AF_UNIX) as clients:
        clients.bind(str(tmp_path / "sock"))
        clients.listen()
        yield Daemon()


def test_no_client_is_accepted_while_the_daemon_reads_its_files(daemon):
    assert reload.Admin("libvirtd", daemon.run).read_tls_files() is None

    assert daemon.read_with == [{"max-clients": "1", "max-unauth-clients": "1"}]
    assert daemon.limits == USUAL


def test_the_next_run_restores_the_limits_of_a_killed_one(daemon):
    daemon.dies = True
    with pytest.raises(Killed):
        reload.Admin("libvirtd", daemon.run).read_tls_files()
    assert daemon.limits != USUAL

    daemon.dies = False
    assert reload.Admin("libvirtd", daemon.run).read_tls_files() is None
    assert daemon.limits == USUAL


def test_a_daemon_that_does_not_restore_its_limits_is_an_error(daemon):
    daemon.is_deaf = True
    admin = reload.Admin("libvirtd", daemon.run)

    assert admin.read_tls_files() == (
        "it lets one client in alone: it does not take its limits back"
    )

    daemon.is_deaf, daemon.read_with = False, []
    assert admin.read_tls_files() is None and daemon.limits == USUAL


def test_a_daemon_that_accepts_no_client_ends_in_a_timeout(daemon, monkeypatch):
    monkeypatch.setattr(reload, "_CONNECT_S", 1)
    waiting = []
    while True:
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        waiting.append(client)
        if client.connect_ex(reload._CLIENTS_SOCKET):
            break

    reason = reload.Admin("libvirtd", daemon.run).read_tls_files()

    assert reason.endswith("it takes no more clients") and daemon.limits == USUAL
    for client in waiting:
        client.close()
