"""Have a libvirt daemon read its TLS files anew without harm to connections being set up."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from saltvirt import undo

# libvirtd and virtproxyd both answer clients here (https://libvirt.org/daemons.html).
_CLIENTS_SOCKET = "/run/libvirt/libvirt-sock"
_LIMITS = ("max-clients", "max-unauth-clients")
_HANDSHAKES_S = 2


class Admin:
    """
    One daemon, spoken to through ``virt-admin``.

    run
        Salt's ``cmd.run_all``.
    """

    def __init__(self, daemon: str, run: Callable[..., dict[str, Any]]) -> None:
        self.daemon = daemon
        self._run = run

    def _ask(self, command: str, *words: str) -> dict[str, Any]:
        argv = ["virt-admin", "-c", f"{self.daemon}:///system", command, self.daemon, *words]
        return self._run(argv, python_shell=False, ignore_retcode=True)

    def read_tls_files(self) -> str | None:
        """
        Have the daemon read its TLS files; return None, or why it did not.

        libvirt (seen with 9.0) frees the credentials that a handshake in progress still uses, and
        dies of it. So nobody is let in meanwhile: new connections wait in the socket's queue, those
        that are being set up get two seconds to end.
        """
        try:
            with undo.on_signals(), self._nobody_let_in():
                self._end_handshakes()
                done = self._ask("server-update-tls")
        except OSError as exc:
            return f"{_CLIENTS_SOCKET}: {exc}"
        if done["retcode"] == 0:
            return None
        lines = (done["stderr"] or done["stdout"]).strip().splitlines()
        return lines[-1] if lines else "no answer"

    @contextmanager
    def _nobody_let_in(self) -> Iterator[None]:
        said = self._ask("server-clients-info")["stdout"]
        found = dict(re.findall(r"^(\w+) *: (\d+)$", said, re.M))
        if "nclients_max" not in found or "nclients_unauth_max" not in found:
            yield  # it does not answer, and will not read its files either
            return
        before = (found["nclients_max"], found["nclients_unauth_max"])
        # A client of our own uses up the only place; without it one more would be let in.
        with socket.socket(socket.AF_UNIX) as ours:
            ours.connect(_CLIENTS_SOCKET)
            try:
                self._limit("1", "1")
                yield
            finally:
                self._limit(*before)

    def _limit(self, *values: str) -> None:
        words = [
            word
            for name, value in zip(_LIMITS, values, strict=True)
            for word in (f"--{name}", value)
        ]
        self._ask("server-clients-set", *words)

    def _end_handshakes(self) -> None:
        end = time.monotonic() + _HANDSHAKES_S
        while open_ones := self._in_handshake():
            if time.monotonic() > end:
                for client in open_ones:
                    self._ask("client-disconnect", client)
                return
            time.sleep(0.05)

    def _in_handshake(self) -> list[str]:
        """Return the ids of the TLS clients of which libvirt does not yet know who they are."""
        clients = re.findall(r"^ *(\d+) +tls ", self._ask("client-list")["stdout"], re.M)
        return [client for client in clients if self._ask("client-info", client)["retcode"]]
