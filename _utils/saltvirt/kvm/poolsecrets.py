"""The secrets of libvirt by which pools log in to their source; nobody reads them back."""

import base64
import binascii
from dataclasses import replace
from typing import Any

from saltvirt.errors import BadArgument
from saltvirt.kvm.connect import libvirt
from saltvirt.xml import parse, secret, to_text
from saltvirt.xml.pool import Pool
from saltvirt.xml.poolsource import SECRET_TYPES, Auth


def value_of(ptype: str, password: object) -> bytes | None:
    """Return what a password is as libvirt keeps it; of Ceph it is given as base64."""
    if password is None or ptype not in SECRET_TYPES:
        return None
    text = str(password)
    if ptype != "rbd":
        return text.encode()
    try:
        # libvirt itself writes it as base64 later on.
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        # Not its words either: the key may be in them.
        pass
    raise BadArgument("source:auth:password", "is not base64, as a key of Ceph is") from None


def is_there(conn: Any, auth: Auth | None) -> bool:
    """Return whether the secret that a pool refers to is defined."""
    return _find(conn, auth) is not None


def keep(conn: Any, pool: Pool, value: bytes) -> bool:
    """Give a pool's secret its value, and make it if it is missing; return whether it was made."""
    auth = pool.source.auth
    if auth is None:
        raise AssertionError(f"pool {pool.name} logs in nowhere")
    found = _find(conn, auth)
    is_new = found is None
    if found is None:
        made = secret.of_pool(pool.name, auth.type or "", auth.secret["usage"])
        found = conn.secretDefineXML(to_text(secret.build(made)), 0)
    try:
        found.setValue(value, 0)
    except BaseException:
        if is_new:
            found.undefine()
        raise
    return is_new


def forget(conn: Any, pool: Pool) -> None:
    """Remove the secret that was made for a pool, if there is one; others' stay."""
    auth = pool.source.auth
    if auth is None:
        return
    own = replace(auth, secret={"usage": f"pool_{pool.name}"})
    found = _find(conn, own)
    # One that the pool no longer refers to says itself whose it is.
    if found is not None and (auth == own or _is_ours(found, pool.name)):
        found.undefine()


def _is_ours(found: Any, name: str) -> bool:
    says = secret.read(parse(found.XMLDesc(0)))
    return says == secret.of_pool(name, "ceph" if says.kind == "ceph" else "chap", says.usage)


def _find(conn: Any, auth: Auth | None) -> Any:
    if auth is None:
        return None
    try:
        if "uuid" in auth.secret:
            return conn.secretLookupByUUIDString(auth.secret["uuid"])
        is_ceph = auth.type == "ceph"
        kind = (
            libvirt.VIR_SECRET_USAGE_TYPE_CEPH if is_ceph else libvirt.VIR_SECRET_USAGE_TYPE_ISCSI
        )
        return conn.secretLookupByUsage(kind, auth.secret.get("usage", ""))
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_SECRET:
            return None
        raise
