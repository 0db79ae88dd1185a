"""List, define, update, build, start and remove storage pools."""

import xml.etree.ElementTree as ET
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt.core.errors import BadArgument, StorageError
from saltvirt.libvirt.connect import libvirt
from saltvirt.libvirt.errorcodes import has_code, read_existing, value_or
from saltvirt.libvirt.storage import poolsecrets
from saltvirt.xml import parse, to_text
from saltvirt.xml.storage import poolcapabilities, storagepool

_STATES = ("inactive", "building", "running", "degraded", "inaccessible")
# Types of pools for which a build creates a folder; an existing folder is no error.
FOLDERS = {"dir", "fs", "netfs", "vstorage"}
_OLD_SPELLING = {"host": "hosts", "device": "devices"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRequest:
    """
    The pool that a call requests.

    has_source
        Whether the call gives a source; without one the defined source stays.
    password
        The value for the pool's secret, None if the call has none.
    """

    pool: storagepool.Pool
    has_source: bool
    password: bytes | None = field(default=None, repr=False)


def request_from_call(
    name: str,
    ptype: str,
    target: str | None = None,
    permissions: object = None,
    source: Mapping[str, Any] | None = None,
) -> PoolRequest:
    """Return the pool that a call requests; :mod:`saltvirt.xml.storage.storagepool` checks it."""
    source_items = {key: value for key, value in (source or {}).items() if value is not None}
    auth = source_items.get("auth")
    pool = storagepool.from_call(name, ptype, target, permissions, source_items)
    password = auth.get("password") if isinstance(auth, Mapping) else None
    return PoolRequest(
        pool=pool,
        has_source=bool(source_items),
        password=poolsecrets.encode_password(ptype, password),
    )


def source_from_state(source: object) -> dict[str, Any] | None:
    """Return a state's ``source`` with ``hosts`` and ``devices`` for ``host`` and ``device``."""
    if source is None:
        return None
    if not isinstance(source, Mapping):
        # Not shown: it may contain a password.
        raise BadArgument("source", "is not a mapping")
    source_items = {str(key): value for key, value in source.items()}
    out = {_OLD_SPELLING.get(key, key): value for key, value in source_items.items()}
    if len(out) < len(source_items):
        raise BadArgument("source", "give hosts and devices, without host and device beside them")
    return out


def find(conn: Any, name: str) -> Any:
    """Return a pool by name, None if there is none."""
    return value_or(None, lambda: conn.storagePoolLookupByName(name), "NO_STORAGE_POOL")


def definition(pool: Any) -> ET.Element:
    """Return the <pool> as it will be from its next start on."""
    flag = libvirt.VIR_STORAGE_XML_INACTIVE
    # libvirt's test driver lacks the flag.
    text = value_or(None, lambda: pool.XMLDesc(flag), "INVALID_ARG") or pool.XMLDesc(0)
    return parse(text)


def names(conn: Any) -> list[str]:
    """Return the names of all pools, sorted."""
    return sorted(pool.name() for pool in conn.listAllStoragePools(0))


def infos(conn: Any, name: str | None = None) -> dict[str, dict[str, Any]]:
    """Return what ``virt.pool_info`` shows of all pools, or of one; empty if there is none."""
    pools = [pool for pool in conn.listAllStoragePools(0) if name in (None, pool.name())]
    return dict(read_existing(pools, _info, "NO_STORAGE_POOL"))


def _info(pool: Any) -> dict[str, Any]:
    state, capacity, allocation, free = pool.info()
    description = storagepool.read(parse(pool.XMLDesc(0)))
    return {
        "uuid": pool.UUIDString(),
        "state": _STATES[state] if state < len(_STATES) else "unknown",
        "capacity": capacity,
        "allocation": allocation,
        "free": free,
        "autostart": pool.autostart(),
        "persistent": pool.isPersistent(),
        "target_path": description.target,
        "type": description.type,
    }


def xml(conn: Any, name: str) -> str:
    """Return the XML of a pool."""
    text: str = conn.storagePoolLookupByName(name).XMLDesc(0)
    return text


def capabilities(conn: Any) -> dict[str, Any]:
    """Return the types of pools that libvirt supports here: ``{computed, pool_types}``."""
    types = poolcapabilities.read(parse(conn.getStoragePoolCapabilities(0)))
    return {"computed": False, "pool_types": types}


def refuse_impossible(conn: Any, pool: storagepool.Pool) -> None:
    """Raise BadArgument if a pool is incomplete, or if libvirt has no such pools here."""
    storagepool.refuse_incomplete(pool)
    # Some drivers have no pool capabilities, such as libvirt's test driver.
    host_capabilities = value_or(None, lambda: capabilities(conn), "NO_SUPPORT")
    types = host_capabilities["pool_types"] if host_capabilities else ()
    supported_types = sorted(kind["name"] for kind in types if kind["supported"])
    if host_capabilities is not None and pool.type not in supported_types:
        raise BadArgument(
            "ptype",
            f"libvirt on this host has no pools of type {pool.type!r}, only "
            f"{', '.join(supported_types)}; "
            f"a package such as libvirt-daemon-driver-storage-{pool.type} may have them",
        )


def define(conn: Any, request: PoolRequest, *, is_transient: bool, starts: bool) -> Any:
    """Define a pool, or start a transient one; leave nothing behind on failure."""
    refuse_impossible(conn, request.pool)
    if is_transient:
        return _create_transient(conn, request)
    pool = conn.storagePoolDefineXML(to_text(storagepool.build(request.pool)), 0)
    has_secret = False
    try:
        if request.password is not None:
            has_secret = poolsecrets.set_value(conn, request.pool, request.password)
        if starts:
            pool.create(0)
    except BaseException:
        pool.undefine()
        if has_secret:
            poolsecrets.forget(conn, request.pool)
        raise
    return pool


def _create_transient(conn: Any, request: PoolRequest) -> Any:
    if find(conn, request.pool.name) is not None:
        # Before the secret: libvirt would refuse only after the existing pool's secret changed.
        raise StorageError(f"there is a pool {request.pool.name!r} already")
    # A transient pool starts at once, so it needs its secret first.
    has_secret = request.password is not None and poolsecrets.set_value(
        conn, request.pool, request.password
    )
    text = to_text(storagepool.build(request.pool))
    try:
        return _create(conn, text, builds=request.pool.type in FOLDERS)
    except BaseException:
        if has_secret:
            poolsecrets.forget(conn, request.pool)
        raise


def _create(conn: Any, text: str, *, builds: bool) -> Any:
    try:
        flags = libvirt.VIR_STORAGE_POOL_CREATE_WITH_BUILD if builds else 0
        return conn.storagePoolCreateXML(text, flags)
    except libvirt.libvirtError as exc:
        # libvirt's test driver has no flags, and builds nothing.
        if not builds or not has_code(exc, "INVALID_ARG"):
            raise
    return conn.storagePoolCreateXML(text, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """An update: ``old`` is the definition, ``differences`` names what changes in it."""

    old: ET.Element
    pool: storagepool.Pool
    differences: list[str]


def plan_update(conn: Any, pool: Any, request: PoolRequest) -> Update:
    """Return the changes that make a pool match a request."""
    root = definition(pool)
    old_pool = storagepool.read(root)
    new_pool = storagepool.complete(request.pool, old_pool, has_source=request.has_source)
    new_pool = _with_known_secret(conn, old_pool, new_pool, request)
    storagepool.refuse_incomplete(new_pool)
    changes = storagepool.differences(old_pool, new_pool, runs=bool(pool.isActive()))
    if changes and not pool.isPersistent():
        raise StorageError(
            f"pool {old_pool.name!r} is not kept when it stops, so it has no definition to update "
            f"({', '.join(changes)}); stop it, and define it anew"
        )
    if request.password is not None and not poolsecrets.is_defined(conn, new_pool.source.auth):
        changes.append("secret")
    return Update(old=root, pool=new_pool, differences=changes)


def _with_known_secret(
    conn: Any, old_pool: storagepool.Pool, new_pool: storagepool.Pool, request: PoolRequest
) -> storagepool.Pool:
    """Return the new pool with the old pool's secret, if a password is to be stored there."""
    old_auth, new_auth = old_pool.source.auth, new_pool.source.auth
    if (
        request.password is None
        or old_auth is None
        or new_auth is None
        or old_auth.type != new_auth.type
    ):
        return new_pool
    # A missing secret is created again as the pool's own.
    if not poolsecrets.is_defined(conn, old_auth):
        return new_pool
    auth = replace(new_auth, secret=old_auth.secret)
    return replace(new_pool, source=replace(new_pool.source, auth=auth))


def apply_update(conn: Any, update: Update, password: bytes | None) -> None:
    """Apply the changes of :func:`plan_update`; a running pool changes at its next start."""
    if set(update.differences) - {"secret"}:
        conn.storagePoolDefineXML(to_text(storagepool.build_changed(update.old, update.pool)), 0)
    if password is not None:
        poolsecrets.set_value(conn, update.pool, password)


def update(conn: Any, request: PoolRequest, *, is_test: bool) -> bool:
    """Change a pool to match a request; return whether it was, or would be, changed."""
    pool = conn.storagePoolLookupByName(request.pool.name)
    plan = plan_update(conn, pool, request)
    if not is_test:
        apply_update(conn, plan, request.password)
    return bool(plan.differences)


def undefine(conn: Any, name: str, *, keep_secret: bool = False) -> None:
    """Remove a pool's definition, and the secret made for it unless ``keep_secret``."""
    pool = conn.storagePoolLookupByName(name)
    description = storagepool.read(definition(pool))
    pool.undefine()
    if not keep_secret:
        poolsecrets.forget(conn, description)


def act(conn: Any, name: str, action: str) -> None:
    """Call ``create``, ``build``, ``destroy``, ``delete`` or ``refresh`` of a pool."""
    pool = conn.storagePoolLookupByName(name)
    # Only ``destroy`` takes no flags.
    if action == "destroy":
        pool.destroy()
    else:
        getattr(pool, action)(0)


def set_autostart(conn: Any, name: str, *, is_on: bool) -> None:
    """Set whether a pool starts with the host."""
    conn.storagePoolLookupByName(name).setAutostart(int(is_on))


def make_reachable(conn: Any, name: str, folder: str) -> None:
    """Let libvirt see a folder's files, through an existing pool or a temporary one."""
    for pool in conn.listAllStoragePools(0):
        if parse(pool.XMLDesc(0)).findtext("target/path") == folder:
            if not pool.isActive():
                pool.create(0)
            pool.refresh(0)
            return
    conn.storagePoolCreateXML(
        to_text(storagepool.build(storagepool.from_call(name, "dir", folder))), 0
    )


def make_unreachable(conn: Any, prefix: str, exclude: Collection[str] = ()) -> None:
    """Stop the pools of :func:`make_reachable`, except those of some folders; files stay."""
    for name in find_temporary_pools(conn, prefix, exclude):
        conn.storagePoolLookupByName(name).destroy()


def find_temporary_pools(conn: Any, prefix: str, exclude: Collection[str] = ()) -> list[str]:
    """Return the pools of :func:`make_reachable`, except those of some folders."""
    return sorted(
        pool.name()
        for pool in conn.listAllStoragePools(0)
        if pool.name().startswith(prefix)
        and parse(pool.XMLDesc(0)).findtext("target/path") not in exclude
    )
