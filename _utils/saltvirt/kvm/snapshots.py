"""Snapshots of domains: listed, taken, deleted, reverted to."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from saltvirt.errors import BadArgument, LibvirtRefused
from saltvirt.kvm import lifecycle, privatefiles
from saltvirt.kvm.connect import domain, is_gone, libvirt
from saltvirt.xml import osboot, snapshot, to_text
from saltvirt.xml import read as read_domain
from saltvirt.xml.disk import Disk
from saltvirt.xml.held import SEED_SERIAL

NONE = "N/A"
# libvirt before 9.9 can take external snapshots, and cannot go back to them.
_REVERTS_EXTERNAL = 9009000
# From 10.9 on libvirt takes internal snapshots of running UEFI VMs, from 10.10 on it reverts them.
_UEFI_SNAPSHOTS = 10010000
# libvirt keeps each in a file, which it writes beside that first: NAME.xml.new.
_NAME_BYTES = 255 - len(".xml.new")
# QEMU numbers the snapshots of a disk, and takes what may be a number for one.
_NUMBER = re.compile("[1-9][0-9]{0,4}")
# How long a guest has to write what it holds in memory, and to freeze.
_FREEZE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverting:
    """
    What is reverted to.

    target
        The snapshot itself.
    newer
        The snapshots that are newer, the newest first.
    warned
        What whoever does it is warned of.
    """

    to: str
    target: snapshot.Snapshot
    newer: list[str]
    warned: list[str] = field(default_factory=list)


def new_name(vm: str, name: object = None, suffix: object = None) -> str:
    """Return the name of a snapshot to be taken: by default the VM's with the local time."""
    given = "" if name is None else str(name)
    if given.lower() == vm.lower():
        raise BadArgument("name", f"{given!r} is the VM's own name; choose another")
    made = given or f"{vm}-{time.strftime('%Y%m%d-%H%M%S', time.localtime())}"
    full = made if suffix in (None, "") else f"{made}-{suffix}"
    if "/" in full or full.startswith("."):
        raise BadArgument("name", f"{full!r} has a slash or begins with a dot; choose another")
    if len(full.encode()) > _NAME_BYTES:
        raise BadArgument(
            "name", f"{full!r} has more than {_NAME_BYTES} bytes, which libvirt cannot keep"
        )
    return full


def listed(conn: Any, name: str | None = None) -> dict[str, Any]:
    """Return ``{VM: [{name, created, running, current}]}``, the oldest first; "N/A" for none."""
    if name is not None:
        return {name: _shown(domain(conn, name))}
    with_some = libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_SNAPSHOT
    out: dict[str, Any] = {dom.name(): NONE for dom in conn.listAllDomains()}
    for dom in conn.listAllDomains(with_some):
        try:
            out[dom.name()] = _shown(dom)
        except libvirt.libvirtError as exc:
            # A domain that vanishes while it is read is left out.
            if not is_gone(exc):
                raise
            out.pop(dom.name(), None)
    return out


def every(conn: Any, name: str | None = None) -> dict[str, list[snapshot.Snapshot]]:
    """Return the snapshots of all domains that have some, or of one, by the domains' names."""
    out = {}
    for dom in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_SNAPSHOT):
        try:
            if name not in (None, dom.name()):
                continue
            out[dom.name()] = _read(dom)
        except libvirt.libvirtError as exc:
            # One that has vanished meanwhile has none.
            if not is_gone(exc):
                raise
    return out


def names(conn: Any, name: str) -> list[str]:
    """Return the names of a domain's snapshots, sorted."""
    return sorted(one.getName() for one in domain(conn, name).listAllSnapshots())


def tell(conn: Any, name: str, other: Any) -> None:
    """
    Tell another host's libvirt of a stopped domain's internal snapshots, which are in its disks.

    The domain is defined there, and its disks are there, or will be.
    """
    there = domain(other, name)
    # A child after its parent, without which libvirt takes none.
    for one in domain(conn, name).listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL):
        flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE
        if one.isCurrent():
            flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT
        there.snapshotCreateXML(one.getXMLDesc(libvirt.VIR_DOMAIN_SNAPSHOT_XML_SECURE), flags)


def _shown(dom: Any) -> list[dict[str, Any]] | str:
    current = _current(dom)
    return [_row(one, current) for one in _by_age(_read(dom))] or NONE


def _read(dom: Any) -> list[snapshot.Snapshot]:
    out = []
    for one in dom.listAllSnapshots():
        try:
            out.append(snapshot.read(one.getXMLDesc()))
        except libvirt.libvirtError as exc:
            # One that is deleted while it is read is left out.
            if exc.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT:
                raise
    return out


