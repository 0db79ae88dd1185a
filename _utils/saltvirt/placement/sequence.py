"""The moves of a plan that may run at once: no host is overcommitted, and no rule broken."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from saltvirt.core.model import Requirements
from saltvirt.placement import fit, groups, whatif
from saltvirt.placement.answers import HostInfo


class Sequence:
    """
    The moves of a plan, each of which counts on those before it, though some run at once.

    A VM that is on its way counts on both of its hosts. A move that shares a host or a group with
    an earlier one does not begin before that. So whenever all begun moves are over, the next one
    finds its hosts as planned: a plan of moves that can be made one after the other never gets
    stuck.
    """

    def __init__(
        self,
        hosts: Mapping[str, HostInfo],
        needs: Mapping[str, Requirements],
        moves: Mapping[str, tuple[str, str]],
    ) -> None:
        """
        Take in a plan.

        hosts
            ``{host: answer of virt.host_info}`` before the first move.
        needs
            ``{name: needs}`` of the VMs that move.
        moves
            ``{name: (from, to)}`` in the order in which they can be made one after the other.
        """
        self._hosts, self._needs, self._moves = dict(hosts), needs, moves
        self._spots = groups.Spots(hosts)

    def ready(self, waiting: Collection[str]) -> Iterator[str]:
        """Yield the waiting VMs that may begin now, in the plan's order."""
        busy_keys = set[tuple[str, str]]()
        for name in waiting:
            concerned = set(self._concerned(name))
            if busy_keys.isdisjoint(concerned) and self._fits(name):
                yield name
            # A caller that goes on has not begun this move, and later ones must wait for it.
            busy_keys |= concerned

    def begin(self, name: str) -> None:
        """Count a VM on its target, too."""
        required, (_source, target) = self._needs[name], self._moves[name]
        self._hosts[target] = whatif.with_vm(self._hosts[target], required)
        self._spots.add(required, target)

    def end(self, name: str, *, has_moved: bool) -> None:
        """Count a VM only where it is now: on its target if it has moved, else on its source."""
        required, (source, target) = self._needs[name], self._moves[name]
        left_host, vm_host = (source, target) if has_moved else (target, source)
        self._hosts[left_host] = whatif.without_vm(self._hosts[left_host], required)
        self._spots.move(required, left_host, vm_host)

    def _concerned(self, name: str) -> Iterable[tuple[str, str]]:
        required = self._needs[name]
        for kind, names in (
            ("host", self._moves[name]),
            ("affinity", required.affinity),
            ("anti_affinity", required.anti_affinity),
        ):
            for member in names:
                yield kind, member

    def _fits(self, name: str) -> bool:
        required, (_source, target) = self._needs[name], self._moves[name]
        return not (
            fit.reasons(self._hosts[target], required)
            or any(self._spots.why_apart(required, target))
        )
