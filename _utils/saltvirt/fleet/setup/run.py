"""Check a setup: read what the master has, ask all hosts once, judge."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import salt.utils.minions

from saltvirt import content, wire
from saltvirt.errors import VirtError
from saltvirt.fleet import candidates, inventory, minions
from saltvirt.fleet.cells import checking
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.findings import table
from saltvirt.fleet.setup import masterfacts, moving, ofcells, ofhost, ofmaster, unloaded, unsigned
from saltvirt.fleet.setup.gaps import NEEDED, Gap, in_order
from saltvirt.fleet.silence import Wait, silent_since
from saltvirt.pki import policy
from saltvirt.placement.setup import SetupFacts

FUN = "virt.setup_facts"
READY = "nothing that VMs need is missing: salt-run virt.init NAME 1 512 IMAGE"
# A host that was never asked first proves whether KVM works, and tries what it reaches.
_LONGER_S = 10


class Incomplete(VirtError):
    """Something is missing that VMs need; :attr:`table` has what."""


def check(cloud: Cloud, named: Sequence[object]) -> dict[str, Any]:
    """
    Return ``{"findings": [], "checked": [host], "ready": text}``.

    named
        The only hosts to be looked at, allowed or not; empty for all that are allowed. They try to
        reach others, too, whose firewalls must let them in.

    Raises :class:`Incomplete` if anything is missing without which no VM is deployed.
    """
    wanted = sorted({one for word in named for one in candidates.ids(word)})
    facts = masterfacts.of(cloud.opts, cloud.members, wanted)
    every = inventory.allowed(cloud)
    allowed = [one for one in every if not wanted or one in wanted]
    others = _others(cloud, every, wanted)
    found = list(ofmaster.gaps(facts))
    if not wanted:
        found += ofcells.gaps(checking.faults(cloud.opts, cloud.settings))
    of_hosts, answers = _asked(cloud, allowed, others, is_synced=facts.is_synced)
    found = in_order([*found, *of_hosts, *moving.gaps(answers, others)])
    out = table(found, answers)
    needed = sum(one.level == NEEDED for one in found)
    if needed:
        count = f"{needed} things are" if needed > 1 else "1 thing is"
        error = Incomplete(f"{count} missing that VMs need; mend the first, then ask again")
        error.table = out
        raise error
    return {**out, "ready": READY}


def _others(cloud: Cloud, every: Iterable[str], named: Collection[str]) -> dict[str, list[str]]:
    """
    Return ``{host: addresses}`` of the hosts that named ones try to reach; none without names.

    A host that was silent when it was last asked cannot be reached, whatever its firewall does.
    """
    silent = silent_since(cloud.opts) if named else {}
    others = [one for one in every if named and one not in named and one not in silent]
    return {one: policy.reachable(_grains(cloud, one)) for one in others}


def _asked(
    cloud: Cloud, hosts: Sequence[str], others: Mapping[str, list[str]], *, is_synced: bool
) -> tuple[list[Gap], dict[str, SetupFacts]]:
    """Return what hosts lack, and the answers of those that could say what they have."""
    grains = {one: _grains(cloud, one) for one in hosts}
    peers = {one: policy.reachable(said) for one, said in grains.items()}
    timeout_s, begun_s = cloud.settings.timeout_s, time.time()
    replies = minions.ask(
        *(cloud, hosts, FUN),
        kwarg={"peers": peers, **({"others": others} if others else {})},
        timeout_s=timeout_s + _LONGER_S,
        wait=Wait.brief(hosts),
    )
    known = ofhost.Known(
        code=content.of_code(),
        hash_type=str(cloud.opts.get("hash_type")),
        begun_s=begun_s,
        ended_s=time.time(),
    )
    silent = [host for host, reply in replies.items() if reply.missing]
    # In the name of one without our modules Salt itself has said something.
    unproved = [host for host in silent if replies[host].error]
    said = unsigned.answers(cloud, unproved, FUN, timeout_s)
    found = [
        unloaded.gap(one, replies[one].error, said.get(one), grains[one], is_synced=is_synced)
        for one in silent
    ]
    answers: dict[str, SetupFacts] = {}
    for host in sorted(set(replies) - set(silent)):
        found += _judged(host, replies[host], known, answers, is_synced=is_synced)
    return found, answers


def _judged(
    host: str,
    reply: minions.Reply,
    known: ofhost.Known,
    answers: dict[str, SetupFacts],
    *,
    is_synced: bool,
) -> Iterable[Gap]:
    """Return what a host lacks that has answered, and note its answer."""
    if not reply.ok:
        return [_failed(host, reply.error or "", is_synced=is_synced)]
    try:
        facts = answers[host] = wire.read(host, FUN, SetupFacts, reply.value)
    except wire.BadAnswer as error:
        return [ofhost.not_checked(host, str(error))]
    return list(ofhost.gaps(host, facts, known))


def _failed(host: str, why: str, *, is_synced: bool) -> Gap:
    if why.startswith("option "):
        return Gap(
            check="options",
            where=host,
            what=why,
            fix=f"mend it in the configuration (/etc/salt/minion.d) or the pillar of {host}",
        )
    return unloaded.gap(host, why, why, {}, is_synced=is_synced)


def _grains(cloud: Cloud, host: str) -> Mapping[str, Any]:
    """Return what the master's cache has of a host's grains; empty if it has none."""
    return salt.utils.minions.get_minion_data(host, dict(cloud.opts))[1] or {}
