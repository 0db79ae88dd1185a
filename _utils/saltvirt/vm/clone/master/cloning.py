"""Clone a VM on its host: the host copies the disks, the master makes the identity."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose
from saltvirt.cluster.rpc.hostcommands import act
from saltvirt.core import arguments, wire
from saltvirt.core.model import Requirements
from saltvirt.placement import whatif
from saltvirt.placement.answers import HostInfo, MigrationInfo
from saltvirt.placement.shownvms import ClonePlan
from saltvirt.vm.clone import clonespec
from saltvirt.vm.create.master import deploy
from saltvirt.vm.create.master.hostbuild import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRequest(Request):
    """
    The request for a clone, on the host of its source.

    source
        The host's answer about the source.
    """

    source: MigrationInfo

    @property
    def function(self) -> str:
        """The host's function that builds the VM."""
        return "virt.clone"

    @property
    def values(self) -> list[Any]:
        """The positional arguments of :attr:`function`."""
        return [self.source.name, self.name]

    def required(self) -> Requirements:
        """Return the VM's requirements; refuse arguments that the master cannot pass to a host."""
        clonespec.deployment_options(self.given)
        self.refuse_keys()
        groups = clonespec.groups(self.given)
        return replace(whatif.needs_of_move(self.source), name=self.name, **groups)

    def is_seeded(self, _info: HostInfo) -> bool:
        """Return whether the host makes a seed: the clone needs a disk that may boot."""
        has_disk = any(disk.device in ("disk", "lun") for disk in self.source.disks)
        return bool(self.given.get("seed", True)) and has_disk


def request(cloud: Cloud, source: str, name: str, options: Mapping[str, Any]) -> CloneRequest:
    """
    Return the request of a call; refuse invalid names.

    options
        ``given``, the keyword arguments of the module's ``virt.clone``, ``force`` and ``wait_s``.
    """
    arguments.vm_name(source)
    arguments.vm_name(name)
    minionkeys.refuse_reserved(cloud.opts, name)
    host = locate(cloud, source, Purpose.ACT).host
    fun = "virt.migration_info"
    info = wire.read(host, fun, MigrationInfo, act(cloud, host, fun, source))
    return CloneRequest(
        name=name, cpu=info.vcpus, mem=info.memory_mib, host=host, source=info, **options
    )


def clone(cloud: Cloud, clone_request: CloneRequest, *, wait: bool) -> dict[str, Any]:
    """Clone a VM; return the answer of :func:`saltvirt.vm.create.master.deploy.deploy`."""
    return deploy.deploy(cloud, clone_request, wait=wait)


def dry_run(cloud: Cloud, clone_request: CloneRequest, *, wait: bool) -> dict[str, Any]:
    """Return ``{host: plan}`` of the source's host; raise the errors that :func:`clone` would."""
    clone_request.required()
    deploy.refuse(cloud, clone_request, wait=wait)
    host, options = clone_request.host or "", {**clone_request.given, "dry_run": True}
    answer = act(cloud, host, clone_request.function, *clone_request.values, kwarg=options)
    return {host: wire.plain(wire.read(host, clone_request.function, ClonePlan, answer))}
