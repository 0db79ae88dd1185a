"""
Number of connections for a VM's memory, and a workaround for a crash with a single connection.

GnuTLS renews the keys of an AES connection after 2^24 records, which are about 64 GiB of pages.
If another thread of QEMU reads that connection at the same moment, QEMU may crash. With several
connections (QEMU's multifd) no thread reads those that carry the memory. With ChaCha20 GnuTLS
never renews the keys.
"""

from dataclasses import replace
from typing import Any

from saltvirt.core.model import Move
from saltvirt.libvirt.domains import migrateconnections
from saltvirt.xml.domain import tlspriority

# QEMU's own default.
DEFAULT_COUNT = 2
# From 11.6 on libvirt has migrate_tls_priority, which the formula sets.
_HAS_PRIORITY = 11_006_000


def choose(options: Move, *, is_running: bool) -> Move:
    """Return a move with several connections, unless its options name or need another number."""
    is_open = is_running and options.parallel_connections is None
    # QEMU before 10.1 refuses post-copy over several; a tunnel and XBZRLE need a single one.
    needs_one = options.tunnel or options.postcopy or options.compressed
    return (
        replace(options, parallel_connections=DEFAULT_COUNT)
        if is_open and not needs_one
        else options
    )


def is_single(options: Move) -> bool:
    """Return whether all memory goes over a single TLS connection of QEMU's own."""
    return options.tls and not options.tunnel and (options.parallel_connections or 1) == 1


def parameters(conn: Any, name: str, target_conn: Any, options: Move) -> dict[str, str]:
    """
    Return extra parameters of a move that keep the target's QEMU from using AES.

    target_conn
        A connection to the target's libvirt.
    """
    if not is_single(options) or target_conn.getLibVersion() >= _HAS_PRIORITY:
        return {}
    xml = migrateconnections.running_xml(conn, name)
    return {"destination_xml": tlspriority.add_variable(xml)}