def _current(dom: Any) -> str | None:
    return dom.snapshotCurrent().getName() if dom.hasCurrentSnapshot() else None


def _row(one: snapshot.Snapshot, current: str | None) -> dict[str, Any]:
    row = {
        "name": one.name,
        "created": datetime.fromtimestamp(one.created_s).isoformat(" "),
        "running": one.is_running,
        "current": one.name == current,
    }
    return {**row, "external": True} if one.is_external else row


def _by_age(found: Iterable[snapshot.Snapshot]) -> list[snapshot.Snapshot]:
    """Return snapshots, the oldest first; a child after its parent, whatever the clock was then."""
    named = {one.name: one for one in found}

    def age(one: snapshot.Snapshot) -> tuple[int, int]:
        above = named.get(one.parent or "")
        if above is None:
            return one.created_s, 0
        # A clock that was ahead must not make a parent the newer one: it would be cleaned up.
        created_s, depth = age(above)
        return max(created_s, one.created_s), depth + 1

    return sorted(named.values(), key=lambda one: (*age(one), one.name))


def why_not(conn: Any, name: str, *, is_external: bool) -> str | None:
    """Return why a domain cannot have a snapshot taken, as far as can be said before; or None."""
    if is_external and name in lifecycle.saved(conn):
        # What it has in its memory names these disks, and not those that are made above them.
        return saved_too(name, "would go on in what is below the new files by then")
    if conn.getType() != "QEMU":
        return None
    disks = read_domain.disks(read_domain.domain(domain(conn, name).XMLDesc(0)))
    written = [one for one in disks if one.device == "disk" and not one.is_readonly]
    if not written:
        return f"VM {name!r} has no disk of which a snapshot could be taken"
    for disk in written:
        if disk.format != "qcow2" and not is_external:
            return _why_not_in(name, disk)
    return None if is_external else _why_not_with_uefi(conn, name)


def _why_not_with_uefi(conn: Any, name: str) -> str | None:
    """Return why a domain that runs cannot have an internal snapshot because of its firmware."""
    dom = domain(conn, name)
    system = read_domain.system(read_domain.domain(dom.XMLDesc(0)))
    if not dom.isActive() or not osboot.has_flash(system):
        return None
    begin, way = f"VM {name!r} boots by UEFI", "give external=True, or shut it down first"
    version = conn.getLibVersion()
    if version < _UEFI_SNAPSHOTS:
        return (
            f"{begin}, and this host's libvirt {_release(version)} takes no internal snapshot of "
            f"such a VM while it runs (10.10 and later do, with variables in qcow2); {way}"
        )
    if osboot.variables_format(system) in (None, "qcow2"):
        return None
    return (
        f"{begin}, and the file of its firmware's variables is raw: an internal snapshot of a VM "
        f"that runs needs qcow2 there; {way} (docs/snapshots.md, UEFI)"
    )


def _release(version: int) -> str:
    return f"{version // 1000000}.{version // 1000 % 1000}"


def saved_too(name: str, why: str) -> str:
    """Return what is said of a VM with a saved state; ``why`` says what would become of that."""
    return (
        f"VM {name!r} has a saved state (managed save), which {why}; start it and shut it down, or "
        f"drop that state with virsh managedsave-remove {name}"
    )


def _why_not_in(name: str, disk: Disk) -> str:
    target, needs = disk.target.get("dev"), "an internal snapshot needs qcow2 for every disk"
    if disk.serial == SEED_SERIAL:
        return (
            f"disk {target} of VM {name!r} is its seed, which older releases made {disk.format}, "
            f"and {needs} that is written to; have the guest only read it, from the next start on: "
            f"virt.update {name} seed_readonly=True; or give external=True"
        )
    return (
        f"disk {target} of VM {name!r} is {disk.format}, and {needs} that is written to; give "
        "external=True, which libvirt reverts to from 9.9 on, or detach that disk first"
    )


