"""
Ask hosts for room for new VMs: in few bytes, and only a sample if there are many hosts.

A host reports only a digest of its VM names. If the digest is that of the names last seen, the host
need not list them; other hosts are asked for their names. Whole answers are requested from hosts
that have something of a requested VM, and from all hosts if the policy keeps headroom.
"""

import logging
import re
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from salt.fileserver import Fileserver

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen, presence
from saltvirt.core import wire
from saltvirt.core.model import Policy, Requirements
from saltvirt.placement import brief, generation
from saltvirt.placement.answers import HostInfo

FACTS, WHOLE = "virt.placement_facts", "virt.host_info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """
    The answers of hosts.

    survey
        What each host has, as far as it was asked.
    names_only
        The hosts that were asked for names only.
    """

    survey: inventory.Survey
    names_only: frozenset[str] = field(default_factory=frozenset)


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
    Ask all hypervisors for room for some new VMs.

    candidate_hosts
        The hosts where the VMs may be placed.
    sample
        Seed for the sample of many hosts; the other hosts are asked for names only, as they may
        have the VM. Defaults to none, for all hosts. All are asked if one host's content decides
        about others.
    """
    if policy.headroom:
        return Offers(survey=inventory.survey(cloud, all_hosts, WHOLE))
    question = brief.build_query(requests, policy)
    compares_machines = any(request.machine is None for request in requests)
    if compares_machines:
        machines = {*question.machines, *generation.USUAL_MACHINES}
        question = replace(question, machines=sorted(machines))
    if all(brief.is_of_one_host(request, policy) for request in requests):
        # The newest machine type that all hosts have is known only if all of them are asked.
        count = cloud.settings.sample_hosts
        is_small = count == 0 or len(all_hosts) <= count
        if not (compares_machines and is_small):
            question = _narrow(cloud, question, all_hosts, candidate_hosts, policy, sample)
    names_by_host = lastseen.read_all(cloud.opts)
    question = replace(question, with_names=not names_by_host)
    facts_survey = inventory.survey(cloud, all_hosts, FACTS, kwarg={"about": _to_kwarg(question)})
    facts_survey = _add_names(cloud, facts_survey, question, names_by_host)
    info_survey, names_only = _read(facts_survey, names_by_host)
    _refresh_last_seen(cloud, info_survey)
    hosts_with_vm = _find_hosts(info_survey.answers, {request.name for request in requests})
    if hosts_with_vm:
        # The state of the VM must be known.
        whole_survey = inventory.survey(cloud, hosts_with_vm, WHOLE)
        info_survey = inventory.join_surveys(
            _without_hosts(info_survey, hosts_with_vm), whole_survey
        )
    return Offers(survey=info_survey, names_only=frozenset(names_only - hosts_with_vm))


def _narrow(
    cloud: Cloud,
    question: brief.Query,
    all_hosts: Collection[str],
    candidate_hosts: Collection[str],
    policy: Policy,
    sample: str | None,
) -> brief.Query:
    """Return the query, limited to some of the hosts where possible."""
    if len(candidate_hosts) == 1:
        return replace(question, only=[*candidate_hosts])
    count = cloud.settings.sample_hosts
    # Packing needs the fullest of all hosts.
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
    """Return a survey with the VM names of hosts where they differ from those last seen."""
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
    return inventory.join_surveys(_without_hosts(facts_survey, changed_hosts), names_survey)


def _without_hosts(survey: inventory.Survey, hosts: Collection[str]) -> inventory.Survey:
    """Return a survey without the answers of hosts that are asked again."""
    answers = {host: answer for host, answer in survey.answers.items() if host not in hosts}
    return replace(survey, answers=answers)


def _read(
    facts_survey: inventory.Survey, names_by_host: Mapping[str, Collection[str]]
) -> tuple[inventory.Survey, set[str]]:
    """Return the survey with host infos, and the hosts that were asked for names only."""
    out, names_only = {}, set()
    for host, answer in facts_survey.answers.items():
        names = answer.names.listed
        out[host] = brief.to_host_info(
            answer, names_by_host.get(host, ()) if names is None else names
        )
        if answer.offer is None:
            names_only.add(host)
    return replace(facts_survey, answers=out), names_only


def _refresh_last_seen(cloud: Cloud, info_survey: inventory.Survey) -> None:
    """Refresh the names last seen, as after whole answers."""
    last_seen = inventory.extract_names(WHOLE, (), info_survey.answers)
    if last_seen is not None:
        inventory.refresh_hints(cloud, last_seen)


def _find_hosts(answers: Mapping[str, HostInfo], names: Iterable[str]) -> set[str]:
    """Return the hosts that have anything of one of these VMs: its state must be known."""
    name_set = {*names}
    return {
        host for host, info in answers.items() if not name_set.isdisjoint(presence.names_of(info))
    }


log = logging.getLogger(__name__)
# Without what Salt allows beside a path: an environment, or text behind a bar.
_PATH = re.compile(r"salt://([^?|]+)")
_HASH = "sha256"


class Images:
    """The digests of the file server's images; each image is looked up once."""

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self._opts, self._lock = opts, threading.Lock()
        self._server: Fileserver | None = None
        self._digests_by_path: dict[tuple[str, str], str | None] = {}

    def digests(self, images: Iterable[str], saltenv: str) -> dict[str, str]:
        """Return ``{image: digest}`` of images; a host looks up missing ones itself."""
        with self._lock:
            digests_by_image = {image: self._digest(image, saltenv) for image in images}
        return {image: digest for image, digest in digests_by_image.items() if digest}

    def _digest(self, image: str, saltenv: str) -> str | None:
        path = _PATH.fullmatch(image)
        if path is None:
            return None
        key = saltenv, path[1]
        if key not in self._digests_by_path:
            self._digests_by_path[key] = self._look_up(*key)
        return self._digests_by_path[key]

    def _look_up(self, saltenv: str, path: str) -> str | None:
        try:
            self._server = self._server or Fileserver(dict(self._opts))
            answer = self._server.file_hash({"path": path, "saltenv": saltenv})
        except Exception as exc:  # a backend may raise anything; the host asks then, and reports it
            log.warning("the file server does not say what salt://%s is: %s", path, exc)
            return None
        is_known = isinstance(answer, dict) and answer.get("hash_type") == _HASH
        return str(answer["hsum"]) if is_known and answer.get("hsum") else None
