"""Move a VM from this host to another; it ends up on exactly one of them."""

import time
from pathlib import Path
from urllib.parse import urlsplit

from saltvirt import spec, undo
from saltvirt.kvm import connect, lifecycle, migrate
from saltvirt.kvm.migrate import MigrationFailed
from saltvirt.ops import departures, moving, purge

_TLS_FILES = ("ca-cert.pem", "client-cert.pem", "client-key.pem")
_QEMU_PKI = Path("/etc/pki/qemu")
_CANCEL_S = 180


def uri_of(target):
    """Return ``(libvirt URI, host)`` of a target: a host's name, or a URI."""
    if "://" in target:
        host = urlsplit(target).hostname or ""
        return target, f"[{host}]" if ":" in host else host
    return f"qemu+tls://{target}/system", target


def obstacles(settings, about, options):
    """Return why this host cannot send a VM, as far as it can tell by itself."""
    why = list(about["obstacles"])
    is_running = about["state"] in ("running", "paused")
    copies = [disk["target"] for disk in about["disks"] if disk["how"] == "copy"]
    if options.tunnel and copies and is_running:
        why.append(f"a tunnel cannot carry disks ({', '.join(copies)}), says libvirt; set virt:"
                   "tunnel to False (QEMU's own TLS), or declare virt:shared_paths")  # fmt: skip
    if options.tls and not options.tunnel and is_running:
        missing = [name for name in _TLS_FILES if not (_QEMU_PKI / name).exists()]
        if missing:
            why.append(f"{_QEMU_PKI} lacks {', '.join(missing)}; apply virt.keys to this host")
    return why


def facts(conn, settings, name):
    """Return ``{name: facts}`` with everything in ``obstacles`` that this host knows of."""
    options = spec.move(settings, {})
    found = moving.facts(conn, settings, name)
    return {one: {**about, "obstacles": obstacles(settings, about, options)}
            for one, about in found.items()}  # fmt: skip


def refuse_unreachable(target):
    """Raise MigrationFailed if another host's libvirt does not let this one in."""
    with migrate.target(uri_of(target)[0]):
        pass


def send_files(settings, target, files):
    """Send files of this host to another's libvirt: ``{here: there}``."""
    with connect.opened(settings), migrate.target(uri_of(target)[0]) as other:
        for here, there in files.items():
            migrate.push(other, here, there)


def move(context, name, target, options, present):
    """
    Move a VM; return its figures, or raise with the VM where it was.

    present
        Files that the target has, of one that was made ready: the others that libvirt does not
        move are sent. None if nobody made it ready.
    """
    settings = context.settings
    # Both are opened before the event loop runs: libvirt would ask them for signs of life, and end
    # one whose process is stopped for a while, though the move goes on.
    with (undo.on_sigterm(), connect.opened(settings, readonly=False) as conn,
          connect.opened(settings, readonly=False) as carrier,
          departures.departing(conn, settings, name) as note):  # fmt: skip
        about = moving.facts(conn, settings, name)[name]
        _refuse(settings, about, options, present is not None)
        if about["cpu_qemu"]:
            lifecycle.note_cpu(conn, name, about["cpu_qemu"])
        own = purge.own_files(conn, settings, name, removables=False)
        leaves = options.undefinesource and options.persistent
        alone = set(own) - {d["path"] for d in about["disks"] if d["how"] == "shared"}
        if leaves:
            note(about["uuid"], uri_of(target)[0], alone)
        done = _moved(context, (conn, carrier), about, target, options, present)
        if leaves:
            departures.clear(name, alone)
        return done


def _refuse(settings, about, options, is_prepared):
    why = obstacles(settings, about, options)
    if not is_prepared and options.copy_storage is None:
        alone = [d["path"] for d in about["disks"] if d["how"] != "shared"]
        if alone:
            why.append(f"its disks are on this host alone ({', '.join(alone)}): use salt-run "
                       "virt.migrate, which prepares the target, or give copy_storage after "
                       "virt.seed_non_shared_migrate there")  # fmt: skip
    if why:
        raise MigrationFailed(f"VM {about['name']!r} cannot be moved: {'; '.join(why)}")


def _refuse_unfit(other, about):
    # Nobody has asked the target; and libvirt would define there what it cannot start.
    why = moving.unfit(other, about)
    if why:
        raise MigrationFailed(f"VM {about['name']!r} cannot be moved: {'; '.join(why)}")


