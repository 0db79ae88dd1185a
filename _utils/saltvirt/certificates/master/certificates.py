"""The operator's actions on the CA: list, renew, rotate, revoke, back up, restore."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from saltvirt.ca import backup, ca, policy, store
from saltvirt.ca import enrolled as reclaiming
from saltvirt.ca.authorities import Authorities
from saltvirt.ca.enrolled import Register
from saltvirt.cluster import membership
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc import minions
from saltvirt.core import files
from saltvirt.core.errors import BadArgument, BadConfig, MasterError, VirtError
from saltvirt.core.options import config
from saltvirt.core.salt import masteruser

# Fields of a certificate's record that only the CA needs.
_NOT_SHOWN = ("names", "authority")
_APPLY_S = 120
_RETRY_S = 2
# Part of Salt's reply while the host applies other states.
_BUSY = "is running as PID"


class PkiRefused(VirtError):
    """The CA refuses an action; the message has the reason."""


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn the CA's errors into errors that a runner prints."""
    try:
        yield
    except ca.PkiError as exc:
        raise PkiRefused(str(exc)) from exc


def open_authorities(opts: Mapping[str, Any]) -> Authorities:
    """Return the CAs of this master."""
    return Authorities(membership.folder(opts))


def list_certificates(authorities: Authorities, now: datetime) -> list[dict[str, Any]]:
    """
    Return one row per certificate.

    ``{host, purpose, serial, not_after, signer, days_left, state}``.
    """
    revoked_serials, newest_serials, rows = authorities.revoked(), {}, []
    for entry in sorted(authorities.issued(), key=lambda e: e["not_after"]):
        newest_serials[entry["host"], entry["purpose"]] = entry["serial"]
        rows.append({key: value for key, value in entry.items() if key not in _NOT_SHOWN})
    for row in rows:
        expiry = datetime.fromisoformat(row["not_after"])
        row["days_left"] = (expiry - now).days
        row["state"] = _state(row, expiry, now, revoked_serials, newest_serials)
    return sorted(rows, key=lambda row: (row["host"], row["purpose"], row["not_after"]))


def _state(
    row: Mapping[str, Any],
    expiry: datetime,
    now: datetime,
    revoked_serials: Collection[str],
    newest_serials: Mapping[tuple[str, str], str],
) -> str:
    if row["serial"] in revoked_serials:
        return "revoked"
    if expiry <= now:
        return "expired"
    return "good" if newest_serials[row["host"], row["purpose"]] == row["serial"] else "replaced"


def apply_keys(cloud: Cloud, hosts: Iterable[str], *, renew: bool = False) -> dict[str, str]:
    """
    Have hosts apply ``virt.keys``; return ``{host: comment}``; raise MasterError if a host fails.

    A host that is applying other states is asked again for up to 120 s.
    """
    kwarg = {"name": "virt_pki", "renew": renew}
    out: dict[str, str] = {}
    errors_by_host: dict[str, str] = {}
    pending_hosts, deadline = list(hosts), time.monotonic() + _APPLY_S
    while pending_hosts:
        replies = minions.ask(
            cloud, pending_hosts, "state.single", ["virt.keys"], kwarg, timeout_s=_APPLY_S
        )
        for host, reply in replies.items():
            comment, error = _outcome(reply)
            if error:
                errors_by_host[host] = error
            else:
                out[host] = comment
                errors_by_host.pop(host, None)
        pending_hosts = [host for host in pending_hosts if _BUSY in errors_by_host.get(host, "")]
        if time.monotonic() > deadline:
            break
        time.sleep(_RETRY_S if pending_hosts else 0)
    if errors_by_host:
        error = MasterError(
            "; ".join(f"{host}: {reason}" for host, reason in sorted(errors_by_host.items()))
        )
        error.table = {"told": dict(sorted(out.items())), "failed": errors_by_host}
        raise error
    return dict(sorted(out.items()))


def _outcome(reply: minions.Reply) -> tuple[str, str | None]:
    """Return the state's comment, and the error if the state failed."""
    if reply.is_missing:
        return "", reply.reason
    answer = reply.value if isinstance(reply.value, dict) else {}
    state = next(iter(answer.values()), None)
    comment = state.get("comment") if isinstance(state, dict) else None
    if not isinstance(comment, str):
        return "", reply.reason or "its answer cannot be read"
    has_done = state and state.get("result") is True and not state.get("unread")
    return (comment, None) if has_done else ("", comment)


@_translate_errors()
def rotate(cloud: Cloud, now: datetime) -> dict[str, Any]:
    """
    Replace the CA in three steps; any two hosts share a trusted CA throughout.

    Every host must complete a step before the next one begins. If a host fails, MasterError names
    it, and the next run continues from there.
    """
    authorities, hosts = open_authorities(cloud.opts), inventory.hosts(cloud)
    cloud.progress("Trusting", detail="every host learns to trust the next CA")
    authorities.begin_rotation(
        now, kind=config.pki_options(cloud.settings).get("key_type", "ecdsa")
    )
    apply_keys(cloud, hosts)
    cloud.progress("Renewing", detail="every host gets certificates of the next CA")
    authorities.promote(now)
    apply_keys(cloud, hosts)
    cloud.progress("Forgetting", detail="every host stops trusting the old CA")
    authorities.finish_rotation(now)
    apply_keys(cloud, hosts)
    return {"rotated": sorted(hosts)}


