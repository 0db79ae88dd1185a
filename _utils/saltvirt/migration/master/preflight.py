"""Plan many moves so that the hosts agree to all of them before the first begins."""

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.core import wire
from saltvirt.placement.answers import MigrationInfo

_ROUNDS = 5
_Refusals = Mapping[str, Mapping[str, list[str]]]
_Plan = TypeVar("_Plan")


def find_agreed_plan(
    cloud: Cloud,
    hosts: Collection[str],
    vms: Mapping[str, MigrationInfo],
    place: Callable[[_Refusals], tuple[_Plan, Mapping[str, str]]],
) -> _Plan:
    """
    Return a plan that its target hosts agree to.

    hosts
        All hosts that may take a VM.
    vms
        ``{name: answer of virt.migration_info}``.
    place
        Called with ``{name: {host: reasons}}`` of the refusals so far; returns ``(plan, moves)``,
        ``moves`` as ``{name: host}``.

    A survey lacks what only a host's libvirt knows, such as its CPU model. The first round asks
    the hosts of the plan. After a refusal each round asks all hosts about all unsettled VMs:
    otherwise each round would find one more host that refuses. A host that cannot be asked, or is
    not asked within the rounds, refuses when the move begins.
    """
    refusals: dict[str, dict[str, list[str]]] = {}
    checked_pairs: set[tuple[str, str]] = set()
    for _round in range(_ROUNDS):
        plan, moves = place(refusals)
        new_pairs = {
            (name, target) for name, target in moves.items() if (name, target) not in checked_pairs
        }
        if not new_pairs:
            return plan
        targets, names = _select_checks(new_pairs, refusals, moves, hosts)
        facts_by_vm = {
            name: wire.plain(vms[name])
            for name in names
            if any((name, host) not in checked_pairs for host in targets)
        }
        checked_pairs |= {(name, host) for name in facts_by_vm for host in targets}
        survey = inventory.survey(
            cloud, targets, "virt.migrate_check", kwarg={"about": facts_by_vm}
        )
        for host, answer in survey.answers.items():
            for name in facts_by_vm.keys() & set(answer):
                refusals.setdefault(name, {})[host] = answer[name]
    return place(refusals)[0]


def _select_checks(
    new_pairs: Collection[tuple[str, str]],
    refused_names: Collection[str],
    moves: Collection[str],
    hosts: Collection[str],
) -> tuple[Collection[str], Collection[str]]:
    """Return ``(hosts, VMs)`` of the next check; after a refusal, with all hosts."""
    if not refused_names:
        return sorted({target for _name, target in new_pairs}), moves
    return hosts, sorted({name for name, _target in new_pairs} | set(refused_names))
