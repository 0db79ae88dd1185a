"""What the index of a host's files answers: used by, free, or unknown because."""

from dataclasses import dataclass, replace

from saltvirt.errors import StorageError
from saltvirt.storage.policies import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """
    What needs a file.

    source
        Its kind, one of :mod:`saltvirt.storage.policies`.
    owner
        The VM, the entry of the trash, or the file that needs it.
    reason
        A clause that says so, and what to do.
    """

    source: str
    owner: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """
    Whether a file may be used in a way that can spoil it.

    path
        The file, or ``POOL/VOLUME``.
    policy
        The use that was asked about.
    used_by
        What needs the file; empty if nothing does.
    doubts
        What could need it and cannot be read: ``(source, reason)``.
    unasked
        The names of it that other hosts see, and about which they were not asked.
    """

    path: str
    policy: Policy
    used_by: tuple[Reference, ...] = ()
    doubts: tuple[tuple[str, str], ...] = ()
    unasked: tuple[str, ...] = ()

    @property
    def is_free(self) -> bool:
        """Whether nothing needs the file, and everything that could was read."""
        return not (self.used_by or self.doubts)

    @property
    def reason(self) -> str | None:
        """The first reason for which the file stays as it is; None if it is free."""
        return next(iter(self.reasons), None)

    @property
    def reasons(self) -> tuple[str, ...]:
        """All reasons for which the file stays as it is."""
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

        what
            What is not done: ``volume p/v stays``; the reason follows it.
        """
        if self.reason is not None:
            raise error(f"{outcome}: {self.reason}")
