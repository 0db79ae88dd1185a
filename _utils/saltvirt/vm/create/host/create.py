"""Create a VM on this host: gather facts, decide, reserve room, build."""

import uuid
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from saltvirt.core import undo
from saltvirt.core.journal import records
from saltvirt.core.model import Deployment, Requirements
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import effects, moveprotocol
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import connect, reservations
from saltvirt.seeding import identity, submission
from saltvirt.vm import spec
from saltvirt.vm.create.host import apply, buildfacts, buildplan, existing, poolvolumes
from saltvirt.vm.recovery.host import unfinished
from saltvirt.vm.show.host import inspect


def create(context: Context, deployment: Deployment) -> bool | dict[str, list[str]]:
    """
    Create the VM that a :class:`saltvirt.core.model.Deployment` describes; return True.

    The runner gets ``{"warnings": [line]}`` instead if there are any.
    """
    warnings = create_with_warnings(context, deployment)
    return {"warnings": warnings} if warnings and context.is_ordered else True


def create_with_warnings(context: Context, deployment: Deployment) -> list[str]:
    """Create a VM as :func:`create` does; return the warnings, one line each."""
    settings = context.settings
    submission.refuse_reserved(context, deployment.vm.name)
    guest_identity = identity.prepare(context, deployment)
    warnings: tuple[str, ...] = ()
    with undo.on_signals(), connect.open_connection(settings, readonly=False) as conn:
        host_facts, deployment = _apply_host_facts(conn, settings, deployment)
        vm_uuid = context.uuid or str(uuid.uuid4())
        deployment = replace(deployment, vm=replace(deployment.vm, uuid=vm_uuid))
        unfinished.settle(conn, settings)
        domain_commitments, requirements = (
            inspect.read_timed_commitments(conn, settings),
            _compute_requirements(settings, host_facts, deployment),
        )

        def check() -> None:
            nonlocal warnings
            info = inspect.host_info(conn, settings, domain_commitments)
            start = deployment.start
            warnings = buildplan.refuse(deployment.vm, host_facts, info, requirements, start=start)

        def reserve() -> AbstractContextManager[records.LockedRecord]:
            return reservations.reserve(settings, requirements, vm_uuid, check)

        def decide() -> buildplan.Plan:
            content = buildfacts.gather_content(
                context, conn, deployment, host_facts, guest_identity, is_dry=False
            )
            plan = buildplan.decide(deployment, host_facts, content, settings.images)
            all_warnings = (*plan.told, *warnings)
            return replace(plan, told=all_warnings, notes_made=context.is_undoable)

        with apply.Builder(conn, context, guest_identity, reserve, decide) as builder:
            effects.run(moveprotocol.build(deployment.start), builder)
    return list(builder.warnings)


def show(context: Context, deployment: Deployment) -> dict[str, Any]:
    """
    Return what :func:`create` would do, or raise as it would; change nothing.

    See :meth:`saltvirt.vm.create.host.buildplan.Plan.to_dict`. Format and content of an image are
    unknown until this host has cached it.
    """
    settings = context.settings
    submission.refuse_reserved(context, deployment.vm.name)
    guest_identity = identity.prepare(context, deployment)
    # libvirt reports domain capabilities to writable connections only.
    with connect.open_connection(settings, readonly=False) as conn:
        host_facts, deployment = _apply_host_facts(conn, settings, deployment)
        reservations.refuse_moving(settings, deployment.vm.name)
        info = inspect.host_info(conn, settings)
        requirements = _compute_requirements(settings, host_facts, deployment)
        warnings = buildplan.refuse(
            deployment.vm, host_facts, info, requirements, start=deployment.start
        )
        content = buildfacts.gather_content(
            context, conn, deployment, host_facts, guest_identity, is_dry=True
        )
        plan = buildplan.decide(deployment, host_facts, content, settings.images)
        return {**plan.to_dict(), **({"warnings": list(warnings)} if warnings else {})}


def _apply_host_facts(
    conn: Any, settings: HostSettings, deployment: Deployment
) -> tuple[buildfacts.HostFacts, Deployment]:
    """Return the host's facts, and the deployment with the host's defaults."""
    host_facts = buildfacts.read_host_facts(conn, settings, deployment.vm)
    return host_facts, replace(deployment, vm=buildplan.apply_host_facts(deployment.vm, host_facts))


def _compute_requirements(
    settings: HostSettings, host_facts: buildfacts.HostFacts, deployment: Deployment
) -> Requirements:
    """Return what the VM needs of this host."""
    vm, places = deployment.vm, buildfacts.places(settings, host_facts, deployment.vm)
    # Pools of devices check their room themselves.
    disks = [
        disk
        for disk in vm.disks
        if not poolvolumes.is_pool_volume(settings, host_facts.pools, disk)
    ]
    vm_with_files = replace(vm, disks=tuple(disks))
    return existing.reduce_requirements(
        settings, vm_with_files, places, spec.requirements(vm_with_files)
    )