@_translate_errors()
def revoke(cloud: Cloud, serial: str, now: datetime) -> dict[str, Any]:
    """Revoke one certificate and update all other hosts; a repeated call only updates them."""
    rows = [
        row
        for row in list_certificates(open_authorities(cloud.opts), now)
        if row["serial"] == serial
    ]
    rows = [row for row in rows if row["state"] != "expired"]
    if not rows:
        raise BadArgument(
            "target",
            f"{serial!r} is neither a host nor a serial with a valid certificate; see: salt-run "
            "virt_pki.list",
        )
    _revoke_valid(cloud.opts, rows, now)
    owners = {row["host"] for row in rows}
    other_hosts = [host for host in inventory.allowed_hosts(cloud) if host not in owners]
    try:
        comments_by_host = apply_keys(cloud, other_hosts)
    except MasterError as failed:
        error = MasterError(
            f"{serial}: revoked, but not every other host was updated: {failed}; run salt-run "
            f"virt_pki.revoke {serial} again"
        )
        error.table = {"revoked": [serial], **getattr(failed, "table", {})}
        raise error from failed
    return {"revoked": [serial], "told": comments_by_host}


def _revoke_valid(
    opts: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], now: datetime
) -> list[str]:
    """Revoke the certificates that are still valid; return their serials."""
    valid_rows = [row for row in rows if row["state"] in ("good", "replaced")]
    open_authorities(opts).revoke(valid_rows, now)
    return [row["serial"] for row in valid_rows]


def revoke_hosts(opts: Mapping[str, Any], hosts: Collection[str], now: datetime) -> list[str]:
    """
    Revoke all certificates of hosts; return the serials of those that were valid.

    A failure for one host does not stop the others. :class:`PkiRefused` follows at the end, with
    the serials in its table as ``revoked``.
    """
    authorities, serials, reasons_by_host = open_authorities(opts), [], {}
    for host in sorted(filter(policy.is_name, hosts)):
        try:
            # The lock lets a pending request of the host end first, so its certificate is revoked.
            with Register(authorities.folder).hold_lock(host):
                rows = [row for row in list_certificates(authorities, now) if row["host"] == host]
                serials += _revoke_valid(opts, rows, now)
        except OSError as error:
            reasons_by_host[host] = masteruser.explain_error(error, opts)
        except (ValueError, VirtError) as error:
            reasons_by_host[host] = str(error)
    if reasons_by_host:
        lines = (f"{host}: {reason}" for host, reason in reasons_by_host.items())
        refusal = PkiRefused("; ".join(lines))
        refusal.table = {"revoked": serials}
        raise refusal
    return serials


@_translate_errors()
def reclaim(opts: Mapping[str, Any], hosts: Iterable[str], now: datetime) -> dict[str, list[str]]:
    """
    Revoke other hosts' certificates that contain a name of these hosts.

    Returns ``{other host: [serial]}``; see :mod:`saltvirt.ca.enrolled`. Raises
    :class:`PkiRefused` if the CAs' files cannot be used.
    """
    authorities = open_authorities(opts)
    try:
        configured_names = config.pki_options(config.master_settings(opts)).get("names") or {}
    except BadConfig:
        # The CA signs nothing until the option is corrected; the first request after that reclaims.
        return {}
    out: dict[str, list[str]] = {}
    try:
        for host in filter(policy.is_name, hosts):
            serials_by_host = reclaiming.reclaim_names(
                authorities, Register(authorities.folder), host, configured_names, now
            )
            for other_host, serials in serials_by_host.items():
                out.setdefault(other_host, []).extend(serials)
    except OSError as error:
        raise PkiRefused(masteruser.explain_error(error, opts)) from error
    return out


def holders(opts: Mapping[str, Any], now: datetime) -> set[str]:
    """Return the hosts with certificates that have not expired, including revoked ones."""
    return {
        row["host"]
        for row in list_certificates(open_authorities(opts), now)
        if row["state"] != "expired"
    }


def _passphrase(opts: Mapping[str, Any], path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as exc:
        raise BadArgument("passphrase_file", masteruser.explain_error(exc, opts)) from exc
    except UnicodeDecodeError as exc:
        raise BadArgument("passphrase_file", f"{path}: {exc}") from exc


def export(opts: Mapping[str, Any], path: str | Path, passphrase_file: str | Path) -> str:
    """Write an encrypted backup of the CA; return its path."""
    authorities = open_authorities(opts)
    try:
        contents_by_path = backup.read_all(authorities.folder)
        if store.CERTIFICATE not in contents_by_path:
            raise PkiRefused(
                "this master has no CA yet; the first virt.keys of a hypervisor makes it"
            )
        files.write(
            path, backup.pack(contents_by_path, _passphrase(opts, passphrase_file)).encode()
        )
    except ca.PkiError as exc:
        raise PkiRefused(f"no backup was written: {exc}") from exc
    except OSError as exc:
        raise PkiRefused(f"no backup was written: {masteruser.explain_error(exc, opts)}") from exc
    return str(path)


def restore(opts: Mapping[str, Any], path: str | Path, passphrase_file: str | Path) -> str:
    """Restore a backup on a master without another CA; return the CA's folder."""
    authorities = open_authorities(opts)
    try:
        # A binary file must be refused as no backup, not as undecodable text.
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        contents_by_path = backup.unpack(text, _passphrase(opts, passphrase_file))
        backup.restore(authorities.folder, contents_by_path)
    except ca.PkiError as exc:
        raise PkiRefused(f"nothing was restored: {exc}") from exc
    except OSError as exc:
        raise PkiRefused(f"nothing was restored: {masteruser.explain_error(exc, opts)}") from exc
    return str(authorities.folder)
