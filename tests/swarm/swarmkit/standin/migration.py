"""
The stand-in's migration: between two hosts of one machine, with its own simple copy of disks.

As with libvirtd, the job is not the caller's: it is a process of its own, which goes on when the
caller dies. Its steps are libvirt's, each on one host: begin, prepare, perform, finish, confirm.
"""

import contextlib
import json
import os
import subprocess
import time
from urllib.parse import urlsplit

import libvirt

from swarmkit.standin import texts
from swarmkit.standin.refusals import check, refusal

_NON_SHARED = libvirt.VIR_MIGRATE_NON_SHARED_DISK | libvirt.VIR_MIGRATE_NON_SHARED_INC
# A move is long enough to be interrupted in.
_EACH_S, _STEP_S = 0.05, 0.02


class _Stopped(Exception):
    """The move was ended; ``code`` and the text are libvirt's."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def carried(dom, conn, uri, given, flags):
    """Move a domain to another host: wait for the process that does it; raise libvirt's error."""
    check("migrate")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_libvirtd(reading, writing, lambda: _move(dom, conn, uri, given, flags))
    os.close(writing)
    with os.fdopen(reading) as said:
        came = said.read()
    os.waitpid(pid, 0)
    code, text = json.loads(came) if came else ("INTERNAL_ERROR", "the stand-in's move has died")
    if code is not None:
        raise refusal(code, text)


def _be_libvirtd(reading, writing, do):
    """Do it in a session of its own, without the caller's files, and so without its locks."""
    code, text = None, ""
    try:
        os.close(reading)
        os.setsid()
        limit = os.sysconf("SC_OPEN_MAX")
        os.closerange(3, writing)
        os.closerange(writing + 1, limit)
        do()
    except _Stopped as stopped:
        code, text = stopped.code, str(stopped)
    except BaseException as error:
        code, text = "INTERNAL_ERROR", f"internal error: {error!r}"
    finally:
        with contextlib.suppress(OSError):
            os.write(writing, json.dumps([code, text]).encode())
        os._exit(0)


def other(conn, uri):
    """Return a connection to the host that a URI names, beside one's own."""
    host = urlsplit(uri).hostname
    folder = conn.folder.parent.parent / host / conn.folder.name
    if not folder.is_dir():
        text = f"unable to connect to server at '{host}:16514': No route to host"
        raise refusal("SYSTEM_ERROR", text)
    return type(conn)(folder, readonly=False)


def _move(dom, conn, uri, given, flags):
    try:
        there = other(conn, uri)
    except libvirt.libvirtError as error:
        raise _Stopped("SYSTEM_ERROR", str(error)) from error
    before = _begin(dom, conn, flags)
    try:
        _prepare(there, dom, before, flags)
        try:
            _perform(dom, conn, there, before, given, flags)
            _finish(there, dom, before, flags)
        except BaseException:
            _give_up(there, dom, before)
            raise
    except BaseException:
        _resume(conn, dom, before)
        raise
    _confirm(conn, dom)


def _begin(dom, conn, flags):
    """Note that a domain's job is to leave; return what it was."""
    with conn.store.changing() as whole:
        one = dom.of(whole)
        if one.get("job"):
            text = "Timed out during operation: cannot acquire state change lock"
            raise _Stopped("OPERATION_TIMEOUT", text)
        if one["live"] is None and not flags & libvirt.VIR_MIGRATE_OFFLINE:
            text = "Requested operation is not valid: domain is not running"
            raise _Stopped("OPERATION_INVALID", text)
        if one["live"] is None and flags & _NON_SHARED:
            text = "offline migration cannot handle non-shared storage"
            raise _Stopped("OPERATION_INVALID", text)
        # An incoming one has no job that could leave.
        if one.get("incoming"):
            raise _Stopped("OPERATION_INVALID", "domain is not migratable while it comes in")
        before = {**one, "job": None}
        one["job"] = {"began": time.time(), "total": 0, "left": 0}
        return before


def _prepare(there, dom, before, flags):
    """Have the other host wait for a domain: paused, and without a definition if it is new."""
    name, own = dom.name(), dom.UUIDString()
    with there.store.changing() as whole:
        known = whole["domains"].get(name)
        if known is not None and known["uuid"] != own:
            text = f"operation failed: domain '{name}' already exists with uuid {known['uuid']}"
            raise _Stopped("OPERATION_FAILED", text)
        if known is not None and known["live"] is not None:
            text = f"Requested operation is not valid: domain '{name}' is already active"
            raise _Stopped("OPERATION_INVALID", text)
        for path in _files(before["live"], writable=bool(flags & _NON_SHARED)):
            if not os.path.exists(there.real(path)):
                text = f"Cannot access storage file '{path}': No such file or directory"
                raise _Stopped("SYSTEM_ERROR", text)
        if before["live"] is None:
            return
        if known is None:
            known = whole["domains"][name] = {**before, "persistent": False, "autostart": False}
            known["xml"] = before["xml"]
        number, whole["next_id"] = whole["next_id"], whole["next_id"] + 1
        known.update(
            live=texts.running(texts.stopped(before["live"]), number),
            id=number,
            state=libvirt.VIR_DOMAIN_PAUSED,
            reason=libvirt.VIR_DOMAIN_PAUSED_MIGRATION,
            began=time.time(),
            incoming=True,
            job=None,
        )


def _files(text, *, writable):
    """Return the files of a domain's disks that are looked at on the other host."""
    if text is None or not writable:
        return []
    return [disk.path for disk in texts.figures(text).disks if disk.path]


