"""What a manager of networks is told when a bridge comes or goes, and how it is told otherwise."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from saltvirt import files
from saltvirt.net.leases import Lease
from saltvirt.net.linkconfig import LinkConfig
from saltvirt.net.tools import PersistenceError

_PRIVATE = ("/etc/netplan/", "/etc/NetworkManager/")


def content(path: str | Path) -> bytes | None:
    """Return the bytes of a file, None if there is none."""
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def put(path: str | Path, data: bytes | None) -> None:
    """Bring a file to this content, None removes it; raise PersistenceError if that cannot be."""
    # systemd-networkd is a user of its own; of the others netplan wants its files unread.
    mode, group = 0o600 if str(path).startswith(_PRIVATE) else 0o644, None
    if content(path) == data:
        return
    try:
        # What somebody has linked to elsewhere, and whom they let read it, stays so.
        place = Path(path).resolve()
        if place.exists() and not place.is_file():
            place = Path(path)  # a unit that is masked, a link to /dev/null
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
    """Who keeps this host's network over a reboot, and mostly runs it."""

    title: str
    gives_back_first: bool
    writes_heir: bool

    def pending(self, config: LinkConfig) -> dict[str, str]:
        """Return ``{path: text}`` of the files that are not yet as they should be."""

    def files_of(self, name: str) -> list[str]:
        """Return what keeps a bridge."""

    def persisting(self, config: LinkConfig) -> "Change":
        """Return the change after which a bridge is persistent."""

    def forgetting(self, name: str, ports: Iterable[str], heir: LinkConfig | None) -> "Change":
        """Return the change after which nothing keeps a bridge; its port gets what it had."""

    def runs(self) -> bool:
        """Return whether it runs."""

    def lease(self, link: str) -> Lease | None:
        """Return the lease that it holds on a link, or None."""

    def claims(self, links: Iterable[str]) -> bool:
        """Return whether it sets one of these links, which the others leave alone then."""

    def holder(self, link: str) -> object:
        """Return what a link has of it before a bridge comes, for :meth:`give_back`."""

    def let_go(self, change: "Change") -> None:
        """Let go of a bridge that goes."""

    def take(self, change: "Change") -> None:
        """Take a bridge that has come."""

    def give_back(self, change: "Change") -> None:
        """Give the ports back what they had."""


class Change:
    """
    A bridge that its manager takes into its hands, or gives up.

    All that the rollback needs is read when this is made: another process may have to do it.
    A manager that would not let go of its bridge is told before the links change, others after.

    manager
        The manager: ``holder(link)``, ``let_go(change)``, ``take(change)``, ``give_back(change)``.
    write
        Called without arguments, brings the files of ``paths`` to their new content.
    is_coming
        Whether the manager takes the bridge; it gives it up otherwise.
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
        """Tell the manager what it must know before the links change."""
        if self._is_taken(is_rollback):
            return
        self._manager.let_go(self)
        if self._manager.gives_back_first:
            self._files(is_rollback)
            self._manager.give_back(self)

    def after_links(self, *, is_rollback: bool = False) -> None:
        """Write the files and tell the manager, who holds bridge or ports from now on."""
        if self._is_taken(is_rollback):
            self._files(is_rollback)
            self._manager.take(self)
        elif not self._manager.gives_back_first:
            self._files(is_rollback)
            self._manager.give_back(self)

    def _is_taken(self, is_rollback: bool) -> bool:
        # A bridge that was in the manager's hands before stays there on the rollback.
        return self._is_coming != is_rollback or self._was_persistent

    def _files(self, is_rollback: bool) -> None:
        now = {path: content(path) for path in self.before}
        if not is_rollback:
            self._write()
        else:
            for path, data in self.before.items():
                put(path, data)
        self.written = {path for path, data in now.items() if content(path) != data}
