"""Send a VM to another host: whether this one can, and libvirt's migration with its figures."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from saltvirt import movespec
from saltvirt.config import HostSettings
from saltvirt.kvm import lifecycle, migrate, migrateconnections, process, snapshots
from saltvirt.kvm.migrate import MigrationFailed
from saltvirt.model import Move
from saltvirt.ops.context import Context
from saltvirt.ops.migration import checks, connections, migrationinfo, reach, watching
from saltvirt.placement import generation
from saltvirt.placement.answers import DiskFacts, FileFacts, MigrationInfo

_TLS_FILES = ("ca-cert.pem", "client-cert.pem", "client-key.pem")
_QEMU_PKI = Path("/etc/pki/qemu")


def obstacles(settings: HostSettings, moving: MigrationInfo, options: Move) -> list[str]:
    """Return why this host cannot send a VM, as far as it can tell by itself."""
    why = list(moving.obstacles)
    copies = [disk.target for disk in moving.disks if disk.how == "copy"]
    if options.tunnel and copies and moving.is_running:
        why.append(
            f"libvirt cannot send disks ({', '.join(copies)}) through a tunnel; set virt:"
            "tunnel to False (QEMU's own TLS), or declare virt:shared_paths"
        )
    if options.tls and not options.tunnel and moving.is_running:
        missing = [name for name in _TLS_FILES if not (_QEMU_PKI / name).exists()]
        if missing:
            why.append(f"{_QEMU_PKI} lacks {', '.join(missing)}; apply virt.keys to this host")
    return why


def facts(conn: Any, settings: HostSettings, name: str | None) -> dict[str, MigrationInfo]:
    """Return ``{name: facts}`` with everything in ``obstacles`` that this host knows of."""
    options = movespec.of(settings, {})
    found = migrationinfo.gather(conn, settings, name)
    return {
        one: replace(moving, obstacles=obstacles(settings, moving, options))
        for one, moving in found.items()
    }


def refuse_unprepared(
    settings: HostSettings, moving: MigrationInfo, target: str, options: Move
) -> None:
    """Raise MigrationFailed if a VM cannot move to a host that nobody has made ready."""
    why = [*obstacles(settings, moving, options), *_unsent(moving, options)]
    if not why:
        with migrate.target(reach.uri_of(target)[0]) as other:
            # libvirt would define there what it cannot start.
            why = checks.unfit(other, moving)
    if why:
        raise MigrationFailed(f"VM {moving.name!r} cannot be moved: {'; '.join(why)}")


def _unsent(moving: MigrationInfo, options: Move) -> Iterator[str]:
    """Yield which files of a VM nobody would send."""
    alone = [disk.path for disk in moving.disks if disk.how != "shared"]
    alone += [one.path for one in moving.nvram if one.how == "push"]
    if alone and options.copy_storage is None:
        yield (
            f"its disks are on this host alone ({', '.join(alone)}): use salt-run "
            "virt.migrate, which prepares the target, or give copy_storage after "
            "virt.seed_non_shared_migrate there"
        )
    left = [one.path for one in pushed(moving, ())] if options.copy_storage else []
    if left and not moving.is_running:
        yield (
            f"libvirt does not copy the disks of a stopped VM ({', '.join(left)}); use "
            "salt-run virt.migrate"
        )


def pushed(moving: MigrationInfo, present: Collection[str] | None) -> list[DiskFacts | FileFacts]:
    """Return the files that are sent before libvirt's own migration."""
    if present is None:
        return []
    # Two drives may have one medium.
    disks = {d.path: d for d in moving.disks if d.how == "push" and d.path not in present}
    return [*disks.values(), *(one for one in moving.nvram if one.how == "push")]


