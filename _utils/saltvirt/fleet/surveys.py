"""What hosts answer to one question: who said what, who is silent, and who could not say."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt import records, terminal, wire
from saltvirt.errors import MasterError
from saltvirt.fleet.hearing import Reply
from saltvirt.placement.answers import (
    CachedImage,
    FileUsers,
    HostInfo,
    Load,
    MigrationInfo,
    Presence,
)
from saltvirt.placement.brief import Brief
from saltvirt.placement.shownvms import FoundVms, FullInfo

SILENT = "does not answer"
# What placement decides by must be whole: it is looked at nowhere else.
# So must be what says whether a host has a VM, and whether it takes one.
_SHAPES: Mapping[str, object] = {
    "virt.host_info": HostInfo,
    "virt.placement_facts": Brief,
    "virt.full_info": FullInfo,
    "virt.vms": FoundVms,
    "virt.vm_state": dict[str, str],
    "virt.images": dict[str, CachedImage],
    "virt.migration_info": dict[str, MigrationInfo],
    "virt.load": Load,
    "virt.presence": Presence,
    "virt.file_users": dict[str, FileUsers],
    "virt.shared_files": list[str],
    "virt.migration_state": dict[str, list[records.ShownRecord]],
    "virt.migrate_check": dict[str, list[str]],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """
    What the hosts answered, which are silent, which could not say, and who is there twice.

    said
        The answers as they came, for whoever shows them to users.
    last_seen
        ``{host: names}`` of the VMs of hosts that gave no answer, as they were when last asked.
    doubts
        ``{host: reason}`` of silent hosts in whose name something came that they have not signed.
    """

    answers: dict[str, Any]
    said: dict[str, Any] = field(default_factory=dict)
    unreachable: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    duplicates: dict[str, list[str]] = field(default_factory=dict)
    last_seen: dict[str, list[str]] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)

    def beside(self) -> dict[str, Any]:
        """Return what stands beside the answers in a result; only what is not empty."""
        out = {
            "unreachable": self.unreachable,
            "failed": self.failed,
            "duplicates": self.duplicates,
            "last_seen": self.last_seen,
        }
        return {key: value for key, value in out.items() if value}

    def reasons(self) -> dict[str, str]:
        """Return why each host that gave no answer gave none."""
        silent = {host: self.doubts.get(host, SILENT) for host in self.unreachable}
        return {**silent, **self.failed}

    def silence(self) -> MasterError:
        """Return the error that no host answers, with why each does not."""
        reasons = (f"{host}: {reason}" for host, reason in sorted(self.reasons().items()))
        error = MasterError(f"no hypervisor answers: {terminal.join_some(reasons, sign='; ')}")
        error.table = self.beside()
        return error


def beside(*surveys: Survey) -> dict[str, Any]:
    """Return :meth:`Survey.beside` of several surveys: of whom any answer is missing."""
    silent = sorted({host for survey in surveys for host in survey.unreachable})
    failed = {
        host: reason
        for survey in surveys
        for host, reason in survey.failed.items()
        if host not in silent
    }
    return Survey(answers={}, unreachable=silent, failed=failed).beside()


def from_replies(fun: str, replies: Mapping[str, Reply]) -> Survey:
    """Return the :class:`Survey` of what hosts have replied to a question."""
    values_by_host = {host: reply.value for host, reply in replies.items() if reply.ok}
    answers, broken = _readable(fun, values_by_host)
    silent = {host: reply for host, reply in replies.items() if reply.missing}
    return Survey(
        answers=answers,
        said={host: values_by_host[host] for host in answers},
        unreachable=[*silent],
        failed={**_errors(replies.keys() - silent.keys(), replies), **broken},
        doubts={host: reply.error for host, reply in silent.items() if reply.error},
    )


def _errors(hosts: Collection[str], replies: Mapping[str, Reply]) -> dict[str, str]:
    """Return ``{host: error}`` of those of some hosts that have replied with an error."""
    failed = [host for host in replies if host in hosts and not replies[host].ok]
    return {host: replies[host].error or "" for host in failed}


def read(host: str, fun: str, answer: Any) -> Any:
    """Return what a host has answered to a question; raise BadAnswer if it cannot be read."""
    return wire.read(host, fun, _SHAPES.get(fun, Any), answer)


def _readable(fun: str, answers: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the answers that can be read, and why the others cannot."""
    out, broken = {}, {}
    for host, answer in answers.items():
        try:
            out[host] = read(host, fun, answer)
        except wire.BadAnswer as error:
            broken[host] = str(error)
    return out, broken
