"""Whose turn it is: so many builds, or moves, at a time on one host."""

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol


class Order(Protocol):
    """What may begin as others stand; :class:`saltvirt.placement.sequence.Sequence` is one."""

    def ready(self, waiting: Collection[str]) -> Iterable[str]:
        """Return which of those that wait may begin now."""

    def begin(self, name: str) -> None:
        """Take in that one begins."""

    def end(self, name: str, *, has_moved: bool) -> None:
        """Take in that one is over."""


class _AnyOrder:
    """No order: each may begin at any time."""

    def ready(self, waiting: Collection[str]) -> Iterable[str]:
        return waiting

    def begin(self, name: str) -> None:
        pass

    def end(self, name: str, *, has_moved: bool) -> None:
        pass


class Turns:
    """
    What waits to be done, and on which hosts how much is under way.

    waiting
        ``{name: hosts}``, in the order in which they begin where all their hosts have a turn free.
    per_host
        How many there are at a time on one host.
    more
        ``{host: how many}`` of hosts that have another number.
    order
        What else must be before one begins. Defaults to nothing.
    """

    def __init__(
        self,
        waiting: Mapping[str, Sequence[str]],
        per_host: int,
        more: Mapping[str, int] | None = None,
        order: Order | None = None,
    ) -> None:
        self._waiting, self._per_host = dict(waiting), per_host
        self._more, self._order = more or {}, order or _AnyOrder()
        self._busy: Counter[str] = Counter()
        self._at: dict[str, Sequence[str]] = {}
        self._changed = threading.Condition()

    def next(self) -> str | None:
        """
        Return the next name, whose hosts have a turn for it now; None if none waits any more.

        None too if none of those that wait may begin, and nothing is under way that could change
        that.
        """
        with self._changed:
            while self._waiting:
                for name in self._order.ready(self._waiting):
                    hosts = self._waiting[name]
                    if all(map(self._is_free, hosts)):
                        del self._waiting[name]
                        self._order.begin(name)
                        self._take(name, hosts)
                        return name
                if not self._at:
                    return None
                self._changed.wait()
        return None

    @contextmanager
    def on(self, name: str, host: str) -> Iterator[None]:
        """Have a name's turn be on this host, of which it may have to wait for one."""
        with self._changed:
            if self._at.get(name) != (host,):
                self._give(name)
                self._changed.wait_for(lambda: self._is_free(host))
                self._take(name, (host,))
        yield

    def over(self, name: str, *, has_moved: bool = True) -> None:
        """End a name's turn."""
        with self._changed:
            self._order.end(name, has_moved=has_moved)
            self._give(name)

    def under_way(self) -> list[str]:
        """Return what has begun, and is not over."""
        with self._changed:
            return list(self._at)

    def stop(self) -> list[str]:
        """Let nothing more begin; return what does not."""
        with self._changed:
            waiting_names = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        return waiting_names

    def _is_free(self, host: str) -> bool:
        return self._busy[host] < self._more.get(host, self._per_host)

    def _take(self, name: str, hosts: Sequence[str]) -> None:
        self._busy.update(hosts)
        self._at[name] = hosts

    def _give(self, name: str) -> None:
        hosts = self._at.pop(name, None)
        if hosts is not None:
            self._busy.subtract(hosts)
            self._changed.notify_all()
