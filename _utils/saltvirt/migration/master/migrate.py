"""Move a VM between hypervisors: find the VM, choose a target, run the move."""

import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from saltvirt.cluster import orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, presence
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed, act
from saltvirt.core import arguments, terminal, wire
from saltvirt.core.errors import BadArgument, NameTaken, NoHostFits
from saltvirt.core.journal.records import LockedRecord
from saltvirt.core.model import Evaluation, Policy
from saltvirt.core.options.config import HostSettings
from saltvirt.migration import movespec
from saltvirt.migration.master import recovery
from saltvirt.migration.master.moveexecutor import MoveExecutor, MoveFailed, MoveHosts, NotReady
from saltvirt.placement import brief, choose, cures, whatif
from saltvirt.placement.answers import DiskFacts, MigrationInfo
from saltvirt.vm.create.master.hostbuild import no_host_fits_error
from saltvirt.vm.recovery.master import interrupted


def plan(
    cloud: Cloud,
    name: str,
    target: str | None,
    source: str | None = None,
) -> tuple[str, MigrationInfo, list[Evaluation]]:
    """
    Return ``(source, migration info, evaluations)`` of a move; the best host first.

    Raises NoHostFits if there is no other hypervisor.
    """
    arguments.text("name", name)
    # The runner of Salt 3006 has an empty default.
    target = arguments.text("target", target) if target else None
    all_hosts = inventory.all_hosts(cloud)
    survey = _survey_hosts(cloud, all_hosts, name, {source, target})
    purpose = Purpose.MOVE if source else Purpose.ACT
    # A host may fail virt.host_info, as of a mount that hangs, and still answer virt.presence.
    whole_survey = None if survey.reasons() else survey
    source = locate(cloud, name, purpose, host=source or "", survey=whole_survey).host
    migration_info = _read_migration_info(cloud, survey, name, source)
    if target is not None and target not in all_hosts:
        raise BadArgument(
            "target",
            f"{target!r} is not a hypervisor here; there are: {terminal.join_some(all_hosts)}",
        )
    if target == source:
        raise BadArgument("target", f"VM {name!r} is on {source} already")
    if all_hosts == [source]:
        raise NoHostFits(
            whatif.needs_of_move(migration_info), {}, nowhere="there is no other hypervisor"
        )
    return source, migration_info, _evaluations(cloud, survey, migration_info, source, target)


def _survey_hosts(
    cloud: Cloud, all_hosts: Sequence[str], name: str, ends: Collection[str | None]
) -> inventory.Survey:
    """Survey the hosts that a move concerns: source and target if both are known, or all."""
    fun, kwarg = "virt.host_info", {"moving": name}
    end_hosts = [host for host in all_hosts if host in ends]
    asked_hosts = end_hosts if len(end_hosts) == 2 else all_hosts
    cloud.progress("Searching", detail=terminal.count_text(len(asked_hosts), "hypervisor"))
    survey = inventory.survey(cloud, asked_hosts, fun, kwarg=kwarg)
    is_bound = any(info.moving and _is_bound(info.moving) for info in survey.answers.values())
    if len(asked_hosts) == len(all_hosts) or not is_bound:
        return survey
    # Its affinity may name VMs on any host, its anti-affinity VMs anywhere in a rack.
    other_hosts = [host for host in all_hosts if host not in asked_hosts]
    return inventory.join_surveys(survey, inventory.survey(cloud, other_hosts, fun, kwarg=kwarg))


def _is_bound(migration_info: MigrationInfo) -> bool:
    """Return whether a VM's groups depend on other hosts than the one that takes it."""
    return not brief.is_of_one_host(whatif.needs_of_move(migration_info), Policy())


def _read_migration_info(
    cloud: Cloud, survey: inventory.Survey, name: str, source: str
) -> MigrationInfo:
    """Return what a VM consists of; raise MoveFailed if it cannot be moved."""
    info = survey.answers.get(source)
    # The survey may lack it, as the VM may have come to the host since.
    migration_info: MigrationInfo | None = info and info.moving
    if migration_info is None:
        answer = act(cloud, source, "virt.migration_info", name)
        migration_info = wire.read(source, "virt.migration_info", MigrationInfo, answer)
    if migration_info.obstacles:
        raise MoveFailed(f"VM {name!r} stays on {source}: {'; '.join(migration_info.obstacles)}")
    return migration_info


def _evaluations(
    cloud: Cloud,
    survey: inventory.Survey,
    migration_info: MigrationInfo,
    source: str,
    target: str | None,
) -> list[Evaluation]:
    """Return the evaluation of every host but the source, the best first."""
    infos_by_host = {host: info for host, info in survey.answers.items() if host != source}
    evaluated = choose.evaluate(
        infos_by_host, whatif.needs_of_move(migration_info), cloud.settings.weights
    )
    evaluations = [v if target in (None, v.host) else _exclude_host(v, target) for v in evaluated]
    reasons_by_host = {host: reason for host, reason in survey.reasons().items() if host != source}
    evaluations += [
        Evaluation(host=host, reasons=(reason,)) for host, reason in reasons_by_host.items()
    ]
    return choose.rank(evaluations)


def _exclude_host(evaluation: Evaluation, target: str) -> Evaluation:
    return Evaluation(host=evaluation.host, reasons=(f"not the host asked for ({target})",))


