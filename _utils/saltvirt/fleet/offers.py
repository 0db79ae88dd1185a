"""
What hosts say for new VMs: in few bytes, and where there are many hosts, of some of them first.

A host says of the names of its VMs only a digest. The hints have them: where they are the same it
need not repeat them, and the others are asked for them. Whole answers are asked for where few bytes
are too few: of hosts that have something of a VM which is asked for, or are of an older release,
and of all where there is to be headroom.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import wire
from saltvirt.fleet import hints, inventory, sightings
from saltvirt.fleet.cloud import Cloud
from saltvirt.model import Policy, Requirements
from saltvirt.placement import brief
from saltvirt.placement.answers import HostInfo

FACTS, WHOLE = "virt.placement_facts", "virt.host_info"
# Salt's word, and ours, of what a host's release does not have.
_OLD = "is not available"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """
    What hosts say.

    found
        The survey: of each host what it has, as far as it was asked.
    passed
        Those of them that were asked for names alone.
    """

    found: inventory.Survey
    passed: frozenset[str] = field(default_factory=frozenset)


def survey(
    cloud: Cloud,
    every: Collection[str],
    wanted: Collection[str],
    requests: Collection[Requirements],
    policy: Policy,
    *,
    sample: str | None = None,
) -> Offers:
    """
    Ask all hypervisors for what some new VMs need.

    every, wanted
        All of them, and those on which the VMs may be.
    sample
        By what some of many hosts are chosen, the others being asked for names alone: they may have
        the VM. Defaults to none, for all. All are asked where what there is on one host decides
        about others.
    """
    if policy.headroom:
        return Offers(found=inventory.survey(cloud, every, WHOLE))
    about = brief.about(requests, policy)
    if all(brief.is_of_one_host(one, policy) for one in requests):
        about = _narrowed(cloud, about, every, wanted, policy, sample)
    known = hints.every(cloud.opts)
    about = replace(about, with_names=not known)
    first = inventory.survey(cloud, every, FACTS, kwarg={"about": _plain(about)})
    first = _with_names(cloud, first, about, known)
    found, passed = _read(first, known)
    _take_in(cloud, found)
    named = _having(found.answers, {one.name for one in requests})
    old = {host for host, why in found.failed.items() if _OLD in why}
    again = {*named, *old}
    if again:
        found = inventory.joined(_without(found, again), inventory.survey(cloud, again, WHOLE))
    return Offers(found=found, passed=frozenset(passed - again))


def _narrowed(
    cloud: Cloud,
    about: brief.About,
    every: Collection[str],
    wanted: Collection[str],
    policy: Policy,
    sample: str | None,
) -> brief.About:
    """Return what is asked for, and of whom."""
    if len(wanted) == 1:
        return replace(about, only=[*wanted])
    count = cloud.settings.sample_hosts
    # Whoever packs wants the fullest one of all.
    if sample is None or policy.packs or not 0 < count < len(every) or len(wanted) < len(every):
        return about
    below = sorted(brief.rank(sample, host) for host in every)[count - 1]
    return replace(about, seed=sample, below=below)


def _plain(about: brief.About) -> dict[str, Any]:
    return {name: one for name, one in wire.plain(about).items() if one}


def _with_names(
    cloud: Cloud, first: inventory.Survey, about: brief.About, known: Mapping[str, Collection[str]]
) -> inventory.Survey:
    """Return a survey with the names of hosts whose names are others than the hints say."""
    changed = {
        host
        for host, one in first.answers.items()
        if one.names.listed is None and one.names.digest != brief.digest(known.get(host, ()))
    }
    if not changed:
        return first
    asked = {"about": _plain(replace(about, with_names=True))}
    again = inventory.survey(cloud, changed, FACTS, kwarg=asked)
    return inventory.joined(_without(first, changed), again)


def _without(found: inventory.Survey, hosts: Collection[str]) -> inventory.Survey:
    """Return a survey without what some hosts have said, who are asked anew."""
    return replace(
        found,
        answers={host: one for host, one in found.answers.items() if host not in hosts},
        failed={host: why for host, why in found.failed.items() if host not in hosts},
    )


def _read(
    first: inventory.Survey, known: Mapping[str, Collection[str]]
) -> tuple[inventory.Survey, set[str]]:
    """Return the survey with what the hosts are said to have, and who was asked for names alone."""
    out, passed = {}, set()
    for host, one in first.answers.items():
        listed = one.names.listed
        out[host] = brief.info(one, known.get(host, ()) if listed is None else listed)
        if one.offer is None:
            passed.add(host)
    return replace(first, answers=out), passed


def _take_in(cloud: Cloud, found: inventory.Survey) -> None:
    """Refresh the hints, as by whole answers."""
    heard = inventory.heard_of(WHOLE, (), found.answers)
    if heard is not None:
        inventory.take_in(cloud, heard)


def _having(answers: Mapping[str, HostInfo], names: Iterable[str]) -> set[str]:
    """Return the hosts that have anything of one of these VMs: its state is to be known."""
    wanted = {*names}
    return {
        host for host, info in answers.items() if not wanted.isdisjoint(sightings.names_of(info))
    }
