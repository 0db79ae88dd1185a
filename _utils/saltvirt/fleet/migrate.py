"""Move a VM between hypervisors: find it, choose, and have it carried."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from saltvirt import spec, wire
from saltvirt.config import HostSettings, MasterSettings
from saltvirt.errors import BadArgument, NameTaken
from saltvirt.fleet import inventory, moves, orders, settle, sightings
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.deploy import none_fits
from saltvirt.fleet.hosts import DeployError, act
from saltvirt.fleet.moves import MoveFailed
from saltvirt.model import Evaluation
from saltvirt.placement import choose, requirements
from saltvirt.placement.facts import About, DiskFacts
from saltvirt.records import Held


def plan(
    opts: Mapping[str, Any],
    settings: MasterSettings,
    name: str,
    target: str | None,
    source: str | None = None,
    *,
    say: Callable[..., None],
) -> tuple[str, About, list[Evaluation]]:
    """
    Return ``(source, about, evaluations)`` of a move; the best host first.

    Raises NoHostFits, with the table of reasons, if the VM can go nowhere.
    """
    target = target or None  # 3006's default is empty
    every = inventory.every(opts, settings)
    say("Searching", detail=f"{len(every)} hypervisors")
    found = inventory.survey(opts, settings, every, "virt.host_info", kwarg={"moving": name})
    source = source or _having(found, name) or inventory.locate(opts, settings, name)
    said = found.answers.get(source, {}).get("moving") or act(
        opts, settings, source, "virt.migration_info", name
    )
    about: About = wire.read(source, "virt.migration_info", About, said)
    if about["obstacles"]:
        raise MoveFailed(f"VM {name!r} stays on {source}: {'; '.join(about['obstacles'])}")
    if target is not None and target not in every:
        raise BadArgument(
            "target", f"{target!r} is not a hypervisor here; there are: " f"{', '.join(every)}"
        )
    if target == source:
        raise BadArgument("target", f"VM {name!r} is on {source} already")
    others = {host: info for host, info in found.answers.items() if host != source}
    evaluated = choose.evaluate(others, requirements.of(about), settings.weights)
    evaluations = [one if target in (None, one.host) else _other(one, target) for one in evaluated]
    evaluations += [
        Evaluation(host=host, reasons=(why,))
        for host, why in found.reasons().items()
        if host != source
    ]
    return source, about, choose.ranked(evaluations)


def _having(found: inventory.Survey, name: str) -> str | None:
    """Return the one host that has a VM, None if that is not so clear."""
    having = [host for host, info in found.answers.items() if name in info["vms"]]
    return having[0] if len(having) == 1 and not found.reasons() else None


def _other(evaluation: Evaluation, target: str) -> Evaluation:
    return Evaluation(host=evaluation.host, reasons=(f"not the host asked for ({target})",))


def chosen(
    opts: Mapping[str, Any],
    settings: MasterSettings,
    source: str,
    about: About,
    evaluations: Sequence[Evaluation],
) -> str:
    """Return the first host that fits and says itself that it could take the VM."""
    late = {}
    for evaluation in evaluations:
        if not evaluation.fits:
            continue
        try:
            why = act(
                opts,
                settings,
                evaluation.host,
                "virt.migrate_check",
                kwarg={"about": about, "source": source},
            )
        except DeployError as error:
            why = [str(error).removeprefix(f"{evaluation.host}: ")]
        if not why:
            return evaluation.host
        late[evaluation.host] = why
    raise none_fits(requirements.of(about), evaluations, late)


def dry_run(
    opts: Mapping[str, Any],
    settings: MasterSettings,
    name: str,
    target: str | None,
    say: Callable[..., None],
) -> dict[str, Any]:
    """Return what a move would do, and every reason why it would not work; nothing is changed."""
    source, about, evaluations = plan(opts, settings, name, target, say=say)
    host = chosen(opts, settings, source, about, evaluations)
    moved = {disk["target"]: _shown(disk) for disk in about["disks"]}
    return {
        "name": name,
        "from": source,
        "to": host,
        "state": about["state"],
        "memory_mib": about["memory_mib"],
        "disks": moved,
    }


def _shown(disk: DiskFacts) -> str:
    if disk["how"] == "shared":
        return "stays where it is, the storage is shared"
    base = f", over the image {disk['base'][:12]}" if disk["base"] else ""
    return f"{disk['actual_bytes'] // 2**20} MiB of {disk['path']}{base}"


def migrate(
    opts: Mapping[str, Any],
    settings: MasterSettings,
    name: str,
    target: str | None,
    given: Mapping[str, Any],
    say: Callable[..., None],
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
    spec.move(HostSettings(), given)
    cloud = Cloud(opts=opts, settings=settings, say=say)
    late: dict[str, list[str]] = {}
    with orders.opened(opts, name) as held:
        _settle(cloud, held)
        source, about, evaluations = plan(opts, settings, name, target, source, say=say)
        for host in [evaluation.host for evaluation in evaluations if evaluation.fits]:
            say("Placing", detail=f"from {source} to {host}")
            hands = moves.Hands(cloud, held, secrets.token_hex(8), (source, host))
            hands.given = given
            try:
                figures = moves.carry(cloud, hands)
            except moves.NotReady as refused:
                say("Placing", detail=f"{host} refused: {refused}")
                late[host] = [str(refused)]
                continue
            return {"name": name, "from": source, "to": host, **figures}
    raise none_fits(requirements.of(about), evaluations, late)


def _settle(cloud: Cloud, held: Held) -> None:
    """Settle what an interrupted command of this master has left of a VM."""
    moves.settle_order(cloud, held)
    if held.record is None:
        return
    found = inventory.look_for(cloud.opts, cloud.settings, held.name)
    unheard = inventory.unheard(cloud.opts, found, held.name, settle.noted(held))
    settle.order(cloud.opts, held, sightings.of_presence(found.answers), unheard)
    if held.record is not None:
        raise NameTaken(
            f"what an interrupted virt.init or virt.purge has left of VM {held.name!r} is not "
            f"settled; run that command again, or salt-run virt.purge {held.name}"
        )
