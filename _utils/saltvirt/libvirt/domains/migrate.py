"""Move a domain by libvirt's migration, watch it, and send files over the same TLS."""

import os
import socket
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from saltvirt.core import filecontent, files
from saltvirt.core.errors import VirtError
from saltvirt.core.model import Move
from saltvirt.libvirt import connect
from saltvirt.libvirt.connect import domain, libvirt
from saltvirt.libvirt.domains import halves
from saltvirt.libvirt.errorcodes import has_code
from saltvirt.xml.edit import readdomain

_CHUNK = 256 * 1024
_TLS = "qemu+tls://"
_TLS_PORT = 16514
_CONNECT_S = 10
_KEEPALIVE_S = 5
_answer_keepalives = connect.answer_keepalives


class MigrationFailed(VirtError):
    """The VM did not move and runs where it was; the message gives the reason."""


def _refuse_unreachable(uri: str) -> None:
    """Raise MigrationFailed if a host's port does not answer; libvirt would wait for minutes."""
    parts = urlsplit(uri)
    port = parts.port or _TLS_PORT
    try:
        socket.create_connection((parts.hostname, port), _CONNECT_S).close()
    except socket.gaierror as exc:
        message = (
            f"this host finds no address for {parts.hostname}: {exc.strerror}; add it to DNS or to "
            "/etc/hosts of this host"
        )
        raise MigrationFailed(message) from exc
    except OSError as exc:
        message = (
            f"{parts.hostname}:{port} cannot be reached from this host: {exc}; does libvirtd "
            "listen there, and is its firewall open?"
        )
        raise MigrationFailed(message) from exc


@contextmanager
def target(uri: str) -> Iterator[Any]:
    """
    Yield a connection to another host's libvirt; raise MigrationFailed if there is none.

    After 20 s without network, the connection and all calls on it fail.
    """
    if not uri.startswith(_TLS):
        raise MigrationFailed(f"another host's libvirt is reached over TLS alone, not by {uri!r}")
    _refuse_unreachable(uri)
    _answer_keepalives()
    try:
        conn = connect.open_in_time(lambda: libvirt.open(uri), uri)
        conn.setKeepAlive(_KEEPALIVE_S, 3)
    except TimeoutError as exc:
        raise MigrationFailed(
            f"{uri} accepts the connection, then libvirt does not answer: {exc}"
        ) from exc
    except libvirt.libvirtError as exc:
        # libvirt's message for a certificate of either side.
        advice = "; new ones: salt-run virt_pki.renew" if " has expired" in str(exc) else ""
        raise MigrationFailed(f"{uri} does not let this host in: {exc}{advice}") from exc
    try:
        yield conn
    finally:
        # Closing a connection that was cut fails.
        with suppress(libvirt.libvirtError):
            conn.close()


def flags(options: Move, *, copies: Collection[str], is_shared: bool, is_running: bool) -> int:
    """
    Return libvirt's flags for a move.

    copies
        The disks that are copied.
    is_shared
        Whether some disks are declared shared.
    """
    flag_states = {
        "PEER2PEER": True,
        "PERSIST_DEST": options.persistent,
        "OFFLINE": not is_running or options.offline,
        # Hosts with migrate_tls_force require TLS for a stopped VM's definition, too.
        "TLS": options.tls and not (options.tunnel and is_running),
    }
    if is_running:
        flag_states |= _live_flags(options, copies=copies, is_shared=is_shared)
    return sum(
        getattr(libvirt, f"VIR_MIGRATE_{name}") for name, is_set in flag_states.items() if is_set
    )


def _live_flags(options: Move, *, copies: Collection[str], is_shared: bool) -> dict[str, bool]:
    """Return ``{flag: is set}`` of the flags for running VMs only."""
    is_whole = options.copy_storage == "all"
    is_live = options.live is not False
    return {
        "LIVE": is_live,
        "TUNNELLED": options.tunnel,
        "COMPRESSED": options.compressed,
        "AUTO_CONVERGE": is_live and not options.postcopy,
        "POSTCOPY": options.postcopy,
        "PARALLEL": (options.parallel_connections or 1) > 1,
        "UNSAFE": is_shared,
        "NON_SHARED_DISK": bool(copies) and is_whole,
        "NON_SHARED_INC": bool(copies) and not is_whole,
    }


def parameters(
    options: Move, *, address: str, disks: Collection[str], is_running: bool
) -> dict[str, Any]:
    """Return libvirt's typed parameters for a move; bandwidths in MiB/s."""
    out: dict[str, Any] = {}
    if not is_running:
        return out
    if not options.tunnel:
        out["migrate_uri"] = f"tcp://{address}"
        if options.tls:
            # Otherwise, with parallel connections, libvirt 9 has QEMU check no name for disks.
            out["tls.destination"] = address.strip("[]")
    if disks:
        out["migrate_disks"] = list(disks)
    connections = options.parallel_connections or 1
    optional_parameters = {
        "bandwidth": options.max_bandwidth,
        "parallel.connections": connections if connections > 1 else None,
        "bandwidth.postcopy": options.postcopy_bandwidth,
        "compression.mt.level": options.comp_mt_level,
        "compression.mt.threads": options.comp_mt_threads,
        "compression.mt.dthreads": options.comp_mt_dthreads,
        "compression.xbzrle.cache": options.comp_xbzrle_cache,
    }
    out.update({key: value for key, value in optional_parameters.items() if value is not None})
    if options.compressed and options.comp_methods:
        out["compression"] = list(options.comp_methods)
    return out


