"""Create a VM on this host: gather facts, decide, reserve room, build."""

import uuid
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from saltvirt.core import undo
from saltvirt.core.journal import records
from saltvirt.core.model import Deployment, Requirements, Vm
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import effects, moveprotocol
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import connect, reservations
from saltvirt.placement.answers import HostInfo
from saltvirt.seeding import identity, submission
from saltvirt.seeding.seedmodel import Identity
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
    guest_identity = _prepare_identity(context, deployment)
    with undo.on_signals(), connect.open_connection(context.settings, readonly=False) as conn:
        # First: leftovers of this name would count as disks that the VM has already.
        unfinished.settle(conn, context.settings)
        new_vm = _NewVm(context, conn, deployment, guest_identity)
        return build(context, conn, new_vm)


def show(context: Context, deployment: Deployment) -> dict[str, Any]:
    """
    Return what :func:`create` would do, or raise as it would; change nothing.

    See :meth:`saltvirt.vm.create.host.buildplan.Plan.to_dict`. Format and content of an image are
    unknown until this host has cached it.
    """
    guest_identity = _prepare_identity(context, deployment)
    # libvirt reports domain capabilities to writable connections only.
    with connect.open_connection(context.settings, readonly=False) as conn:
        new_vm = _NewVm(context, conn, deployment, guest_identity)
        reservations.refuse_moving(context.settings, deployment.vm.name)
        warnings = new_vm.refuse(inspect.host_info(conn, context.settings))
        plan = new_vm.plan(is_dry=True)
        return {**plan.to_dict(), **({"warnings": list(warnings)} if warnings else {})}


def _prepare_identity(context: Context, deployment: Deployment) -> Identity | None:
    submission.refuse_reserved(context, deployment.vm.name)
    return identity.prepare(context, deployment)


class Buildable(Protocol):
    """
    A VM to be built: a new one, or a clone.

    deployment
        The VM, and how it is started.
    requirements
        What it needs of this host.
    guest_identity
        None if its guest gets no identity.
    source
        The VM that it is a clone of, if any.
    """

    uuid: str
    deployment: Deployment
    requirements: Requirements
    guest_identity: Identity | None
    source: str | None

    def refuse(self, info: HostInfo) -> tuple[str, ...]:
        """Raise unless the host has room for the VM, and no other of its name; return warnings."""

    def plan(self, *, is_dry: bool) -> buildplan.Plan:
        """Return the plan of its build; raise if it cannot work."""

    def recheck(self) -> None:
        """Raise if the disks that were copied were used meanwhile."""


def build(context: Context, conn: Any, buildable: Buildable) -> list[str]:
    """Reserve room for a VM, decide its plan, and build it; return the warnings."""
    settings = context.settings
    timed_commitments = inspect.read_timed_commitments(conn, settings)
    warnings: tuple[str, ...] = ()

    def check() -> None:
        nonlocal warnings
        warnings = buildable.refuse(inspect.host_info(conn, settings, timed_commitments))

    def reserve() -> AbstractContextManager[records.LockedRecord]:
        return reservations.reserve(
            settings, buildable.requirements, buildable.uuid, check, source=buildable.source
        )

    def decide() -> buildplan.Plan:
        plan = buildable.plan(is_dry=False)
        return replace(plan, other_warnings=(*plan.other_warnings, *warnings))

    builder = apply.Builder(
        conn,
        context,
        buildable.guest_identity,
        reserve,
        decide,
        source=buildable.source,
        recheck=buildable.recheck,
    )
    with builder:
        effects.run(moveprotocol.build(buildable.deployment.start), builder)
    return list(builder.warnings)


class _NewVm:
    """A new VM, with the facts and defaults of this host."""

    source: str | None = None

    def __init__(
        self,
        context: Context,
        conn: Any,
        deployment: Deployment,
        guest_identity: Identity | None,
    ) -> None:
        self._context, self._conn, self.guest_identity = context, conn, guest_identity
        settings = context.settings
        self._host_facts = buildfacts.read_host_facts(conn, settings, deployment.vm)
        self.uuid = context.uuid or str(uuid.uuid4())
        vm = buildplan.apply_host_facts(deployment.vm, self._host_facts)
        self.deployment = replace(deployment, vm=replace(vm, uuid=self.uuid))
        self.requirements = _compute_requirements(settings, self._host_facts, vm)

    def refuse(self, info: HostInfo) -> tuple[str, ...]:
        return buildplan.refuse(
            self.deployment.vm,
            self._host_facts,
            info,
            self.requirements,
            start=self.deployment.start,
        )

    def plan(self, *, is_dry: bool) -> buildplan.Plan:
        context = self._context
        content = buildfacts.gather_content(
            context,
            self._conn,
            self.deployment,
            self._host_facts,
            self.guest_identity,
            is_dry=is_dry,
        )
        plan = buildplan.decide(self.deployment, self._host_facts, content, context.settings.images)
        return replace(plan, notes_made=context.is_undoable)

    def recheck(self) -> None:
        pass


def _compute_requirements(
    settings: HostSettings, host_facts: buildfacts.HostFacts, vm: Vm
) -> Requirements:
    """Return what the VM needs of this host."""
    places = buildfacts.places(settings, host_facts, vm)
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
