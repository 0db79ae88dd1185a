"""
The request for a new VM, parsed once from the call of a runner function.

Nothing below the runner function checks or parses the arguments again; the host, which may have
other profiles and options, parses the arguments that it gets.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Policy, Requirements
from saltvirt.core.options import config
from saltvirt.core.options.config import MasterSettings
from saltvirt.placement import generation
from saltvirt.placement.answers import HostInfo
from saltvirt.vm import profiles, spec

_LONGEST_WAIT_S = 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """
    What the new VMs of a call have in common: where they may go, and how the command waits.

    host, where
        The only host to use; a compound target of the hosts to use.
    policy
        How the best host is chosen.
    force
        Build even if a host that cannot be asked may have a VM of that name.
    wait
        Wait until the VM's own minion answers.
    wait_s
        How long to wait; see :func:`saltvirt.vm.create.master.minionwait.find_wait_limit`.
    machine
        The machine type of VMs for which the call names neither a type nor an architecture.
    """

    host: str | None = None
    where: str | None = None
    policy: Policy = field(default_factory=Policy)
    force: bool = False
    wait: bool = True
    wait_s: int | None = None
    machine: str | None = None

    @property
    def other_host_reason(self) -> str:
        """The reason against a host that the call does not allow."""
        if self.host is not None:
            return f"not the host asked for ({self.host})"
        return f"not in where={self.where}"


def parse_terms(
    settings: MasterSettings,
    *,
    host: str | None = None,
    where: str | None = None,
    force: object = False,
    wait: object = True,
    wait_s: object = None,
    **policy_options: Any,
) -> Terms:
    """
    Return the :class:`Terms` of a call; raise BadArgument for invalid values.

    policy_options
        ``placement``, ``spread_over`` and ``headroom``; None means not given.
    """
    return Terms(
        host=host,
        where=where,
        policy=config.policy(settings, policy_options),
        force=arguments.boolean("force", force),
        wait=arguments.boolean("wait", wait),
        wait_s=None
        if wait_s is None
        else arguments.whole_number("wait_s", wait_s, least=0, most=_LONGEST_WAIT_S),
        machine=settings.machine,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VmRequest:
    """
    A new VM as a call requests it.

    requirements
        What it needs of a host, as far as the master can know that.
    function, arg, kwarg
        The host's function that builds the VM, and its arguments.
    images
        The sources of its disks that the call names.
    has_system
        Whether the call names a disk with a system that can be seeded. A profile may name one, too.
    may_be_empty
        Whether the call names disks, and nothing to boot from.
    """

    requirements: Requirements
    function: str = "virt.init"
    arg: tuple[Any, ...]
    kwarg: Mapping[str, Any] = field(repr=False)
    images: frozenset[str] = field(default=frozenset(), repr=False)
    has_system: bool = False
    may_be_empty: bool = False
    terms: Terms = field(default_factory=Terms)

    @property
    def name(self) -> str:
        """The VM's name."""
        return self.requirements.name

    @property
    def starts(self) -> bool:
        """Whether the VM is started."""
        return bool(self.kwarg.get("start", True))

    @property
    def saltenv(self) -> str:
        """The environment of its images on the file server."""
        saltenv: str = self.kwarg.get("saltenv", spec.OPTIONS["saltenv"])
        return saltenv

    def is_seeded(self, info: HostInfo) -> bool:
        """
        Return whether a host makes a seed for the VM.

        info
            The host's answer to ``virt.host_info``: its disk profile may name an image.
        """
        profile = info.profiles.disk.get(self.requirements.disk_profile or "")
        has_system = self.has_system or (profile is not None and profile.has_image)
        return bool(self.kwarg.get("seed", True) and has_system)

    def choose_machine(self, infos_by_host: Mapping[str, HostInfo], host: str) -> str | None:
        """
        Return the machine type that a host is to give the VM; None leaves it to the host.

        That is the newest that all hosts have, if they differ: so the VM can move to each of them.
        """
        info = infos_by_host[host]
        arch = self.requirements.arch or info.cpu.arch
        if self.requirements.machine or not generation.has_usual_machines(info, arch):
            return None
        return generation.find_common_machine(infos_by_host, arch)

    def warnings(self, host: str, info: HostInfo) -> list[str]:
        """Return the warnings before a build, which the host's own follow: an empty disk."""
        profile = info.profiles.disk.get(self.requirements.disk_profile or "")
        if not self.may_be_empty or (profile is not None and profile.has_image):
            return []
        return [f"no image was given: its disk is empty, unless {host} has a disk for it already"]


def parse(name: Any, cpu: Any, mem: Any, kwarg: Mapping[str, Any], terms: Terms) -> VmRequest:
    """
    Return the request of a call of ``virt.init``.

    kwarg
        The keyword arguments of the module's ``virt.init``.

    Raises BadArgument for what every host would refuse.
    """
    if terms.machine and kwarg.get("machine") is None and kwarg.get("arch") is None:
        kwarg = {**kwarg, "machine": terms.machine}
    requirements = spec.requirements_from_master(name, cpu, mem, kwarg)
    refuse_keys(kwarg, f"virt.init {name}")
    images = frozenset(filter(None, profiles.images(kwarg)))
    return VmRequest(
        requirements=requirements,
        arg=(name, cpu, mem),
        kwarg=kwarg,
        images=images,
        has_system=bool(images),
        may_be_empty=bool(requirements.disk_profile or kwarg.get("disks"))
        and not _has_source(kwarg),
        terms=terms,
    )


def _has_source(keywords: Mapping[str, Any]) -> bool:
    """Return whether the keyword arguments of ``virt.init`` name anything that a VM boots from."""
    disks = profiles.entries(keywords.get("disks") or [], "disks")
    boots_otherwise = "network" in str(keywords.get("boot_dev") or "") or bool(
        (keywords.get("boot") or {}).get("kernel")
    )
    sources = ("image", "source_file", "backing_store_path")
    has_disk_source = any(disk.get(key) for disk in disks for key in sources) or any(
        disk.get("device") == "lun" for disk in disks
    )
    return boots_otherwise or bool(keywords.get("image")) or has_disk_source


def refuse_keys(kwarg: Mapping[str, Any], command: str) -> None:
    """Raise BadArgument if a call passes its own keys; a command of a host takes them."""
    for keyword in ("pub_key", "priv_key"):
        if kwarg.get(keyword) is not None:
            raise BadArgument(
                keyword,
                f"the runner makes the keys itself; to use your own, call salt HOST {command} ...",
            )
