"""List, take, delete and revert snapshots of domains."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from saltvirt.core.errors import BadArgument, LibvirtRefused
from saltvirt.libvirt.connect import domain, libvirt
from saltvirt.libvirt.domains import domainfiles, lifecycle
from saltvirt.libvirt.errorcodes import read_existing, value_or
from saltvirt.xml import to_text
from saltvirt.xml.domain import osboot
from saltvirt.xml.domain.disk import Disk
from saltvirt.xml.edit import readdomain
from saltvirt.xml.storage import snapshot

NONE = "N/A"
# libvirt before 9.9 can take external snapshots, but cannot revert to them.
_REVERTS_EXTERNAL = 9009000
# From 10.9 on libvirt takes internal snapshots of running UEFI VMs; from 10.10 on it reverts them.
_UEFI_SNAPSHOTS = 10010000
# libvirt keeps a snapshot in a file, and writes NAME.xml.new first.
_NAME_BYTES = 255 - len(".xml.new")
# QEMU numbers a disk's snapshots, and reads a name that may be a number as one.
_NUMBER = re.compile("[1-9][0-9]{0,4}")
# Time for a guest to write its buffers, and to freeze.
_FREEZE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertPlan:
    """
    A planned revert.

    newer
        The snapshots after the target, the newest first.
    warning_texts
        Warnings for the operator.
    """

    to: str
    target: snapshot.Snapshot
    newer: list[str]
    warning_texts: list[str] = field(default_factory=list)


def new_name(vm: str, name: object = None, suffix: object = None) -> str:
    """Return a new snapshot's name: by default the VM's name with the local time."""
    requested_name = "" if name is None else str(name)
    if requested_name.lower() == vm.lower():
        raise BadArgument("name", f"{requested_name!r} is the VM's own name; choose another")
    base_name = requested_name or f"{vm}-{time.strftime('%Y%m%d-%H%M%S', time.localtime())}"
    full_name = base_name if suffix in (None, "") else f"{base_name}-{suffix}"
    if "/" in full_name or full_name.startswith("."):
        raise BadArgument("name", f"{full_name!r} has a slash or begins with a dot; choose another")
    if len(full_name.encode()) > _NAME_BYTES:
        raise BadArgument(
            "name", f"{full_name!r} has more than {_NAME_BYTES} bytes, which libvirt cannot keep"
        )
    return full_name


def list_snapshots(conn: Any, name: str | None = None) -> dict[str, Any]:
    """Return ``{VM: [{name, created, running, current}]}``, the oldest first; "N/A" for none."""
    if name is not None:
        return {name: _describe(domain(conn, name))}
    without = conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_NO_SNAPSHOT)
    with_some = conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_SNAPSHOT)
    return {**{dom.name(): NONE for dom in without}, **dict(read_existing(with_some, _describe))}


def read_all(conn: Any, name: str | None = None) -> dict[str, list[snapshot.Snapshot]]:
    """Return ``{name: snapshots}`` of all domains that have some, or of one."""
    domains = conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_SNAPSHOT)
    return dict(read_existing((dom for dom in domains if name in (None, dom.name())), _read))


def names(conn: Any, name: str) -> list[str]:
    """Return the names of a domain's snapshots, sorted."""
    return sorted(
        libvirt_snapshot.getName() for libvirt_snapshot in domain(conn, name).listAllSnapshots()
    )


def redefine_on_host(conn: Any, name: str, other_conn: Any) -> None:
    """
    Define a stopped domain's internal snapshots, which are in its disks, on another host.

    The domain is defined there, and its disks are there, or will be.
    """
    other_domain = domain(other_conn, name)
    # Parents first: libvirt refuses a snapshot without its parent.
    for libvirt_snapshot in domain(conn, name).listAllSnapshots(
        libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL
    ):
        flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE
        if libvirt_snapshot.isCurrent():
            flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT
        other_domain.snapshotCreateXML(
            libvirt_snapshot.getXMLDesc(libvirt.VIR_DOMAIN_SNAPSHOT_XML_SECURE), flags
        )


def _describe(dom: Any) -> list[dict[str, Any]] | str:
    current = _current(dom)
    return [_row(entry, current) for entry in _by_age(_read(dom))] or NONE


def _read(dom: Any) -> list[snapshot.Snapshot]:
    # A snapshot that is deleted meanwhile is left out.
    texts = [
        value_or(None, libvirt_snapshot.getXMLDesc, "NO_DOMAIN_SNAPSHOT")
        for libvirt_snapshot in dom.listAllSnapshots()
    ]
    return [snapshot.read(text) for text in texts if text is not None]


def _current(dom: Any) -> str | None:
    return dom.snapshotCurrent().getName() if dom.hasCurrentSnapshot() else None


def _row(entry: snapshot.Snapshot, current: str | None) -> dict[str, Any]:
    row = {
        "name": entry.name,
        "created": datetime.fromtimestamp(entry.created_s).isoformat(" "),
        "running": entry.is_running,
        "current": entry.name == current,
    }
    return {**row, "external": True} if entry.is_external else row


