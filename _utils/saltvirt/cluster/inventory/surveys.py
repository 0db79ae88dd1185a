"""The answers of hosts to one request, and the hosts without one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.cluster.rpc.replies import Reply
from saltvirt.core import terminal, wire
from saltvirt.core.errors import MasterError
from saltvirt.core.findings import NO_ANSWER
from saltvirt.core.journal import records
from saltvirt.placement.answers import (
    CachedImage,
    FileUsers,
    HostInfo,
    Load,
    MigrationInfo,
    Presence,
    SharedDisk,
)
from saltvirt.placement.brief import Brief
from saltvirt.placement.shownvms import FoundVms, FullInfo, ListedVm

# Answers that decide a placement or where a VM is are checked field by field, here and nowhere
# else; others are not.
_ANSWER_TYPES: Mapping[str, object] = {
    "virt.host_info": HostInfo,
    "virt.placement_facts": Brief,
    "virt.full_info": FullInfo,
    "virt.vms": FoundVms,
    "virt.vm_state": dict[str, str],
    "virt.vm_rows": dict[str, ListedVm],
    "virt.images": dict[str, CachedImage],
    "virt.migration_info": dict[str, MigrationInfo],
    "virt.load": Load,
    "virt.presence": Presence,
    "virt.file_users": dict[str, FileUsers],
    "virt.shared_files": list[str],
    "virt.shared_disks": dict[str, list[SharedDisk]],
    "virt.migration_state": dict[str, list[records.ShownRecord]],
    "virt.migrate_check": dict[str, list[str]],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """
    The hosts' answers, the hosts without one, and the VMs that are on several hosts.

    raw_answers
        The raw answers, to show to users.
    last_seen
        ``{host: names}`` of the VMs last seen on hosts that gave no answer.
    unsigned_reasons
        ``{host: reason}`` of unresponsive hosts, if an unsigned reply came in their name.
    """

    answers: dict[str, Any]
    raw_answers: dict[str, Any] = field(default_factory=dict)
    unreachable: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    duplicates: dict[str, list[str]] = field(default_factory=dict)
    last_seen: dict[str, list[str]] = field(default_factory=dict)
    unsigned_reasons: dict[str, str] = field(default_factory=dict)

    def errors_by_kind(self) -> dict[str, Any]:
        """Return what stands beside the answers in a result, without empty values."""
        out = {
            "unreachable": self.unreachable,
            "failed": self.failed,
            "duplicates": self.duplicates,
            "last_seen": self.last_seen,
        }
        return {key: value for key, value in out.items() if value}

    def reasons(self) -> dict[str, str]:
        """Return why each host without an answer gave none."""
        unresponsive = {
            host: self.unsigned_reasons.get(host, NO_ANSWER) for host in self.unreachable
        }
        return {**unresponsive, **self.failed}

    def no_answers_error(self) -> MasterError:
        """Return the error that no host answers, with each host's reason."""
        reasons = (f"{host}: {reason}" for host, reason in sorted(self.reasons().items()))
        error = MasterError(f"no hypervisor answers: {terminal.join_some(reasons, sign='; ')}")
        error.table = self.errors_by_kind()
        return error


def merge_errors(*surveys: Survey) -> dict[str, Any]:
    """Return :meth:`Survey.errors_by_kind` of several surveys together."""
    unresponsive = sorted({host for survey in surveys for host in survey.unreachable})
    failed = {
        host: reason
        for survey in surveys
        for host, reason in survey.failed.items()
        if host not in unresponsive
    }
    return Survey(answers={}, unreachable=unresponsive, failed=failed).errors_by_kind()


def from_replies(fun: str, replies: Mapping[str, Reply]) -> Survey:
    """Return the :class:`Survey` of hosts' replies to a request."""
    values_by_host = {host: reply.value for host, reply in replies.items() if reply.ok}
    answers, broken = _read_all(fun, values_by_host)
    unresponsive = {host: reply for host, reply in replies.items() if reply.is_missing}
    return Survey(
        answers=answers,
        raw_answers={host: values_by_host[host] for host in answers},
        unreachable=[*unresponsive],
        failed={
            **{host: r.reason for host, r in replies.items() if not (r.ok or r.is_missing)},
            **broken,
        },
        unsigned_reasons={host: reply.error for host, reply in unresponsive.items() if reply.error},
    )


def read(host: str, fun: str, answer: Any) -> Any:
    """Return a host's answer, decoded; raise BadAnswer if it cannot be read."""
    return wire.read(host, fun, _ANSWER_TYPES.get(fun, Any), answer)


def _read_all(fun: str, answers: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the answers that can be read, and the reasons why others cannot."""
    out, broken = {}, {}
    for host, answer in answers.items():
        try:
            out[host] = read(host, fun, answer)
        except wire.BadAnswer as error:
            broken[host] = str(error)
    return out, broken
