"""Plan, apply and roll back what the states of pools change."""

import logging
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saltvirt.core import terminal
from saltvirt.core.errors import BadArgument, StorageError
from saltvirt.libvirt.connect import libvirt
from saltvirt.libvirt.storage import anybytes, pools, poolsecrets, volumes
from saltvirt.xml import parse, to_text
from saltvirt.xml.storage import storagepool

log = logging.getLogger(__name__)
BUILDABLE = {"disk", "fs", "netfs", "dir", "logical", "vstorage", "zfs"}
# Types that cannot be built twice; libvirt does not tell whether a pool is built.
_BUILT_ONCE = {"disk", "logical", "zfs"}
_NO_VOLUME_DELETE = {"iscsi", "iscsi-direct", "mpath", "scsi"}
_POOL_DELETE = {"dir", "fs", "netfs", "logical", "vstorage", "zfs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    The steps for a pool.

    update
        The change of its definition, None for none.
    live
        The running <pool>, None if it does not run.
    autostart
        The new autostart flag, None if it stays.
    parts
        The steps in the words of the state's ``changes``.
    """

    request: pools.PoolRequest
    is_new: bool = False
    is_transient: bool = False
    update: pools.Update | None = None
    live: ET.Element | None = None
    autostart: bool | None = None
    builds: bool = False
    restarts: bool = False
    starts: bool = False
    parts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStateRequest:
    """A state's arguments."""

    name: str
    ptype: str | None = None
    target: str | None = None
    permissions: object = None
    source: object = field(default=None, repr=False)
    is_transient: bool = False
    autostart: bool = True
    runs: bool = False


def plan(conn: Any, request: PoolStateRequest) -> Plan:
    """Return the steps that make a pool match a state."""
    pool = pools.find(conn, request.name)
    if pool is None:
        return _plan_new(conn, request)
    old_pool = storagepool.read(pools.definition(pool))
    pool_request = _build_request(request, request.ptype or old_pool.type)
    update = pools.plan_update(conn, pool, pool_request) if _changes_definition(request) else None
    live = parse(pool.XMLDesc(0)) if pool.isActive() else None
    is_changed = update is not None and bool(update.differences)
    restarts = _restarts(conn, request, live, update)
    # libvirt has no autostart flag for a transient pool.
    sets_autostart = pool.isPersistent() and bool(pool.autostart()) != request.autostart
    todo = Plan(
        request=pool_request,
        update=update,
        live=live,
        autostart=request.autostart if sets_autostart else None,
        builds=_builds(pool_request.pool.type, is_changed=is_changed, live=live, restarts=restarts),
        restarts=restarts,
        starts=request.runs and live is None,
    )
    return replace(todo, parts=_list_changes(todo, is_changed=is_changed))


def _restarts(
    conn: Any, request: PoolStateRequest, live: ET.Element | None, update: pools.Update | None
) -> bool:
    """Return whether a pool needs a restart; raise StorageError if running VMs forbid it."""
    if not request.runs or live is None or update is None or not _is_old(live, update):
        return False
    volumes.refuse_stop(conn, request.name)
    return True


def _is_old(live: ET.Element, update: pools.Update) -> bool:
    """Return whether a running pool differs from its planned definition."""
    differs = storagepool.differences(storagepool.read(live), update.pool, runs=True)
    return bool(update.differences) or bool(differs)


def _builds(ptype: str, *, is_changed: bool, live: object, restarts: bool) -> bool:
    if live is None:
        return is_changed and ptype in BUILDABLE
    return restarts and ptype in BUILDABLE - {"disk", "logical"}


def _list_changes(todo: Plan, *, is_changed: bool) -> list[str]:
    """Return the steps in the words, and the order, of Salt 3006's states."""
    steps = [
        ("updated", is_changed),
        ("built", todo.builds and not todo.restarts),
        ("autostart flag changed", todo.autostart is not None),
        ("built", todo.builds and todo.restarts),
        ("restarted", todo.restarts),
        ("started", todo.starts),
    ]
    return [word for word, is_done in steps if is_done]


def _changes_definition(request: PoolStateRequest) -> bool:
    values = (request.ptype, request.target, request.permissions, request.source)
    return any(value is not None for value in values)


def _build_request(request: PoolStateRequest, ptype: str) -> pools.PoolRequest:
    source = pools.source_from_state(request.source)
    return pools.request_from_call(request.name, ptype, request.target, request.permissions, source)


def _plan_new(conn: Any, request: PoolStateRequest) -> Plan:
    ptype = request.ptype or ("dir" if request.target else None)
    if ptype is None:
        raise BadArgument("ptype", f"is missing, and there is no pool {request.name!r} yet")
    pool_request = _build_request(request, ptype)
    pools.refuse_impossible(conn, pool_request.pool)
    sets_autostart = request.autostart and not request.is_transient
    parts = ["defined", *(["marked for autostart"] if sets_autostart else [])]
    return Plan(
        request=pool_request,
        is_new=True,
        is_transient=request.is_transient,
        autostart=True if sets_autostart else None,
        builds=ptype in BUILDABLE and not request.is_transient,
        # A transient pool starts when it is created.
        starts=request.runs and not request.is_transient,
        parts=[*parts, "started"] if request.runs else parts,
    )


def apply(conn: Any, todo: Plan) -> None:
    """Apply a plan; on failure, remove a new pool, and restore an old one."""
    name = todo.request.pool.name
    if todo.is_new:
        # An existing secret belongs to an earlier pool of that name: a rollback keeps it.
        request = todo.request
        had_secret = request.password is None or poolsecrets.is_defined(
            conn, request.pool.source.auth
        )
        pool = pools.define(conn, todo.request, is_transient=todo.is_transient, starts=False)
        try:
            _finish(pool, todo)
        except BaseException:
            pools.undefine(conn, name, keep_secret=had_secret)
            raise
        return
    pool = conn.storagePoolLookupByName(name)
    if todo.update is not None:
        pools.apply_update(conn, todo.update, todo.request.password)
    try:
        if todo.restarts:
            pool.destroy()
        _finish(pool, todo)
    except BaseException as exc:
        _roll_back(conn, pool, todo, exc)
        raise


def _finish(pool: Any, todo: Plan) -> None:
    if todo.builds:
        _build(pool, todo.request.pool.type)
    if todo.autostart is not None:
        pool.setAutostart(int(todo.autostart))
    if todo.starts or todo.restarts:
        pool.create(0)


def _build(pool: Any, ptype: str) -> None:
    try:
        pool.build(0)
    except libvirt.libvirtError as exc:
        if ptype not in _BUILT_ONCE:
            raise
        log.warning("storage pool %s was not built, maybe it is already: %s", pool.name(), exc)


def _roll_back(conn: Any, pool: Any, todo: Plan, error: BaseException) -> None:
    """Restore a pool, running if it ran; raise StorageError if that fails, too."""
    try:
        if todo.autostart is not None:
            pool.setAutostart(int(not todo.autostart))
        if todo.restarts and todo.live is not None and not pool.isActive():
            # The running pool may have differed from its definition: start it as it ran.
            conn.storagePoolDefineXML(to_text(todo.live), 0)
            pool.create(0)
        if todo.update is not None and pool.isPersistent():
            conn.storagePoolDefineXML(to_text(todo.update.old), 0)
    except libvirt.libvirtError as exc:
        raise StorageError(
            f"{error}; and pool {todo.request.pool.name!r} could not be brought back as it "
            f"was: {exc}"
        ) from exc


def changes(name: str, todo: Plan) -> dict[str, str]:
    """Return a state's ``changes``: ``{name: "Pool defined, marked for autostart, started"}``."""
    return {name: f"Pool {', '.join(todo.parts)}"} if todo.parts else {}


@dataclass(slots=True, kw_only=True)
class Deletion:
    """The parts of a pool to be removed, and a comment on the parts that cannot be."""

    name: str
    type: str
    is_active: bool
    is_persistent: bool
    volumes: list[str]
    deletes: bool
    comment: str


def plan_deletion(conn: Any, name: str, *, purges: bool) -> Deletion | None:
    """Return what a deletion removes of a pool, None if there is no such pool."""
    pool = pools.find(conn, name)
    if pool is None:
        return None
    ptype = storagepool.read(pools.definition(pool)).type
    is_active = bool(pool.isActive())
    volumes.refuse_stop(conn, name)
    volume_names: list[str] = []
    unsupported_actions: list[str] = []
    if purges and is_active:
        if ptype in _NO_VOLUME_DELETE:
            unsupported_actions.append("deleting volume")
        else:
            pool.refresh(0)
            _refuse_unreadable(name, anybytes.find_unreadable_names(pool))
            volume_names = volumes.names(conn, name)
            volumes.refuse_used(conn, name)
            # If so configured, libvirt saves all running VMs when their host shuts down.
            volumes.refuse_saved(conn, name)
            _refuse_folders(name, storagepool.folder(pools.definition(pool)), volume_names)
        if ptype not in _POOL_DELETE:
            unsupported_actions.append("deleting pool")
    comment = ""
    if unsupported_actions:
        comment = (
            f'Unsupported actions for pool of type "{ptype}": {", ".join(unsupported_actions)}'
        )
    elif purges and not is_active:
        comment = f"Pool {name} does not run, so its volumes are not known and stay"
    return Deletion(
        name=name,
        type=ptype,
        is_active=is_active,
        is_persistent=bool(pool.isPersistent()),
        volumes=volume_names,
        deletes=purges and is_active and ptype in _POOL_DELETE,
        comment=comment,
    )


def _refuse_unreadable(name: str, names: Sequence[str]) -> None:
    """Raise StorageError for volumes that libvirt cannot find by name: only the others would go."""
    if names:
        raise StorageError(
            f"pool {name!r} has volumes whose names are not UTF-8 "
            f"({terminal.join_some(sorted(names))}), "
            "which libvirt cannot remove, so nothing is deleted; rename or remove these files first"
        )


def _refuse_folders(name: str, folder: str | None, volume_names: Sequence[str]) -> None:
    """Raise StorageError if a pool has folders that are not empty: half of it would be deleted."""
    full_folders = [
        volume for volume in volume_names if folder is not None and _has_files(Path(folder, volume))
    ]
    if full_folders:
        raise StorageError(
            f"folders of pool {name!r} are not empty ({terminal.join_some(sorted(full_folders))}), "
            "and libvirt removes no such folder, so nothing is deleted; see what is in them, and "
            "move it away; what is in the trash goes by virt.trash_empty"
        )


def _has_files(path: Path) -> bool:
    """Return whether a folder has more in it than empty folders, which cut off purges leave."""
    try:
        return not path.is_symlink() and not all(map(_is_empty, path.iterdir()))
    except OSError:
        return False  # no folder; or libvirt reports the error when it deletes


def _is_empty(path: Path) -> bool:
    return not path.is_symlink() and path.is_dir() and not any(path.iterdir())


def _remove_empty_folders(path: Path) -> None:
    """Remove the empty folders in a folder: libvirt deletes only an empty folder."""
    if path.is_dir() and not path.is_symlink():
        for folder in path.iterdir():
            with suppress(OSError):  # libvirt then reports that the folder is not empty
                folder.rmdir()


def empty_changes() -> dict[str, Any]:
    """Return the ``changes`` of a deletion before anything is done."""
    return {"stopped": False, "deleted": False, "undefined": False, "deleted_volumes": []}


def predict_changes(todo: Deletion) -> dict[str, Any]:
    """Return the ``changes`` that a deletion will make."""
    return {
        "stopped": todo.is_active,
        "deleted": todo.deletes,
        "undefined": True,
        "deleted_volumes": list(todo.volumes),
    }


def _hold_nothing(_volumes: Sequence[str]) -> AbstractContextManager[None]:
    return nullcontext()


def delete(
    conn: Any,
    todo: Deletion,
    result: dict[str, Any],
    hold_unused: Callable[[Sequence[str]], AbstractContextManager[None]] = _hold_nothing,
) -> None:
    """
    Apply the plan of :func:`plan_deletion`; enter each finished step in ``result``.

    hold_unused
        Returns a context in which no VM can begin to use the given volumes, or for an empty list,
        the pool; raises if they are in use. Defaults to no check.
    """
    pool = conn.storagePoolLookupByName(todo.name)
    description = storagepool.read(pools.definition(pool))
    folder = storagepool.folder(pools.definition(pool))
    for volume in todo.volumes:
        with hold_unused([volume]):
            if folder is not None:
                _remove_empty_folders(Path(folder, volume))
            pool.storageVolLookupByName(volume).delete(0)
            result["deleted_volumes"].append(volume)
    with hold_unused([]):
        _delete_empty(pool, todo, result)
    poolsecrets.forget(conn, description)
    result["undefined"] = True


def _delete_empty(pool: Any, todo: Deletion, result: dict[str, Any]) -> None:
    if todo.deletes:
        pool.refresh(0)
        volume_names = sorted(anybytes.names(pool))
        # Deleting a volume group would delete all volumes in it.
        if volume_names:
            raise StorageError(
                f"pool {todo.name!r} has got new volumes meanwhile "
                f"({terminal.join_some(volume_names)}), so the pool stays with "
                "them; see which VMs need them"
            )
    if todo.is_active:
        pool.destroy()
        result["stopped"] = True
    if todo.deletes:
        pool.delete(0)
        result["deleted"] = True
    # A transient pool vanished when it was stopped.
    if todo.is_persistent:
        pool.undefine()