def _by_age(entries: Iterable[snapshot.Snapshot]) -> list[snapshot.Snapshot]:
    """Return snapshots, the oldest first, and a parent before its children despite clock errors."""
    by_name = {entry.name: entry for entry in entries}

    def age(entry: snapshot.Snapshot) -> tuple[int, int]:
        parent = by_name.get(entry.parent or "")
        if parent is None:
            return entry.created_s, 0
        # If the clock was ahead, a parent must not count as newer: a cleanup would delete it.
        created_s, depth = age(parent)
        return max(created_s, entry.created_s), depth + 1

    return sorted(by_name.values(), key=lambda entry: (*age(entry), entry.name))


def why_not(conn: Any, name: str, *, is_external: bool) -> str | None:
    """Return the reason if a domain cannot have a snapshot, as far as known before; else None."""
    if is_external and name in lifecycle.saved(conn):
        # The saved memory refers to the present disk files, not to new files above them.
        return saved_state_message(name, "would go on in what is below the new files by then")
    if conn.getType() != "QEMU":
        return None
    disks = readdomain.disks(readdomain.domain(domain(conn, name).XMLDesc(0)))
    written_disks = [
        candidate for candidate in disks if candidate.device == "disk" and not candidate.is_readonly
    ]
    if not written_disks:
        return f"VM {name!r} has no disk of which a snapshot could be taken"
    for disk in written_disks:
        if disk.format != "qcow2" and not is_external:
            return _why_not_internal(name, disk)
    return None if is_external else _why_not_with_uefi(conn, name)


def _why_not_with_uefi(conn: Any, name: str) -> str | None:
    """Return the reason if firmware rules out an internal snapshot of a running domain."""
    dom = domain(conn, name)
    system = readdomain.system(readdomain.domain(dom.XMLDesc(0)))
    if not dom.isActive() or not osboot.has_flash(system):
        return None
    subject, advice = f"VM {name!r} boots by UEFI", "give external=True, or shut it down first"
    version = conn.getLibVersion()
    if version < _UEFI_SNAPSHOTS:
        return (
            f"{subject}, and this host's libvirt {_release(version)} takes no internal snapshot of "
            f"such a VM while it runs (10.10 and later do, with variables in qcow2); {advice}"
        )
    if osboot.variables_format(system) in (None, "qcow2"):
        return None
    return (
        f"{subject}, and the file of its firmware's variables is raw: an internal snapshot of a VM "
        f"that runs needs qcow2 there; {advice} (docs/snapshots.md, UEFI)"
    )


def _release(version: int) -> str:
    return f"{version // 1000000}.{version // 1000 % 1000}"


def saved_state_message(name: str, consequence: str) -> str:
    """Return the message on a VM's saved state, with the clause ``consequence``."""
    return (
        f"VM {name!r} has a saved state (managed save), which {consequence}; start it and shut it "
        f"down, or drop that state with virsh managedsave-remove {name}"
    )


def _why_not_internal(name: str, disk: Disk) -> str:
    target, requirement = disk.target.get("dev"), "an internal snapshot needs qcow2 for every disk"
    return (
        f"disk {target} of VM {name!r} is {disk.format}, and {requirement} that is written to; "
        "give external=True, which libvirt reverts to from 9.9 on, or detach that disk first"
    )


def take(conn: Any, vm: str, name: str, *, is_external: bool, is_quiesced: bool) -> None:
    """
    Take a snapshot, of all disks or of none.

    is_external
        Continue each disk in a new file, and keep no memory.
    is_quiesced
        Have the guest's agent freeze its file systems meanwhile.
    """
    if is_quiesced and not is_external:
        raise BadArgument("quiesce", "needs external=True: libvirt freezes guests for those alone")
    obstacle = why_not(conn, vm, is_external=is_external)
    if obstacle:
        raise LibvirtRefused(obstacle)
    flags = 0
    if not is_external and _NUMBER.fullmatch(name):
        raise BadArgument(
            "name",
            f"{name!r} may be the number of another snapshot, to which QEMU would revert in its "
            f"place; choose one that is not a number, such as 's{name}'",
        )
    if is_external:
        flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
        flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_ATOMIC
    dom = domain(conn, vm)
    if is_quiesced:
        flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_QUIESCE
        # A call for addresses may have left a shorter timeout; without any, an unresponsive guest
        # would block this call without end.
        dom.agentSetResponseTimeout(_FREEZE_S)
    with domainfiles.restrict_new_files(conn, vm):
        dom.snapshotCreateXML(to_text(snapshot.build_new(name)), flags)


