"""Move a VM between hypervisors: find it, choose, and have it carried."""

import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from saltvirt import arguments, movespec, terminal, wire
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument, NameTaken, NoHostFits
from saltvirt.fleet import finding, interrupted, inventory, moves, orders, sightings
from saltvirt.fleet.building import none_fits
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.effects import Hands, MoveFailed, MoveHosts, NotReady
from saltvirt.fleet.hosts import DeployError, act
from saltvirt.model import Evaluation, Policy
from saltvirt.placement import brief, choose, requirements
from saltvirt.placement.answers import DiskFacts, MigrationInfo
from saltvirt.records import Held


def plan(
    cloud: Cloud,
    name: str,
    target: str | None,
    source: str | None = None,
) -> tuple[str, MigrationInfo, list[Evaluation]]:
    """
    Return ``(source, moving, evaluations)`` of a move; the best host first.

    Raises NoHostFits, with the table of reasons, if the VM can go nowhere.
    """
    arguments.text("name", name)
    # 3006's default is empty.
    target = arguments.text("target", target) if target else None
    every = inventory.every(cloud)
    found = _asked(cloud, every, name, {source, target})
    known = source or _having(found, name)
    if known is not None:
        finding.confirm(cloud, name, known)
    source = known or inventory.locate(cloud, name)
    moving = _moving(cloud, found, name, source)
    if target is not None and target not in every:
        raise BadArgument(
            "target", f"{target!r} is not a hypervisor here; there are: {terminal.some(every)}"
        )
    if target == source:
        raise BadArgument("target", f"VM {name!r} is on {source} already")
    if every == [source]:
        raise NoHostFits(requirements.of(moving), {}, nowhere="there is no other hypervisor")
    return source, moving, _evaluations(cloud, found, moving, source, target)


def _asked(
    cloud: Cloud, every: Sequence[str], name: str, ends: Collection[str | None]
) -> inventory.Survey:
    """Return what the hosts say that a move concerns: its two, if both are known, or all."""
    fun, kwarg = "virt.host_info", {"moving": name}
    two = [host for host in every if host in ends]
    asked = two if len(two) == 2 else every
    cloud.progress("Searching", detail=terminal.counted(len(asked), "hypervisor"))
    found = inventory.survey(cloud, asked, fun, kwarg=kwarg)
    is_bound = any(info.moving and _is_bound(info.moving) for info in found.answers.values())
    if len(asked) == len(every) or not is_bound:
        return found
    # The VMs that it must be with may be on any host, and those that it must not be in a rack with.
    others = [host for host in every if host not in asked]
    return inventory.joined(found, inventory.survey(cloud, others, fun, kwarg=kwarg))


def _is_bound(moving: MigrationInfo) -> bool:
    """Return whether the groups of a VM ask for more than what is on the host that takes it."""
    return not brief.is_of_one_host(requirements.of(moving), Policy())


def _moving(cloud: Cloud, found: inventory.Survey, name: str, source: str) -> MigrationInfo:
    """Return what a VM is made of; raise MoveFailed if it cannot be moved at all."""
    info = found.answers.get(source)
    # A host of an older release is asked for that alone.
    moving: MigrationInfo | None = info and info.moving
    if moving is None:
        said = act(cloud, source, "virt.migration_info", name)
        moving = wire.read(source, "virt.migration_info", MigrationInfo, said)
    if moving.obstacles:
        raise MoveFailed(f"VM {name!r} stays on {source}: {'; '.join(moving.obstacles)}")
    return moving


def _evaluations(
    cloud: Cloud, found: inventory.Survey, moving: MigrationInfo, source: str, target: str | None
) -> list[Evaluation]:
    """Return the evaluation of every host but the source, the best first."""
    others = {host: info for host, info in found.answers.items() if host != source}
    evaluated = choose.evaluate(others, requirements.of(moving), cloud.settings.weights)
    evaluations = [v if target in (None, v.host) else _other(v, target) for v in evaluated]
    silent = {host: why for host, why in found.reasons().items() if host != source}
    evaluations += [Evaluation(host=host, reasons=(why,)) for host, why in silent.items()]
    return choose.ranked(evaluations)


def _having(found: inventory.Survey, name: str) -> str | None:
    """Return the one host that has a VM, None if that is not so clear."""
    having = [host for host, info in found.answers.items() if name in info.vms]
    return having[0] if len(having) == 1 and not found.reasons() else None


def _other(evaluation: Evaluation, target: str) -> Evaluation:
    return Evaluation(host=evaluation.host, reasons=(f"not the host asked for ({target})",))