class Job:
    """
    One migration in a thread of its own, so that the caller can watch and end it.

    job_conn
        A connection for that thread alone. Before libvirt 10 a call can get lost, and block its
        caller for ever, while another thread waits on the same connection: the client's event loop
        gets its wake-up just before it sleeps.
    """

    def __init__(
        self,
        conn: Any,
        job_conn: Any,
        name: str,
        uri: str,
        typed_parameters: dict[str, Any],
        flag_bits: int,
    ) -> None:
        self._conn, self._name, self.uri = conn, name, uri
        self._domain, self._job_domain = domain(conn, name), domain(job_conn, name)
        self.error = None
        # Not the thread's own state: an exception during its join marks the thread as ended
        # (Python 3.11, Thread._wait_for_tstate_lock), while the move goes on.
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(uri, typed_parameters, flag_bits), daemon=True
        )

    def _run(self, uri: str, typed_parameters: dict[str, Any], flag_bits: int) -> None:
        try:
            self._job_domain.migrateToURI3(uri, typed_parameters, flag_bits)
        except libvirt.libvirtError as exc:
            self.error = exc
        finally:
            self._ended.set()

    def begin(self, max_downtime_ms: int | None = None) -> None:
        """Start the migration."""
        self._thread.start()
        if max_downtime_ms:
            self._set_downtime(max_downtime_ms)

    def _set_downtime(self, max_downtime_ms: int) -> None:
        # libvirt accepts this only once the job runs, a little after the thread starts.
        for _attempt in range(50):
            try:
                self._domain.migrateSetMaxDowntime(max_downtime_ms)
                return
            except libvirt.libvirtError:
                if self._ended.is_set():
                    return
                time.sleep(0.1)

    def is_over(self, wait_s: float) -> bool:
        """Wait at most ``wait_s`` seconds, and return whether the job is over."""
        return self._ended.wait(wait_s)

    def stats(self) -> dict[str, int]:
        """Return the job's progress; see :func:`convert_job_stats`."""
        try:
            return convert_job_stats(self._domain.jobStats())
        except libvirt.libvirtError:
            return {}

    def has_failed_postcopy(self) -> bool:
        """Return whether the job's post-copy has failed."""
        try:
            return halves.has_failed_postcopy(self._conn, self._name)
        except (VirtError, libvirt.libvirtError):
            # libvirt or the domain is gone: the job itself reports that.
            return False

    def go_postcopy(self) -> None:
        """Run the guest on the target now; its memory follows."""
        self._domain.migrateStartPostCopy()

    def cancel(self, limit_s: float) -> str | None:
        """
        Cancel the job; return the reason if it is not over after ``limit_s``, else None.

        A QEMU that waits for a host behind a cut network blocks libvirt, too, until the kernel
        drops the connection after two minutes.
        """
        deadline, reason = time.monotonic() + limit_s, "it takes too long"
        while not self._ended.is_set() and time.monotonic() < deadline:
            try:
                self._domain.abortJob()
            except libvirt.libvirtError as exc:
                reason = str(exc)
            self._ended.wait(1)
        return None if self._ended.is_set() else reason


def convert_job_stats(stats: Mapping[str, Any]) -> dict[str, int]:
    """Return libvirt's job statistics under our names, in bytes and ms; {} without a job."""
    if not stats or stats.get("type") in (None, libvirt.VIR_DOMAIN_JOB_NONE):
        return {}
    out = {
        "percent": _percent(stats),
        "elapsed_ms": stats.get("time_elapsed", 0),
        "memory_bytes": stats.get("memory_processed", 0),
        "disk_bytes": stats.get("disk_processed", 0),
        "remaining_bytes": stats.get("data_remaining", 0),
        "rate_bytes_s": stats.get("memory_bps", 0) + stats.get("disk_bps", 0),
        "dirty_pages_s": stats.get("memory_dirty_rate", 0),
        "page_bytes": stats.get("memory_page_size", 4096),
        "passes": stats.get("memory_iteration", 0),
        "downtime_ms": stats.get("downtime"),
    }
    return {key: value for key, value in out.items() if value is not None}


