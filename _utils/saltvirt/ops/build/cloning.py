"""Clone a VM on its host: a build whose disks are copies of another VM's."""

import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from saltvirt import arguments, clonespec, parts, protocol, records, undo
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument
from saltvirt.kvm import connect
from saltvirt.ops import inspect, reservations, unfinished
from saltvirt.ops.build import buildfacts, buildplan, cloneplan, do, source
from saltvirt.ops.context import Context
from saltvirt.ops.migration import startlock
from saltvirt.ops.seeding import identity, submission
from saltvirt.seed.model import Identity
from saltvirt.spec import Deployment


def create(
    context: Context, original: str, name: str, given: Mapping[str, Any]
) -> bool | dict[str, list[str]]:
    """
    Clone a VM; return True, or ``{"warnings": [line]}`` if the user is to know anything of it.

    given
        The other arguments of ``virt.clone``.
    """
    settings = context.settings
    _refuse_asked(context, original, name, given)
    with undo.on_signals(), connect.opened(settings, readonly=False) as conn:
        unfinished.settle(conn, settings)
        made = _Clone(context, conn, original, name, given)
        known = inspect.seen(conn, settings)

        def check() -> None:
            # Whoever purges or moves it does so under the same lock.
            reservations.refuse_on_its_way(settings, original, made.source.info.uuid)
            reservations.refuse_building(settings, original)
            made.refuse(inspect.host_info(conn, settings, known))

        def reserve() -> AbstractContextManager[records.Held]:
            return reservations.reserved(settings, made.required, made.uuid, check, source=original)

        def decide() -> buildplan.Plan:
            # Whoever has begun to start it is through, and nobody else begins.
            with startlock.unstarted(settings, original):
                made.look()
            return made.plan(is_dry=False)

        def recheck() -> None:
            source.refuse_changed(conn, made.source)

        hands = _Cloner(
            conn, context, made.who, reserve, decide, original=original, recheck=recheck
        )
        with hands:
            parts.run(protocol.build(made.deployment.start), hands)
    return {"warnings": list(hands.warnings)} if hands.warnings else True


def show(context: Context, original: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what :func:`create` would do, or raise as it would; nothing is changed."""
    settings = context.settings
    _refuse_asked(context, original, name, given)
    with connect.opened(settings, readonly=False) as conn:
        made = _Clone(context, conn, original, name, given)
        reservations.refuse_moving(settings, name)
        made.refuse(inspect.host_info(conn, settings))
        plan = made.plan(is_dry=True)
        return {"source": original, **plan.to_dict(), "warnings": list(plan.warnings)}


def _refuse_asked(context: Context, original: str, name: str, given: Mapping[str, Any]) -> None:
    arguments.vm_name(name)
    if original == name:
        raise BadArgument("name", f"the clone of {name!r} needs a name of its own")
    how = clonespec.how(given)
    method = how["seed_method"] or context.settings.seed.get("method")
    if how["seed"] and method == "credentials":
        raise BadArgument(
            "seed_method",
            f"credentials take nothing away of what the disk has of {original!r}; give nocloud or "
            "guestfs, or seed=False",
        )
    submission.refuse_reserved(context, name)


class _Clone:
    """A clone that is to be made, and its source as it was last looked at."""

    def __init__(
        self, context: Context, conn: Any, original: str, name: str, given: Mapping[str, Any]
    ) -> None:
        self._context, self._conn = context, conn
        self._original, self._name, self._given = original, name, given
        self.uuid = context.uuid or str(uuid.uuid4())
        self.look()
        self.who = self._identity()
        self._on = buildfacts.of_host(conn, context.settings, self.deployment.vm)

    def look(self) -> None:
        """Look at the source."""
        conn, settings = self._conn, self._context.settings
        self.source = source.of(conn, settings, self._original, self._name)
        named = {one.pool for one in self.source.disks if one.pool and one.volume}
        says = {one: source.says_of_pool(conn, one) for one in named}
        vm, self._copies = cloneplan.vm(
            self.source, self._name, self.uuid, says, clonespec.groups(self._given)
        )
        self.deployment = Deployment(vm=vm, **clonespec.how(self._given))
        self.required = cloneplan.required(self.source, vm)

    def _identity(self) -> Identity | None:
        who = identity.prepare(self._context, self.deployment)
        return replace(who, is_another=True) if who else None

    def refuse(self, info: Any) -> None:
        """Raise unless the host has room for it, and no other of its name."""
        buildplan.refuse(self.deployment.vm, self._on, info, self.required)

    def plan(self, *, is_dry: bool) -> buildplan.Plan:
        """Return what is done."""
        settings = self._context.settings
        images = {one.image.path: one.image for one in self.source.disks}
        facts = buildfacts.of_seed(self._context, self.deployment, self.who, images, is_dry=is_dry)
        asked = cloneplan.Seeding(wish=facts[0], found=facts[1], unseen=facts[2])
        plan = cloneplan.decide(self.deployment, self.source, self._copies, asked, settings.images)
        _refuse_taken(self._conn, settings, plan)
        return plan


def _refuse_taken(conn: Any, settings: HostSettings, plan: buildplan.Plan) -> None:
    """Raise StorageError if a disk or the seed is there already."""
    reservations.refuse_taken(settings, plan.vm.name, plan.paths)
    do.refuse_volumes(conn, settings, plan)
    buildplan.refuse_twice(plan)


class _Cloner(do.Builder):
    """A builder that looks, once all is copied, whether somebody has used the source meanwhile."""

    def __init__(self, *args: Any, original: str, recheck: Callable[[], None]) -> None:
        super().__init__(*args)
        self._original, self._recheck = original, recheck

    def _make_disks(self, plan: buildplan.Plan) -> None:
        self._context.progress("Copying", detail=f"the disks of {self._original}")
        super()._make_disks(plan)
        self._recheck()
