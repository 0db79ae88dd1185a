"""Say who is a hypervisor, and who is not any more."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from fnmatch import filter as matching
from typing import Any

from saltvirt import arguments, compat, config, records, terminal
from saltvirt.errors import BadArgument, BadConfig, MasterError, VirtError
from saltvirt.fleet import candidates, certificates, hints, inventory, membership, orders
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.steps import Steps
from saltvirt.pki import store

# Any minion may be a host before this project's grains are there; a fleet has thousands.
_MOST_OTHERS = 50
_SERIAL = re.compile(r"[0-9a-f]{32}")


def shown(opts: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return who is a hypervisor, who is shut out, and who may be one.

    ``{"hypervisors": {id: {"by", "fingerprint"}}, "disallowed": [id]}``, and where there are such
    minions ``odd_ids`` (``{id: what is wrong}``: hostile ones, without a fingerprint to compare,
    and suggested in no command), ``without_key``, ``waiting`` (``{id: fingerprint}`` of the keys
    that are not accepted yet) and ``candidates``, with ``allow_them``, the command; ``others``
    (``{id: fingerprint}``) are minions that say nothing of themselves, as a bare host does, and are
    no VM that is known.
    """
    candidates.refuse_targets(opts, config.master_settings(opts).hypervisors)
    members = membership.of(opts)
    keys = compat.KeyStore(opts)
    maybe, accepted = candidates.found(opts, members), keys.accepted()
    out: dict[str, Any] = {
        "hypervisors": {
            one: {"by": members.why(one), "fingerprint": keys.fingerprint(one)}
            for one in accepted
            if members.has(one)
        },
        "disallowed": sorted(members.disallowed),
        **candidates.table(maybe),
    }
    without = sorted(one for one in members.named.difference(accepted) if members.has(one))
    out |= {"without_key": without} if without else {}
    out |= _waiting(keys)
    strangers = {one for one in accepted if not members.has(one)}
    out |= candidates.odd([*keys.waiting(), *strangers])
    out |= _others(opts, strangers.difference(maybe))
    command = candidates.command(maybe)
    return {**out, "allow_them": command} if command else out


def _waiting(keys: compat.KeyStore) -> dict[str, Any]:
    """Return ``waiting``, of the ids that a host can have: the others are hostile ones."""
    ids = filter(terminal.is_plain_id, keys.waiting())
    waiting = {minion: keys.fingerprint(minion) for minion in ids}
    return {"waiting": waiting} if waiting else {}


def _others(opts: Mapping[str, Any], ids: set[str]) -> dict[str, Any]:
    """Return ``others`` and how many more there are, of accepted minions of which nobody knows."""
    vms = {name for names in hints.every(opts).values() for name in names}
    shut_out = membership.of(opts).disallowed
    plain = filter(terminal.is_plain_id, ids - vms - shut_out)
    left, keys = sorted(plain), compat.KeyStore(opts)
    shown = {one: keys.fingerprint(one) for one in left[:_MOST_OTHERS]}
    more = len(left) - len(shown)
    return {**({"others": shown} if shown else {}), **({"more_others": more} if more else {})}


def allow(opts: Mapping[str, Any], given: Sequence[object]) -> dict[str, Any]:
    """
    List minions as hypervisors; return ``{"allowed": [id]}``.

    Certificates in which other hosts have a name of these are revoked, and the others get new
    ones: then there are ``revoked`` (``{other host: [serial]}``) and ``told``, too.
    """
    known = compat.KeyStore(opts).accepted()
    texts = _texts(given)
    if not texts:
        # As of a state whose list came out empty: nothing would be done, and said to be.
        raise BadArgument("hosts", "say which: salt-run virt.allow HOST ...")
    ids = sorted({one for text in texts for one in _accepted(known, text)})
    _refuse_guests(opts, known, ids)
    membership.allow(opts, ids)
    revoked = certificates.reclaim(opts, ids, store.utc_now())
    return {"allowed": ids, **(_reissued(opts, ids, revoked) if revoked else {})}


def _reissued(
    opts: Mapping[str, Any], ids: Sequence[str], revoked: Mapping[str, list[str]]
) -> dict[str, Any]:
    """Have hosts get new certificates that had a name of new ones, and all others the list."""
    try:
        told = _tell_others(opts, ids)
    except VirtError as failed:
        error = MasterError(
            f"{' and '.join(ids)}: allowed, and the certificates of "
            f"{' and '.join(sorted(revoked))} that had such a name are revoked, but not every "
            f"other host has heard: {failed}; run salt-run virt_pki.renew"
        )
        error.table = {"allowed": ids, "revoked": dict(revoked), **getattr(failed, "table", {})}
        raise error from failed
    return {"revoked": dict(revoked), "told": told}


def _texts(given: Iterable[object]) -> list[str]:
    texts: list[str] = []
    for one in given:
        if isinstance(one, list | tuple):
            texts += _texts(one)
        else:
            texts += candidates.ids(one)
    return texts


def _accepted(known: Sequence[str], text: str) -> list[str]:
    if membership.is_glob(text):
        found = [one for one in matching(known, text) if not membership.may_be_planted(one)]
        if not found:
            raise BadArgument("hosts", f"{text!r} matches none of the minions that are accepted")
        return found
    if text not in known and not terminal.is_plain_id(text):
        raise BadArgument("hosts", f"{text!r}: {candidates.ODD}")
    if text not in known:
        raise BadArgument(
            "hosts",
            f"no key of {text!r} is accepted; {candidates.meant(text, known)}see whether it is the "
            "right one "
            f"({candidates.COMPARE}), and accept it: salt-key -a {shlex.quote(text)}",
        )
    return [text]


