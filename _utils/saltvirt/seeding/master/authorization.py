"""
Authorizations: one host may submit the key of one VM, once, within minutes.

The host gets a sealed token; the master keeps only the token's digest. The master accepts the key
only from that host, which Salt authenticates, and only with the token.
"""

import contextlib
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saltvirt.cluster import membership, minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, locate
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed, act
from saltvirt.core import arguments, files
from saltvirt.core.crypto import keypair
from saltvirt.core.errors import MasterError

log = logging.getLogger(__name__)


def _path(opts: Mapping[str, Any], name: str) -> Path:
    return Path(opts["cachedir"]) / "salt-virt-authorised" / f"{name}.json"


def grant(cloud: Cloud, name: str, host: str, *, minutes: object, replace: bool) -> int:
    """Authorize a host to submit a VM's key; return the expiry in seconds since 1970."""
    arguments.vm_name(name)
    minutes = arguments.whole_number("minutes", minutes, most=24 * 60)
    minionkeys.refuse_reserved(cloud.opts, name)
    inventory.require_host(cloud, host)
    if not arguments.boolean("replace", replace):
        minionkeys.refuse_taken(cloud.opts, name)
        locate.refuse_elsewhere(cloud, name, host)
    token, expires_at = secrets.token_urlsafe(32), int(time.time()) + 60 * minutes
    path = _path(cloud.opts, name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    record = {"host": host, "digest": _digest(token), "until": expires_at, "replace": replace}
    files.write(path, json.dumps(record).encode())
    try:
        sealed = minionkeys.seal_for(cloud.opts, host, token)
        act(cloud, host, "virt.authorized", kwarg={"name": name, "token": sealed})
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return expires_at


def revoke(cloud: Cloud, name: str) -> None:
    """Revoke an unused authorization; the host's token becomes invalid."""
    arguments.vm_name(name)
    path = _path(cloud.opts, name)
    try:
        host = json.loads(path.read_text())["host"]
        path.unlink()
    except FileNotFoundError:
        raise MasterError(f"no host is authorized to submit a key of {name!r}") from None
    try:
        act(cloud, host, "virt.authorized", kwarg={"name": name, "token": None})
    except HostCommandFailed as error:
        log.warning("%s keeps a token for %s that is no longer valid: %s", host, name, error)


def list_unused(opts: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Return ``{VM: (host, expiry)}`` of the unused authorizations."""
    out = {}
    for path in sorted(_path(opts, "any").parent.glob("[!.]*.json")):
        # A damaged file authorizes no host.
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError):
            record = json.loads(path.read_text())
            out[path.name.removesuffix(".json")] = (str(record["host"]), int(record["until"]))
    return out


def forget(opts: Mapping[str, Any], name: str, host: str) -> None:
    """Drop a host's authorization for a VM that the host purged; another host's stays."""
    path = _path(opts, name)
    with contextlib.suppress(FileNotFoundError):
        if json.loads(path.read_text())["host"] == host:
            path.unlink()


def accept_key(
    opts: Mapping[str, Any], host: str, name: str, key: Any, token: object, *, now: float
) -> None:
    """
    Accept the key that an authenticated host submits, or raise MasterError with the reason.

    After a foreign host or a wrong token the authorization stays valid for its owner.
    """
    arguments.vm_name(name)
    membership.read_members(opts).refuse_stranger(host)
    minionkeys.refuse_reserved(opts, name)
    path = _path(opts, name)
    try:
        record = json.loads(path.read_text())
    except FileNotFoundError:
        raise MasterError(
            f"nobody authorized {host} to submit a key of {name!r}, or it was used already"
        ) from None
    if record["host"] != host:
        raise MasterError(f"{host} may not submit a key of {name!r}: another host may")
    if not (isinstance(token, str) and hmac.compare_digest(record["digest"], _digest(token))):
        raise MasterError(f"{host} may not submit a key of {name!r}: wrong token")
    _use_up(path, host, name)
    if now > record["until"]:
        raise MasterError(f"{host} submitted the key of {name!r} too late")
    if not record["replace"]:
        minionkeys.refuse_taken(opts, name)
    minionkeys.accept(opts, name, keypair.public_key(key))
    log.info("accepted the key of %s, submitted by %s", name, host)


def _use_up(path: Path, host: str, name: str) -> None:
    """Use up an authorization; refuse the second of two concurrent submissions."""
    try:
        path.unlink()
    except FileNotFoundError:
        raise MasterError(f"{host} submitted the key of {name!r} twice") from None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
