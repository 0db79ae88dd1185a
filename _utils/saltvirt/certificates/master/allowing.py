"""Allow hypervisors, shut them out, and list both."""

import fnmatch
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from saltvirt.ca import store
from saltvirt.certificates.master import certificates
from saltvirt.cluster import candidates, membership, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen
from saltvirt.cluster.rpc import waits
from saltvirt.core import arguments, terminal
from saltvirt.core.errors import BadArgument, BadConfig, MasterError, VirtError
from saltvirt.core.journal import records
from saltvirt.core.options import config
from saltvirt.core.salt import compat
from saltvirt.core.undo import IndependentSteps

# Any minion without this project's grains may be a host, and a fleet has thousands.
_MAX_OTHER_MINIONS = 50
_SERIAL = re.compile(r"[0-9a-f]{32}")


def show_members(opts: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the hypervisors, the minions that are shut out, and those that may be hypervisors.

    ``{"hypervisors": {id: {"by", "fingerprint"}}, "disallowed": [id]}``, and where they are not
    empty: ``without_key`` (allowed ids), ``waiting`` (``{id: fingerprint}`` of keys that are not
    accepted yet), ``candidates`` with ``allow_them`` (the command that allows them), ``others``
    (``{id: fingerprint}`` of minions that report no grain, as a bare host, and are no known VM),
    ``more_others`` (a number), and ``odd_ids`` (``{id: what is wrong}`` of hostile ids, which no
    command suggests).
    """
    candidates.refuse_targets(opts, config.master_settings(opts).hypervisors)
    members = membership.read_members(opts)
    keys = compat.KeyStore(opts)
    candidates_by_id, accepted_ids = candidates.find_candidates(opts, members), keys.accepted()
    out: dict[str, Any] = {
        "hypervisors": {
            minion: {"by": members.why(minion), "fingerprint": keys.fingerprint(minion)}
            for minion in accepted_ids
            if members.has(minion)
        },
        "disallowed": sorted(members.disallowed),
        **candidates.table(candidates_by_id),
    }
    ids_without_key = sorted(
        minion for minion in members.named.difference(accepted_ids) if members.has(minion)
    )
    out |= {"without_key": ids_without_key} if ids_without_key else {}
    out |= _list_waiting_keys(keys)
    strangers = {minion for minion in accepted_ids if not members.has(minion)}
    out |= candidates.list_odd_ids([*keys.waiting(), *strangers])
    out |= _list_other_minions(opts, strangers.difference(candidates_by_id))
    command = candidates.allow_command(candidates_by_id)
    return {**out, "allow_them": command} if command else out


def _list_waiting_keys(keys: compat.KeyStore) -> dict[str, Any]:
    """Return ``waiting``, without ids that no host can have: these are hostile."""
    ids = filter(terminal.is_plain_id, keys.waiting())
    fingerprints = {minion: keys.fingerprint(minion) for minion in ids}
    return {"waiting": fingerprints} if fingerprints else {}


def _list_other_minions(opts: Mapping[str, Any], ids: set[str]) -> dict[str, Any]:
    """Return ``others`` and ``more_others``: accepted minions that may be bare hosts."""
    vms = {name for names in lastseen.read_all(opts).values() for name in names}
    disallowed_ids = membership.read_members(opts).disallowed
    plain_ids = filter(terminal.is_plain_id, ids - vms - disallowed_ids)
    other_ids, keys = sorted(plain_ids), compat.KeyStore(opts)
    fingerprints = {minion: keys.fingerprint(minion) for minion in other_ids[:_MAX_OTHER_MINIONS]}
    more_count = len(other_ids) - len(fingerprints)
    return {
        **({"others": fingerprints} if fingerprints else {}),
        **({"more_others": more_count} if more_count else {}),
    }


def allow(opts: Mapping[str, Any], host_args: Sequence[object]) -> dict[str, Any]:
    """
    List minions as hypervisors; return ``{"allowed": [id]}``.

    If other hosts' certificates contain a name of these minions, the CA revokes them and these
    hosts get new ones. The answer then has ``revoked`` (``{other host: [serial]}``) and ``told``.
    """
    accepted_ids = compat.KeyStore(opts).accepted()
    texts = _split_host_args(host_args)
    if not texts:
        # A state may pass an empty list by mistake; success would hide that.
        raise BadArgument("hosts", "say which: salt-run virt.allow HOST ...")
    ids = sorted({minion for text in texts for minion in _match_accepted(accepted_ids, text)})
    _refuse_guests(opts, accepted_ids, ids)
    membership.allow(opts, ids)
    serials_by_host = certificates.reclaim(opts, ids, store.utc_now())
    return {
        "allowed": ids,
        **(_reissue_certificates(opts, ids, serials_by_host) if serials_by_host else {}),
    }


def _reissue_certificates(
    opts: Mapping[str, Any], ids: Sequence[str], serials_by_host: Mapping[str, list[str]]
) -> dict[str, Any]:
    """Have all other hosts apply ``virt.keys``; return ``revoked`` and ``told``."""
    try:
        comments_by_host = _update_other_hosts(opts, ids)
    except VirtError as failed:
        error = MasterError(
            f"{' and '.join(ids)}: allowed, and the certificates of "
            f"{' and '.join(sorted(serials_by_host))} that had such a name are revoked, but not "
            f"every other host was updated: {failed}; run salt-run virt_pki.renew"
        )
        error.table = {
            "allowed": ids,
            "revoked": dict(serials_by_host),
            **getattr(failed, "table", {}),
        }
        raise error from failed
    return {"revoked": dict(serials_by_host), "told": comments_by_host}


def _split_host_args(host_args: Iterable[object]) -> list[str]:
    texts: list[str] = []
    for arg in host_args:
        if isinstance(arg, list | tuple):
            texts += _split_host_args(arg)
        else:
            texts += candidates.parse_ids(arg)
    return texts


def _match_accepted(accepted_ids: Sequence[str], text: str) -> list[str]:
    if membership.is_glob(text):
        matches = [
            minion
            for minion in fnmatch.filter(accepted_ids, text)
            if not membership.may_be_planted(minion)
        ]
        if not matches:
            raise BadArgument("hosts", f"{text!r} matches none of the minions that are accepted")
        return matches
    if text not in accepted_ids and not terminal.is_plain_id(text):
        raise BadArgument("hosts", f"{text!r}: {candidates.ODD_ID_MESSAGE}")
    if text not in accepted_ids:
        raise BadArgument(
            "hosts",
            f"no key of {text!r} is accepted; {candidates.suggest_ids(text, accepted_ids)}see "
            "whether it is the "
            "right one "
            f"({candidates.COMPARE}), and accept it: salt-key -a {shlex.quote(text)}",
        )
    return [text]


def _refuse_guests(
    opts: Mapping[str, Any], accepted_ids: Iterable[str], ids: Sequence[str]
) -> None:
    """Raise MasterError if one of the ids is a VM, on any host or by an order."""
    members = _members(opts)
    hosts = {minion for minion in accepted_ids if members.has(minion)}.union(ids)
    new_members = membership.Members(allowed=frozenset(ids))
    hosts_by_guest = membership.find_last_seen_guests(opts, new_members, hosts)
    # What an id reported about itself does not count: a guest may lie.
    other_hosts_by_guest = {
        vm: [host for host in guest_hosts if host != vm]
        for vm, guest_hosts in hosts_by_guest.items()
    }
    reasons = [
        f"{vm} is a VM on {', '.join(other_hosts)}"
        for vm, other_hosts in sorted(other_hosts_by_guest.items())
        if other_hosts
    ]
    order_records = records.read_records(orders.folder(opts), orders.PURPOSE)
    reasons += [
        f"{order.name} is a VM ({order.phase})"
        for order in order_records
        if new_members.reserved(order.name)
    ]
    if reasons:
        raise MasterError(
            f"{'; '.join(reasons)}; a VM is never a hypervisor, so no host was allowed: name the "
            "others"
        )


def _members(opts: Mapping[str, Any]) -> membership.Members:
    """Return the members; by the list alone if the configuration cannot be used."""
    try:
        return membership.read_members(opts)
    except BadConfig:
        # The error's remedy is virt.allow, so virt.allow must work.
        return membership.read_listed(opts)


def _readable_members(opts: Mapping[str, Any]) -> membership.Members:
    """Return :func:`_members`, or no members if the list cannot be read."""
    try:
        return _members(opts)
    except MasterError:
        return membership.Members()


def disallow(
    opts: Mapping[str, Any],
    host_args: Sequence[object],
    now: datetime,
    *,
    force: bool = False,
    function: str = "virt.disallow",
) -> dict[str, Any]:
    """
    Shut minions out: list them, revoke their certificates, and update all other hosts.

    force
        Shut out hosts with VMs, too. Without, MasterError names the VMs, and nothing is changed.
    function
        The function that the operator called, for the command in that error.

    Returns ``{"disallowed": [id], "revoked": [serial], "told": {host: comment}}``, and
    ``last_seen`` (``{host: [VM]}``) of minions that had VMs when they last answered. Later steps
    run even if a step fails; MasterError names the failed steps at the end.
    """
    texts = _split_host_args(host_args)
    if not texts:
        raise BadArgument("hosts", "say which: salt-run virt.disallow HOST ...")
    steps = IndependentSteps(opts)
    holders = steps.take("the certificates cannot be listed", certificates.holders, opts, now)
    ids = _match_known(opts, texts, holders)
    if not force:
        _refuse_hosts_with_vms(opts, ids, function)
    disallowed_ids = steps.take("the list of hosts is not written", _write_disallowed, opts, ids)
    revoked_serials = steps.take("not all is revoked", certificates.revoke_hosts, opts, ids, now)
    comments_by_host: dict[str, str] | None = {}
    # Revoked certificates count, too: an interrupted call may not have updated the other hosts.
    if holders is None or not holders.isdisjoint(ids):
        comments_by_host = steps.take(
            "not every other host was updated", _update_other_hosts, opts, ids
        )
    out: dict[str, Any] = {
        "disallowed": disallowed_ids or [],
        "revoked": revoked_serials or [],
        "told": comments_by_host or {},
    }
    out |= steps.take("the VMs last seen there are not known", _last_seen, opts, ids) or {}
    if steps.failed:
        finished_steps = ["shut out"] if disallowed_ids else []
        finished_steps += ["the certificates are revoked"] if revoked_serials is not None else []
        raise _partial_disallow_error(ids, finished_steps, steps, out, force=force)
    return out


def _refuse_hosts_with_vms(opts: Mapping[str, Any], ids: Sequence[str], function: str) -> None:
    """
    Raise MasterError if a host that may be reached until now has VMs.

    The hosts are asked; a host without an answer counts as having the VMs that it had when it last
    answered. A host that is shut out already, or has no key, loses nothing by another call.
    """
    accepted_ids, members = compat.KeyStore(opts).accepted(), _readable_members(opts)
    hosts = [host for host in ids if host in accepted_ids and not members.is_disallowed(host)]
    reasons_by_host = _ask_for_names(opts, [host for host in hosts if members.has(host)])
    force_command = f"salt-run {function} {shlex.join(ids)} force=True"
    try:
        names_by_host = _last_seen(opts, hosts).get("last_seen", {})
    except (MasterError, OSError) as failed:
        raise MasterError(
            f"which VMs {' and '.join(hosts)} had is not known, so nothing was changed: {failed}; "
            f"to shut out a host that is dead or hostile all the same: {force_command}"
        ) from failed
    if not names_by_host:
        return
    parts = [
        _describe_vms(host, names, reasons_by_host.get(host))
        for host, names in names_by_host.items()
    ]
    host_word = shlex.quote(next(iter(names_by_host))) if len(names_by_host) == 1 else "HOST"
    error = MasterError(
        f"{'; '.join(parts)}; nothing was changed, as no command of this master reaches the VMs "
        f"of a host that is shut out: empty it first: salt-run virt.evacuate {host_word}; if it is "
        f"dead, see what to do about them: salt-run virt.host_lost {host_word}; if it is dead or "
        f"hostile, shut it out with them: {force_command}"
    )
    error.table = {"last_seen": names_by_host}
    raise error


def _describe_vms(host: str, names: Sequence[str], reason: str | None) -> str:
    """Return the VMs of a host; ``reason`` says why it did not list them now."""
    count_text = terminal.count_text(len(names), "VM")
    names_text = terminal.join_some(names)
    if reason is None:
        return f"{host} has {count_text} ({names_text})"
    return f"{host} had {count_text} ({names_text}) when it last answered ({reason})"


def _ask_for_names(opts: Mapping[str, Any], hosts: Sequence[str]) -> dict[str, str]:
    """Have hosts list their VMs, which refreshes the hints; return why some hosts did not."""
    if not hosts:
        return {}
    try:
        survey = inventory.survey(Cloud.of(opts, is_reading=True), hosts, "virt.vm_state")
        return waits.add_durations(opts, survey.reasons())
    except (VirtError, OSError) as error:
        # A host must be shut out even if this master cannot ask: what was last seen counts.
        return dict.fromkeys(hosts, f"it cannot be asked: {error}")


def _last_seen(opts: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
    """Return ``{"last_seen": {host: [VM]}}`` of hosts that had VMs when they last answered."""
    names_by_host = {host: names for host, names in lastseen.read_all(opts).items() if host in ids}
    return {"last_seen": names_by_host} if names_by_host else {}


def _partial_disallow_error(
    ids: Sequence[str],
    finished_steps: Sequence[str],
    steps: IndependentSteps,
    out: Mapping[str, Any],
    *,
    force: bool,
) -> MasterError:
    """Return the error of a virt.disallow of which some steps failed."""
    force_text = " force=True" if force else ""
    error = MasterError(
        f"{' and '.join(ids)}: {', and '.join(finished_steps)}{', but ' if finished_steps else ''}"
        f"{'; '.join(steps.failed)}; run salt-run virt.disallow {shlex.join(ids)}{force_text} again"
    )
    error.table = {**out, **steps.table}
    return error


def _write_disallowed(opts: Mapping[str, Any], ids: list[str]) -> list[str]:
    membership.disallow(opts, ids)
    return ids


def _update_other_hosts(opts: Mapping[str, Any], ids: Sequence[str]) -> dict[str, str]:
    cloud = Cloud.of(opts)
    # If the list was not written, the ids still count as hypervisors.
    other_hosts = [host for host in inventory.allowed_hosts(cloud) if host not in ids]
    return certificates.apply_keys(cloud, other_hosts)


def revoke(
    opts: Mapping[str, Any], target: str, now: datetime, *, force: bool = False
) -> dict[str, Any]:
    """Shut a host out (see :func:`disallow`), or revoke one certificate by its serial."""
    arguments.text("target", target)
    holders = IndependentSteps(opts).take("", certificates.holders, opts, now)
    # A host must be shut out even if the certificates cannot be listed.
    if target in holders if holders is not None else not _SERIAL.fullmatch(target):
        return disallow(opts, [target], now, force=force, function="virt_pki.revoke")
    return certificates.revoke(Cloud.of(opts), target, now)


def _match_known(
    opts: Mapping[str, Any], texts: Iterable[str], holders: set[str] | None
) -> list[str]:
    """
    Return the ids that the texts mean; refuse a text without a known id.

    holders
        The hosts with certificates; None if unknown, so that any id may have one.
    """
    members = _readable_members(opts)
    known_ids = {*compat.KeyStore(opts).accepted(), *members.allowed, *members.disallowed}
    known_ids |= holders or set()
    out: set[str] = set()
    for text in texts:
        if membership.is_glob(text):
            matches = fnmatch.filter(known_ids, text)
        else:
            matches = [minion for minion in known_ids if minion.casefold() == text.casefold()]
            # A glob of virt:hypervisors may match a VM that has no key.
            is_possible = holders is None or members.reserved(text)
            matches = matches or ([text] if is_possible else [])
        if not matches:
            reason = f"{text!r} is not a minion or a host that this master knows"
            question = candidates.suggest_ids(text, known_ids).strip()
            raise BadArgument("hosts", f"{reason}; {question}" if question else reason)
        out.update(matches)
    return sorted(out)