def _refuse_guests(opts: Mapping[str, Any], known: Iterable[str], ids: Sequence[str]) -> None:
    """Raise MasterError if one of these is a VM on a hypervisor, or on another one of these."""
    before = _members(opts)
    hosts = {one for one in known if before.has(one)}.union(ids)
    wanted = membership.Members(allowed=frozenset(ids))
    found = membership.guests(opts, wanted, hosts)
    # Of itself none is a VM: an older release asked guests, and they could say anything.
    others = {vm: [host for host in there if host != vm] for vm, there in found.items()}
    said = [f"{vm} is a VM on {', '.join(on)}" for vm, on in sorted(others.items()) if on]
    orders_of = records.every(orders.folder(opts), orders.PURPOSE)
    said += [f"{one.name} is a VM ({one.phase})" for one in orders_of if wanted.reserved(one.name)]
    if said:
        raise MasterError(
            f"{'; '.join(said)}; a VM is never a hypervisor, so nobody was allowed: name the others"
        )


def _members(opts: Mapping[str, Any]) -> membership.Members:
    """Return who is a hypervisor, by the list alone where the configuration cannot be used."""
    try:
        return membership.of(opts)
    except BadConfig:
        # This command is what its error tells the operator to run.
        return membership.listed(opts)


def _readable_members(opts: Mapping[str, Any]) -> membership.Members:
    """Return the same, and no hypervisors if the list itself cannot be read."""
    try:
        return _members(opts)
    except MasterError:
        return membership.Members()


def disallow(opts: Mapping[str, Any], given: Sequence[object], now: datetime) -> dict[str, Any]:
    """
    Shut minions out: they are listed, their certificates are revoked, and all others are told.

    Returns ``{"disallowed": [id], "revoked": [serial], "told": {host: what was done}}``, and
    ``last_seen`` (``{host: [VM]}``) where they had VMs when they were last asked. A step that fails
    keeps no later step from being done: MasterError names those that failed at the end.
    """
    texts = _texts(given)
    if not texts:
        raise BadArgument("hosts", "say which: salt-run virt.disallow HOST ...")
    steps = Steps(opts)
    holders = steps.take("the certificates cannot be listed", certificates.holders, opts, now)
    ids = _known(opts, texts, holders)
    listed = steps.take("the list of hosts is not written", _listed_as_shut_out, opts, ids)
    revoked = steps.take("not all is revoked", certificates.shut_out, opts, ids, now)
    told: dict[str, str] | None = {}
    # Also if they were revoked before: then this goes on with what was interrupted.
    if holders is None or not holders.isdisjoint(ids):
        told = steps.take("not every other host has heard", _tell_others, opts, ids)
    out: dict[str, Any] = {"disallowed": listed or [], "revoked": revoked or [], "told": told or {}}
    out |= _last_seen(opts, ids)
    if steps.failed:
        done = ["shut out"] if listed else []
        done += ["the certificates are revoked"] if revoked is not None else []
        raise _half_shut_out(ids, done, steps, out)
    return out


def _last_seen(opts: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
    """Return ``{"last_seen": {host: [VM]}}`` of hosts that had VMs when they were last asked."""
    found = {host: names for host, names in hints.every(opts).items() if host in ids}
    return {"last_seen": found} if found else {}


def _half_shut_out(
    ids: Sequence[str], done: Sequence[str], steps: Steps, out: Mapping[str, Any]
) -> MasterError:
    """Return the error of hosts that are shut out, though not every step was done."""
    error = MasterError(
        f"{' and '.join(ids)}: {', and '.join(done)}{', but ' if done else ''}"
        f"{'; '.join(steps.failed)}; run salt-run virt.disallow {shlex.join(ids)} again"
    )
    error.table = {**out, **steps.table}
    return error


def _listed_as_shut_out(opts: Mapping[str, Any], ids: list[str]) -> list[str]:
    membership.disallow(opts, ids)
    return ids


def _tell_others(opts: Mapping[str, Any], ids: Sequence[str]) -> dict[str, str]:
    cloud = Cloud.of(opts)
    # If the list could not be written, the configuration may still have these.
    others = [host for host in inventory.allowed(cloud) if host not in ids]
    return certificates.apply_keys(cloud, others)


def revoke(opts: Mapping[str, Any], target: str, now: datetime) -> dict[str, Any]:
    """Shut a host out, or revoke one certificate by its serial."""
    arguments.text("target", target)
    holders = Steps(opts).take("", certificates.holders, opts, now)
    # If the certificates cannot be listed, a host must be shut out all the same.
    if target in holders if holders is not None else not _SERIAL.fullmatch(target):
        return disallow(opts, [target], now)
    return certificates.revoke(Cloud.of(opts), target, now)


def _known(opts: Mapping[str, Any], texts: Iterable[str], holders: set[str] | None) -> list[str]:
    """
    Return the ids that are meant; refuse one that nobody could mean.

    holders
        The hosts with certificates. None: they are unknown, and any id may be one.
    """
    members = _readable_members(opts)
    known = {*compat.KeyStore(opts).accepted(), *members.allowed, *members.disallowed}
    known |= holders or set()
    out: set[str] = set()
    for text in texts:
        if membership.is_glob(text):
            found = matching(known, text)
        else:
            found = [one for one in known if one.casefold() == text.casefold()]
            # A VM without a key may be what a glob has come to match.
            is_possible = holders is None or members.reserved(text)
            found = found or ([text] if is_possible else [])
        if not found:
            why = f"{text!r} is not a minion or a host that this master knows"
            asked = candidates.meant(text, known).strip()
            raise BadArgument("hosts", f"{why}; {asked}" if asked else why)
        out.update(found)
    return sorted(out)
