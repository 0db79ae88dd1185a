"""Report what a lost host had, and what an operator types, in one order; nothing is changed."""

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastlisted, lastseen
from saltvirt.cluster.rpc import waits
from saltvirt.core import arguments, terminal
from saltvirt.core.errors import BadArgument
from saltvirt.core.salt import compat
from saltvirt.migration.master import settle
from saltvirt.migration.master.moveexecutor import MoveHosts
from saltvirt.placement.shownvms import ListedVm

# What an operator replaces in commands for VMs that were not listed.
_UNKNOWN_SIZES = "CPUS MIB"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostHost:
    """
    What this master and the other hosts know of a host.

    state
        ``answers``, or why it does not.
    is_answering, is_failing, is_shut_out, has_key
        Whether it answers, answers with an error, was shut out, has an accepted key.
    names
        The VMs that it had when it last answered.
    rows_by_name
        ``{VM: row}`` of the last whole list; a VM that was not listed is not in it.
    disks_by_name
        ``{VM: {path: hosts that see it}}`` of disk files on storage that hosts share.
    open_paths
        Those of these files that a program has open.
    other_hosts_by_name
        ``{VM: other hosts that have a VM of that name}``.
    moves
        ``{(VM, token): hosts}`` of the recorded moves from and to it.
    accepted_vms
        Those of its VMs with an accepted key.
    unasked
        ``{other host: reason}`` of those that did not answer.
    """

    host: str
    state: str
    is_answering: bool
    is_failing: bool
    is_shut_out: bool
    has_key: bool
    names: list[str]
    rows_by_name: Mapping[str, ListedVm] = field(default_factory=dict)
    disks_by_name: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)
    open_paths: Collection[str] = ()
    other_hosts_by_name: Mapping[str, list[str]] = field(default_factory=dict)
    moves: Mapping[tuple[str, str], MoveHosts] = field(default_factory=dict)
    accepted_vms: Collection[str] = ()
    unasked: Mapping[str, str] = field(default_factory=dict)


def report(cloud: Cloud, host: Any) -> dict[str, Any]:
    """
    Return ``{"host", "state", "vms", "moves", "steps"}``, and ``unasked`` if a host is silent.

    Raises BadArgument for a host that this master never knew.
    """
    lost = _gather(cloud, arguments.text("host", host))
    return {
        "host": lost.host,
        "state": lost.state,
        "vms": {name: _describe_vm(lost, name) for name in lost.names},
        "moves": {name: str(hosts) for (name, _token), hosts in sorted(lost.moves.items())},
        "steps": [{"step": text, "commands": commands} for text, commands in _list_steps(lost)],
        **({"unasked": dict(lost.unasked)} if lost.unasked else {}),
    }


def _describe_vm(lost: LostHost, name: str) -> dict[str, Any]:
    disks, row = lost.disks_by_name.get(name, {}), lost.rows_by_name.get(name)
    return {
        "cpu": row.cpu if row else None,
        "mem_mib": row.mem_mib if row else None,
        "shared_disks": dict(disks),
        "open": [path for path in disks if path in lost.open_paths],
        "also_on": lost.other_hosts_by_name.get(name, []),
    }


def _gather(cloud: Cloud, host: str) -> LostHost:
    """Ask all hosts, this one too: it may be back."""
    allowed_hosts = inventory.allowed_hosts(cloud)
    accepted_ids = set(compat.KeyStore(cloud.opts).accepted())
    _refuse_unknown(cloud, host, allowed_hosts)
    cloud.progress("Asking", detail=terminal.count_text(len(allowed_hosts), "hypervisor"))
    states = inventory.survey(cloud, allowed_hosts, "virt.vm_state")
    names = lastseen.read_all(cloud.opts).get(host, [])
    other_hosts = [other_host for other_host in states.answers if other_host != host]
    moves = inventory.survey(cloud, other_hosts, "virt.migration_state")
    disks = inventory.survey(cloud, other_hosts if names else (), "virt.shared_disks", [names])
    reasons = {**disks.reasons(), **moves.reasons(), **states.reasons()}
    reasons = waits.add_durations(cloud.opts, reasons)
    own_reason = reasons.pop(host, None) or cloud.members.why_not(host)
    is_answering = host in states.answers
    return LostHost(
        host=host,
        state="answers" if is_answering else own_reason or "its key is not accepted",
        is_answering=is_answering,
        is_failing=host in states.failed,
        is_shut_out=cloud.members.is_disallowed(host),
        has_key=host in accepted_ids,
        names=names,
        rows_by_name=lastlisted.read(cloud.opts, [host]).get(host, {}),
        disks_by_name=_group_disks(disks.answers, names),
        open_paths=_find_open_paths(disks.answers),
        other_hosts_by_name=_find_namesakes(states.answers, host, names),
        moves=settle.find_moves(cloud, moves.answers, host),
        accepted_vms=accepted_ids.intersection(names),
        unasked=dict(sorted(reasons.items())),
    )


