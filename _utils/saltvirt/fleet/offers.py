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
    all_hosts: Collection[str],
    candidate_hosts: Collection[str],
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
        return Offers(found=inventory.survey(cloud, all_hosts, WHOLE))
    question = brief.build_query(requests, policy)
    if all(brief.is_of_one_host(request, policy) for request in requests):
        question = _narrow(cloud, question, all_hosts, candidate_hosts, policy, sample)
    names_by_host = hints.read_all(cloud.opts)
    question = replace(question, with_names=not names_by_host)
    facts_survey = inventory.survey(cloud, all_hosts, FACTS, kwarg={"about": _to_kwarg(question)})
    facts_survey = _add_names(cloud, facts_survey, question, names_by_host)
    info_survey, passed = _read(facts_survey, names_by_host)
    _refresh_last_seen(cloud, info_survey)
    hosts_with_vm = _find_hosts(info_survey.answers, {request.name for request in requests})
    old_hosts = {host for host, reason in info_survey.failed.items() if _OLD in reason}
    hosts_to_ask = {*hosts_with_vm, *old_hosts}
    if hosts_to_ask:
        info_survey = inventory.join_surveys(
            _drop_hosts(info_survey, hosts_to_ask), inventory.survey(cloud, hosts_to_ask, WHOLE)
        )
    return Offers(found=info_survey, passed=frozenset(passed - hosts_to_ask))


def _narrow(
    cloud: Cloud,
    question: brief.Query,
    all_hosts: Collection[str],
    candidate_hosts: Collection[str],
    policy: Policy,
    sample: str | None,
) -> brief.Query:
    """Return what is asked for, and of whom."""
    if len(candidate_hosts) == 1:
        return replace(question, only=[*candidate_hosts])
    count = cloud.settings.sample_hosts
    # Whoever packs wants the fullest one of all.
    if (
        sample is None
        or policy.packs
        or not 0 < count < len(all_hosts)
        or len(candidate_hosts) < len(all_hosts)
    ):
        return question
    below = sorted(brief.rank(sample, host) for host in all_hosts)[count - 1]
    return replace(question, seed=sample, below=below)


def _to_kwarg(question: brief.Query) -> dict[str, Any]:
    return {name: value for name, value in wire.plain(question).items() if value}


def _add_names(
    cloud: Cloud,
    facts_survey: inventory.Survey,
    question: brief.Query,
    names_by_host: Mapping[str, Collection[str]],
) -> inventory.Survey:
    """Return a survey with the names of hosts whose names are others than the hints say."""
    changed_hosts = {
        host
        for host, answer in facts_survey.answers.items()
        if answer.names.listed is None
        and answer.names.digest != brief.digest(names_by_host.get(host, ()))
    }
    if not changed_hosts:
        return facts_survey
    kwarg = {"about": _to_kwarg(replace(question, with_names=True))}
    names_survey = inventory.survey(cloud, changed_hosts, FACTS, kwarg=kwarg)
    return inventory.join_surveys(_drop_hosts(facts_survey, changed_hosts), names_survey)


def _drop_hosts(host_survey: inventory.Survey, hosts: Collection[str]) -> inventory.Survey:
    """Return a survey without what some hosts have said, who are asked anew."""
    return replace(
        host_survey,
        answers={host: answer for host, answer in host_survey.answers.items() if host not in hosts},
        failed={host: reason for host, reason in host_survey.failed.items() if host not in hosts},
    )


def _read(
    facts_survey: inventory.Survey, names_by_host: Mapping[str, Collection[str]]
) -> tuple[inventory.Survey, set[str]]:
    """Return the survey with what the hosts are said to have, and who was asked for names alone."""
    out, passed = {}, set()
    for host, answer in facts_survey.answers.items():
        names = answer.names.listed
        out[host] = brief.to_host_info(
            answer, names_by_host.get(host, ()) if names is None else names
        )
        if answer.offer is None:
            passed.add(host)
    return replace(facts_survey, answers=out), passed


def _refresh_last_seen(cloud: Cloud, info_survey: inventory.Survey) -> None:
    """Refresh the hints, as by whole answers."""
    last_seen = inventory.extract_names(WHOLE, (), info_survey.answers)
    if last_seen is not None:
        inventory.refresh_hints(cloud, last_seen)


def _find_hosts(answers: Mapping[str, HostInfo], names: Iterable[str]) -> set[str]:
    """Return the hosts that have anything of one of these VMs: its state is to be known."""
    name_set = {*names}
    return {
        host for host, info in answers.items() if not name_set.isdisjoint(sightings.names_of(info))
    }
