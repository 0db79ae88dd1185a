"""Whose turn it is: so many builds at a time on one host."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Turns:
    """
    What waits to be built, and on which hosts how much is being built.

    waiting
        ``{name: host}``, in the order in which they begin where their hosts have a turn free.
    per_host
        How many there are at a time on one host.
    """

    def __init__(self, waiting: Mapping[str, str], per_host: int) -> None:
        self._waiting, self._per_host = dict(waiting), per_host
        self._busy: Counter[str] = Counter()
        self._at: dict[str, str] = {}
        self._changed = threading.Condition()

    def next(self) -> str | None:
        """Return the next name, whose host has a turn for it now; None if none waits any more."""
        with self._changed:
            while self._waiting:
                for name, host in self._waiting.items():
                    if self._busy[host] < self._per_host:
                        del self._waiting[name]
                        self._take(name, host)
                        return name
                self._changed.wait()
        return None

    @contextmanager
    def on(self, name: str, host: str) -> Iterator[None]:
        """Have a name's turn be on this host, of which it may have to wait for one."""
        with self._changed:
            if self._at.get(name) != host:
                self._give(name)
                self._changed.wait_for(lambda: self._busy[host] < self._per_host)
                self._take(name, host)
        yield

    def over(self, name: str) -> None:
        """End a name's turn."""
        with self._changed:
            self._give(name)

    def stop(self) -> list[str]:
        """Let nothing more begin; return what does not."""
        with self._changed:
            left = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        return left

    def _take(self, name: str, host: str) -> None:
        self._busy[host] += 1
        self._at[name] = host

    def _give(self, name: str) -> None:
        host = self._at.pop(name, None)
        if host is not None:
            self._busy[host] -= 1
            self._changed.notify_all()
