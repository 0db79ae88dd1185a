"""What a command asks for: a VM that is made, and where it may go."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import clonespec, profiles, spec
from saltvirt.errors import BadArgument
from saltvirt.model import Requirements
from saltvirt.placement import requirements
from saltvirt.placement.answers import HostInfo, MigrationInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """
    A VM that is asked for, and where it may go.

    name, cpu, mem, given
        The arguments of ``virt.init``, and its keyword arguments.
    host, where, placed
        This hypervisor alone, or those that match this compound target; how the best is chosen.
    force
        Make it even though a host that cannot be asked may have a VM of that name.
    wait_s
        How long its minion is waited for. Defaults to what its host needs.
    """

    name: str
    cpu: int | dict[str, Any]
    mem: int | dict[str, Any]
    given: dict[str, Any]
    host: str | None = None
    where: str | None = None
    placed: Mapping[str, Any] = field(default_factory=dict)
    force: bool = False
    wait_s: int | None = None

    @property
    def function(self) -> str:
        """The function of a host that makes the VM."""
        return "virt.init"

    @property
    def values(self) -> list[Any]:
        """What that is given by position."""
        return [self.name, self.cpu, self.mem]

    def required(self) -> Requirements:
        """Return what the VM takes of a host; refuse what the master cannot ask a host for."""
        required = spec.requirements_from_master(self.name, self.cpu, self.mem, self.given)
        self.refuse_keys()
        return required

    def refuse_keys(self) -> None:
        """Raise BadArgument if the call gives keys of its own."""
        for keyword in ("pub_key", "priv_key"):
            if self.given.get(keyword) is not None:
                raise BadArgument(
                    keyword,
                    "the runner makes the keys itself; to use your own, call "
                    f"salt HOST {self.function} {' '.join(map(str, self.values[:1]))} ...",
                )

    def is_seeded(self, info: HostInfo) -> bool:
        """
        Return whether a host makes a seed for the VM.

        info
            The host's answer to ``virt.host_info``: its disk profile may have an image of its own.
        """
        given = self.given
        listed = profiles.entries(given.get("disks") or [], "disks")
        profile = info.profiles.disk.get(given.get("disk", spec.OPTIONS["disk"]) or "")
        has_image = (
            given.get("image")
            or any(disk.get("image") for disk in listed)
            or (profile and profile.has_image)
        )
        return bool(given.get("seed", True) and has_image)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRequest(Request):
    """
    A clone that is asked for, on the host of its source.

    source
        What its host says of that.
    """

    source: MigrationInfo

    @property
    def function(self) -> str:
        """The function of a host that makes the VM."""
        return "virt.clone"

    @property
    def values(self) -> list[Any]:
        """What that is given by position."""
        return [self.source.name, self.name]

    def required(self) -> Requirements:
        """Return what the VM takes of a host; refuse what the master cannot ask a host for."""
        clonespec.how(self.given)
        self.refuse_keys()
        groups = clonespec.groups(self.given)
        return replace(requirements.of(self.source), name=self.name, **groups)

    def is_seeded(self, info: HostInfo) -> bool:
        """Return whether its host makes a seed for it: it has a disk that may be booted."""
        has_disk = any(disk.device in ("disk", "lun") for disk in self.source.disks)
        return bool(self.given.get("seed", True)) and has_disk
