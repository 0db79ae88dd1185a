"""A libvirt daemon that reads its TLS files anew lets nobody in meanwhile, and everybody after."""

import socket

import pytest
from saltvirt.certificates.host import reload

USUAL = {"max-clients": "5000", "max-unauth-clients": "20"}


class Killed(BaseException):
    """The process is gone at once: nothing that it would do on its way out is done."""


class Daemon:
    """Stand for libvirtd and virt-admin, which has no server of its own to be asked in a test."""

    def __init__(self):
        self.limits, self.read_with, self.dies, self.is_deaf = dict(USUAL), [], False, False

    def run(self, argv, **_options):
        """Do what virt-admin is told."""
        command, words = argv[3], argv[5:]
        if command == "server-clients-set":
            if self.dies and len(self.read_with) > 0:
                raise Killed
            if self.is_deaf and self.read_with:
                return {"retcode": 1, "stdout": "", "stderr": "error: no"}
            self.limits = dict(zip([one[2:] for one in words[::2]], words[1::2], strict=True))
        if command == "server-update-tls":
            self.read_with.append(self.limits)
        said = "".join(
            f"{name:20}: {self.limits[key]}\n"
            for name, key in (
                ("nclients_max", "max-clients"),
                ("nclients_unauth_max", "max-unauth-clients"),
            )
        )
        return {"retcode": 0, "stdout": said, "stderr": ""}


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """A daemon whose clients have their socket."""
    monkeypatch.setattr(reload, "_CLIENTS_SOCKET", str(tmp_path / "sock"))
    monkeypatch.setattr(reload, "_NOTES", str(tmp_path / "run"))
    with socket.socket(socket.AF_UNIX) as clients:
        clients.bind(str(tmp_path / "sock"))
        clients.listen()
        yield Daemon()


def test_nobody_is_let_in_while_it_reads(daemon):
    assert reload.Admin("libvirtd", daemon.run).read_tls_files() is None

    assert daemon.read_with == [{"max-clients": "1", "max-unauth-clients": "1"}]
    assert daemon.limits == USUAL


def test_whom_a_run_that_was_killed_has_shut_out_the_next_lets_in(daemon):
    daemon.dies = True
    with pytest.raises(Killed):
        reload.Admin("libvirtd", daemon.run).read_tls_files()
    assert daemon.limits != USUAL

    daemon.dies = False
    assert reload.Admin("libvirtd", daemon.run).read_tls_files() is None
    assert daemon.limits == USUAL


def test_a_daemon_that_does_not_take_its_limits_back_has_not_done_it(daemon):
    daemon.is_deaf = True
    admin = reload.Admin("libvirtd", daemon.run)

    assert admin.read_tls_files() == (
        "it lets one client in alone: it does not take its limits back"
    )

    daemon.is_deaf, daemon.read_with = False, []
    assert admin.read_tls_files() is None and daemon.limits == USUAL


def test_one_that_takes_no_client_is_waited_for_no_longer_than_agreed(daemon, monkeypatch):
    monkeypatch.setattr(reload, "_CONNECT_S", 1)
    waiting = []
    while True:
        one = socket.socket(socket.AF_UNIX)
        one.setblocking(False)
        waiting.append(one)
        if one.connect_ex(reload._CLIENTS_SOCKET):
            break

    why = reload.Admin("libvirtd", daemon.run).read_tls_files()

    assert why.endswith("it takes no more clients") and daemon.limits == USUAL
    for one in waiting:
        one.close()
