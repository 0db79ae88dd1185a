"""Hand a bridge over to the host's network manager or take it back, with rollback."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from saltvirt.core import files
from saltvirt.network.bridge.leases import Lease
from saltvirt.network.managers.linkconfig import LinkConfig
from saltvirt.network.managers.tools import PersistenceError

_PRIVATE = ("/etc/netplan/", "/etc/NetworkManager/")


def content(path: str | Path) -> bytes | None:
    """Return the bytes of a file, None if there is none."""
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def put(path: str | Path, data: bytes | None) -> None:
    """Write a file; None removes it. Raise PersistenceError on failure."""
    # systemd-networkd reads its files as another user; netplan requires private files.
    mode, group = 0o600 if str(path).startswith(_PRIVATE) else 0o644, None
    if content(path) == data:
        return
    try:
        # Keep an operator's symbolic link, and the mode and group of its target.
        place = Path(path).resolve()
        if place.exists() and not place.is_file():
            place = Path(path)  # a masked unit: a link to /dev/null
        elif place.exists():
            mode, group = place.stat().st_mode & 0o777, place.stat().st_gid
        if data is None:
            Path(path).unlink()
        else:
            place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            files.write(place, data, mode, group)
    except OSError as exc:
        raise PersistenceError(f"cannot write {path}: {exc.strerror}") from exc


class Manager(Protocol):
    """The program that configures this host's network at boot."""

    title: str
    gives_back_first: bool
    writes_heir: bool

    def pending(self, config: LinkConfig) -> dict[str, str]:
        """Return ``{path: text}`` of the files that have to change."""

    def files_of(self, name: str) -> list[str]:
        """Return the files or stanzas that keep a bridge."""

    def persisting(self, config: LinkConfig) -> "Change":
        """Return the change after which a bridge is persistent."""

    def forgetting(self, name: str, ports: Iterable[str], heir: LinkConfig | None) -> "Change":
        """Return the change that ends a bridge's persistence; ``heir`` gets its configuration."""

    def runs(self) -> bool:
        """Return whether it runs."""

    def lease(self, link: str) -> Lease | None:
        """Return the lease that the manager renews for a link, or None."""

    def claims(self, links: Iterable[str]) -> bool:
        """Return whether its files set one of these links, so that other managers ignore it."""

    def holder(self, link: str) -> object:
        """Return the manager's state of a link before a bridge comes, for :meth:`give_back`."""

    def let_go(self, change: "Change") -> None:
        """Release a bridge before it is removed."""

    def take(self, change: "Change") -> None:
        """Take over a new bridge."""

    def give_back(self, change: "Change") -> None:
        """Restore the former configuration of the ports."""


class Change:
    """
    The handover of a bridge to its manager, or back.

    The constructor reads all that the rollback needs: the watchdog's process may run the rollback.
    ``gives_back_first`` managers hold on to a bridge: they release it before the links change.

    write
        Writes the new content of ``paths``.
    is_coming
        Whether the manager takes the bridge over, rather than releasing it.
    """

    def __init__(
        self,
        manager: Manager,
        name: str,
        ports: Iterable[str],
        *,
        paths: Iterable[str],
        write: Callable[[], object],
        is_coming: bool,
    ) -> None:
        self.name, self.ports = name, tuple(ports)
        self.written: set[str] = set()
        self.before = {str(path): content(path) for path in paths}
        self.had: dict[str, Any] = {port: manager.holder(port) for port in self.ports}
        self._manager, self._write, self._is_coming = manager, write, is_coming
        self._was_persistent = is_coming and bool(manager.files_of(name))

    def before_links(self, *, is_rollback: bool = False) -> None:
        """Release the bridge before the links change, if it goes."""
        if self._is_taken(is_rollback):
            return
        self._manager.let_go(self)
        if self._manager.gives_back_first:
            self._files(is_rollback)
            self._manager.give_back(self)

    def after_links(self, *, is_rollback: bool = False) -> None:
        """Write the files, and let the manager take over the bridge or its ports."""
        if self._is_taken(is_rollback):
            self._files(is_rollback)
            self._manager.take(self)
        elif not self._manager.gives_back_first:
            self._files(is_rollback)
            self._manager.give_back(self)

    def _is_taken(self, is_rollback: bool) -> bool:
        # A bridge that was persistent before stays so on rollback.
        return self._is_coming != is_rollback or self._was_persistent

    def _files(self, is_rollback: bool) -> None:
        now = {path: content(path) for path in self.before}
        if not is_rollback:
            self._write()
        else:
            for path, data in self.before.items():
                put(path, data)
        self.written = {path for path, data in now.items() if content(path) != data}
