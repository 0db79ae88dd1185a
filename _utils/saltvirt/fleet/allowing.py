"""Say who is a hypervisor, and who is not any more."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from fnmatch import filter as matching
from typing import Any

from saltvirt import arguments, compat, config, records, terminal
from saltvirt.errors import BadArgument, BadConfig, MasterError, VirtError
from saltvirt.fleet import candidates, certificates, hints, inventory, membership, orders
from saltvirt.fleet.cloud import Cloud

# Any minion may be a host before this project's grains are there; a fleet has thousands.
_MOST_OTHERS = 50


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


def allow(opts: Mapping[str, Any], given: Sequence[object]) -> dict[str, list[str]]:
    """List minions as hypervisors; return ``{"allowed": [id]}``."""
    known = compat.KeyStore(opts).accepted()
    texts = _texts(given)
    if not texts:
        # As of a state whose list came out empty: nothing would be done, and said to be.
        raise BadArgument("hosts", "say which: salt-run virt.allow HOST ...")
    ids = sorted({one for text in texts for one in _accepted(known, text)})
    _refuse_guests(opts, known, ids)
    membership.allow(opts, ids)
    return {"allowed": ids}


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


def disallow(opts: Mapping[str, Any], given: Sequence[object], now: datetime) -> dict[str, Any]:
    """
    Shut minions out: they are listed, their certificates are revoked, and all others are told.

    Returns ``{"disallowed": [id], "revoked": [serial], "told": {host: what was done}}``.
    """
    texts = _texts(given)
    if not texts:
        raise BadArgument("hosts", "say which: salt-run virt.disallow HOST ...")
    ids = _known(opts, texts, now)
    membership.disallow(opts, ids)
    revoked = certificates.shut_out(opts, ids, now)
    out = {"disallowed": ids, "revoked": revoked, "told": {}}
    # Also if they were revoked before: then this goes on with what was interrupted.
    if certificates.holders(opts, now).isdisjoint(ids):
        return out
    try:
        cloud = Cloud.of(opts)
        told = certificates.apply_keys(cloud, inventory.allowed(cloud))
    except VirtError as failed:
        error = MasterError(
            f"{' and '.join(ids)}: shut out, and the certificates are revoked, but not every other "
            f"host has heard: {failed}; run salt-run virt.disallow {shlex.join(ids)} again"
        )
        error.table = {**out, **getattr(failed, "table", {})}
        raise error from failed
    return {**out, "told": told}


def revoke(opts: Mapping[str, Any], target: str, now: datetime) -> dict[str, Any]:
    """Shut a host out, or revoke one certificate by its serial."""
    if arguments.text("target", target) in certificates.holders(opts, now):
        return disallow(opts, [target], now)
    return certificates.revoke(Cloud.of(opts), target, now)


def _known(opts: Mapping[str, Any], texts: Iterable[str], now: datetime) -> list[str]:
    """Return the ids that are meant; refuse one that nobody could mean."""
    members, listed = _members(opts), membership.listed(opts)
    known = {*compat.KeyStore(opts).accepted(), *listed.allowed, *listed.disallowed}
    known |= certificates.holders(opts, now)
    out: set[str] = set()
    for text in texts:
        if membership.is_glob(text):
            found = matching(known, text)
        else:
            found = [one for one in known if one.casefold() == text.casefold()]
            # A VM without a key may be what a glob has come to match.
            found = found or ([text] if members.reserved(text) else [])
        if not found:
            why = f"{text!r} is not a minion or a host that this master knows"
            asked = candidates.meant(text, known).strip()
            raise BadArgument("hosts", f"{why}; {asked}" if asked else why)
        out.update(found)
    return sorted(out)
