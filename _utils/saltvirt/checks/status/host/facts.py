"""Read this host's facts for ``virt.status``: one look for its VMs, its room and all checks."""

from collections.abc import Callable, Mapping
from typing import Any

from saltvirt.checks.doctor.host import facts as doctorfacts
from saltvirt.checks.status.statusanswer import HostStatus, RoomFacts
from saltvirt.core import wire
from saltvirt.core.errors import VirtError
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt.domains import query
from saltvirt.placement.answers import HostInfo
from saltvirt.vm.show.host import details, inspect


def read_parts(
    readers: Mapping[str, Callable[[], Any]],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what each reader returns, and the reasons why others could not read their part."""
    parts: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name, read in readers.items():
        try:
            parts[name] = read()
        except (VirtError, OSError) as error:
            reasons[name] = str(error)
    return parts, reasons


def find_info(setup: Any) -> HostInfo | None:
    """Return the host's ``virt.host_info`` in its answer to the setup check, if that has one."""
    said = setup.get("info") if isinstance(setup, Mapping) else None
    return None if said is None else wire.read_recorded(HostInfo, said)


def read_host_status(conn: Any, settings: HostSettings, info: HostInfo | None) -> HostStatus:
    """
    Return how this host and its VMs are.

    info
        The host's ``virt.host_info``, None to read it here.
    """
    # Records before domains, as in host_info.
    moves = list(doctorfacts.read_moves(settings))
    info = info or inspect.host_info(conn, settings)
    used_cpus, used_mib = _read_used(conn)
    images, storage = info.storage.images, info.storage
    return HostStatus(
        is_in_maintenance=info.maintenance,
        states={name: vm.state for name, vm in info.vms.items()},
        coming=[name for name in info.building if name not in info.vms],
        unfinished=info.unfinished,
        moves=moves,
        unreadable=info.unreadable,
        restart=_find_restarts(conn, info),
        cpus=RoomFacts(
            used=used_cpus, promised=info.cpu.vcpus_committed, limit=info.cpu.vcpus_limit
        ),
        memory_mib=RoomFacts(
            used=used_mib, promised=info.memory.committed_mib, limit=info.memory.limit_mib
        ),
        disk_mib=RoomFacts(
            used=max(0, images.get("total_mib", 0) - images.get("free_mib", 0)),
            promised=storage.committed_mib,
            limit=storage.limit_mib,
        ),
    )


def _read_used(conn: Any) -> tuple[int, int]:
    """Return the CPUs and the MiB that the running and paused VMs have now."""
    vm_rows = query.rows(conn, with_xml=False, with_blocks=False, with_fallback=True)
    active = [row for row in vm_rows if row["state"] in ("running", "paused")]
    used_kib = sum(row["memory_kib"] for row in active)
    return sum(row["vcpus"] for row in active), used_kib // 1024


def _find_restarts(conn: Any, info: HostInfo) -> dict[str, list[str]]:
    """Return ``{VM: changes}`` of the running VMs that differ from their definition."""
    changes_by_vm = {
        definition.name: list(details.list_pending(definition.root, definition.next_root))
        for definition in query.definitions(conn, with_next=True)
        if definition.next_root is not None and definition.name in info.vms
    }
    return {name: changes for name, changes in sorted(changes_by_vm.items()) if changes}
