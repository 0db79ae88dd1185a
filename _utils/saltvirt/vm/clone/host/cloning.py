"""Clone a VM on its host: build a VM from copies of another VM's disks."""

import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from saltvirt.core import arguments, undo
from saltvirt.core.errors import BadArgument
from saltvirt.core.journal import records
from saltvirt.core.model import Deployment
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import effects, moveprotocol
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import connect, reservations
from saltvirt.seeding import identity, submission
from saltvirt.seeding.seedmodel import Identity
from saltvirt.vm.clone import clonespec
from saltvirt.vm.clone.clonespec import CloneOptions
from saltvirt.vm.clone.host import cloneplan, clonesource
from saltvirt.vm.create.host import apply, buildfacts, buildplan
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
    settings, clone_options = context.settings, clonespec.parse(options)
    _refuse_bad_call(context, original, name, clone_options)
    with undo.on_signals(), connect.open_connection(settings, readonly=False) as conn:
        unfinished.settle(conn, settings)
        clone = _Clone(context, conn, original, name, clone_options)
        domain_commitments = inspect.read_timed_commitments(conn, settings)

        def check() -> None:
            # A purge or move of the source takes the same lock.
            reservations.refuse_on_its_way(settings, original, clone.source.info.uuid)
            reservations.refuse_building(settings, original)
            clone.refuse(inspect.host_info(conn, settings, domain_commitments))

        def reserve() -> AbstractContextManager[records.LockedRecord]:
            return reservations.reserve(
                settings, clone.required, clone.uuid, check, source=original
            )

        def decide() -> buildplan.Plan:
            # The lock waits for a start in progress, and keeps the source from being started.
            with startlock.hold_start_lock(settings, original):
                clone.look()
            return clone.plan(is_dry=False)

        def recheck() -> None:
            clonesource.refuse_changed(conn, clone.source)

        builder = _Cloner(
            conn, context, clone.who, reserve, decide, original=original, recheck=recheck
        )
        with builder:
            effects.run(moveprotocol.build(clone.deployment.start), builder)
    return {"warnings": list(builder.warnings)} if builder.warnings else True


def show(context: Context, original: str, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what :func:`create` would do, or raise as it would; change nothing."""
    settings, clone_options = context.settings, clonespec.parse(options)
    _refuse_bad_call(context, original, name, clone_options)
    with connect.open_connection(settings, readonly=False) as conn:
        clone = _Clone(context, conn, original, name, clone_options)
        reservations.refuse_moving(settings, name)
        clone.refuse(inspect.host_info(conn, settings))
        plan = clone.plan(is_dry=True)
        return {"source": original, **plan.to_dict(), "warnings": list(plan.warnings)}


def _refuse_bad_call(
    context: Context, original: str, name: str, clone_options: CloneOptions
) -> None:
    arguments.vm_name(name)
    if original == name:
        raise BadArgument("name", f"the clone of {name!r} needs a name of its own")
    deployment_options = clone_options.deployment
    method = deployment_options["seed_method"] or context.settings.seed.get("method")
    if deployment_options["seed"] and method == "credentials":
        raise BadArgument(
            "seed_method",
            f"credentials take nothing away of what the disk has of {original!r}; give nocloud or "
            "guestfs, or seed=False",
        )
    submission.refuse_reserved(context, name)


class _Clone:
    """A clone to be made, and its source as last read."""

    def __init__(
        self, context: Context, conn: Any, original: str, name: str, options: CloneOptions
    ) -> None:
        self._context, self._conn = context, conn
        self._original, self._name, self._options = original, name, options
        self.uuid = context.uuid or str(uuid.uuid4())
        self.look()
        self.who = self._identity()
        self._on = buildfacts.read_host_facts(conn, context.settings, self.deployment.vm)

    def look(self) -> None:
        """Read the source, and derive the clone from it."""
        conn, settings = self._conn, self._context.settings
        self.source = clonesource.read_source(conn, settings, self._original, self._name)
        pool_names = {
            source_disk.pool
            for source_disk in self.source.disks
            if source_disk.pool and source_disk.volume
        }
        pools_by_name = {
            pool_name: clonesource.read_pool(conn, pool_name) for pool_name in pool_names
        }
        vm, self._copies = cloneplan.plan_vm(
            self.source, self._name, self.uuid, pools_by_name, self._options.groups
        )
        self.deployment = Deployment(vm=vm, **self._options.deployment)
        self.required = cloneplan.compute_requirements(self.source, vm)

    def _identity(self) -> Identity | None:
        guest_identity = identity.prepare(self._context, self.deployment)
        return replace(guest_identity, is_another=True) if guest_identity else None

    def refuse(self, info: Any) -> None:
        """Raise unless the host has room for the clone, and no other VM of its name."""
        buildplan.refuse(self.deployment.vm, self._on, info, self.required)

    def plan(self, *, is_dry: bool) -> buildplan.Plan:
        """Return the plan of the clone."""
        settings = self._context.settings
        images = {source_disk.image.path: source_disk.image for source_disk in self.source.disks}
        seeding = buildfacts.gather_seed_facts(
            self._context, self.deployment, self.who, images, is_dry=is_dry
        )
        plan = cloneplan.decide(
            self.deployment, self.source, self._copies, seeding, settings.images
        )
        _refuse_taken(self._conn, settings, plan)
        return plan


def _refuse_taken(conn: Any, settings: HostSettings, plan: buildplan.Plan) -> None:
    """Raise StorageError if a disk or the seed exists already."""
    reservations.refuse_taken(settings, plan.vm.name, plan.paths)
    apply.refuse_volumes(conn, settings, plan)
    buildplan.refuse_duplicate_paths(plan)


class _Cloner(apply.Builder):
    """A builder that checks, after copying, that the source was not used meanwhile."""

    def __init__(self, *args: Any, original: str, recheck: Callable[[], None]) -> None:
        super().__init__(*args)
        self._original, self._recheck = original, recheck

    def _make_disks(self, plan: buildplan.Plan) -> None:
        self._context.progress("Copying", detail=f"the disks of {self._original}")
        super()._make_disks(plan)
        self._recheck()
