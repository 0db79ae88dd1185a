"""Create a VM on this host: gather facts, decide, reserve room, build."""

import uuid
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from saltvirt import parts, protocol, records, spec, undo
from saltvirt.config import HostSettings
from saltvirt.kvm import connect
from saltvirt.model import Requirements
from saltvirt.ops import inspect, reservations, unfinished
from saltvirt.ops.build import buildfacts, buildplan, do, existing, poolvolumes
from saltvirt.ops.context import Context
from saltvirt.ops.seeding import identity, submission
from saltvirt.spec import Deployment


def create(context: Context, deployment: spec.Deployment) -> bool | dict[str, list[str]]:
    """
    Create the VM that a :class:`saltvirt.spec.Deployment` describes; return True.

    The runner is told more if there is anything to be known of the VM: ``{"warnings": [line]}``.
    """
    told = built(context, deployment)
    return {"warnings": told} if told and context.is_ordered else True


def built(context: Context, deployment: spec.Deployment) -> list[str]:
    """Create a VM as :func:`create` does; return what is to be known of it, a line each."""
    settings = context.settings
    submission.refuse_reserved(context, deployment.vm.name)
    who = identity.prepare(context, deployment)
    warnings: tuple[str, ...] = ()
    with undo.on_signals(), connect.opened(settings, readonly=False) as conn:
        on, deployment = _on_host(conn, settings, deployment)
        chosen = context.uuid or str(uuid.uuid4())
        deployment = replace(deployment, vm=replace(deployment.vm, uuid=chosen))
        unfinished.settle(conn, settings)
        known, required = inspect.seen(conn, settings), _required(settings, on, deployment)

        def check() -> None:
            nonlocal warnings
            info = inspect.host_info(conn, settings, known)
            start = deployment.start
            warnings = buildplan.refuse(deployment.vm, on, info, required, start=start)

        def reserve() -> AbstractContextManager[records.Held]:
            return reservations.reserved(settings, required, chosen, check)

        def decide() -> buildplan.Plan:
            content = buildfacts.of_content(context, conn, deployment, on, who, is_dry=False)
            plan = buildplan.decide(deployment, on, content, settings.images)
            told = (*plan.told, *warnings)
            return replace(plan, told=told, notes_made=context.is_undoable)

        with do.Builder(conn, context, who, reserve, decide) as hands:
            parts.run(protocol.build(deployment.start), hands)
    return list(hands.warnings)


def show(context: Context, deployment: spec.Deployment) -> dict[str, Any]:
    """
    Return what :func:`create` would do, or raise as it would; nothing is changed.

    See :meth:`saltvirt.ops.build.buildplan.Plan.to_dict`. The format and content of an image
    that is not cached here are not known yet.
    """
    settings = context.settings
    submission.refuse_reserved(context, deployment.vm.name)
    who = identity.prepare(context, deployment)
    # Nothing is written, but libvirt answers what a domain could have only to those who may.
    with connect.opened(settings, readonly=False) as conn:
        on, deployment = _on_host(conn, settings, deployment)
        reservations.refuse_moving(settings, deployment.vm.name)
        info = inspect.host_info(conn, settings)
        required = _required(settings, on, deployment)
        told = buildplan.refuse(deployment.vm, on, info, required, start=deployment.start)
        content = buildfacts.of_content(context, conn, deployment, on, who, is_dry=True)
        plan = buildplan.decide(deployment, on, content, settings.images)
        return {**plan.to_dict(), **({"warnings": list(told)} if told else {})}


def _on_host(
    conn: Any, settings: HostSettings, deployment: Deployment
) -> tuple[buildfacts.HostFacts, Deployment]:
    """Return the host's facts, and the deployment with what the host decides."""
    on = buildfacts.of_host(conn, settings, deployment.vm)
    return on, replace(deployment, vm=buildplan.on_host(deployment.vm, on))


def _required(
    settings: HostSettings, on: buildfacts.HostFacts, deployment: Deployment
) -> Requirements:
    """Return what the VM needs of this host."""
    vm, places = deployment.vm, buildfacts.places(settings, on, deployment.vm)
    # What a pool of devices has room for is its own affair.
    disks = [one for one in vm.disks if not poolvolumes.is_in_one(settings, on.pools, one)]
    of_files = replace(vm, disks=tuple(disks))
    return existing.to_find(settings, of_files, places, spec.requirements(of_files))
