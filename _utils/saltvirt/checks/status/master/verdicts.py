"""What ``virt.audit``, ``virt.doctor`` and ``virt.setup_check`` find in one look at all hosts."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from saltvirt.checks.audit.master import auditcloud
from saltvirt.checks.audit.master import run as audit
from saltvirt.checks.doctor.doctoranswer import DoctorFacts
from saltvirt.checks.doctor.master import doctorcloud
from saltvirt.checks.doctor.master import run as doctor
from saltvirt.checks.engine import HostFailure
from saltvirt.checks.master.asking import Answers, reader
from saltvirt.checks.master.masterfacts import MasterFacts
from saltvirt.checks.setup.master import run as setup
from saltvirt.checks.setup.master import setupcloud
from saltvirt.checks.status.statusanswer import StatusFacts
from saltvirt.cluster.cloud import Cloud
from saltvirt.core.errors import VirtError
from saltvirt.core.findings import Finding

_Answer = TypeVar("_Answer")
# A host of which a check knows nothing, in all three checks.
_NOT_CHECKED = "not-checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """
    One look at all hosts, with the answers to all checks.

    busy_vms
        The VMs that commands of this master worked on before.
    grains
        The cached grains of the hosts.
    """

    cloud: Cloud
    master: MasterFacts
    answers: Answers[StatusFacts]
    hosts: Collection[str]
    busy_vms: frozenset[str]
    grains: Mapping[str, Mapping[str, Any]]


def read_verdicts(look: Look) -> dict[str, dict[str, Any]]:
    """
    Return ``{check: {findings, hints, by_check, first, error}}``.

    ``findings`` is the number of those by which the command fails, ``hints`` that of the others,
    ``first`` the first finding. If a check itself fails, ``error`` has the reason, and the numbers
    are None. The doctor looks once here: what is under way may be among its findings.
    """
    judges: Mapping[str, Callable[[Look], Iterable[Finding]]] = {
        "doctor": _judge_doctor,
        "audit": _judge_audit,
        "setup_check": _judge_setup,
    }
    return {name: _describe(judge, look) for name, judge in judges.items()}


def _describe(judge: Callable[[Look], Iterable[Finding]], look: Look) -> dict[str, Any]:
    try:
        findings = list(judge(look))
    except (VirtError, OSError) as error:
        nothing = dict.fromkeys(("findings", "hints", "by_check", "first"))
        return {**nothing, "error": str(error)}
    hints = [finding for finding in findings if finding.level not in (None, setupcloud.NEEDED)]
    return {
        "findings": len(findings) - len(hints),
        "hints": len(hints),
        "by_check": dict(sorted(Counter(finding.check for finding in findings).items())),
        "first": _first(findings),
        "error": None,
    }


def _first(findings: list[Finding]) -> dict[str, str] | None:
    # The status names silent hosts itself.
    ordered = sorted(findings, key=lambda finding: finding.check in (_NOT_CHECKED, "silent"))
    return next(
        (
            {name: getattr(finding, name) for name in ("check", "where", "what", "fix")}
            for finding in ordered
        ),
        None,
    )


def _judge_doctor(look: Look) -> Iterable[Finding]:
    read = reader(doctorcloud.FUN, DoctorFacts)
    part = _part(look.answers, "doctor", read)
    return doctor.CHECKS.judge(
        doctor.build_look(look.cloud, look.master.now, look.busy_vms, part.hosts, part.failures)
    )


def _judge_audit(look: Look) -> Iterable[Finding]:
    part = _part(look.answers, "audit", auditcloud.read_answer)
    return audit.CHECKS.judge(
        audit.build_cloud(look.cloud, look.master, look.hosts, part.hosts, part.failures)
    )


def _judge_setup(look: Look) -> Iterable[Finding]:
    part = _part(look.answers, "setup", setupcloud.read_answer)
    setup_cloud = setup.build_cloud(look.cloud, look.master, part, look.grains)
    return setup.sort_findings(setup.CHECKS.judge(setup_cloud))


def _part(
    answers: Answers[StatusFacts], name: str, read: Callable[[str, object], _Answer]
) -> Answers[_Answer]:
    """Return the hosts' answers to one check."""
    hosts: dict[str, _Answer] = {}
    failures = dict(answers.failures)
    for host, facts in answers.hosts.items():
        try:
            if name in facts.why_not:
                failures[host] = HostFailure(reason=facts.why_not[name])
            else:
                hosts[host] = read(host, getattr(facts, name))
        except VirtError as error:
            failures[host] = HostFailure(reason=str(error), refusal=error)
    return Answers(hosts=hosts, failures=failures, begun_s=answers.begun_s, ended_s=answers.ended_s)
