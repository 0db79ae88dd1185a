"""Clone a VM where it is: its host makes the copies, the master gives the clone its identity."""

from collections.abc import Mapping
from typing import Any

from saltvirt import arguments, wire
from saltvirt.fleet import deploy, inventory, keys
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.hosts import act
from saltvirt.fleet.request import CloneRequest
from saltvirt.placement.answers import MigrationInfo


def request(cloud: Cloud, source: str, name: str, asked: Mapping[str, Any]) -> CloneRequest:
    """
    Return what is asked for; refuse what cannot be.

    asked
        ``given``, the keyword arguments of the module's ``virt.clone``, ``force`` and ``wait_s``.
    """
    arguments.vm_name(source)
    arguments.vm_name(name)
    keys.refuse_reserved(cloud.opts, name)
    host = inventory.locate(cloud, source)
    fun = "virt.migration_info"
    info = wire.read(host, fun, MigrationInfo, act(cloud, host, fun, source))
    return CloneRequest(
        name=name, cpu=info.vcpus, mem=info.memory_mib, host=host, source=info, **asked
    )


def clone(cloud: Cloud, wanted: CloneRequest, *, wait: bool) -> dict[str, Any]:
    """Clone a VM; return what :func:`saltvirt.fleet.deploy.deploy` does."""
    return deploy.deploy(cloud, wanted, wait=wait)


def dry_run(cloud: Cloud, wanted: CloneRequest) -> dict[str, Any]:
    """Return ``{host: plan}``, what the host of the source would do; or raise as it would."""
    wanted.required()
    deploy.refuse_known(cloud, wanted)
    host, given = wanted.host or "", {**wanted.given, "dry_run": True}
    return {host: act(cloud, host, wanted.function, *wanted.values, kwarg=given)}
