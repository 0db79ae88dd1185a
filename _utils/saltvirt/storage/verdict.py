"""Verdicts of the index of a host's files: used by, free, or unknown because."""

from dataclasses import dataclass, replace

from saltvirt.core.errors import StorageError
from saltvirt.storage.policies import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """
    A use of a file.

    source
        Its kind, one of :mod:`saltvirt.storage.policies`.
    owner
        The VM, the entry of the trash, or the file that uses the file.
    reason
        A clause that names the use and the remedy.
    """

    source: str
    owner: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """
    Whether an operation may spoil a file.

    path
        The file, or ``POOL/VOLUME``.
    used_by
        The references that forbid the operation.
    doubts
        ``(source, reason)`` of unreadable data that may refer to the file.
    unasked
        The file's names on storage of other hosts that were not asked.
    """

    path: str
    policy: Policy
    used_by: tuple[Reference, ...] = ()
    doubts: tuple[tuple[str, str], ...] = ()
    unasked: tuple[str, ...] = ()

    @property
    def is_free(self) -> bool:
        """Whether no reference and no doubt keeps the file."""
        return not (self.used_by or self.doubts)

    @property
    def reason(self) -> str | None:
        """The first reason that keeps the file; None if it is free."""
        return next(iter(self.reasons), None)

    @property
    def reasons(self) -> tuple[str, ...]:
        """All reasons that keep the file."""
        return (
            *(reference.reason for reference in self.used_by),
            *(reason for _source, reason in self.doubts),
        )

    def without(self, source: str, owner: str | None = None) -> "Verdict":
        """Return the verdict without the references of a source, by default of all its owners."""
        references = [
            reference
            for reference in self.used_by
            if reference.source != source or owner not in (None, reference.owner)
        ]
        return replace(self, used_by=tuple(references))

    def without_doubt(self, source: str) -> "Verdict":
        """Return the verdict without the doubts of a source."""
        return replace(self, doubts=tuple(doubt for doubt in self.doubts if doubt[0] != source))

    def refuse(self, outcome: str, error: type[Exception] = StorageError) -> None:
        """
        Raise if the file is not free.

        outcome
            What is not done: ``volume p/v stays``; the reason follows.
        """
        if self.reason is not None:
            raise error(f"{outcome}: {self.reason}")