def _refuse_unknown(cloud: Cloud, host: str, allowed_hosts: Collection[str]) -> None:
    known_hosts = {*allowed_hosts, *lastseen.read_all(cloud.opts)}
    members = cloud.members
    is_listed = host in members.named or members.is_disallowed(host)
    if host not in known_hosts and not is_listed:
        hosts_text = terminal.join_some(sorted(known_hosts)) or "none"
        raise BadArgument(
            "host", f"{host!r} is no host that this master has ever asked; there are: {hosts_text}"
        )


def _group_disks(
    answers: Mapping[str, Mapping[str, Any]], names: Collection[str]
) -> dict[str, dict[str, list[str]]]:
    """Return ``{VM: {path: hosts that see it}}``; the system disk comes first."""
    out: dict[str, dict[str, list[str]]] = {}
    for other_host, disks_by_name in sorted(answers.items()):
        for name in names:
            for disk in disks_by_name.get(name, ()):
                out.setdefault(name, {}).setdefault(disk.path, []).append(other_host)
    return {
        name: dict(sorted(paths.items(), key=lambda item: _disk_order(name, item[0])))
        for name, paths in out.items()
    }


def _find_namesakes(
    states: Mapping[str, Mapping[str, str]], host: str, names: Collection[str]
) -> dict[str, list[str]]:
    """Return ``{VM: other hosts that have a VM of that name}``."""
    others = {other_host: vms for other_host, vms in states.items() if other_host != host}
    return {
        name: [other_host for other_host, vms in others.items() if name in vms] for name in names
    }


def _find_open_paths(answers: Mapping[str, Mapping[str, Any]]) -> set[str]:
    disks = (disk for answer in answers.values() for disks in answer.values() for disk in disks)
    return {disk.path for disk in disks if disk.is_open}


def _disk_order(name: str, path: str) -> tuple[bool, str]:
    return _disk_name(name, path) != "system", path


def _disk_name(name: str, path: str) -> str:
    """Return ``system`` of ``/srv/images/web1_system.qcow2``."""
    return PurePath(path).stem.removeprefix(f"{name}_") or "system"


def _list_steps(lost: LostHost) -> Iterator[tuple[str, list[str]]]:
    """Yield what to do, and the commands, in their order."""
    host = shlex.quote(lost.host)
    if lost.is_answering:
        yield (
            f"{lost.host} answers, so it is not lost. To take it away, empty it, and shut it out",
            [f"salt-run virt.evacuate {host}", f"salt-run virt.disallow {host}"],
        )
        return
    if lost.is_failing:
        yield (
            f"The minion of {lost.host} answers, so it is not lost: mend what it says. Only if "
            "it is hostile, shut it out",
            [f"salt-run virt.setup_check {host}", f"salt-run virt.disallow {host} force=True"],
        )
        return
    yield (
        f"Switch {lost.host} off at its power supply or its management board, and make sure that "
        "it stays off: a VM that still runs there destroys the disks that another host uses",
        [],
    )
    if lost.moves:
        yield (
            f"End the moves from and to {lost.host}: each VM is on the other host from then on. If "
            "that has nothing of a VM, the command says so: then run this one again",
            [_settle_command(lost.host, move[0], hosts) for move, hosts in lost.moves.items()],
        )
    if not lost.is_shut_out:
        yield (
            f"Shut {lost.host} out, so that no host lets it in if it comes back. Keep this report: "
            "this master forgets the VMs of a host without a key",
            [f"salt-run virt.disallow {host} force=True"],
        )
    if lost.has_key:
        yield (
            f"Delete the key of {lost.host}: no command waits for it any more, and the names of "
            "its VMs are free again",
            [f"salt-key -d {host}"],
        )
    yield from _list_vm_steps(lost)
    yield (
        f"Reinstall {lost.host} before it starts again: its old system would start these VMs a "
        "second time. Then let it in",
        [f"salt-run virt.allow {host}"],
    )


