"""Ask all hosts one question for a check, and report what was found."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from saltvirt.checks.engine import HostFailure
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.waits import Wait
from saltvirt.core import wire
from saltvirt.core.errors import VirtError

_Answer = TypeVar("_Answer")


class ProblemsFound(VirtError):
    """A check found problems; :attr:`table` has them."""

    def __init__(self, message: str, table: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.table = table


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers(Generic[_Answer]):
    """The hosts' answers to one question; the fields are those of ``CloudFacts``."""

    hosts: dict[str, _Answer]
    failures: dict[str, HostFailure]
    begun_s: float
    ended_s: float


def ask_hosts(
    cloud: Cloud,
    hosts: Sequence[str],
    fun: str,
    read: Callable[[str, object], _Answer],
    **options: Any,
) -> Answers[_Answer]:
    """
    Ask hosts one question, all at once.

    read
        Returns the facts in an answer; raises :class:`VirtError` for an answer without.
    options
        Keyword arguments of :func:`saltvirt.cluster.rpc.minions.ask`.
    """
    begun_s = time.time()
    replies = minions.ask(cloud, hosts, fun, wait=Wait.brief(hosts), **options)
    ended_s = time.time()
    answers: dict[str, _Answer] = {}
    failures: dict[str, HostFailure] = {}
    for host, reply in replies.items():
        try:
            if reply.ok:
                answers[host] = read(host, reply.value)
            else:
                failures[host] = HostFailure(reason=reply.error, is_missing=reply.is_missing)
        except VirtError as error:
            failures[host] = HostFailure(reason=str(error), refusal=error)
    return Answers(hosts=answers, failures=failures, begun_s=begun_s, ended_s=ended_s)


def reader(fun: str, shape: type[_Answer]) -> Callable[[str, object], _Answer]:
    """Return the function that reads an answer of one type; it raises ``wire.BadAnswer``."""

    def read(host: str, value: object) -> _Answer:
        facts: _Answer = wire.read(host, fun, shape, value)
        return facts

    return read
