"""Sightings: what each host says of one VM, and what these answers come to together."""

from collections.abc import Mapping
from dataclasses import dataclass

from saltvirt.placement.facts import HostInfo, Presence


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """
    What one host says of one VM.

    state
        The state of its domain; None if the host has none of that name.
    building
        Whether it is being made there, or on its way there, at this moment.
    unfinished
        Whether what made it there has died before it was complete.
    """

    state: str | None = None
    building: bool = False
    unfinished: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the host has all of the VM: what is defined is, whoever has died over it."""
        return self.state is not None and not self.building

    @property
    def is_trace(self) -> bool:
        """Whether the host has anything of the VM."""
        return self.state is not None or self.building or self.unfinished


def of_presence(answers: Mapping[str, Presence]) -> dict[str, Sighting]:
    """Return the sightings in ``{host: answer of virt.presence}``."""
    return {
        host: Sighting(state=one.state, building=one.building, unfinished=one.unfinished)
        for host, one in answers.items()
    }


def of_info(answers: Mapping[str, HostInfo], name: str) -> dict[str, Sighting]:
    """Return the sightings of a name in ``{host: answer of virt.host_info}``."""
    return {
        host: Sighting(
            state=info.vms[name].state if name in info.vms else None,
            building=name in info.building,
            unfinished=name in info.unfinished,
        )
        for host, info in answers.items()
    }


def having(seen: Mapping[str, Sighting]) -> list[str]:
    """Return the hosts that have a VM; one that is still on its way does not, if another has it."""
    there = sorted(host for host, one in seen.items() if one.state is not None)
    return [host for host in there if not seen[host].building] or there


def several(name: str, hosts: list[str]) -> str:
    """Return the line that names a VM which is on several hosts."""
    return (
        f"VM {name!r} is on {' and '.join(hosts)}: see which of them is the right one "
        f"(salt {hosts[0]} virt.vm_info {name}), and remove the other on its host "
        f"(salt {hosts[-1]} virt.purge {name}; virt.undefine if they share its disks)"
    )
