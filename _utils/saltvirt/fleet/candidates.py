"""
Minions that may be hypervisors, shown so that the operator can say who is.

That a minion has the grain ``virt_hypervisor``, or certificates of an earlier release, is a hint
for a reader: nothing is decided by it.
"""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from salt.utils.minions import CkMinions

from saltvirt import arguments, compat, terminal
from saltvirt.errors import BadArgument, MasterError
from saltvirt.fleet import hints, membership
from saltvirt.pki import store
from saltvirt.pki.authorities import Authorities

_GRAIN = "G@virt_hypervisor:True"
# What salt-key -f shows is another value on 3008 than what a host shows of its own key.
COMPARE = (
    "salt-run virt.allow shows its fingerprint, salt-call --local key.finger shows the host's own"
)
# Whoever reaches the master chooses the id of a key that waits.
ODD = (
    "no host has such an id: it has letters that a terminal hides or obeys, or that a shell takes "
    "for something else; do not accept its key, and do not type it"
)
# So many ids are asked about; more help nobody.
_NEAR = 3
# Where the masters below a syndic belong.
_CELLS = "make the masters below cells of this one: docs/cells.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """
    A minion that may be a hypervisor.

    why
        What speaks for it.
    fingerprint
        That of its accepted key.
    vm_on
        The hosts that have a VM of its name: then it is a guest.
    """

    why: str
    fingerprint: str | None
    vm_on: list[str]


def found(
    opts: Mapping[str, Any], members: membership.Members, target: str | None = None
) -> dict[str, Candidate]:
    """
    Return the accepted minions that may be hypervisors, and of which nobody has said so.

    target
        A compound target that named them before.
    """
    keys = compat.KeyStore(opts)
    reasons: dict[str, list[str]] = {}
    for why, ids in (
        ("says that it is one", _matching(opts, _GRAIN)),
        ("has certificates", _certified(opts)),
        (f"matches {target}", _matching(opts, target) if target else ()),
    ):
        for one in ids:
            reasons.setdefault(one, []).append(why)
    there = hints.every(opts)
    return {
        one: Candidate(
            why=", ".join(reasons[one]),
            fingerprint=keys.fingerprint(one),
            vm_on=sorted(host for host, names in there.items() if host != one and one in names),
        )
        for one in keys.accepted()
        if one in reasons and not members.has(one) and not members.is_disallowed(one)
    }


def _matching(opts: Mapping[str, Any], target: str) -> list[str]:
    # As the master has them in its cache: no minion is asked.
    matched = CkMinions(opts).check_minions(target, "compound", greedy=False)
    return list(matched.get("minions") or ())


def _certified(opts: Mapping[str, Any]) -> set[str]:
    """Return the hosts with certificates that are valid now."""
    place, now = Authorities(membership.folder(opts)), store.utc_now()
    revoked = place.revoked()
    return {
        row["host"]
        for row in place.issued()
        if row["serial"] not in revoked and datetime.fromisoformat(row["not_after"]) > now
    }


def ids(one: object) -> tuple[str, ...]:
    """Return the minions that a word of a call names, with commas between them."""
    found: tuple[str, ...] = arguments.names("hosts", arguments.text("hosts", one))
    if not found:
        raise BadArgument("hosts", f"{one!r} is not the id of a minion")
    return found


def meant(text: str, known: Iterable[str]) -> str:
    """
    Return the question whether another id is meant, to be put into an error; maybe nothing.

    Salt calls a minion by its host's full name; those who name one often leave the domain out.
    """
    first = text.casefold().partition(".")[0]
    near = [
        one
        for one in known
        if one.casefold().partition(".")[0] == first
        and not membership.may_be_planted(one)
        and terminal.is_plain_id(one)
    ]
    return f"is {' or '.join(sorted(near))} meant? " if 0 < len(near) <= _NEAR else ""


def table(candidates: Mapping[str, Candidate]) -> dict[str, Any]:
    """Return ``{"candidates": {id: {"why", "fingerprint", "vm_on"}}}``, empty if there are none."""
    shown = {one: asdict(candidate) for one, candidate in sorted(candidates.items())}
    return {"candidates": shown} if shown else {}


def odd(ids: Iterable[str]) -> dict[str, Any]:
    """Return ``{"odd_ids": {id: what is wrong}}`` of ids that none of our hosts has, or nothing."""
    odd_ids = {minion: ODD for minion in sorted(ids) if not terminal.is_plain_id(minion)}
    return {"odd_ids": odd_ids} if odd_ids else {}


def command(candidates: Mapping[str, Candidate]) -> str | None:
    """Return the command that allows all of them but guests and odd ids; None if none is left."""
    hosts = sorted(
        one
        for one, candidate in candidates.items()
        if not candidate.vm_on and terminal.is_plain_id(one)
    )
    return f"salt-run virt.allow {shlex.join(hosts)}" if hosts else None


def nobody(opts: Mapping[str, Any], members: membership.Members) -> MasterError:
    """Return the error that this master has no hypervisors, with those that may be."""
    if opts.get("order_masters"):
        return MasterError(
            "this master has no hypervisors of its own, and those behind a syndic it cannot prove: "
            f"their keys are with their master; {_CELLS}"
        )
    maybe = found(opts, members)
    line = command(maybe)
    if line is None:
        why = "nobody is allowed to be one, and no minion says that it is"
        if members.patterns or members.allowed:
            why = (
                "none of those that are allowed to be one has a key that is accepted (salt-key -L)"
            )
        error = MasterError(
            f"this master has no hypervisors: {why}; name yours: salt-run virt.allow HOST"
        )
    else:
        error = MasterError(
            f"this master has no hypervisors yet: {_listed(maybe)} may be; if their keys' "
            "fingerprints are right (salt-run virt.allow shows them, salt-call --local key.finger "
            "the same ones there), run: " + line
        )
    error.table = table(maybe)
    return error


def _listed(candidates: Mapping[str, Candidate]) -> str:
    names = sorted(
        terminal.escaped(one) for one, candidate in candidates.items() if not candidate.vm_on
    )
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def refuse_syndics(opts: Mapping[str, Any]) -> None:
    """Raise MasterError on a master above syndics, if its Salt loses what comes through them."""
    if opts.get("order_masters") and compat.loses_answers_of_syndics():
        raise MasterError(
            "option order_masters: Salt 3008 loses the answers of minions behind a syndic; take it "
            f"out of the master's configuration; {_CELLS}"
        )


def refuse_targets(opts: Mapping[str, Any], option: Any) -> None:
    """Refuse what ``virt:hypervisors`` cannot have; of a target, with the command in its place."""
    try:
        membership.patterns(option, opts.get("nodegroups") or {})
    except membership.BadTarget as refused:
        maybe = found(opts, membership.listed(opts), refused.target)
        line = command(maybe)
        if line is None:
            raise
        error = membership.BadTarget(refused.word, refused.target, line)
        error.table = table(maybe)
        raise error from None
