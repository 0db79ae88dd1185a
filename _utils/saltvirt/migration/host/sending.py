"""Send a VM to another host: checks on the source, then libvirt's migration with its figures."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from saltvirt.core.journal.movefacts import cut_postcopy_message
from saltvirt.core.model import Move
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.libvirt.domains import lifecycle, migrate, migrateconnections, process, snapshots
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.migration import movespec
from saltvirt.migration.host import arrivalchecks, arrivalplan, connections, peer
from saltvirt.placement import generation
from saltvirt.placement.answers import DiskFacts, FileFacts, MigrationInfo
from saltvirt.vm.show.host import migrationinfo

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
    if job.has_failed_postcopy():
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


_TLS_FILES = ("ca-cert.pem", "client-cert.pem", "client-key.pem")
_QEMU_PKI = Path("/etc/pki/qemu")


def obstacles(settings: HostSettings, moving: MigrationInfo, options: Move) -> list[str]:
    """Return why this host cannot send a VM, without asking the target."""
    reasons = list(moving.obstacles)
    copies = [disk.target for disk in moving.disks if disk.how == "copy"]
    if options.tunnel and copies and moving.is_running:
        reasons.append(
            f"libvirt cannot send disks ({', '.join(copies)}) through a tunnel; set virt:"
            "tunnel to False (QEMU's own TLS), or declare virt:shared_paths"
        )
    if options.tls and not options.tunnel and moving.is_running:
        missing_files = [name for name in _TLS_FILES if not (_QEMU_PKI / name).exists()]
        if missing_files:
            reasons.append(
                f"{_QEMU_PKI} lacks {', '.join(missing_files)}; apply virt.keys to this host"
            )
    return reasons


def facts(conn: Any, settings: HostSettings, name: str | None) -> dict[str, MigrationInfo]:
    """Return ``{name: facts}`` of VMs, with all ``obstacles`` that this host knows."""
    options = movespec.from_call(settings, {})
    info_by_name = migrationinfo.gather(conn, settings, name)
    return {
        vm_name: replace(moving, obstacles=obstacles(settings, moving, options))
        for vm_name, moving in info_by_name.items()
    }


def refuse_unprepared(
    settings: HostSettings, moving: MigrationInfo, target: str, options: Move
) -> None:
    """Raise MigrationFailed if a VM cannot move to a target that is not prepared."""
    reasons = [*obstacles(settings, moving, options), *_find_unsent(moving, options)]
    if not reasons:
        with migrate.target(peer.uri_of(target)[0]) as target_conn:
            # libvirt would define a VM on the target that the target cannot start.
            reasons = arrivalchecks.unfit_reasons(target_conn, moving)
    if reasons:
        raise MigrationFailed(f"VM {moving.name!r} cannot be moved: {'; '.join(reasons)}")


def _find_unsent(moving: MigrationInfo, options: Move) -> Iterator[str]:
    """Yield a reason for the files of a VM that a move by hand would not send."""
    local_paths = [disk.path for disk in moving.disks if disk.how != "shared"]
    local_paths += [file.path for file in moving.nvram if file.how == "push"]
    if local_paths and options.copy_storage is None:
        yield (
            f"its disks are on this host alone ({', '.join(local_paths)}): use salt-run "
            "virt.migrate, which prepares the target, or give copy_storage after "
            "virt.seed_non_shared_migrate there"
        )
    uncopied_paths = [file.path for file in find_pushed(moving, ())] if options.copy_storage else []
    if uncopied_paths and not moving.is_running:
        yield (
            f"libvirt does not copy the disks of a stopped VM ({', '.join(uncopied_paths)}); use "
            "salt-run virt.migrate"
        )


def find_pushed(
    moving: MigrationInfo, present_paths: Collection[str] | None
) -> list[DiskFacts | FileFacts]:
    """Return the files that are sent before libvirt's own migration."""
    if present_paths is None:
        return []
    return arrivalplan.find_sent_files(moving, present_paths, lambda disk: disk.how == "push")


