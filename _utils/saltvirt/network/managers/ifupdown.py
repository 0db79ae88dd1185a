"""Debian's ifupdown, and the dhclient that it starts for a link."""

import fcntl
import os
import re
import signal
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from saltvirt.core import files
from saltvirt.network.bridge import leases, links
from saltvirt.network.bridge.leases import Lease
from saltvirt.network.managers import interfaces
from saltvirt.network.managers.change import Change, content, put
from saltvirt.network.managers.linkconfig import LinkConfig
from saltvirt.network.managers.tools import PersistenceError, run

_PATH = "/etc/network/interfaces"
_STATE = Path("/run/network/ifstate")
_LOCK = Path("/run/network/.ifstate.lock")
_BRIDGES = Path("/etc/network/if-pre-up.d/bridge")
_END_S, _UP_S, _LOCK_S = 5, 30, 10
# struct flock: type, whence, start, length, process.
_FLOCK = struct.Struct("@hhqqi4x")


class Ifupdown:
    """Debian's ifupdown; only the stanzas of the bridge and its ports are edited."""

    title, gives_back_first, path, writes_heir = "ifupdown", False, _PATH, True

    def runs(self) -> bool:
        """Return whether ifupdown has brought up links since this host's boot."""
        return _STATE.exists()

    def lease(self, link: str) -> Lease | None:
        """Return the lease of a link that ifupdown's dhclient renews, or None."""
        path = _leases_of(link)
        return leases.from_dhclient(_lease_text(path)) if _clients(link) and path.exists() else None

    def pending(self, config: LinkConfig) -> dict[str, str]:
        """Return ``{path: text}`` if the file has to change; refuse unclear stanzas."""
        text = _text()
        _refuse(text, (config.name, *config.ports))
        interfaces.refuse_dhcpv6(text, _PATH, config.ports)
        new_text = interfaces.with_bridge(text, config)
        return {_PATH: new_text} if new_text != text else {}

    def files_of(self, name: str) -> list[str]:
        """Return the stanza that keeps a bridge, as ``path: name``."""
        return [f"{_PATH}: {name}"] if name in interfaces.names(_text()) else []

    def persisting(self, config: LinkConfig) -> Change:
        """Return the change that persists a bridge; raise PersistenceError without bridge-utils."""
        if not _BRIDGES.exists():
            reason = "ifupdown makes bridges with the package bridge-utils, which is not installed"
            raise PersistenceError(f"{reason}: install it, as the formula's hypervisor.bridge does")
        return self._change(config.name, config.ports, self.pending(config), is_coming=True)

    def forgetting(self, name: str, ports: Iterable[str], heir: LinkConfig | None) -> Change:
        """Return the change that removes a bridge's stanza; ``heir`` gets its configuration."""
        text = _text()
        _refuse(text, (name, *ports))
        interfaces.refuse_dhcpv6(text, _PATH, (name, *ports))
        if not ports and interfaces.has_port_settings(text, name):
            raise PersistenceError(
                f"{_PATH} gives {name} what its port has to get, and {name} has no port now: bring "
                f"it up ('ifup {name}'), or give that to the port's stanza yourself"
            )
        texts_by_path = {_PATH: interfaces.without_bridge(text, name, heir)}
        return self._change(name, ports, texts_by_path, is_coming=False)

    def _change(
        self, name: str, ports: Iterable[str], texts_by_path: dict[str, str], *, is_coming: bool
    ) -> Change:
        def write() -> None:
            for path, text in texts_by_path.items():
                put(path, text.encode(errors="surrogateescape"))

        return Change(self, name, ports, paths=[_PATH], write=write, is_coming=is_coming)

    def claims(self, links: Iterable[str]) -> bool:
        """Return whether ifupdown's files set one of these links."""
        texts = [_text(), *_read_sourced(_text(), _PATH).values()]
        return any(interfaces.names(text).intersection(links) for text in texts)

    def holder(self, link: str) -> bool:
        """Return whether a dhclient renews the lease of a link."""
        return bool(_clients(link))

    def let_go(self, change: Change) -> None:
        """End the bridge's dhclient without releasing its lease, which the port requests again."""
        _end_clients(change.name)

    def take(self, change: Change) -> None:
        """Bring up the bridge if it has a lease; static addresses are set already."""
        leased_ports = [port for port in change.ports if _clients(port)]
        for port in leased_ports:
            _end_clients(port)
        if self._is_leased(change.name) and not _clients(change.name):
            self._begin(change.name, leased_ports)

    def give_back(self, change: Change) -> None:
        """Bring up the ports that have a lease."""
        for port in change.ports:
            if self._is_leased(port) and not _clients(port):
                self._begin_again(port, change.name)
        _leases_of(change.name).unlink(missing_ok=True)
        _forget_state(change.name)

    def _begin_again(self, port: str, bridge: str) -> None:
        try:
            self._begin(port, [bridge])
        except PersistenceError:
            # No server answers now. dhclient tracks the lease's end and retries in the background.
            _set_lifetime(port, None)
            run(
                [
                    *_scope_command(),
                    "dhclient",
                    "-4",
                    "-nw",
                    "-i",
                    "-pf",
                    f"/run/dhclient.{port}.pid",
                    "-lf",
                    str(_leases_of(port)),
                    "-I",
                    "-df",
                    f"/var/lib/dhcp/dhclient6.{port}.leases",
                    port,
                ]
            )

    def _is_leased(self, link: str) -> bool:
        return self.runs() and interfaces.is_leased(_text(), link)

    def _begin(self, link: str, old_links: Iterable[str]) -> None:
        for old_link in old_links:
            if _leases_of(old_link).exists():
                text = leases.for_link(_lease_text(_leases_of(old_link)), link)
                files.write(_leases_of(link), text.encode(errors="surrogateescape"), 0o644)
        run([*_scope_command(), "ifup", "--force", link], _UP_S)
        lease = self.lease(link)
        if lease is None:
            raise PersistenceError(f"ifup {link} has started no dhclient that renews its lease")
        # dhclient does not renew the lifetime of an address that is already set.
        _set_lifetime(link, lease.lasts_s)


