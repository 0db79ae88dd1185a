"""What a manager of networks is told when a bridge comes or goes, and how it is told otherwise."""

from pathlib import Path

from saltvirt import files
from saltvirt.net.tools import KeepError

_PRIVATE = ("/etc/netplan/", "/etc/NetworkManager/")


def content(path):
    """Return the bytes of a file, None if there is none."""
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def put(path, data):
    """Bring a file to this content, None removes it; raise KeepError if that cannot be."""
    # systemd-networkd is a user of its own; of the others netplan wants its files unread.
    mode, group = 0o600 if path.startswith(_PRIVATE) else 0o644, None
    if content(path) == data:
        return
    try:
        # What somebody has linked to elsewhere, and whom they let read it, stays so.
        place = Path(path).resolve()
        if place.exists():
            mode, group = place.stat().st_mode & 0o777, place.stat().st_gid
        if data is None:
            Path(path).unlink()
        else:
            place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            files.write(place, data, mode, group)
    except OSError as exc:
        raise KeepError(f"cannot write {path}: {exc.strerror}") from exc


class Change:
    """
    A bridge that its manager takes into its hands, or gives up.

    All that the way back needs is read when this is made: another process may have to go it.
    A manager that would not let go of its bridge is told before the links change, others after.

    keeper
        The manager: ``holder(link)``, ``let_go(change)``, ``take(change)``, ``give_back(change)``.
    write
        Called without arguments, brings the files of ``paths`` to their new content.
    is_coming
        Whether the manager takes the bridge; it gives it up otherwise.
    """

    def __init__(self, keeper, name, ports, *, paths, write, is_coming):
        self.name, self.ports, self.written = name, tuple(ports), set()
        self.before = {str(path): content(path) for path in paths}
        self.had = {port: keeper.holder(port) for port in self.ports}
        self._keeper, self._write, self._is_coming = keeper, write, is_coming
        self._was_kept = is_coming and bool(keeper.kept_in(name))

    def before_links(self, *, is_back=False):
        """Tell the manager what it must know before the links change; ``is_back``: the way back."""
        if self._is_taken(is_back):
            return
        self._keeper.let_go(self)
        if self._keeper.gives_back_first:
            self._files(is_back)
            self._keeper.give_back(self)

    def after_links(self, *, is_back=False):
        """Write the files and tell the manager, who holds bridge or ports from now on."""
        if self._is_taken(is_back):
            self._files(is_back)
            self._keeper.take(self)
        elif not self._keeper.gives_back_first:
            self._files(is_back)
            self._keeper.give_back(self)

    def _is_taken(self, is_back):
        # A bridge that was in the manager's hands before stays there on the way back.
        return self._is_coming != is_back or self._was_kept

    def _files(self, is_back):
        now = {path: content(path) for path in self.before}
        if not is_back:
            self._write()
        else:
            for path, data in self.before.items():
                put(path, data)
        self.written = {path for path, data in now.items() if content(path) != data}
