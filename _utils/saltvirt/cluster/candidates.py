"""
List minions that may be hypervisors, for the operator to allow.

The grain ``virt_hypervisor`` and certificates are hints for the operator; no decision depends on
them.
"""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from salt.utils.minions import CkMinions

from saltvirt.ca import store
from saltvirt.ca.authorities import Authorities
from saltvirt.cluster import membership
from saltvirt.cluster.inventory import lastseen
from saltvirt.core import arguments, terminal
from saltvirt.core.errors import BadArgument, MasterError
from saltvirt.core.salt import compat

_GRAIN = "G@virt_hypervisor:True"
# On Salt 3008 salt-key -f shows another fingerprint than the host shows of its own key.
COMPARE = (
    "salt-run virt.allow shows its fingerprint, salt-call --local key.finger shows the host's own"
)
# Any machine that reaches the master chooses the id of its waiting key.
ODD_ID_MESSAGE = (
    "no host has such an id: it has letters that a terminal hides or obeys, or that a shell takes "
    "for something else; do not accept its key, and do not type it"
)
# A question about more ids would not help the operator.
_MAX_SUGGESTIONS = 3
# The remedy for masters below a syndic.
_CELLS = "make the masters below cells of this one: docs/cells.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """
    A minion that may be a hypervisor.

    why
        The hints that the minion is a hypervisor.
    fingerprint
        Of the minion's accepted key.
    vm_on
        The hosts that have a VM of that name: then the minion is a guest.
    """

    why: str
    fingerprint: str | None
    vm_on: list[str]


def find_candidates(
    opts: Mapping[str, Any], members: membership.Members, target: str | None = None
) -> dict[str, Candidate]:
    """
    Return the accepted minions that may be hypervisors and are neither allowed nor disallowed.

    target
        A compound target in ``virt:hypervisors``, which takes no such targets.
    """
    keys = compat.KeyStore(opts)
    reasons: dict[str, list[str]] = {}
    for reason, ids in (
        ("says that it is one", _match_target(opts, _GRAIN)),
        ("has certificates", _find_certified_hosts(opts)),
        (f"matches {target}", _match_target(opts, target) if target else ()),
    ):
        for minion in ids:
            reasons.setdefault(minion, []).append(reason)
    names_by_host = lastseen.read_all(opts)
    return {
        minion: Candidate(
            why=", ".join(reasons[minion]),
            fingerprint=keys.fingerprint(minion),
            vm_on=sorted(
                host for host, names in names_by_host.items() if host != minion and minion in names
            ),
        )
        for minion in keys.accepted()
        if minion in reasons and not members.has(minion) and not members.is_disallowed(minion)
    }


def _match_target(opts: Mapping[str, Any], target: str) -> list[str]:
    # The master's cache decides; no minion is asked.
    result = CkMinions(opts).check_minions(target, "compound", greedy=False)
    return list(result.get("minions") or ())


def _find_certified_hosts(opts: Mapping[str, Any]) -> set[str]:
    """Return the hosts that have a valid certificate."""
    authorities, now = Authorities(membership.folder(opts)), store.utc_now()
    revoked_serials = authorities.revoked()
    return {
        row["host"]
        for row in authorities.issued()
        if row["serial"] not in revoked_serials and datetime.fromisoformat(row["not_after"]) > now
    }


def parse_ids(word: object) -> tuple[str, ...]:
    """Return the ids in a comma-separated argument."""
    minions: tuple[str, ...] = arguments.names("hosts", arguments.text("hosts", word))
    if not minions:
        raise BadArgument("hosts", f"{word!r} is not the id of a minion")
    return minions


def suggest_ids(text: str, known_ids: Iterable[str]) -> str:
    """
    Return the part of an error that suggests similar ids; may be empty.

    A minion's id is usually its host's full name; operators often omit the domain.
    """
    first_label = text.casefold().partition(".")[0]
    similar_ids = [
        minion
        for minion in known_ids
        if minion.casefold().partition(".")[0] == first_label
        and not membership.may_be_planted(minion)
        and terminal.is_plain_id(minion)
    ]
    return (
        f"is {' or '.join(sorted(similar_ids))} meant? "
        if 0 < len(similar_ids) <= _MAX_SUGGESTIONS
        else ""
    )


def table(candidates: Mapping[str, Candidate]) -> dict[str, Any]:
    """Return ``{"candidates": {id: {"why", "fingerprint", "vm_on"}}}``, or an empty dict."""
    rows = {minion: asdict(candidate) for minion, candidate in sorted(candidates.items())}
    return {"candidates": rows} if rows else {}


def list_odd_ids(ids: Iterable[str]) -> dict[str, Any]:
    """Return ``{"odd_ids": {id: what is wrong}}`` of ids that no host has, or an empty dict."""
    odd_ids = {minion: ODD_ID_MESSAGE for minion in sorted(ids) if not terminal.is_plain_id(minion)}
    return {"odd_ids": odd_ids} if odd_ids else {}


def allow_command(candidates: Mapping[str, Candidate]) -> str | None:
    """Return the command that allows all candidates but guests and odd ids; None for none."""
    hosts = sorted(
        minion
        for minion, candidate in candidates.items()
        if not candidate.vm_on and terminal.is_plain_id(minion)
    )
    return f"salt-run virt.allow {shlex.join(hosts)}" if hosts else None


def no_hypervisors_error(opts: Mapping[str, Any], members: membership.Members) -> MasterError:
    """Return the error that this master has no hypervisors, with the candidates."""
    if opts.get("order_masters"):
        return MasterError(
            "this master has no hypervisors of its own, and those behind a syndic it cannot prove: "
            f"their keys are with their master; {_CELLS}"
        )
    candidates_by_id = find_candidates(opts, members)
    line = allow_command(candidates_by_id)
    if line is None:
        reason = "no minion is allowed as one, and none reports that it is one"
        if members.patterns or members.allowed:
            reason = "no allowed hypervisor has an accepted key (salt-key -L)"
        error = MasterError(
            f"this master has no hypervisors: {reason}; name yours: salt-run virt.allow HOST"
        )
    else:
        error = MasterError(
            f"this master has no hypervisors yet: {_join_ids(candidates_by_id)} may be; if their "
            "keys' "
            "fingerprints are right (salt-run virt.allow shows them, salt-call --local key.finger "
            "the same ones there), run: " + line
        )
    error.table = table(candidates_by_id)
    return error


def _join_ids(candidates: Mapping[str, Candidate]) -> str:
    names = sorted(
        terminal.escape(minion) for minion, candidate in candidates.items() if not candidate.vm_on
    )
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def refuse_syndics(opts: Mapping[str, Any]) -> None:
    """Raise MasterError on a master above syndics if its Salt loses replies through them."""
    if opts.get("order_masters") and compat.loses_answers_of_syndics():
        raise MasterError(
            "option order_masters: Salt 3008 loses the answers of minions behind a syndic; take it "
            f"out of the master's configuration; {_CELLS}"
        )


def refuse_targets(opts: Mapping[str, Any], option: Any) -> None:
    """Refuse invalid values of ``virt:hypervisors``; for a target suggest the command instead."""
    try:
        membership.patterns(option, opts.get("nodegroups") or {})
    except membership.BadTarget as refused:
        candidates_by_id = find_candidates(opts, membership.read_listed(opts), refused.target)
        line = allow_command(candidates_by_id)
        if line is None:
            raise
        error = membership.BadTarget(refused.word, refused.target, line)
        error.table = table(candidates_by_id)
        raise error from None
