"""Set and remove the libvirt secrets with which pools log in; their values are never read back."""

import base64
import binascii
from dataclasses import replace
from typing import Any

from saltvirt.core.errors import BadArgument
from saltvirt.libvirt.connect import libvirt
from saltvirt.libvirt.errorcodes import value_or
from saltvirt.xml import parse, to_text
from saltvirt.xml.storage import secret
from saltvirt.xml.storage.poolsource import SECRET_TYPES, Auth
from saltvirt.xml.storage.storagepool import Pool


def encode_password(ptype: str, password: object) -> bytes | None:
    """Return a password in libvirt's form; Ceph's is given as base64."""
    if password is None or ptype not in SECRET_TYPES:
        return None
    text = str(password)
    if ptype != "rbd":
        return text.encode()
    try:
        # libvirt encodes the value as base64 again.
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        # Drop the error, too: its message may contain the key.
        pass
    raise BadArgument("source:auth:password", "is not base64, as a key of Ceph is") from None


def is_defined(conn: Any, auth: Auth | None) -> bool:
    """Return whether the secret that a pool refers to is defined."""
    return _find(conn, auth) is not None


def set_value(conn: Any, pool: Pool, value: bytes) -> bool:
    """Set the value of a pool's secret, and create a missing one; return whether it is new."""
    auth = pool.source.auth
    if auth is None:
        raise AssertionError(f"pool {pool.name} logs in nowhere")
    libvirt_secret = _find(conn, auth)
    is_new = libvirt_secret is None
    if libvirt_secret is None:
        definition = secret.for_pool(pool.name, auth.type or "", auth.secret["usage"])
        libvirt_secret = conn.secretDefineXML(to_text(secret.build(definition)), 0)
    try:
        libvirt_secret.setValue(value, 0)
    except BaseException:
        if is_new:
            libvirt_secret.undefine()
        raise
    return is_new


def forget(conn: Any, pool: Pool) -> None:
    """Remove the secret that was made for a pool, if it exists; other secrets stay."""
    auth = pool.source.auth
    if auth is None:
        return
    own_auth = replace(auth, secret={"usage": f"pool_{pool.name}"})
    libvirt_secret = _find(conn, own_auth)
    # If the pool no longer refers to the secret, the secret's own description names its pool.
    if libvirt_secret is not None and (
        auth == own_auth or _is_made_for_pool(libvirt_secret, pool.name)
    ):
        libvirt_secret.undefine()


def _is_made_for_pool(libvirt_secret: Any, name: str) -> bool:
    definition = secret.read(parse(libvirt_secret.XMLDesc(0)))
    return definition == secret.for_pool(
        name, "ceph" if definition.kind == "ceph" else "chap", definition.usage
    )


def _find(conn: Any, auth: Auth | None) -> Any:
    return None if auth is None else value_or(None, lambda: _lookup(conn, auth), "NO_SECRET")


def _lookup(conn: Any, auth: Auth) -> Any:
    if "uuid" in auth.secret:
        return conn.secretLookupByUUIDString(auth.secret["uuid"])
    kind = getattr(libvirt, f"VIR_SECRET_USAGE_TYPE_{'CEPH' if auth.type == 'ceph' else 'ISCSI'}")
    return conn.secretLookupByUsage(kind, auth.secret.get("usage", ""))
