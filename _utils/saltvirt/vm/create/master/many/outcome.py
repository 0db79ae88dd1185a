"""The request of a call of ``virt.init_many``, and its outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saltvirt.core import terminal
from saltvirt.core.errors import VirtError
from saltvirt.placement import choose
from saltvirt.vm.create.master.many.lines import first_few
from saltvirt.vm.create.master.vmrequest import Terms, VmRequest


class NotAllBuilt(VirtError):
    """Some VMs were not built; ``table`` says which, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """
    The request of a call of ``virt.init_many``.

    requests
        The VMs; all share where they may go, and how the best host is chosen.
    per_host, max_parallel
        How many VMs are built at a time, on one host and in all.
    all_or_nothing
        If a VM fails, the VMs that this call has built are purged again.
    """

    requests: Sequence[VmRequest]
    per_host: int
    max_parallel: int
    all_or_nothing: bool = False

    @property
    def terms(self) -> Terms:
        """The terms of all VMs."""
        return self.requests[0].terms


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What has become of the VMs."""

    built: dict[str, str] = field(default_factory=dict)
    """``{name: host}``"""
    exists: dict[str, str] = field(default_factory=dict)
    """``{name: host}`` of the VMs that existed before."""
    failed: dict[str, str] = field(default_factory=dict)
    """``{name: reason}``"""
    warnings: dict[str, list[str]] = field(default_factory=dict)
    """``{name: warnings of its host}``"""
    seconds: dict[str, float] = field(default_factory=dict)
    """``{name: how long its minion took to answer}``"""
    purged: dict[str, str] = field(default_factory=dict)
    """``{name: host}`` of the VMs that were purged again."""
    not_purged: dict[str, str] = field(default_factory=dict)
    """``{name: reason}`` of the VMs that were not purged again."""

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        parts: dict[str, Mapping[str, Any]] = {
            "warnings": self.warnings,
            "seconds": self.seconds,
            "purged": self.purged,
            "left": self.not_purged,
        }
        shown: dict[str, Mapping[str, Any]] = {
            "built": self.built,
            "exists": self.exists,
            "failed": self.failed,
            **{key: value for key, value in parts.items() if value},
        }
        return {key: dict(sorted(value.items())) for key, value in shown.items()}


def not_built_error(
    call: Call, failed: Mapping[str, str], table: Mapping[str, Any], advice: str
) -> NotAllBuilt:
    """
    Return the error that names the first few VMs, the reason of the first, and the next step.

    The message ends with the remedies for VMs without a place; its table has them as ``helps``.
    """
    first = min(failed)
    texts, remedies_text = (
        choose.find_cures(failed.values()),
        choose.format_cures(failed.values()),
    )
    error = NotAllBuilt(
        f"{len(failed)} of {terminal.count_text(len(call.requests), 'VM')} not built: "
        f"{first_few(sorted(failed))} ({first}: {failed[first]}); {advice}{remedies_text}"
    )
    error.table = {**table, **({"helps": texts} if texts else {})}
    return error


def describe_next_step(call: Call, out: Outcome) -> str:
    """Return what was done after some VMs failed, or what the operator can do."""
    if not call.all_or_nothing:
        return "run it again: it builds those alone"
    if out.not_purged:
        first = min(out.not_purged)
        return (
            f"all or nothing, but {first_few(sorted(out.not_purged))} could not be purged again "
            f"({first}: {out.not_purged[first]}); salt-run virt.purge NAME removes each of them"
        )
    purged_text = terminal.count_text(len(out.purged), "VM")
    return f"all or nothing: {purged_text} that this call had built {_are(out.purged)} purged again"


def _are(vms: Mapping[str, str]) -> str:
    return "is" if len(vms) == 1 else "are"