def _text() -> str:
    return (content(_PATH) or b"").decode(errors="surrogateescape")


def _refuse(text: str, names: Iterable[str]) -> None:
    interfaces.refuse_unclear(text, _PATH, names)
    for path, other_text in _read_sourced(text, _PATH).items():
        interfaces.refuse_elsewhere(other_text, path, names)


def _read_sourced(text: str, path: str | Path, depth: int = 5) -> dict[str, str]:
    """Return ``{path: text}`` of the files that this one sources, recursively."""
    out: dict[str, str] = {}
    for keyword, pattern in interfaces.sources(text) if depth else []:
        if set(pattern) & set("$`~"):
            raise PersistenceError(
                f"{path}: '{keyword} {pattern}' is not followed: write the path out"
            )
        full_pattern = str(Path(path).parent / pattern)
        for matched_path in sorted(Path("/").glob(full_pattern.lstrip("/"))):
            for file in _files(matched_path):
                file_text = file.read_text(errors="surrogateescape")
                out |= {str(file): file_text, **_read_sourced(file_text, file, depth - 1)}
    return out


def _files(path: Path) -> list[Path]:
    """Return the files that ifupdown reads for a path; in a folder only plain names count."""
    if path.is_dir():
        return sorted(
            file
            for file in path.iterdir()
            if file.is_file() and re.fullmatch(r"[A-Za-z0-9_-]+", file.name)
        )
    return [path] if path.is_file() and not path.name.startswith(".") else []


def _scope_command() -> list[str]:
    """Return the prefix that runs a program outside the minion's cgroup, which it must outlive."""
    if not Path("/run/systemd/system").exists():
        return []
    return ["systemd-run", "--scope", "--quiet", "--collect"]


def _lease_text(path: Path) -> str:
    # The DHCP server chooses parts of the content: keep bytes that are not UTF-8.
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _set_lifetime(link: str, seconds: int | None) -> None:
    """Set the remaining lifetime of a link's leased address."""
    path = _leases_of(link)
    lease = leases.from_dhclient(_lease_text(path)) if path.exists() else None
    if lease:
        links.set_lifetime(link, lease.address, seconds)


def _leases_of(link: str) -> Path:
    return Path(f"/var/lib/dhcp/dhclient.{link}.leases")


def _clients(link: str) -> list[int]:
    """Return the process ids of this host's dhclients for IPv4 on a link."""
    pids = []
    own_namespace = Path("/proc/self/ns/net").readlink()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            is_dhclient = words[0].rpartition("/")[2] == "dhclient" and link in words[1:]
            # A container may have a link of the same name.
            if (
                is_dhclient
                and "-6" not in words
                and (folder / "ns/net").readlink() == own_namespace
            ):
                pids.append(int(folder.name))
        except OSError:  # the process has ended
            continue
    return pids


def _end_clients(link: str) -> None:
    """End a link's dhclient without releasing its lease or removing the address."""
    deadline = time.monotonic() + _END_S
    while pids := _clients(link):
        for pid in pids:
            with suppress(ProcessLookupError):
                late = time.monotonic() > deadline
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(0.05)
    Path(f"/run/dhclient.{link}.pid").unlink(missing_ok=True)


@contextmanager
def _hold_state_lock() -> Iterator[None]:
    """Hold ifupdown's lock on its state; raise PersistenceError if another process holds it."""
    deadline = time.monotonic() + _LOCK_S
    with open(_LOCK, "w") as lock:
        while not _has_locked(lock):
            if time.monotonic() > deadline:
                raise PersistenceError(
                    f"{_LOCK} is held by {_holder(lock)} for more than {_LOCK_S} s: wait until it "
                    "has ended, or end it, and apply the state again"
                )
            time.sleep(0.05)
        yield


def _has_locked(lock: IO[Any]) -> bool:
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _holder(lock: IO[Any]) -> str:
    """Return the holder of a lock, as ``process 4711 (ifup eth0)``."""
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, *_where, pid = _FLOCK.unpack(fcntl.fcntl(lock, fcntl.F_GETLK, query))
    # A holder in another container, or one that has just ended, has no process id here.
    if kind == fcntl.F_UNLCK or pid < 1:
        return "another process"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        words = []
    command_line = " ".join(" ".join(words).split())
    return f"process {pid} ({command_line[:80]})" if command_line else f"process {pid}"


def _forget_state(link: str) -> None:
    """Remove a link from ifupdown's state: ifupdown would try to take down a missing link."""
    if not _STATE.exists():
        return
    with _hold_state_lock():
        remaining_text = re.sub(
            rf"^{re.escape(link)}=.*\n?", "", _STATE.read_text(), flags=re.MULTILINE
        )
        files.write(_STATE, remaining_text.encode(), 0o644)
