"""Clone a VM on its host: build a VM from copies of another VM's disks."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saltvirt.core import arguments, undo
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Deployment
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.core.seedmethods import AUTO, GUESTFS, METHODS, NOCLOUD
from saltvirt.libvirt import connect, reservations
from saltvirt.placement import cures
from saltvirt.placement.answers import HostInfo
from saltvirt.seeding import identity, submission
from saltvirt.vm.clone import clonespec
from saltvirt.vm.clone.clonespec import CloneOptions
from saltvirt.vm.clone.host import cloneplan, clonesource
from saltvirt.vm.create.host import buildfacts, buildplan, newvolumes
from saltvirt.vm.create.host.create import build
from saltvirt.vm.power.host import startlock
from saltvirt.vm.recovery.host import unfinished
from saltvirt.vm.show.host import inspect


def create(
    context: Context, original: str, name: str, options: Mapping[str, Any]
) -> bool | dict[str, list[str]]:
    """
    Clone a VM; return True, or ``{"warnings": [line]}`` if there are any.

    options
        The other arguments of ``virt.clone``.
    """
    clone_options = clonespec.parse(options)
    _refuse_bad_call(context, original, name, clone_options)
    with undo.on_signals(), connect.open_connection(context.settings, readonly=False) as conn:
        unfinished.settle(conn, context.settings)
        clone = _Clone(context, conn, original, name, clone_options)
        warnings = build(context, conn, clone)
    return {"warnings": warnings} if warnings else True


def show(context: Context, original: str, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what :func:`create` would do, or raise as it would; change nothing."""
    clone_options = clonespec.parse(options)
    _refuse_bad_call(context, original, name, clone_options)
    with connect.open_connection(context.settings, readonly=False) as conn:
        clone = _Clone(context, conn, original, name, clone_options)
        reservations.refuse_moving(context.settings, name)
        clone.refuse_host(inspect.host_info(conn, context.settings))
        plan = clone.plan(is_dry=True)
        return {"source": original, **plan.to_dict(), "warnings": list(plan.warnings)}


def _refuse_bad_call(
    context: Context, original: str, name: str, clone_options: CloneOptions
) -> None:
    arguments.vm_name(name)
    if original == name:
        raise BadArgument("name", f"the clone of {name!r} needs a name of its own")
    deployment_options = clone_options.deployment
    method_name = deployment_options["seed_method"] or context.settings.seed.get("method")
    method = METHODS.get(method_name or AUTO)
    if deployment_options["seed"] and method and not method.replaces_identity:
        raise BadArgument(
            "seed_method",
            f"{method.name} take nothing away of what the disk has of {original!r}; give "
            f"{NOCLOUD.name} or {GUESTFS.name}, or seed=False",
        )
    submission.refuse_reserved(context, name)


class _Clone:
    """A clone to be made, and its source as last read."""

    def __init__(
        self, context: Context, conn: Any, original: str, name: str, options: CloneOptions
    ) -> None:
        self._context, self._conn = context, conn
        self.source: str | None = original
        self._original, self._name, self._options = original, name, options
        self.uuid = context.uuid or str(uuid.uuid4())
        self._look()
        guest_identity = identity.prepare(context, self.deployment)
        self.guest_identity = guest_identity and replace(guest_identity, is_another=True)
        self._host_facts = buildfacts.read_host_facts(conn, context.settings, self.deployment.vm)

    def _look(self) -> None:
        """Read the source, and derive the clone from it."""
        conn, settings = self._conn, self._context.settings
        self._source_vm = clonesource.read_source(conn, settings, self._original, self._name)
        pool_names = {disk.pool for disk in self._source_vm.disks if disk.pool and disk.volume}
        pools_by_name = {
            pool_name: clonesource.read_pool(conn, pool_name) for pool_name in pool_names
        }
        vm, self._copies = cloneplan.plan_vm(
            self._source_vm, self._name, self.uuid, pools_by_name, self._options.groups
        )
        self.deployment = Deployment(vm=vm, **self._options.deployment)
        self.requirements = cloneplan.compute_requirements(self._source_vm, vm)

    def refuse(self, info: HostInfo) -> tuple[str, ...]:
        # A purge or move of the source takes the same lock.
        settings = self._context.settings
        reservations.refuse_on_its_way(settings, self._original, self._source_vm.info.uuid)
        reservations.refuse_building(settings, self._original)
        return self.refuse_host(info)

    def refuse_host(self, info: HostInfo) -> tuple[str, ...]:
        """Raise unless the host has room for the clone, and no other VM of its name."""
        return buildplan.refuse(
            self.deployment.vm,
            self._host_facts,
            info,
            self.requirements,
            command=cures.CLONE,
        )

    def plan(self, *, is_dry: bool) -> buildplan.Plan:
        settings = self._context.settings
        if not is_dry:
            # The lock waits for a start in progress, and keeps the source from being started.
            with startlock.hold_start_lock(settings, self._original):
                self._look()
        images = {disk.image.path: disk.image for disk in self._source_vm.disks}
        seeding = buildfacts.gather_seed_facts(
            self._context, self.deployment, self.guest_identity, images, is_dry=is_dry
        )
        plan = cloneplan.decide(
            self.deployment, self._source_vm, self._copies, seeding, settings.images
        )
        _refuse_taken(self._conn, settings, plan)
        return plan

    def recheck(self) -> None:
        clonesource.refuse_changed(self._conn, self._source_vm)


def _refuse_taken(conn: Any, settings: HostSettings, plan: buildplan.Plan) -> None:
    """Raise StorageError if a disk or the seed exists already."""
    reservations.refuse_taken(settings, plan.vm.name, plan.paths)
    newvolumes.refuse_taken(conn, settings, plan.vm.name, plan.volumes)
    buildplan.refuse_duplicate_paths(plan)