def _list_vm_steps(lost: LostHost) -> Iterator[tuple[str, list[str]]]:
    """Yield what to do about the VMs, by what is left of each."""
    elsewhere, shared, alone = _sort_names(lost)
    if elsewhere:
        yield (
            "See whether these are the VMs that you look for: another host has VMs of these names",
            [f"salt-run virt.vm_info {shlex.quote(name)}" for name in elsewhere],
        )
    if shared:
        yield (
            "Make these VMs again on another host, with the disks that they have"
            f"{_describe_unknown_sizes(lost, shared)}. Give no image: the guest keeps its "
            "identity and its key",
            [_reuse_command(lost, name) for name in shared],
        )
    if alone:
        yield (
            "Make these VMs again as when they were made, and their data from your backup: no host "
            f"that answers sees a disk file of theirs{_describe_unknown_sizes(lost, alone)}",
            list(_list_new_commands(lost, alone)),
        )


def _sort_names(lost: LostHost) -> tuple[list[str], list[str], list[str]]:
    """Return the VMs that other hosts have, those with shared disks, and the others."""
    moving_names = {name for name, _token in lost.moves}
    elsewhere, shared, alone = [], [], []
    for name in lost.names:
        if name in moving_names:
            continue
        if lost.other_hosts_by_name.get(name):
            elsewhere.append(name)
        elif lost.disks_by_name.get(name):
            shared.append(name)
        else:
            alone.append(name)
    return elsewhere, shared, alone


def _list_new_commands(lost: LostHost, names: Collection[str]) -> Iterator[str]:
    for name in names:
        if name in lost.accepted_vms:
            yield f"salt-key -d {shlex.quote(name)}"
        sizes = _find_size_words(lost, name) or _UNKNOWN_SIZES
        yield f"salt-run virt.init {shlex.quote(name)} {sizes} IMAGE"


def _find_size_words(lost: LostHost, name: str) -> str | None:
    """Return a VM's CPUs and MiB of memory as ``virt.init`` takes them; None if unknown."""
    row = lost.rows_by_name.get(name)
    return f"{row.cpu} {row.mem_mib}" if row and row.cpu and row.mem_mib else None


def _describe_unknown_sizes(lost: LostHost, names: Collection[str]) -> str:
    is_known = all(_find_size_words(lost, name) for name in names)
    return "" if is_known else "; put in the CPUs and the MiB of memory"


def _settle_command(host: str, name: str, hosts: MoveHosts) -> str:
    kept_host = hosts.target if hosts.source == host else hosts.source
    keep_text = f" keep={shlex.quote(kept_host)}" if kept_host else ""
    return f"salt-run virt.settle {shlex.quote(name)}{keep_text}"


def _quote_value(text: str) -> str:
    """Return a text as a value in YAML: a host may have files of any name."""
    return text if re.fullmatch(r"[A-Za-z/][\w./-]*", text, re.ASCII) else json.dumps(text)


def _reuse_command(lost: LostHost, name: str) -> str:
    disks = ", ".join(
        f"{{name: {_quote_value(_disk_name(name, path))}, source_file: {_quote_value(path)}}}"
        for path in lost.disks_by_name[name]
    )
    disks_text = shlex.quote(f"disks=[{disks}]")
    sizes = _find_size_words(lost, name) or _UNKNOWN_SIZES
    words = f"{shlex.quote(name)} {sizes} {disks_text}"
    return f"salt-run virt.init {words} seed=False"