def delete(conn: Any, vm: str, names: Sequence[str]) -> dict[str, Any]:
    """Delete snapshots, or all without names; return ``{available, deleted}`` with their rows."""
    dom = domain(conn, vm)
    current = _current(dom)
    rows = {entry.name: _row(entry, current) for entry in _by_age(_read(dom))}
    missing = [name for name in names if name not in rows]
    if missing:
        raise BadArgument("names", _no_such(vm, missing[0], rows))
    chosen_names = list(dict.fromkeys(names)) or list(rows)
    # The newest first: deleting a parent makes libvirt rewrite its children.
    _delete(dom, vm, sorted(chosen_names, key=list(rows).index, reverse=True))
    return {
        "available": {vm: _describe(dom)},
        "deleted": {name: rows[name] for name in chosen_names},
    }


def _delete(dom: Any, vm: str, names: Sequence[str], reverted_to: str | None = None) -> None:
    """Delete snapshots in order; an error names the steps done before."""
    steps = [] if reverted_to is None else [f"reverted to {reverted_to!r}"]
    for name in names:
        try:
            dom.snapshotLookupByName(name).delete()
        except libvirt.libvirtError as exc:
            if not steps:
                raise
            raise LibvirtRefused(
                f"snapshot {name!r} of VM {vm!r} cannot be deleted: {exc}; done before: "
                f"{', '.join(steps)}"
            ) from exc
        steps.append(f"deleted {name!r}")


def _no_such(vm: str, name: str, existing_names: Iterable[str]) -> str:
    return f"VM {vm!r} has no snapshot {name!r}; it has: {', '.join(existing_names) or 'none'}"


def plan_revert(conn: Any, vm: str, requested: object = None) -> RevertPlan:
    """Plan a revert to the requested snapshot, or to the current one's parent."""
    dom = domain(conn, vm)
    snapshots_by_name = {entry.name: entry for entry in _by_age(_read(dom))}
    target = snapshots_by_name[_choose_target(vm, snapshots_by_name, _current(dom), requested)]
    version = conn.getLibVersion()
    if target.is_external and version < _REVERTS_EXTERNAL:
        raise LibvirtRefused(
            f"snapshot {target.name!r} of VM {vm!r} is external, and this host's libvirt "
            f"{_release(version)} cannot revert to it: that needs 9.9; revert by hand, or update "
            "libvirt"
        )
    if vm in lifecycle.saved(conn):
        # libvirt would resume the saved memory over the reverted disks.
        raise LibvirtRefused(saved_state_message(vm, "would go on over the disks of the snapshot"))
    ages = list(snapshots_by_name)
    return RevertPlan(
        to=target.name,
        target=target,
        newer=ages[ages.index(target.name) + 1 :][::-1],
        warning_texts=[_reconnect_warning(vm)] if target.has_memory else [],
    )


def _reconnect_warning(vm: str) -> str:
    # Salt's default for tcp_keepalive_idle is 300 s; 345 s were measured.
    return (
        f"{vm!r} goes on with the clock and the connections of its snapshot: its minion may be "
        "silent for some five minutes (until it finds its connection broken); if the guest has an "
        f"agent, this ends it: virt.guest_exec {vm} '[systemctl, restart, salt-minion]'"
    )


def _choose_target(
    vm: str,
    snapshots_by_name: Mapping[str, snapshot.Snapshot],
    current: str | None,
    requested: object,
) -> str:
    # As on Salt 3006, an empty text means no name.
    if requested not in (None, ""):
        if str(requested) not in snapshots_by_name:
            raise BadArgument("vm_snapshot", _no_such(vm, str(requested), snapshots_by_name))
        return str(requested)
    if not snapshots_by_name:
        raise LibvirtRefused(f"VM {vm!r} has no snapshots; take one with virt.snapshot {vm}")
    parent = (
        snapshots_by_name[current].parent
        if current is not None and current in snapshots_by_name
        else None
    )
    if parent is None or parent not in snapshots_by_name:
        raise LibvirtRefused(
            f"VM {vm!r} has no snapshot before the current one; name the one to revert to: "
            f"{', '.join(snapshots_by_name)}"
        )
    return parent


def revert(conn: Any, vm: str, plan: RevertPlan, *, with_cleanup: bool) -> dict[str, Any]:
    """Revert as planned; return the result of :func:`describe_revert`."""
    dom = domain(conn, vm)
    with domainfiles.restrict_new_files(conn, vm):
        dom.revertToSnapshot(dom.snapshotLookupByName(plan.to))
    _delete(dom, vm, plan.newer if with_cleanup else [], plan.to)
    return describe_revert(plan, with_cleanup=with_cleanup)


def describe_revert(plan: RevertPlan, *, with_cleanup: bool) -> dict[str, Any]:
    """Return ``{reverted, deleted}`` of a plan, with its ``warnings`` if it has any."""
    warnings = {"warnings": plan.warning_texts} if plan.warning_texts else {}
    # Salt 3006's word for no cleanup.
    return {"reverted": plan.to, "deleted": plan.newer if with_cleanup else NONE, **warnings}
