"""A host's domains, in a file: over connections, and over the deaths of the host's processes."""

import fcntl
import json
import os
from contextlib import contextmanager, suppress
from pathlib import Path


class Store:
    """
    The file, and what was last read of it.

    It has ``{"domains": {name: domain}, "next_id": int}``; a domain is ``{uuid, xml, live, id,
    state, reason, persistent, autostart, began}``: ``xml`` is its definition, ``live`` what it
    runs as, ``began`` the time since the epoch in seconds at which it was started.
    """

    def __init__(self, folder):
        self._path = Path(folder) / "domains.json"
        self._lock = Path(folder) / "lock"
        self._stamp = None
        self._known = None

    def read(self):
        """Return what there is; it must not be changed."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return {"domains": {}, "next_id": 1}
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        if stamp != self._stamp:
            self._known = json.loads(self._path.read_text())
            self._stamp = stamp
        return self._known

    @contextmanager
    def changing(self):
        """Yield what there is, to be changed; an exception changes nothing."""
        with self._lock.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Nobody else's: what an exception leaves half changed is forgotten.
            self._stamp = None
            whole = self.read()
            try:
                yield whole
                self._write(whole)
            finally:
                self._stamp = None

    def _write(self, whole):
        part = self._path.with_suffix(f".{os.getpid()}")
        try:
            part.write_text(json.dumps(whole))
            part.rename(self._path)
        finally:
            with suppress(FileNotFoundError):
                part.unlink()
