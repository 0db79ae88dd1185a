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
    """The journal of a running deployment; written before anything is done."""

    def __init__(self, handle):
        self._handle = handle
        self.left = self._read()
        self.is_settled = True

    def _read(self):
        """Return what a killed deployment noted, or None."""
        self._handle.seek(0)
        try:
            return json.loads(self._handle.read())
        except ValueError:
            return None  # new, or killed before it had written, so before it did anything

    def take_back(self, opts, silent):
        """
        Take back the key of a killed deployment whose VM is on none of the hosts that answer.

        silent
            The hosts that do not answer. If the VM may be on one of them, raise NameTaken: with
            its key taken away it would be lost to Salt.
        """
        if not self.left or "to" in self.left:
            return  # nothing, or a move, which has no key
        if self.left["host"] in silent:
            self.is_settled = False
            raise NameTaken(
                f"an interrupted deployment of {self.left['name']!r} may be on "
                f"{self.left['host']}, which does not answer; wait until it does"
            )
        keys.discard(opts, self.left["name"], self.left["public_key"])

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
    entries = []

    def is_done():
        return all(entry.is_settled for entry in entries)

    with locks.held(_path(opts, name), wait=False, is_done=is_done) as handle:
        if handle is None:
            raise NameTaken(f"VM {name!r} is being deployed by another salt-run at this moment")
        entries.append(Entry(handle))
        yield entries[0]
