"""The answers of hosts to a purge and to its undo; ``wire`` turns them into plain data and back."""

from dataclasses import dataclass, field

from saltvirt.placement.answers import Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """
    A host's answer to ``virt.purge`` with ``report=True``.

    removed
        Files and ``POOL/VOLUME`` that are gone for good.
    trashed
        Former paths of the files in the trash.
    left
        ``{file or volume: reason}`` of what stays.
    lost
        What virt.undo cannot bring back, one sentence each.
    entry, until
        The entry of the trash, and when it ends; None without an entry.
    can_undo
        Whether virt.undo brings the VM back.
    """

    removed: list[str] = field(default_factory=list)
    trashed: list[str] = field(default_factory=list)
    left: dict[str, Words] = field(default_factory=dict)
    lost: list[Words] = field(default_factory=list)
    entry: Words | None = None
    until: Words | None = None
    can_undo: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """
    A host's answer to ``virt.undo``.

    files
        The files that are in their places again; with ``test=True`` those that would be.
    autostart
        Whether the VM starts with its host again.
    lost
        What is not back, one sentence each.
    """

    uuid: str
    files: list[str] = field(default_factory=list)
    autostart: bool = False
    lost: list[Words] = field(default_factory=list)
