"""Limit how many builds, or moves, are under way at a time on one host."""

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol


class Order(Protocol):
    """An order in which names may begin, as :class:`saltvirt.placement.sequence.Sequence`."""

    def ready(self, waiting: Collection[str]) -> Iterable[str]:
        """Return which waiting names may begin now."""

    def begin(self, name: str) -> None:
        """Record that a name begins."""

    def end(self, name: str, *, has_moved: bool) -> None:
        """Record that a name is over."""


class _AnyOrder:
    """No order: each name may begin at any time."""

    def ready(self, waiting: Collection[str]) -> Iterable[str]:
        return waiting

    def begin(self, name: str) -> None:
        pass

    def end(self, name: str, *, has_moved: bool) -> None:
        pass


class Turns:
    """
    The names that wait, and how many are under way on each host.

    waiting
        ``{name: hosts}``, in order; a name begins when all its hosts have a free turn.
    per_host
        How many turns a host has.
    more
        ``{host: turns}`` of hosts with another number.
    order
        What must be over before a name begins. Defaults to nothing.
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
        Return the next name when its hosts have a turn for it.

        None if no name waits any more, or if no waiting name may begin and nothing under way could
        change that.
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
        """Give a name its turn on this host, if need be after a wait for a free one."""
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
        """Return the names that have begun, and are not over."""
        with self._changed:
            return list(self._at)

    def stop(self) -> list[str]:
        """Let no more names begin; return those that waited."""
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