def _perform(dom, conn, there, before, given, flags):
    """Copy its disks, then have it pause here."""
    disks = {}
    if before["live"] is not None and flags & _NON_SHARED:
        wanted = given.get("migrate_disks")
        known = texts.figures(before["live"]).disks
        disks = {d.target: d for d in known if d.path and (wanted is None or d.target in wanted)}
    for number, disk in enumerate(disks.values()):
        _tell(conn, dom, len(disks), len(disks) - number)
        _copy(conn, there, disk, is_whole=bool(flags & libvirt.VIR_MIGRATE_NON_SHARED_DISK))
        time.sleep(_EACH_S)
    time.sleep(_STEP_S)
    with conn.store.changing() as whole:
        one = _unless_ended(dom, whole)
        if before["live"] is not None:
            paused = libvirt.VIR_DOMAIN_PAUSED_MIGRATION
            one.update(state=libvirt.VIR_DOMAIN_PAUSED, reason=paused)


def _unless_ended(dom, whole):
    try:
        one = dom.of(whole)
    except libvirt.libvirtError as gone:
        raise _Stopped("OPERATION_FAILED", "operation failed: domain is not running") from gone
    if (one.get("job") or {}).get("is_ended"):
        text = "operation aborted: migration out job: canceled by client"
        raise _Stopped("OPERATION_ABORTED", text)
    if one.get("job") is None:
        raise _Stopped("OPERATION_FAILED", "operation failed: domain is not running")
    return one


def _tell(conn, dom, total, left):
    with conn.store.changing() as whole:
        _unless_ended(dom, whole)["job"].update(total=total << 20, left=left << 20)


def _copy(conn, there, disk, *, is_whole):
    """Write what a disk has into the other host's file, which was made for it."""
    source, target = conn.real(disk.path), there.real(disk.path)
    argv = ["cp", "--sparse=always", source, target]
    if is_whole and disk.format == "qcow2":
        argv = ["qemu-img", "convert", "-n", "-f", "qcow2", "-O", "qcow2", source, target]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise _Stopped("OPERATION_FAILED", f"operation failed: {done.stderr.strip()}")


def _finish(there, dom, before, flags):
    """Let it go on on the other host, which keeps its definition if it is asked to."""
    with there.store.changing() as whole:
        if before["live"] is None:
            name = dom.name()
            known = whole["domains"].get(name) or {**before, "autostart": False}
            whole["domains"][name] = {**known, "xml": before["xml"], "persistent": True}
            return
        one = dom.of(whole)
        if not one.pop("incoming", False):
            raise _Stopped("OPERATION_FAILED", "operation failed: domain is not running")
        was_paused = before["state"] == libvirt.VIR_DOMAIN_PAUSED
        one.update(state=before["state"], reason=_AFTER[was_paused])
        one["last"] = {"downtime": 20, "data_total": 1 << 20, "memory_processed": 1 << 20}
        if flags & libvirt.VIR_MIGRATE_PERSIST_DEST:
            one.update(persistent=True, xml=before["xml"])


_AFTER = {False: libvirt.VIR_DOMAIN_RUNNING_MIGRATED, True: libvirt.VIR_DOMAIN_PAUSED_USER}


def _end(whole, dom, reason):
    """Have a domain off, and gone if it was transient."""
    one = whole["domains"][dom.name()]
    one.update(state=libvirt.VIR_DOMAIN_SHUTOFF, reason=reason, live=None, id=-1, began=0)
    if not one["persistent"]:
        del whole["domains"][dom.name()]


def _confirm(conn, dom):
    """Have it off here, as it was moved."""
    with conn.store.changing() as whole:
        one = dom.of(whole)
        one["job"] = None
        if one["live"] is None:
            return
        _end(whole, dom, libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED)


def _give_up(there, dom, before):
    """Have the other host forget what only came."""
    if before["live"] is None:
        return
    with there.store.changing() as whole:
        one = whole["domains"].get(dom.name())
        if one is None or one["uuid"] != dom.UUIDString() or not one.pop("incoming", False):
            return
        _end(whole, dom, libvirt.VIR_DOMAIN_SHUTOFF_FAILED)


def _resume(conn, dom, before):
    """Let it go on here."""
    with conn.store.changing() as whole:
        one = whole["domains"].get(dom.name())
        if one is None or one["uuid"] != dom.UUIDString():
            return
        one["job"] = None
        if one["live"] is not None and one["reason"] == libvirt.VIR_DOMAIN_PAUSED_MIGRATION:
            one.update(state=before["state"], reason=before["reason"])


def job_stats(one, flags):
    """Return what libvirt says of a domain's job, or of its last one."""
    if flags & libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED:
        kind = libvirt.VIR_DOMAIN_JOB_COMPLETED if one.get("last") else libvirt.VIR_DOMAIN_JOB_NONE
        return {"type": kind, **(one.get("last") or {})}
    if one.get("incoming"):
        text = "migration statistics are available only on the source host"
        raise refusal("OPERATION_UNSUPPORTED", text)
    if one["live"] is None:
        text = "Requested operation is not valid: domain is not running"
        raise refusal("OPERATION_INVALID", text)
    job = one.get("job")
    if not job:
        return {"type": libvirt.VIR_DOMAIN_JOB_NONE}
    return {
        "type": libvirt.VIR_DOMAIN_JOB_UNBOUNDED,
        "operation": libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT,
        "time_elapsed": max(0, int(1000 * (time.time() - job["began"]))),
        "data_total": job["total"],
        "data_remaining": job["left"],
        "disk_processed": job["total"] - job["left"],
    }