def choose_host(
    cloud: Cloud,
    source: str,
    migration_info: MigrationInfo,
    evaluations: Sequence[Evaluation],
) -> str:
    """Return the first host that fits and confirms that it can take the VM."""
    refusals_by_host = {}
    for evaluation in evaluations:
        if not evaluation.fits:
            continue
        try:
            answer = act(
                cloud,
                evaluation.host,
                "virt.migrate_check",
                kwarg={"about": wire.plain(migration_info), "source": source},
            )
            reasons = wire.read(evaluation.host, "virt.migrate_check", list[str], answer)
        except wire.BadAnswer as error:
            reasons = [str(error)]
        except HostCommandFailed as error:
            reasons = [str(error).removeprefix(f"{evaluation.host}: ")]
        if not reasons:
            return evaluation.host
        refusals_by_host[evaluation.host] = reasons
    raise _no_host_fits_error(migration_info, evaluations, refusals_by_host)


def dry_run(
    cloud: Cloud,
    name: str,
    target: str | None,
    kwargs: Mapping[str, Any],
) -> dict[str, Any]:
    """
    Return what a move would do, or raise with every reason against it; change nothing.

    kwargs
        Keyword arguments of the module's ``virt.migrate``, checked as by :func:`migrate`.
    """
    movespec.from_call(HostSettings(), kwargs)
    source, migration_info, evaluations = plan(cloud, name, target)
    host = choose_host(cloud, source, migration_info, evaluations)
    disks_by_target = {disk.target: _describe_disk(disk) for disk in migration_info.disks}
    warning = behind_nat(migration_info, host)
    return {
        "name": name,
        "from": source,
        "to": host,
        "state": migration_info.state,
        "memory_mib": migration_info.memory_mib,
        "disks": disks_by_target,
        **({"warning": warning} if warning else {}),
    }


def behind_nat(migration_info: MigrationInfo, host: str) -> str:
    """Return the warning for a move of a VM behind NAT; empty for any other VM."""
    if not migration_info.nat:
        return ""
    return (
        f"behind NAT ({', '.join(migration_info.nat)}): its connections break, its address may "
        f"change, and it is reached through {host} from then on; its minion may be silent for some "
        "5 minutes, until it finds its connection broken"
    )


def _describe_disk(disk: DiskFacts) -> str:
    if disk.how == "shared":
        return "stays where it is, the storage is shared"
    base = f", over the image {disk.base[:12]}" if disk.base else ""
    return f"{(disk.actual_bytes or 0) // 2**20} MiB of {disk.path}{base}"


def migrate(
    cloud: Cloud,
    name: str,
    target: str | None,
    kwargs: Mapping[str, Any],
    source: str | None = None,
) -> dict[str, Any]:
    """
    Move a VM and return ``{"name", "from", "to", "total_ms", "downtime_ms", ...}``.

    ``warning`` is set if something beside the move failed, or if the VM is behind NAT.

    kwargs
        Keyword arguments of the module's ``virt.migrate``.
    source
        The host that has the VM, if known.
    """
    movespec.from_call(HostSettings(), kwargs)
    refusals_by_host: dict[str, list[str]] = {}
    with orders.opened(cloud.opts, name) as order:
        _settle(cloud, order)
        source, migration_info, evaluations = plan(cloud, name, target, source)
        for host in [evaluation.host for evaluation in evaluations if evaluation.fits]:
            cloud.progress("Placing", detail=f"from {source} to {host}")
            hosts = MoveHosts(source=source, target=host)
            hands = MoveExecutor(cloud, order, secrets.token_hex(8), hosts)
            hands.move_options = kwargs
            try:
                figures = recovery.run_move(cloud, hands)
            except NotReady as refused:
                cloud.progress("Placing", detail=f"{host} refused: {refused}")
                refusals_by_host[host] = [str(refused)]
                continue
            # A host returns figures, but not which VM moved where.
            out = figures | {"name": name, "from": source, "to": host}
            warnings = [figures.get("warning"), behind_nat(migration_info, host)]
            warning = "; ".join(filter(None, warnings))
            return {**out, "warning": warning} if warning else out
    raise _no_host_fits_error(migration_info, evaluations, refusals_by_host)


def _no_host_fits_error(
    migration_info: MigrationInfo,
    evaluations: Sequence[Evaluation],
    refusals_by_host: Mapping[str, list[str]],
) -> NoHostFits:
    required = whatif.needs_of_move(migration_info)
    return no_host_fits_error(required, evaluations, refusals_by_host, cures.MIGRATE)


def _settle(cloud: Cloud, order: LockedRecord) -> None:
    """Settle what an interrupted command of this master left of a VM."""
    recovery.settle_order(cloud, order)
    if order.record is None:
        return
    busy_reasons = interrupted.give_up(cloud, order).reasons
    vm = locate(cloud, order.name, Purpose.REPORT, order_hosts=interrupted.order_hosts(order))
    presence_by_host = vm.presence_by_host
    interrupted.settle(cloud.opts, order, presence_by_host, {**busy_reasons, **vm.may_have})
    if order.record is not None:
        host = next(
            host for host, vm_presence in sorted(presence_by_host.items()) if vm_presence.building
        )
        raise NameTaken(presence.coming_message(order.name, host))
