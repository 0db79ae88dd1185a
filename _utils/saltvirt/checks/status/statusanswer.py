"""A host's facts for ``virt.status``."""

from dataclasses import dataclass, field
from typing import Any

from saltvirt.checks.doctor.doctoranswer import MoveLeft
from saltvirt.placement.answers import Count, Words


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomFacts:
    """
    One resource of a host: CPUs, or MiB.

    used
        What its running and paused VMs have now; of the disk what is taken of its file system.
    promised
        What its VMs may take, running or not.
    limit
        All that may be promised; negative if the host keeps more back than it has.
    """

    used: Count
    promised: Count
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """
    A host and its VMs.

    states
        The state of each VM, without definitions that moves have left.
    coming
        VMs that are being built, or on their way here.
    unfinished
        Interrupted builds and purges.
    moves
        Moves on record.
    unreadable
        Why records and definitions cannot be read, by their VMs.
    restart
        What each running VM gets at its next start, in words.
    """

    is_in_maintenance: bool
    states: dict[str, str]
    coming: list[str]
    unfinished: list[str]
    moves: list[MoveLeft]
    unreadable: dict[str, str]
    restart: dict[str, list[Words]]
    cpus: RoomFacts
    memory_mib: RoomFacts
    disk_mib: RoomFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFacts:
    """
    A host's answer to ``virt.status``: parts, and why others could not be read.

    audit, doctor, setup
        Its answers to the questions of ``virt.audit``, ``virt.doctor`` and ``virt.setup_check``;
        None if they were not asked for.
    why_not
        Reasons by the names of parts that are None.
    """

    host: HostStatus | None = None
    audit: Any = None
    doctor: Any = None
    setup: Any = None
    why_not: dict[str, str] = field(default_factory=dict)
