"""
The engine of the checks: what one look at a cloud has found, and the checks that judge it.

A check is a function with ``@CHECKS.master(NAME)``, ``@CHECKS.host(NAME)``, or, for the master and
all hosts together, ``@CHECKS.cloud(NAME)``. It yields findings with problem and fix, and the engine
adds the check's name, place and level.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from saltvirt.core.errors import VirtError
from saltvirt.core.findings import MASTER, NO_ANSWER, Finding, apply_command, sync_command

_Master = TypeVar("_Master")
_Answer = TypeVar("_Answer")
_Cloud = TypeVar("_Cloud", bound="CloudFacts[Any, Any]")
_Subject = TypeVar("_Subject")
_Judge = Callable[[_Subject], Iterable[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFailure:
    """
    Why a host has no usable answer.

    reason
        The error in its reply, or what is wrong with its answer; None if no reply came at all.
    is_missing
        Whether no signed reply came; an unsigned one may have come.
    refusal
        The error by which the master refused the answer, None if the host reported the reason.
    """

    reason: str | None = None
    is_missing: bool = False
    refusal: VirtError | None = None

    @property
    def text(self) -> str:
        """The reason, also if no reply came."""
        return self.reason or f"it {NO_ANSWER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudFacts(Generic[_Master, _Answer]):
    """
    What one look at a cloud has found.

    hosts, failures
        The usable answers, and the hosts without one.
    """

    master: _Master
    hosts: Mapping[str, _Answer]
    failures: Mapping[str, HostFailure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host(Generic[_Cloud, _Answer]):
    """A host with a usable answer, and the cloud that it belongs to."""

    name: str
    facts: _Answer
    cloud: _Cloud

    @property
    def quoted(self) -> str:
        """Its id as an argument of a shell command."""
        return shlex.quote(self.name)

    def apply(self, sls: str) -> str:
        """Return the command that applies a part of the formula to it."""
        return apply_command(self.name, sls)

    def sync(self) -> str:
        """Return the commands that sync the project's modules to the master, then to it."""
        return sync_command(self.name)


@dataclass(frozen=True, slots=True)
class _Check(Generic[_Subject]):
    name: str
    level: str | None
    judge: _Judge[_Subject]

    def findings(self, where: str, subject: _Subject) -> Iterator[Finding]:
        for finding in self.judge(subject):
            yield replace(
                finding,
                check=finding.check or self.name,
                where=finding.where or where,
                level=finding.level or self.level,
            )


class Checks(Generic[_Cloud, _Answer]):
    """
    The checks of one command, in the order of their registration.

    levels
        The level of each check, by its name.
    """

    def __init__(self, *parts: "Checks[_Cloud, _Answer]") -> None:
        """
        Make a registry.

        parts
            Registries; their checks come first.
        """
        self.levels: dict[str, str | None] = {}
        for name, level in (pair for part in parts for pair in part.levels.items()):
            self.levels.setdefault(name, level)
        self._of_cloud: list[_Check[_Cloud]] = []
        self._of_host: list[_Check[Host[_Cloud, _Answer]]] = []
        for part in parts:
            self._of_cloud += part._of_cloud
            self._of_host += part._of_host

    def cloud(self, *names: str, level: str | None = None) -> Callable[[_Judge[_Cloud]], Any]:
        """
        Return a decorator that registers a check of the master and all hosts together.

        names
            The check's name; if findings have several names, each that is not the first sets
            ``check``.
        level
            The level of its findings, unless they have another. Defaults to none.
        """

        def register(judge: _Judge[_Cloud]) -> _Judge[_Cloud]:
            self._add_names(names, level)
            self._of_cloud.append(_Check(names[0], level, judge))
            return judge

        return register

    def master(self, *names: str, level: str | None = None) -> Callable[[_Judge[Any]], _Judge[Any]]:
        """Return a decorator that registers a check of the master alone; see :meth:`cloud`."""

        def register(judge: _Judge[Any]) -> _Judge[Any]:
            self.cloud(*names, level=level)(lambda cloud: judge(cloud.master))
            return judge

        return register

    def host(
        self, *names: str, level: str | None = None
    ) -> Callable[[_Judge[Host[_Cloud, _Answer]]], Any]:
        """Return a decorator that registers a check of each host alone; see :meth:`cloud`."""

        def register(judge: _Judge[Host[_Cloud, _Answer]]) -> _Judge[Host[_Cloud, _Answer]]:
            self._add_names(names, level)
            self._of_host.append(_Check(names[0], level, judge))
            return judge

        return register

    def _add_names(self, names: Iterable[str], level: str | None) -> None:
        for name in names:
            self.levels.setdefault(name, level)

    def judge(self, cloud: _Cloud) -> Iterator[Finding]:
        """Yield the findings of the master and of the cloud, then those of each host."""
        for check in self._of_cloud:
            yield from check.findings(MASTER, cloud)
        for name in sorted(cloud.hosts):
            yield from self.judge_host(name, cloud)

    def judge_host(self, name: str, cloud: _Cloud) -> Iterator[Finding]:
        """Yield the findings of one host."""
        host = Host(name=name, facts=cloud.hosts[name], cloud=cloud)
        for check in self._of_host:
            yield from check.findings(name, host)


def unchecked(host: str, reason: str, fun: str, consequence: str = "") -> Finding:
    """
    Return the finding about a host that is unresponsive, or has no usable answer.

    fun
        The function that the master asked it for.
    consequence
        What is not judged meanwhile. Defaults to nothing.
    """
    name = shlex.quote(host)
    return Finding(
        f"it could not be checked: {reason}{consequence and f'; {consequence}'}",
        f"see its answer: salt {name} {fun}; if it is unresponsive, on {host}: systemctl restart "
        f"salt-minion; if its code is old: {sync_command(host)}",
        check="not-checked",
        where=host,
    )


def unreadable(host: str, facts: Mapping[str, str], fun: str) -> Iterator[Finding]:
    """Yield a finding for each ``{file: reason}`` that a host could not read."""
    for path, reason in sorted(facts.items()):
        yield unchecked(host, f"{path} cannot be read: {reason}", fun)


def foreign_virt(distributions: Iterable[str], uninstall: str, restart: str) -> Iterator[Finding]:
    """
    Yield a finding for each distribution with another ``virt`` module for Salt.

    uninstall, restart
        The commands that remove a distribution, and that restart the daemon.
    """
    for name in distributions:
        yield Finding(
            f"the Python of its Salt has the distribution {name} beside this project: both have a "
            "module virt, and Salt loads only one of them",
            f"{uninstall} {shlex.quote(name)}; then {restart}",
        )