def hand_over(
    context: Context, conns: tuple[Any, Any], moving: MigrationInfo, target: str, options: Move
) -> dict[str, int]:
    """Have libvirt migrate a domain, watch the job, and return its figures."""
    if moving.cpu_qemu:
        lifecycle.note_cpu(conns[0], moving.name, moving.cpu_qemu)
    requested_options, options = (
        options,
        make_lossless(options, moving, process.qemu(conns[0], moving.name)),
    )
    if options != requested_options:
        context.progress("Pausing", detail="emulated; it goes on when its memory is there")
    uri, address = peer.uri_of(target)
    name, is_running = moving.name, moving.is_running
    if not is_running and snapshots.names(conns[0], name):
        return _define_on_target(conns[0], name, uri)
    copies = [disk.target for disk in moving.disks if disk.how == "copy"]
    if any(disk.pool for disk in moving.disks):
        # libvirt copies the guest's whole view into a volume, so the copy is a full one.
        options = replace(options, copy_storage="all")
    has_shared = any(disk.how == "shared" for disk in moving.disks)

    with migrate.target(uri) as target_conn:

        def begun(job_options: Move) -> migrate.Job:
            bits = migrate.flags(
                job_options, copies=copies, is_shared=has_shared, is_running=is_running
            )
            job_parameters = migrate.parameters(
                job_options, address=address, disks=copies, is_running=is_running
            )
            if is_running:
                job_parameters |= connections.parameters(conns[0], name, target_conn, job_options)
            return migrate.Job(*conns, name, uri, job_parameters, bits)

        last_stats = _watch_job(context, name, options, is_running, begun)
        all_stats = {**last_stats, **migrate.read_completed_job(target_conn, name)}
    return {
        "downtime_ms": all_stats.get("downtime_ms", 0) if is_running else 0,
        "memory_bytes": all_stats.get("memory_bytes", 0),
        # The target's figures of a completed job have only the memory.
        "disk_bytes": last_stats.get("disk_bytes", 0),
    }


def _watch_job(
    context: Context,
    name: str,
    options: Move,
    is_running: bool,
    make_job: Callable[[Move], migrate.Job],
) -> dict[str, int]:
    """
    Have libvirt migrate a domain, over several connections if both QEMUs support that.

    make_job
        Makes a job with the given options.
    """
    job_options = connections.choose(options, is_running=is_running)
    job = make_job(job_options)
    try:
        return watch_transfer(context, job, name, job_options)
    except MigrationFailed:
        # libvirt asks both QEMUs for support before it sends anything, so a retry is safe.
        if job_options == options or not migrateconnections.is_refused(job.error):
            raise
    return watch_transfer(context, make_job(options), name, options)


def _define_on_target(conn: Any, name: str, uri: str) -> dict[str, int]:
    """Define a stopped VM with snapshots on another host, as libvirt does not move such a VM."""
    with migrate.target(uri) as target_conn:
        lifecycle.define(target_conn, lifecycle.migratable_xml(conn, name))
        snapshots.redefine_on_host(conn, name, target_conn)
    return {"downtime_ms": 0, "memory_bytes": 0, "disk_bytes": 0}


def make_lossless(options: Move, moving: MigrationInfo, qemu: str | None) -> Move:
    """Return a move that pauses the VM if it could lose writes and its options leave that open."""
    is_open = options.live is None and not options.postcopy
    return replace(options, live=False) if is_open and _loses(moving, qemu) else options


def risks(options: Move, moving: MigrationInfo, qemu: str | None) -> list[str]:
    """Return a warning if a VM can lose writes in the move that the options request."""
    if make_lossless(options, moving, qemu).live is False or not _loses(moving, qemu):
        return []
    qemu_name = (
        f"QEMU {qemu}" if qemu else "the QEMU that it runs in, which is not the installed one,"
    )
    return [
        f"{qemu_name} can lose what an emulated guest writes while it moves (9.0 does not): leave "
        "live and postcopy out, and it is paused meanwhile"
    ]


def _loses(moving: MigrationInfo, qemu: str | None) -> bool:
    return moving.is_running and generation.loses_writes(moving.domain_type, qemu)


def figures(stats: Mapping[str, int], start_s: float) -> dict[str, int]:
    """Return the figures of a move as users see them."""
    return {
        "total_ms": int(1000 * (time.monotonic() - start_s)),
        "downtime_ms": stats.get("downtime_ms", 0),
        "memory_bytes": stats.get("memory_bytes", 0),
        "disk_bytes": stats.get("disk_bytes", 0) + stats.get("sent_bytes", 0),
    }
