"""Storage pools: define, build, start; one look says what is to be done."""

from collections.abc import Collection, Mapping
from typing import Any

from saltvirt.errors import BadArgument, StorageError
from saltvirt.kvm.connect import libvirt
from saltvirt.xml import parse, tag, to_text

TYPES = ("dir", "fs", "netfs")


def build_xml(name: str, kind: str, target: str | None, source: Mapping[str, Any]) -> str:
    """
    Return the <pool> element as text.

    source
        ``{"host", "dir", "device", "format"}``, what the type needs of them.
    """
    if kind not in TYPES:
        raise BadArgument("ptype", f"{kind!r}; one of {', '.join(TYPES)}")
    if not str(target or "").startswith("/"):
        raise BadArgument("target", f"{target!r} is not an absolute path")
    origin = [
        tag("host", {"name": source.get("host")}) if source.get("host") else None,
        tag("dir", {"path": source.get("dir")}) if source.get("dir") else None,
        tag("device", {"path": source.get("device")}) if source.get("device") else None,
        tag("format", {"type": source.get("format")}) if source.get("format") else None,
    ]
    where = tag("target", None, tag("path", text=target))
    has_source = any(element is not None for element in origin)
    parts = [tag("source", None, *origin)] if has_source else []
    return to_text(tag("pool", {"type": kind}, tag("name", text=name), *parts, where))


def _find(conn: Any, name: str) -> Any:
    try:
        return conn.storagePoolLookupByName(name)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_STORAGE_POOL:
            return None
        raise


def plan(conn: Any, name: str, kind: str, target: str | None, *, autostart: bool) -> dict[str, Any]:
    """Return what is to be done: ``{"defined" | "started" | "autostart": ...}``."""
    pool = _find(conn, name)
    if pool is None:
        out = {"defined": target, "started": True}
        return {**out, "autostart": True} if autostart else out
    root = parse(pool.XMLDesc(0))
    has = (root.get("type"), root.findtext("target/path"))
    if has != (kind, target):
        raise StorageError(
            f"pool {name!r} exists as {has[0]} at {has[1]}, not {kind} at {target}; its volumes "
            "would be lost to libvirt: choose another name, or undefine it first"
        )
    out = {} if pool.isActive() else {"started": True}
    if bool(pool.autostart()) != bool(autostart):
        out["autostart"] = bool(autostart)
    return out


def apply(conn: Any, name: str, xml: str, changes: Mapping[str, Any]) -> None:
    """Do what :func:`plan` said; a pool that cannot be started is not left defined."""
    pool = conn.storagePoolDefineXML(xml, 0) if "defined" in changes else _find(conn, name)
    try:
        if "defined" in changes:
            pool.build(0)
        if "started" in changes:
            pool.create(0)
    except libvirt.libvirtError:
        if "defined" in changes:
            pool.undefine()
        raise
    if "autostart" in changes:
        pool.setAutostart(int(changes["autostart"]))


def make_reachable(conn: Any, name: str, folder: str) -> None:
    """Let libvirt see the files of a folder: through the pool it has there, or one for a while."""
    for pool in conn.listAllStoragePools(0):
        if parse(pool.XMLDesc(0)).findtext("target/path") == folder:
            if not pool.isActive():
                pool.create(0)
            pool.refresh(0)
            return
    conn.storagePoolCreateXML(build_xml(name, "dir", folder, {}), 0)


def make_unreachable(conn: Any, prefix: str, but: Collection[str] = ()) -> None:
    """End the pools that :func:`make_reachable` made, but those of some folders; files stay."""
    for pool in conn.listAllStoragePools(0):
        if not pool.name().startswith(prefix):
            continue
        if parse(pool.XMLDesc(0)).findtext("target/path") not in but:
            pool.destroy()