def _percent(stats: Mapping[str, Any]) -> int:
    """Return the sent percentage of the disks, or after them, of the memory."""
    phase = "memory" if stats.get("memory_processed") else "disk"
    # A job of another kind, such as a dump, has no such parts.
    part = phase if stats.get(f"{phase}_total") else "data"
    total, remaining = stats.get(f"{part}_total", 0), stats.get(f"{part}_remaining", 0)
    return 0 if not total else max(0, min(100, 100 * (total - remaining) // total))


def read_current_job(conn: Any, name: str) -> dict[str, int]:
    """Return the figures of a domain's current job, {} if it has none."""
    return convert_job_stats(domain(conn, name).jobStats())


def read_completed_job(conn: Any, name: str) -> dict[str, int]:
    """Return the figures of a domain's last completed job, {} if there is none."""
    try:
        return convert_job_stats(
            domain(conn, name).jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
        )
    except libvirt.libvirtError:
        return {}


def cancel(conn: Any, name: str) -> None:
    """Cancel a domain's migration; raise MigrationFailed if it has none."""
    if not read_current_job(conn, name):
        raise MigrationFailed(f"VM {name!r} is not being migrated at this moment")
    domain(conn, name).abortJob()


def start_postcopy(conn: Any, name: str) -> None:
    """Switch a running migration to post-copy."""
    domain(conn, name).migrateStartPostCopy()


def push(conn: Any, local: str | Path, remote: str) -> str:
    """
    Send a file to a pool's volume on another host, without its holes.

    Returns the :class:`saltvirt.core.filecontent.Digest` of the sent data.
    """
    volume = conn.storageVolLookupByPath(remote)
    stream, digest = conn.newStream(0), filecontent.Digest()

    def read(_stream: Any, count: int, descriptor: int) -> bytes:
        offset = os.lseek(descriptor, 0, os.SEEK_CUR)
        data = os.read(descriptor, min(count, _CHUNK))
        digest.feed(offset, data)
        return data

    with files.open_trusted(local) as handle:
        size = os.fstat(handle.fileno()).st_size
        volume.upload(stream, 0, size, libvirt.VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM)
        try:
            stream.sparseSendAll(read, _in_hole, _skip, handle.fileno())
            stream.finish()
        except BaseException:
            stream.abort()
            raise
    return digest.end(size)


def _skip(_stream: Any, count: int, descriptor: int) -> int:
    return os.lseek(descriptor, count, os.SEEK_CUR)


def _in_hole(_stream: Any, descriptor: int) -> tuple[bool, int]:
    return filecontent.in_hole(descriptor)


def sizes(conn: Any, name: str) -> dict[str, int]:
    """
    Return ``{target: bytes}``: the sizes of a domain's disks as its guest sees them.

    Media are left out, as another host's may differ, and disks of unknown size.
    """
    dom, out = domain(conn, name), {}
    for disk in readdomain.disk_sources(readdomain.domain(dom.XMLDesc(0))):
        if disk["device"] == "disk" and disk["path"]:
            with suppress(libvirt.libvirtError):
                out[disk["target"]] = int(dom.blockInfo(disk["target"])[0])
    return out


def find_missing_on_target(
    other_conn: Any,
    uuid: str,
    *,
    must_be_persistent: bool,
    handed_over_sizes: Mapping[str, int],
    snapshots: Collection[str],
) -> Iterator[str]:
    """
    Yield what another host's libvirt lacks of a domain: its definition, a disk, a snapshot.

    must_be_persistent
        Whether the domain must stay defined there when it stops.
    handed_over_sizes
        The result of :func:`sizes` at the handover. The other host may have grown a disk since:
        a disk must have at least its size.
    snapshots
        The names of the snapshots that this host forgets.
    """
    try:
        dom = other_conn.lookupByUUIDString(uuid)
    except libvirt.libvirtError as exc:
        if not has_code(exc, "NO_DOMAIN"):
            raise MigrationFailed(
                f"the other host does not say whether it has the VM: {exc}"
            ) from exc
        yield "it is not defined there"
        return
    if must_be_persistent and not dom.isPersistent():
        yield "it runs there, but its definition was not kept; have it defined there (virsh define)"
    yield from _find_missing_snapshots(dom, snapshots)
    for disk in readdomain.disk_sources(readdomain.domain(dom.XMLDesc(0))):
        if not disk["path"] or disk["type"] not in ("file", "block"):
            continue
        try:
            size_bytes = dom.blockInfo(disk["target"])[0]
        except libvirt.libvirtError as exc:
            yield f"its disk {disk['path']} is not there: {exc}"
            continue
        if size_bytes < handed_over_sizes.get(disk["target"], 0):
            yield (
                f"its disk {disk['path']} has {size_bytes} bytes there, "
                f"not {handed_over_sizes[disk['target']]}"
            )


def _find_missing_snapshots(dom: Any, snapshots: Collection[str]) -> Iterator[str]:
    known_names = (
        {libvirt_snapshot.getName() for libvirt_snapshot in dom.listAllSnapshots()}
        if snapshots
        else set()
    )
    for name in snapshots:
        if name not in known_names:
            yield (
                f"libvirt on the other host has no snapshot {name} (if it was deleted there: virsh "
                f"snapshot-delete --metadata {dom.name()} {name})"
            )
