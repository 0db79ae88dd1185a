"""Watch libvirt's migration: report its progress, and end it if it makes none."""

import time
from collections.abc import Callable, Mapping

from saltvirt.core.journal.movefacts import cut_postcopy_message
from saltvirt.core.model import Move
from saltvirt.core.salt.context import Context
from saltvirt.libvirt.domains import migrate
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.migration.host import peer

_CANCEL_S = 180


def watch_transfer(context: Context, job: migrate.Job, name: str, options: Move) -> dict[str, int]:
    """Wait for a job and report its progress; end a job that takes too long or stalls."""
    job.begin(options.max_downtime)
    pace = _Pace(context.progress, options)
    try:
        while not job.is_over(0.1):
            pace.take(job.stats())
            if options.postcopy_after and pace.wants_postcopy():
                job.go_postcopy()
                pace.is_postcopy = True
            reason = pace.why_end()
            if reason:
                raise MigrationFailed(f"VM {name!r} stays where it is: {reason}")
    except BaseException as error:
        _end(job, name, pace, error)
        # If the job ended by itself before it was cancelled, the VM has moved.
        if job.error is not None or not isinstance(error, MigrationFailed):
            raise
    if job.error is not None:
        raise MigrationFailed(_failed(job, name))
    return pace.last


def _failed(job: migrate.Job, name: str) -> str:
    if job.is_cut():
        halves = cut_postcopy_message(name, peer.uri_of(job.uri)[1])
        return f"post-copy of VM {name!r} has failed ({job.error}): {halves}"
    return f"VM {name!r} stays where it is: {job.error}{_remedy(job.error)}"


def _end(job: migrate.Job, name: str, pace: "_Pace", error: BaseException) -> None:
    # In post-copy the guest runs on the target: only completing the job can save the guest.
    cancel_error = None if pace.is_postcopy else job.cancel(_CANCEL_S)
    if cancel_error:
        raise MigrationFailed(
            f"{error}; libvirt could not end it within {_CANCEL_S} s "
            f"({cancel_error}), so it may go on; see, on the source, virt.migrate_status {name}"
        ) from error


def _remedy(error: object) -> str:
    """Return the remedy for post-copy errors: QEMU's user may lack the right to handle faults."""
    if "postcopy" not in str(error).lower():
        return ""
    return "; post-copy needs the sysctl vm.unprivileged_userfaultfd=1 on both hosts"


class _Pace:
    """The progress of a job, reported every few seconds and checked for stalls."""

    _EVERY_S = 2

    def __init__(self, progress: Callable[..., None], options: Move) -> None:
        self._progress, self._options = progress, options
        self._begin = self._progressed_at = time.monotonic()
        self._reported_at, self._most_bytes, self._percent = 0.0, 0, 0
        self._is_in_memory = False
        self.last: dict[str, int] = {}
        self.is_postcopy = False

    def take(self, stats: dict[str, int]) -> None:
        """Take the job's current figures, and report them if a report is due."""
        now = time.monotonic()
        self.last = stats or self.last
        done_bytes = stats.get("memory_bytes", 0) + stats.get("disk_bytes", 0)
        if done_bytes > self._most_bytes:
            self._most_bytes, self._progressed_at = done_bytes, now
        is_in_memory = bool(stats.get("memory_bytes"))
        if is_in_memory and not self._is_in_memory:
            # The disks are sent: report the memory's percentage at once.
            self._percent, self._reported_at, self._is_in_memory = 0, 0.0, True
        # Each pass over the memory has its own total, so the percentage can fall: keep the highest.
        self._percent = max(self._percent, stats.get("percent", 0))
        # At the very beginning QEMU has no figures.
        is_telling = bool(stats.get("remaining_bytes") or self._percent)
        if is_telling and now - self._reported_at > self._EVERY_S:
            self._reported_at = now
            self._progress("Moving", **{**stats, "percent": self._percent})

    def wants_postcopy(self) -> bool:
        """Return whether the job has made enough passes and is not in post-copy yet."""
        is_due = self.last.get("passes", 0) > (self._options.postcopy_after or 0)
        return is_due and not self.is_postcopy

    def why_end(self) -> str | None:
        """Return why the job should be ended, else None."""
        if self.is_postcopy:
            return None
        now = time.monotonic()
        return _too_long(self._options, now - self._begin, now - self._progressed_at, self.last)


def _too_long(
    options: Move, elapsed_s: float, idle_s: float, stats: Mapping[str, int]
) -> str | None:
    if idle_s > options.stall_s:
        return f"nothing has moved for {options.stall_s} s; look at the network between the hosts"
    if elapsed_s > options.limit_s:
        dirty = stats.get("dirty_pages_s", 0) * stats.get("page_bytes", 4096) / 1e6
        rate = stats.get("rate_bytes_s", 0) / 1e6
        return (
            f"not over within {options.limit_s} s; the guest writes {dirty:.0f} MB/s, the link "
            f"takes {rate:.0f} MB/s: try postcopy=True, or when it is less busy"
        )
    return None
