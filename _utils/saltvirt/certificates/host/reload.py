"""Have a libvirt daemon read its TLS files again without harm to clients that connect."""

import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saltvirt.core import files, undo

# libvirtd and virtproxyd both answer clients here (https://libvirt.org/daemons.html).
_CLIENTS_SOCKET = "/run/libvirt/libvirt-sock"
_LIMITS = ("max-clients", "max-unauth-clients")
_SHUT = ("1", "1")
# Records of a daemon's former limits: a run that is killed leaves the daemon closed.
_NOTES = "/run/salt-virt"
_HANDSHAKES_S, _CONNECT_S = 2, 5
# libvirt's message, in lower case, from a daemon that does not listen for TLS.
NO_TLS = "no tls service"


class Admin:
    """
    A daemon, controlled by ``virt-admin``.

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
        crashes. So no client is admitted meanwhile: new connections wait in the socket's queue, and
        handshakes in progress get two seconds to end.
        """
        try:
            with undo.on_signals(), self._admit_no_client():
                self._end_handshakes()
                result = self._ask("server-update-tls")
        except BlockingIOError:
            return f"{_CLIENTS_SOCKET}: it takes no more clients"
        except OSError as exc:
            return f"{_CLIENTS_SOCKET}: {exc}"
        if result["retcode"] == 0:
            if self._note.exists():
                return "it lets one client in alone: it does not take its limits back"
            return None
        lines = (result["stderr"] or result["stdout"]).strip().splitlines()
        return lines[-1] if lines else "no answer"

    @contextmanager
    def _admit_no_client(self) -> Iterator[None]:
        old_limits = self._limits()
        if old_limits is None:
            yield  # without an answer it will not read its files either
            return
        # Our own client takes the only place that the limit leaves.
        with socket.socket(socket.AF_UNIX) as own_client:
            # With Python's timeout a full queue would be an error at once.
            own_client.setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _CONNECT_S, 0)
            )
            own_client.connect(_CLIENTS_SOCKET)
            self._note.parent.mkdir(mode=0o755, exist_ok=True)
            files.write(self._note, " ".join(old_limits).encode())
            try:
                self._limit(*_SHUT)
                yield
            finally:
                if self._limit(*old_limits):
                    files.unlink(self._note)

    @property
    def _note(self) -> Path:
        return Path(_NOTES) / f"{self.daemon}-limits"

    def _limits(self) -> tuple[str, ...] | None:
        """Return the limits on clients, restored if a killed run left them low; None if unknown."""
        output = self._ask("server-clients-info")["stdout"]
        values_by_name = dict(re.findall(r"^(\w+) *: (\d+)$", output, re.M))
        if "nclients_max" not in values_by_name or "nclients_unauth_max" not in values_by_name:
            return None
        limits: tuple[str, ...] = (
            values_by_name["nclients_max"],
            values_by_name["nclients_unauth_max"],
        )
        if limits == _SHUT and self._note.exists():
            limits = tuple(self._note.read_text().split())
            self._limit(*limits)
        return limits

    def _limit(self, *values: str) -> bool:
        words = [
            word
            for name, value in zip(_LIMITS, values, strict=True)
            for word in (f"--{name}", value)
        ]
        return bool(self._ask("server-clients-set", *words)["retcode"] == 0)

    def _end_handshakes(self) -> None:
        deadline = time.monotonic() + _HANDSHAKES_S
        while open_clients := self._in_handshake():
            if time.monotonic() > deadline:
                for client in open_clients:
                    self._ask("client-disconnect", client)
                return
            time.sleep(0.05)

    def _in_handshake(self) -> list[str]:
        """Return the ids of TLS clients that libvirt has not identified yet."""
        clients = re.findall(r"^ *(\d+) +tls ", self._ask("client-list")["stdout"], re.M)
        return [client for client in clients if self._ask("client-info", client)["retcode"]]
