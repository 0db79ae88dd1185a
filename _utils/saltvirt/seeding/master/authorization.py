"""
Authorizations: one host may submit the key of one VM, once, within minutes.

The host gets a sealed token; the master keeps only the token's digest. The master accepts the key
only from that host, which Salt authenticates, and only with the token.
"""

import contextlib
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from saltvirt.cluster import membership, minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed, act
from saltvirt.core import arguments, wire
from saltvirt.core.crypto import keypair
from saltvirt.core.errors import MasterError
from saltvirt.core.jsonfile import JsonFile

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Authorization:
    """
    An unused authorization.

    digest
        Of the host's token.
    until
        The expiry in seconds since 1970.
    replace
        Whether the key may replace another one under the VM's name.
    """

    host: str
    digest: str
    until: int
    replace: bool


def _file(opts: Mapping[str, Any], name: str) -> JsonFile[_Authorization | None]:
    return JsonFile(
        path=Path(opts["cachedir"]) / "salt-virt-authorised" / f"{name}.json",
        parse=_parse,
        plain=asdict,  # type: ignore[arg-type] # None is not written
        empty=lambda: None,
        remedy=f"it authorizes a host to submit a key: run salt-run virt.unauthorize {name}, then "
        "authorize the host again",
        error=MasterError,
        indent=1,
    )


def _parse(content: Mapping[str, Any]) -> _Authorization:
    authorization: _Authorization = wire.read_recorded(_Authorization, content)
    return authorization


def grant(cloud: Cloud, name: str, host: str, *, minutes: object, replace: bool) -> int:
    """Authorize a host to submit a VM's key; return the expiry in seconds since 1970."""
    arguments.vm_name(name)
    minutes = arguments.whole_number("minutes", minutes, most=24 * 60)
    minionkeys.refuse_reserved(cloud.opts, name)
    inventory.require_host(cloud, host)
    if not arguments.boolean("replace", replace):
        minionkeys.refuse_taken(cloud.opts, name)
        locate(cloud, name, Purpose.AUTHORIZE, host=host)
    token, expires_at = secrets.token_urlsafe(32), int(time.time()) + 60 * minutes
    file = _file(cloud.opts, name)
    file.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write(
        _Authorization(host=host, digest=_digest(token), until=expires_at, replace=bool(replace))
    )
    try:
        sealed = minionkeys.seal_for(cloud.opts, host, token)
        act(cloud, host, "virt.authorized", kwarg={"name": name, "token": sealed})
    except BaseException:
        file.path.unlink(missing_ok=True)
        raise
    return expires_at


def revoke(cloud: Cloud, name: str) -> None:
    """Revoke an unused authorization; the host's token becomes invalid."""
    arguments.vm_name(name)
    file = _file(cloud.opts, name)
    try:
        authorization = file.read()
    except MasterError as error:
        file.path.unlink()
        log.warning("removed a damaged authorization; its host keeps an invalid token: %s", error)
        return
    if authorization is None:
        raise MasterError(f"no host is authorized to submit a key of {name!r}")
    file.path.unlink(missing_ok=True)
    host = authorization.host
    try:
        act(cloud, host, "virt.authorized", kwarg={"name": name, "token": None})
    except HostCommandFailed as error:
        log.warning("%s keeps a token for %s that is no longer valid: %s", host, name, error)


def list_unused(opts: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Return ``{VM: (host, expiry)}`` of the unused authorizations."""
    out = {}
    for path in sorted(_file(opts, "any").path.parent.glob("[!.]*.json")):
        name = path.name.removesuffix(".json")
        # A damaged file authorizes no host.
        with contextlib.suppress(MasterError):
            authorization = _file(opts, name).read()
            if authorization is not None:
                out[name] = (authorization.host, authorization.until)
    return out


def forget(opts: Mapping[str, Any], name: str, host: str) -> None:
    """Drop a host's authorization for a VM that the host purged; another host's stays."""
    file = _file(opts, name)
    # A damaged file authorizes no host.
    with contextlib.suppress(MasterError):
        authorization = file.read()
        if authorization is not None and authorization.host == host:
            file.path.unlink(missing_ok=True)


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
    file = _file(opts, name)
    authorization = file.read()
    if authorization is None:
        raise MasterError(
            f"{host} is not authorized to submit a key of {name!r}, or has used its authorization"
        )
    if authorization.host != host:
        raise MasterError(f"{host} may not submit a key of {name!r}: another host may")
    if not (isinstance(token, str) and hmac.compare_digest(authorization.digest, _digest(token))):
        raise MasterError(f"{host} may not submit a key of {name!r}: wrong token")
    _use_up(file.path, host, name)
    if now > authorization.until:
        raise MasterError(f"{host} submitted the key of {name!r} too late")
    if not authorization.replace:
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