def take(conn: Any, vm: str, name: str, *, is_external: bool, is_quiesced: bool) -> None:
    """
    Take a snapshot, of all disks or of none.

    is_external
        Have each disk go on in a file of its own, and keep no memory.
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
        # Whoever asked for addresses has left the domain a few seconds; without any, a guest that
        # does not answer would hold this up for as long as it likes.
        dom.agentSetResponseTimeout(_FREEZE_S)
    with privatefiles.made(conn, vm):
        dom.snapshotCreateXML(to_text(snapshot.to_take(name)), flags)


def delete(conn: Any, vm: str, names: Sequence[str]) -> dict[str, Any]:
    """Delete snapshots, or all without names; return ``{available, deleted}`` as they were."""
    dom = domain(conn, vm)
    current = _current(dom)
    rows = {one.name: _row(one, current) for one in _by_age(_read(dom))}
    missing = [name for name in names if name not in rows]
    if missing:
        raise BadArgument("names", _no_such(vm, missing[0], rows))
    chosen = list(dict.fromkeys(names)) or list(rows)
    # The newest first: a child of one that is deleted would be written anew.
    _delete(dom, vm, sorted(chosen, key=list(rows).index, reverse=True))
    return {"available": {vm: _shown(dom)}, "deleted": {name: rows[name] for name in chosen}}


def _delete(dom: Any, vm: str, names: Sequence[str], reverted_to: str | None = None) -> None:
    """Delete snapshots in their order; what fails then says what was done before it."""
    done = [] if reverted_to is None else [f"reverted to {reverted_to!r}"]
    for name in names:
        try:
            dom.snapshotLookupByName(name).delete()
        except libvirt.libvirtError as exc:
            if not done:
                raise
            raise LibvirtRefused(
                f"snapshot {name!r} of VM {vm!r} cannot be deleted: {exc}; done before: "
                f"{', '.join(done)}"
            ) from exc
        done.append(f"deleted {name!r}")


def _no_such(vm: str, name: str, known: Iterable[str]) -> str:
    return f"VM {vm!r} has no snapshot {name!r}; it has: {', '.join(known) or 'none'}"


def plan_revert(conn: Any, vm: str, wanted: object = None) -> Reverting:
    """Return what reverting would do: to the one that is wanted, or to the current one's parent."""
    dom = domain(conn, vm)
    known = {one.name: one for one in _by_age(_read(dom))}
    target = known[_chosen(vm, known, _current(dom), wanted)]
    version = conn.getLibVersion()
    if target.is_external and version < _REVERTS_EXTERNAL:
        raise LibvirtRefused(
            f"snapshot {target.name!r} of VM {vm!r} is external, and this host's libvirt "
            f"{_release(version)} cannot revert to it: that needs 9.9; revert by hand, or update "
            "libvirt"
        )
    if vm in lifecycle.saved(conn):
        # libvirt would start the VM with that memory over what the disks had before.
        raise LibvirtRefused(saved_too(vm, "would go on over the disks of the snapshot"))
    ages = list(known)
    return Reverting(
        to=target.name,
        target=target,
        newer=ages[ages.index(target.name) + 1 :][::-1],
        warned=[_silent_for_long(vm)] if target.has_memory else [],
    )


def _silent_for_long(vm: str) -> str:
    # Salt's default for tcp_keepalive_idle is 300 s; 345 s were measured.
    return (
        f"{vm!r} goes on with the clock and the connections of its snapshot: its minion may be "
        "silent for some five minutes (until it finds its connection broken); if the guest has an "
        f"agent, this ends it: virt.guest_exec {vm} '[systemctl, restart, salt-minion]'"
    )


def _chosen(
    vm: str, known: Mapping[str, snapshot.Snapshot], current: str | None, wanted: object
) -> str:
    # As on Salt 3006, an empty text names none.
    if wanted not in (None, ""):
        if str(wanted) not in known:
            raise BadArgument("vm_snapshot", _no_such(vm, str(wanted), known))
        return str(wanted)
    if not known:
        raise LibvirtRefused(f"VM {vm!r} has no snapshots; take one with virt.snapshot {vm}")
    parent = known[current].parent if current is not None and current in known else None
    if parent is None or parent not in known:
        raise LibvirtRefused(
            f"VM {vm!r} has no snapshot before the current one; name the one to revert to: "
            f"{', '.join(known)}"
        )
    return parent


def revert(conn: Any, vm: str, plan: Reverting, *, with_cleanup: bool) -> dict[str, Any]:
    """Revert as planned; return what :func:`shown` does."""
    dom = domain(conn, vm)
    with privatefiles.made(conn, vm):
        dom.revertToSnapshot(dom.snapshotLookupByName(plan.to))
    _delete(dom, vm, plan.newer if with_cleanup else [], plan.to)
    return shown(plan, with_cleanup=with_cleanup)


def shown(plan: Reverting, *, with_cleanup: bool) -> dict[str, Any]:
    """Return ``{reverted, deleted}`` of a plan, with its ``warnings`` if it has any."""
    warned = {"warnings": plan.warned} if plan.warned else {}
    # Salt 3006's word for no cleanup.
    return {"reverted": plan.to, "deleted": plan.newer if with_cleanup else NONE, **warned}
