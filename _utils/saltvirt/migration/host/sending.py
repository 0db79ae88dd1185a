"""Send a VM to another host: checks on the source, then libvirt's migration with its figures."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from saltvirt.core.model import Move
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.libvirt.domains import lifecycle, migrate, migrateconnections, process, snapshots
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.migration import movespec
from saltvirt.migration.host import (
    arrivalchecks,
    arrivalplan,
    connections,
    peer,
    transferwatch,
)
from saltvirt.placement import generation
from saltvirt.placement.answers import DiskFacts, FileFacts, MigrationInfo
from saltvirt.vm.show.host import migrationinfo

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
        return transferwatch.watch_transfer(context, job, name, job_options)
    except MigrationFailed:
        # libvirt asks both QEMUs for support before it sends anything, so a retry is safe.
        if job_options == options or not migrateconnections.is_refused(job.error):
            raise
    return transferwatch.watch_transfer(context, make_job(options), name, options)


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
