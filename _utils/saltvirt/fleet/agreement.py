"""A plan of many moves that the hosts agree to before the first is made."""

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from saltvirt import wire
from saltvirt.fleet import inventory
from saltvirt.fleet.cloud import Cloud
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
    Return a plan of which its hosts have said themselves that they can take their VMs.

    hosts
        All that may take a VM.
    vms
        ``{name: answer of virt.migration_info}``.
    place
        Called with ``{name: {host: reasons}}`` of the refusals so far; returns ``(plan, moves)``,
        ``moves`` as ``{name: host}``.

    What only a host's own libvirt knows, such as a CPU model, is in no survey. First the hosts
    of the plan are asked; once one has refused, all are, about all VMs that are not settled: else
    each round would find one more host that refuses. One that cannot be asked says it when the
    move begins, as all do after some rounds.
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
    """Return which hosts are asked about which VMs: once one has refused, all."""
    if not refused_names:
        return sorted({target for _name, target in new_pairs}), moves
    return hosts, sorted({name for name, _target in new_pairs} | set(refused_names))
