"""Clone a VM on its host: the host copies the disks, the master makes the identity."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose
from saltvirt.cluster.rpc.hostcommands import act
from saltvirt.core import arguments, wire
from saltvirt.placement import whatif
from saltvirt.placement.answers import MigrationInfo
from saltvirt.placement.shownvms import ClonePlan
from saltvirt.vm.clone import clonespec
from saltvirt.vm.create.master import deploy, vmrequest
from saltvirt.vm.create.master.vmrequest import Terms, VmRequest


def parse(
    cloud: Cloud, source: str, name: str, kwarg: Mapping[str, Any], terms: Terms
) -> VmRequest:
    """
    Return the request of a call, for the host of its source; refuse invalid arguments.

    kwarg
        The keyword arguments of the module's ``virt.clone``.
    """
    arguments.vm_name(source)
    arguments.vm_name(name)
    clone_options = clonespec.parse(kwarg)
    vmrequest.refuse_keys(kwarg, f"virt.clone {source}")
    host = locate(cloud, source, Purpose.ACT).host
    fun = "virt.migration_info"
    info = wire.read(host, fun, MigrationInfo, act(cloud, host, fun, source))
    return VmRequest(
        requirements=replace(whatif.needs_of_move(info), name=name, **clone_options.groups),
        function="virt.clone",
        arg=(source, name),
        kwarg=kwarg,
        # The clone needs a disk that may boot.
        has_system=any(disk.device in ("disk", "lun") for disk in info.disks),
        terms=replace(terms, host=host),
    )


def dry_run(cloud: Cloud, request: VmRequest) -> dict[str, Any]:
    """Return ``{host: plan}`` of the source's host; raise the errors that a clone would."""
    deploy.survey_or_refuse(cloud, request)
    host, kwarg = request.terms.host or "", {**request.kwarg, "dry_run": True}
    answer = act(cloud, host, request.function, *request.arg, kwarg=kwarg)
    return {host: wire.plain(wire.read(host, request.function, ClonePlan, answer))}
