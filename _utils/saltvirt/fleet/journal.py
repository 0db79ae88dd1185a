"""One deployment per name on this master, and what one that was killed has left."""

import json
import os
from contextlib import contextmanager
from pathlib import Path

from saltvirt import locks
from saltvirt.errors import NameTaken
from saltvirt.fleet import keys


def _path(opts, name):
    return Path(opts["cachedir"]) / "salt-virt" / f"{name}.json"


class Entry:
    """The journal of a running deployment; written before the key is accepted."""

    def __init__(self, handle):
        self._handle = handle

    def old(self):
        """Return what a killed deployment noted, or None."""
        self._handle.seek(0)
        try:
            return json.loads(self._handle.read())
        except ValueError:
            return None  # new, or killed before it had written, so before it did anything

    def note(self, content):
        """Write down what is about to be done."""
        self._handle.seek(0)
        self._handle.truncate()
        json.dump(content, self._handle)
        self._handle.flush()
        os.fsync(self._handle.fileno())


@contextmanager
def opened(opts, name):
    """Yield the journal of a name; raise NameTaken if another process deploys it."""
    with locks.held(_path(opts, name), wait=False) as handle:
        if handle is None:
            raise NameTaken(f"VM {name!r} is being deployed by another salt-run at this moment")
        entry = Entry(handle)
        left = entry.old()
        if left:
            keys.discard(opts, name, left["public_key"])
        yield entry