def hand_over(
    context: Context, conns: tuple[Any, Any], moving: MigrationInfo, target: str, options: Move
) -> dict[str, int]:
    """Have libvirt migrate a domain, watched; return the figures of that."""
    if moving.cpu_qemu:
        lifecycle.note_cpu(conns[0], moving.name, moving.cpu_qemu)
    asked, options = options, whole(options, moving, process.qemu(conns[0], moving.name))
    if options != asked:
        context.progress("Pausing", detail="emulated; it goes on when its memory is there")
    uri, address = reach.uri_of(target)
    name, is_running = moving.name, moving.is_running
    if not is_running and snapshots.names(conns[0], name):
        return _tell(conns[0], name, uri)
    copies = [disk.target for disk in moving.disks if disk.how == "copy"]
    if any(disk.pool for disk in moving.disks):
        # Into a volume libvirt copies all that the guest sees, and nothing but that.
        options = replace(options, copy_storage="all")
    has_shared = any(disk.how == "shared" for disk in moving.disks)

    with migrate.target(uri) as other:

        def begun(how: Move) -> migrate.Job:
            bits = migrate.flags(how, copies=copies, shared=has_shared, is_running=is_running)
            given = migrate.parameters(how, address=address, disks=copies, is_running=is_running)
            if is_running:
                given |= connections.parameters(conns[0], name, other, how)
            return migrate.Job(*conns, name, uri, given, bits)

        last = _watched(context, name, options, is_running, begun)
        done = {**last, **migrate.completed(other, name)}
    return {
        "downtime_ms": done.get("downtime_ms", 0) if is_running else 0,
        "memory_bytes": done.get("memory_bytes", 0),
        # The far end, which is asked when all is over, knows of the memory only.
        "disk_bytes": last.get("disk_bytes", 0),
    }


def _watched(
    context: Context,
    name: str,
    options: Move,
    is_running: bool,
    begun: Callable[[Move], migrate.Job],
) -> dict[str, int]:
    """
    Have libvirt migrate a domain to its end, over several connections where both QEMUs can.

    begun
        Makes the job of a move.
    """
    wanted = connections.chosen(options, is_running=is_running)
    job = begun(wanted)
    try:
        return watching.watch(context, job, name, wanted)
    except MigrationFailed:
        # libvirt asks both QEMUs before anything is sent.
        if wanted == options or not migrateconnections.is_refused(job.error):
            raise
    return watching.watch(context, begun(options), name, options)


def _tell(conn: Any, name: str, uri: str) -> dict[str, int]:
    """Define a stopped VM on another host, with its snapshots; libvirt moves none that has some."""
    with migrate.target(uri) as other:
        lifecycle.define(other, lifecycle.whole_xml(conn, name))
        snapshots.tell(conn, name, other)
    return {"downtime_ms": 0, "memory_bytes": 0, "disk_bytes": 0}


def whole(options: Move, moving: MigrationInfo, qemu: str | None) -> Move:
    """Return how a VM is moved so that it loses nothing, where that was left open."""
    is_open = options.live is None and not options.postcopy
    return replace(options, live=False) if is_open and _loses(moving, qemu) else options


def risks(options: Move, moving: MigrationInfo, qemu: str | None) -> list[str]:
    """Return what a VM can lose by the way in which somebody wants it moved."""
    if whole(options, moving, qemu).live is False or not _loses(moving, qemu):
        return []
    called = f"QEMU {qemu}" if qemu else "the QEMU that it runs in, which is not the installed one,"
    return [
        f"{called} can lose what an emulated guest writes while it moves (9.0 does not): leave "
        "live and postcopy out, and it is paused meanwhile"
    ]


def _loses(moving: MigrationInfo, qemu: str | None) -> bool:
    return moving.is_running and generation.loses_writes(moving.domain_type, qemu)


def figures(found: Mapping[str, int], began: float) -> dict[str, int]:
    """Return the figures of a move as users see them."""
    return {
        "total_ms": int(1000 * (time.monotonic() - began)),
        "downtime_ms": found.get("downtime_ms", 0),
        "memory_bytes": found.get("memory_bytes", 0),
        "disk_bytes": found.get("disk_bytes", 0) + found.get("sent_bytes", 0),
    }