def _moved(context, conns, about, target, options, present):
    uri, address = uri_of(target)
    name, is_running = about["name"], about["state"] in ("running", "paused")
    copies = [disk["target"] for disk in about["disks"] if disk["how"] == "copy"]
    pushed = [disk for disk in about["disks"] if disk["how"] == "push"
              and present is not None and disk["path"] not in present]  # fmt: skip
    begin = time.monotonic()
    with migrate.target(uri) as other:
        if present is None:
            _refuse_unfit(other, about)
        sent = sum(_send(context, other, disk) for disk in pushed)
        has_shared = any(disk["how"] == "shared" for disk in about["disks"])
        bits = migrate.flags(options, copies=copies, shared=has_shared, is_running=is_running)
        given = migrate.parameters(options, address=address, disks=copies, is_running=is_running)
        job = migrate.Job(*conns, name, uri, given, bits)
        last = _watch(context, job, name, options)
        figures = {**last, **migrate.completed(other, name)}
    return {
        "total_ms": int(1000 * (time.monotonic() - begin)),
        "downtime_ms": figures.get("downtime_ms", 0) if is_running else 0,
        "memory_bytes": figures.get("memory_bytes", 0),
        # The far end, which is asked when all is over, knows of the memory only.
        "disk_bytes": last.get("disk_bytes", 0) + sent,
    }


def _send(context, other, disk):
    context.say("Sending", detail=disk["path"])
    migrate.push(other, disk["path"], disk["path"])
    return disk["actual_bytes"]


def _watch(context, job, name, options):
    """Wait for a job and tell how far it is; end one that takes too long or stands still."""
    job.begin(options.max_downtime)
    pace = _Pace(context.say, options)
    try:
        while not job.is_over(0.1):
            pace.take(job.stats())
            if options.postcopy_after and pace.wants_postcopy():
                job.go_postcopy()
            why = pace.why_end()
            if why:
                raise MigrationFailed(f"VM {name!r} stays where it is: {why}")
    except BaseException as error:
        # Once the guest runs on the target only going on can save it.
        held_up = None if pace.is_postcopy else job.cancel(_CANCEL_S)
        if held_up:
            raise MigrationFailed(f"{error}; libvirt could not end it within {_CANCEL_S} s "
                                  f"({held_up}), so it may go on: see virt.migrate_status "
                                  f"{name}") from error  # fmt: skip
        raise
    if job.error is not None:
        raise MigrationFailed(f"VM {name!r} stays where it is: {job.error}{_remedy(job.error)}")
    return pace.last


def _remedy(error):
    """Return what to do where QEMU's words name no cause: its own user may not handle faults."""
    if "postcopy" not in str(error).lower():
        return ""
    return "; post-copy needs the sysctl vm.unprivileged_userfaultfd=1 on both hosts"


class _Pace:
    """How a job gets on: told to the user now and then, and ended if it gets nowhere."""

    _EVERY_S = 2

    def __init__(self, say, options):
        self._say, self._options = say, options
        self._begin = self._moved = time.monotonic()
        self._told, self._best = 0.0, 0
        self.last, self.is_postcopy = {}, False

    def take(self, stats):
        """Take in the figures of this moment."""
        now = time.monotonic()
        self.last = stats or self.last
        done = stats.get("memory_bytes", 0) + stats.get("disk_bytes", 0)
        if done > self._best:
            self._best, self._moved = done, now
        if stats and now - self._told > self._EVERY_S:
            self._told = now
            self._say("Moving", **stats)

    def wants_postcopy(self):
        """Return True once, when enough passes were made."""
        is_due = self.last.get("passes", 0) > self._options.postcopy_after
        is_first, self.is_postcopy = not self.is_postcopy, self.is_postcopy or is_due
        return is_due and is_first

    def why_end(self):
        """Return why the job should be ended, None if it should not."""
        if self.is_postcopy:
            return None
        now = time.monotonic()
        return _too_long(self._options, now - self._begin, now - self._moved, self.last)


def _too_long(options, elapsed_s, idle_s, stats):
    if idle_s > options.stall_s:
        return f"nothing has moved for {options.stall_s} s; look at the network between the hosts"
    if elapsed_s > options.limit_s:
        dirty = stats.get("dirty_pages_s", 0) * stats.get("page_bytes", 4096) / 1e6
        rate = stats.get("rate_bytes_s", 0) / 1e6
        return (f"not over within {options.limit_s} s; the guest writes {dirty:.0f} MB/s, the link "
                f"takes {rate:.0f} MB/s: try postcopy=True, or when it is less busy")  # fmt: skip
    return None