def chosen(
    cloud: Cloud,
    source: str,
    moving: MigrationInfo,
    evaluations: Sequence[Evaluation],
) -> str:
    """Return the first host that fits and says itself that it could take the VM."""
    late = {}
    for evaluation in evaluations:
        if not evaluation.fits:
            continue
        try:
            said = act(
                cloud,
                evaluation.host,
                "virt.migrate_check",
                kwarg={"about": wire.plain(moving), "source": source},
            )
            why = wire.read(evaluation.host, "virt.migrate_check", list[str], said)
        except wire.BadAnswer as error:
            why = [str(error)]
        except DeployError as error:
            why = [str(error).removeprefix(f"{evaluation.host}: ")]
        if not why:
            return evaluation.host
        late[evaluation.host] = why
    raise none_fits(requirements.of(moving), evaluations, late)


def dry_run(
    cloud: Cloud,
    name: str,
    target: str | None,
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """
    Return what a move would do, or raise with every reason why not; nothing is changed.

    given
        Keyword arguments of the module's ``virt.migrate``, looked at as by :func:`migrate`.
    """
    movespec.of(HostSettings(), given)
    source, moving, evaluations = plan(cloud, name, target)
    host = chosen(cloud, source, moving, evaluations)
    moved = {disk.target: _shown(disk) for disk in moving.disks}
    warning = behind_nat(moving, host)
    return {
        "name": name,
        "from": source,
        "to": host,
        "state": moving.state,
        "memory_mib": moving.memory_mib,
        "disks": moved,
        **({"warning": warning} if warning else {}),
    }


def behind_nat(moving: MigrationInfo, host: str) -> str:
    """Return what a move to a host means for a VM behind NAT; empty for any other."""
    if not moving.nat:
        return ""
    return (
        f"behind NAT ({', '.join(moving.nat)}): its connections break, its address may change, and "
        f"it is reached through {host} from then on; its minion may be silent for some 5 minutes, "
        "until it finds its connection broken"
    )


def _shown(disk: DiskFacts) -> str:
    if disk.how == "shared":
        return "stays where it is, the storage is shared"
    base = f", over the image {disk.base[:12]}" if disk.base else ""
    return f"{(disk.actual_bytes or 0) // 2**20} MiB of {disk.path}{base}"


def migrate(
    cloud: Cloud,
    name: str,
    target: str | None,
    given: Mapping[str, Any],
    source: str | None = None,
) -> dict[str, Any]:
    """
    Move a VM and return ``{"name", "from", "to", "total_ms", "downtime_ms", ...}``; ``warning`` is
    there if something beside the move failed.

    given
        Keyword arguments of the module's ``virt.migrate``.
    source
        The host that has it, if that is known.
    """
    movespec.of(HostSettings(), given)
    late: dict[str, list[str]] = {}
    with orders.opened(cloud.opts, name, is_there=True) as held:
        _settle(cloud, held)
        source, moving, evaluations = plan(cloud, name, target, source)
        for host in [evaluation.host for evaluation in evaluations if evaluation.fits]:
            cloud.progress("Placing", detail=f"from {source} to {host}")
            hosts = MoveHosts(source=source, target=host)
            hands = Hands(cloud, held, secrets.token_hex(8), hosts)
            hands.given = given
            try:
                figures = moves.carry(cloud, hands)
            except NotReady as refused:
                cloud.progress("Placing", detail=f"{host} refused: {refused}")
                late[host] = [str(refused)]
                continue
            # A host says figures, and not which VM went where.
            out = figures | {"name": name, "from": source, "to": host}
            said = [figures.get("warning"), behind_nat(moving, host)]
            told = "; ".join(filter(None, said))
            return {**out, "warning": told} if told else out
    raise none_fits(requirements.of(moving), evaluations, late)


def _settle(cloud: Cloud, held: Held) -> None:
    """Bring what an interrupted command of this master has left of a VM to its end."""
    moves.settle_order(cloud, held)
    if held.record is None:
        return
    late = interrupted.give_up(cloud, held)
    found = inventory.look_for(cloud, held.name)
    seen = sightings.of_presence(found.answers)
    unheard = late | inventory.unheard(cloud, found, held.name, seen, interrupted.hosts(held))
    interrupted.settle(cloud.opts, held, seen, unheard)
    if held.record is not None:
        host = next(host for host, one in sorted(seen.items()) if one.building)
        raise NameTaken(sightings.coming(held.name, host))
