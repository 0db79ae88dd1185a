"""A plan of many moves that the hosts agree to before the first is made."""

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from saltvirt import wire
from saltvirt.fleet import inventory
from saltvirt.fleet.cloud import Cloud
from saltvirt.placement.answers import MigrationInfo

_ROUNDS = 5
_Refused = Mapping[str, Mapping[str, list[str]]]
_Plan = TypeVar("_Plan")


def reach(
    cloud: Cloud,
    hosts: Collection[str],
    vms: Mapping[str, MigrationInfo],
    place: Callable[[_Refused], tuple[_Plan, Mapping[str, str]]],
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
    refused: dict[str, dict[str, list[str]]] = {}
    asked: set[tuple[str, str]] = set()
    for _round in range(_ROUNDS):
        made, moves = place(refused)
        new = {(name, to) for name, to in moves.items() if (name, to) not in asked}
        if not new:
            return made
        targets, names = _questions(new, refused, moves, hosts)
        coming = {
            name: wire.plain(vms[name])
            for name in names
            if any((name, host) not in asked for host in targets)
        }
        asked |= {(name, host) for name in coming for host in targets}
        found = inventory.survey(cloud, targets, "virt.migrate_check", kwarg={"about": coming})
        for host, answer in found.answers.items():
            for name in coming.keys() & set(answer):
                refused.setdefault(name, {})[host] = answer[name]
    return place(refused)[0]


def _questions(
    new: Collection[tuple[str, str]],
    refused: Collection[str],
    moves: Collection[str],
    hosts: Collection[str],
) -> tuple[Collection[str], Collection[str]]:
    """Return which hosts are asked about which VMs: once one has refused, all."""
    if not refused:
        return sorted({to for _name, to in new}), moves
    return hosts, sorted({name for name, _to in new} | set(refused))
