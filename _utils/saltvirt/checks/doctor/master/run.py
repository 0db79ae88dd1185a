"""Find leftovers by two looks at a cloud, and mend them on request."""

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from saltvirt.checks.doctor.doctoranswer import DoctorFacts
from saltvirt.checks.doctor.master import hostchecks, masterchecks, masterrecords, mend
from saltvirt.checks.doctor.master.doctorcloud import FUN, DoctorCloud
from saltvirt.checks.engine import Checks, HostFailure
from saltvirt.checks.master.asking import ProblemsFound, ask_hosts, reader
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.core import arguments
from saltvirt.core.findings import Finding
from saltvirt.core.terminal import count_text

# The pause between looks, in which work in progress changes its place or record; and how many
# more looks there may be, while different hosts answer.
_PAUSE_S, _MAX_REPEATS = 2, 3
_NOT_CHECKED = "not-checked"


CHECKS: Checks[DoctorCloud, DoctorFacts] = Checks(masterchecks.CHECKS, hostchecks.CHECKS)


def doctor(cloud: Cloud, now: datetime, *, fix: object = False) -> dict[str, Any]:
    """
    Return ``{"findings": [], "checked": [host], "mended": []}`` of a cloud without leftovers.

    fix
        Mend what both looks find. Defaults to False.

    Raises :class:`ProblemsFound` if any leftovers remain, or mending fails.
    """
    is_fixing = arguments.boolean("fix", fix)
    cloud.progress("Looking", detail="at the master and all hosts")
    look, leftovers = _look_twice(cloud, now)
    successes: list[str] = []
    failures: list[str] = []
    if is_fixing and leftovers:
        for leftover in leftovers:
            if leftover.mend:
                detail = f"{leftover.where}: {leftover.what}; {leftover.mend}"
                cloud.progress("Mending", detail=detail)
        successes, failures = mend.mend(cloud, leftovers, now)
        look, leftovers = _look_twice(cloud, now)
    table = {
        "findings": [
            {**leftover.row(), "subject": leftover.subject or leftover.where}
            for leftover in leftovers
        ],
        "checked": sorted(look.hosts),
        "mended": successes,
        **({"failed": failures} if failures else {}),
    }
    if leftovers or failures:
        count, verb = count_text(len(leftovers), "thing"), "is" if len(leftovers) == 1 else "are"
        message = f"{count} {verb} left over; each is named with its fix"
        raise ProblemsFound("; ".join([message, *failures]), table)
    outcomes = [*successes, "now nothing is left over"] if successes else ["nothing is left over"]
    return {**table, "ready": "; ".join(outcomes)}


def _look_twice(cloud: Cloud, now: datetime) -> tuple[DoctorCloud, list[Finding]]:
    """
    Return the facts of the last look, and the leftovers that two looks have found.

    Without leftovers one look is enough. Little is judged while a host is unresponsive: two looks
    at different hosts would find nothing in common, so both need answers of the same hosts.
    """
    look = _read_cloud(cloud, now)
    leftovers = list(CHECKS.judge(look))
    if not leftovers:
        return look, leftovers
    for _repeat in range(_MAX_REPEATS):
        time.sleep(_PAUSE_S)
        earlier_look, look = look, _read_cloud(cloud, now)
        leftovers = _find_confirmed(earlier_look, look)
        if earlier_look.hosts.keys() == look.hosts.keys():
            break
    return look, leftovers


def _find_confirmed(earlier_look: DoctorCloud, look: DoctorCloud) -> list[Finding]:
    """Return the leftovers found at both looks, and hosts that either could not check."""
    earlier_by_key = {_key(leftover): leftover for leftover in CHECKS.judge(earlier_look)}
    last_by_key = {_key(leftover): leftover for leftover in CHECKS.judge(look)}
    return [
        leftover
        for key, leftover in {**earlier_by_key, **last_by_key}.items()
        if leftover.check == _NOT_CHECKED or (key in earlier_by_key and key in last_by_key)
    ]


def _key(leftover: Finding) -> tuple[str, str, str | None]:
    return leftover.check, leftover.where, leftover.subject


def _read_cloud(cloud: Cloud, now: datetime) -> DoctorCloud:
    # Before asking hosts: a command that ends meanwhile still counts.
    busy_vms = masterrecords.find_busy_vms(cloud.opts)
    answers = ask_hosts(cloud, inventory.allowed_hosts(cloud), FUN, reader(FUN, DoctorFacts))
    return build_look(cloud, now, busy_vms, answers.hosts, answers.failures)


def build_look(
    cloud: Cloud,
    now: datetime,
    busy_vms: frozenset[str],
    hosts: Mapping[str, DoctorFacts],
    failures: Mapping[str, HostFailure],
) -> DoctorCloud:
    """
    Return what a look judges: the hosts' answers, and the master's records.

    busy_vms
        The VMs that commands of this master worked on before the hosts were asked.
    """
    master = masterrecords.read_records(cloud, list(hosts), now)
    master = replace(master, busy_vms=busy_vms | master.busy_vms)
    look = DoctorCloud(master=master, hosts=hosts, failures=failures)
    unneeded_keys = [
        name for name in master.recorded_keys if not masterchecks.is_key_needed(name, look)
    ]
    answering_minions = masterrecords.find_answering_minions(cloud, unneeded_keys)
    return replace(look, master=replace(master, answering_minions=answering_minions))
