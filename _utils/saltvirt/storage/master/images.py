"""Images and trash of all hosts: show, fetch, build, prune, restore and empty."""

import shlex
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saltvirt.cluster import progress, undorecords
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.hostcommands import act, progress_watcher, timeout_message
from saltvirt.core import locks, terminal, wire
from saltvirt.core.errors import BadArgument, MasterError, VirtError
from saltvirt.placement.answers import Pruned, Words

# Seconds between two lines of progress.
_SAY_S = 1
_PRUNE, _PULL, _BUILD = "virt.image_prune", "virt.image_pull", "virt.image_build"


def survey_images(cloud: Cloud, host: str | None) -> inventory.Survey:
    """Return the :class:`saltvirt.cluster.inventory.inventory.Survey` of the cached images."""
    targets = inventory.hosts(cloud, host=host)
    cloud.progress("Searching", detail=terminal.count_text(len(targets), "hypervisor"))
    return inventory.survey(cloud, targets, "virt.images")


def show_images(cloud: Cloud, host: str | None) -> dict[str, Any]:
    """Return ``{host: images}``, with unresponsive hosts; raise MasterError if none answers."""
    survey = survey_images(cloud, host)
    if not survey.answers:
        raise survey.no_answers_error()
    return {**survey.raw_answers, **survey.errors_by_kind()}


def pull(
    cloud: Cloud,
    image: str,
    host: str | None,
    kwarg: Mapping[str, Any],
) -> dict[str, str]:
    """Have all responsive hosts fetch an image in parallel; return ``{host: digest}``."""
    survey = survey_images(cloud, host)
    limit_s = cloud.settings.deploy_timeout_s
    counting_cloud = _with_reply_count(cloud, "Fetched", survey.answers)
    replies = minions.ask(
        counting_cloud, survey.answers, _PULL, [image], kwarg, timeout_s=limit_s, follow=True
    )
    out, reasons_by_host = _read_replies(replies, _PULL, Words)
    reasons_by_host = {**survey.reasons(), **reasons_by_host}
    if reasons_by_host:
        raise _failure(reasons_by_host, {"pulled": out})
    return out


def build(
    cloud: Cloud,
    source: str,
    name: str,
    host: str | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Have a host build a golden image; return ``{host: answer}``."""
    host = inventory.require_host(cloud, host)
    options = {key: value for key, value in options.items() if not key.startswith("__")}
    watch = progress_watcher(cloud, "salt/virt/image_build", host, name)
    answer = act(
        cloud,
        host,
        "virt.image_build",
        source,
        name,
        watch=watch,
        kwarg={**options, "report": True},
    )
    return {host: wire.read(host, _BUILD, dict[str, Any], answer)}


def _with_reply_count(cloud: Cloud, verb: str, hosts: Collection[str]) -> Cloud:
    """Return a cloud that shows, as replies come, how many hosts are done."""
    pace, answered_hosts, last_shown = progress.Pace(len(hosts)), set[str](), [0.0]

    def count(reply: minions.Reply) -> None:
        answered_hosts.add(reply.minion)
        now = time.monotonic()
        if len(answered_hosts) == len(hosts) or now - last_shown[0] >= _SAY_S:
            last_shown[0] = now
            cloud.progress(verb, detail=pace.text(len(answered_hosts), "hypervisors"))

    return replace(cloud, on_reply=count)


def _read_replies(
    replies: Mapping[str, minions.Reply], fun: str, shape: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return hosts' answers, and other hosts' reasons."""
    out, reasons_by_host = {}, {}
    for host, reply in sorted(replies.items()):
        if not reply.ok:
            reasons_by_host[host] = timeout_message(reply, None)
            continue
        try:
            out[host] = wire.read(host, fun, shape, reply.value)
        except wire.BadAnswer as error:
            reasons_by_host[host] = str(error)
    return out, reasons_by_host


def _join_reasons(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{host}: {reason}" for host, reason in sorted(reasons.items()))


def _failure(reasons: Mapping[str, str], table: Mapping[str, Any]) -> MasterError:
    error = MasterError(_join_reasons(reasons))
    error.table = table
    return error


def prune(cloud: Cloud, *, is_dry: bool) -> dict[str, dict[str, int]]:
    """
    Remove from every host the images that no host uses; return ``{host: {digest: bytes}}``.

    Every host must answer: hosts may share an image folder.
    """
    survey = survey_images(cloud, None)
    unresponsive_hosts = survey.reasons()
    if unresponsive_hosts:
        raise MasterError(
            "nothing was removed, as not all hosts have answered which images they use: "
            f"{_join_reasons(unresponsive_hosts)}"
        )
    used_digests = {
        digest
        for images in survey.answers.values()
        for digest, image in images.items()
        if image.users
    }
    unused_by_host = {host: set(images) - used_digests for host, images in survey.answers.items()}
    hosts_with_unused = [host for host, digests in unused_by_host.items() if digests]
    # All hosts get the same list: a host skips images that it lacks, or uses by now.
    unused_digests = sorted(set[str]().union(*unused_by_host.values()))
    if is_dry:
        counting_cloud = _with_reply_count(cloud, "Searched", hosts_with_unused)
        out, reasons_by_host = _ask_prune(
            counting_cloud, hosts_with_unused, unused_digests, {"dry_run": True}
        )
    else:
        with _prune_lock(cloud):
            out, reasons_by_host = _remove_images(
                cloud, survey.answers, hosts_with_unused, unused_digests
            )
    removed_by_host = {host: answer.removed for host, answer in out.items()}
    if reasons_by_host:
        raise _failure(reasons_by_host, {"removed": removed_by_host})
    return removed_by_host


@contextmanager
def _prune_lock(cloud: Cloud) -> Iterator[None]:
    """Hold the lock of prunes, or raise MasterError: two prunes would end each other's steps."""
    path = Path(cloud.opts["cachedir"]) / "salt-virt" / "image-prune.lock"
    with locks.hold_lock(path, wait=False) as lock:
        if lock is None:
            raise MasterError(
                "another virt.image_prune is at work on this master; try again when that is over"
            )
        yield


def _remove_images(
    cloud: Cloud,
    hosts: Collection[str],
    hosts_with_unused: Collection[str],
    unused_digests: list[str],
) -> tuple[dict[str, Pruned], dict[str, str]]:
    """
    Have hosts remove images; return their answers, and other hosts' reasons.

    Since the survey a host may have based a disk on an image that another host has in a shared
    folder. So hosts begin, all hosts look again, and images that are used by now stay.
    """
    begin_answers: dict[str, Pruned] = {}
    # Until their answers are in, all hosts that were asked may have begun.
    hosts_begun, unused_still = [*hosts_with_unused], list[str]()
    try:
        begin_answers, begin_failures = _ask_prune(
            cloud, hosts_with_unused, unused_digests, {"step": "begin"}
        )
        hosts_begun = [host for host, answer in begin_answers.items() if answer.begun]
        begun_digests = sorted(
            {*unused_digests}
            & {digest for answer in begin_answers.values() for digest in answer.begun}
        )
        look_answers, look_failures = (
            _ask_prune(cloud, hosts, begun_digests, {"step": "look"}) if begun_digests else ({}, {})
        )
        if not look_failures:
            kept_digests = {digest for answer in look_answers.values() for digest in answer.kept}
            unused_still = [digest for digest in begun_digests if digest not in kept_digests]
    finally:
        counting_cloud = _with_reply_count(cloud, "Removed", hosts_begun)
        out, end_failures = _ask_prune(counting_cloud, hosts_begun, unused_still, {"step": "end"})
    return {**begin_answers, **out}, {**look_failures, **begin_failures, **end_failures}


def _ask_prune(
    cloud: Cloud, hosts: Collection[str], digests: list[str], kwarg: Mapping[str, Any]
) -> tuple[dict[str, Pruned], dict[str, str]]:
    replies = minions.ask(cloud, hosts, _PRUNE, [digests], kwarg) if hosts else {}
    return _read_replies(replies, _PRUNE, Pruned)


class NotAllEmptied(VirtError):
    """The trash of some hosts was not emptied; ``table`` says which, and what was removed."""


def list_trash(cloud: Cloud, host: str | None) -> dict[str, Any]:
    """
    Return ``{host: {entry: {...}}}`` of the hosts with entries, and the unresponsive hosts.

    ``undo`` of an entry is the command that brings its VM back, or its files alone.
    """
    survey = inventory.survey(cloud, inventory.hosts(cloud, host=host), "virt.trash")
    if not survey.answers:
        raise survey.no_answers_error()
    return {
        **{
            trash_host: _with_undo(cloud, trash_host, entries)
            for trash_host, entries in survey.answers.items()
            if entries
        },
        **survey.errors_by_kind(),
    }


def _with_undo(cloud: Cloud, host: str, entries: Any) -> Any:
    """Return a host's entries, each with the command that brings it back."""
    if not (isinstance(entries, dict) and all(isinstance(row, dict) for row in entries.values())):
        return entries  # the views show another shape as it is
    out = {}
    for entry, row in entries.items():
        vm = str(row.get("vm"))
        facts = undorecords.read(cloud.opts, vm) if row.get("is_purged") is True else None
        # Only the last purged VM of a name is brought back by its name.
        is_last = facts is not None and (facts.host, facts.uuid) == (host, row.get("uuid"))
        words = ["virt.undo", vm] if is_last else ["virt.trash_restore", host, str(entry)]
        out[entry] = {**row, "undo": f"salt-run {' '.join(map(shlex.quote, words))}"}
    return out


def restore_trash(cloud: Cloud, host: str, entry: str) -> dict[str, Any]:
    """Restore an entry on its host; return ``{host: {"files", "definition"}}``."""
    host = inventory.require_host(cloud, host)
    answer = act(cloud, host, "virt.trash_restore", entry)
    return {host: wire.read(host, "virt.trash_restore", dict[str, Any], answer)}


def empty_trash(
    cloud: Cloud, host: str | None, entries: tuple[object, ...], *, is_dry: bool = False
) -> dict[str, Any]:
    """
    Remove entries of one host, or of all, for good; return ``{host: {entry: bytes}}``.

    is_dry
        Change nothing; return what would be removed. Defaults to False.

    Raises NotAllEmptied, with the same data, if a host fails; the others are emptied all the same.
    """
    if entries and host is None:
        raise BadArgument("host", "say on which host these entries are")
    if is_dry:
        return _plan_empty(cloud, host, [str(entry) for entry in entries])
    out, failed = {}, {}
    for trash_host in inventory.hosts(cloud, host=host):
        try:
            answer = act(cloud, trash_host, "virt.trash_empty", *entries)
            out[trash_host] = wire.read(trash_host, "virt.trash_empty", dict[str, int], answer)
        except VirtError as error:
            failed[trash_host] = str(error)
    emptied = {trash_host: freed for trash_host, freed in out.items() if freed}
    if failed:
        short = NotAllEmptied("; ".join(failed.values()))
        short.table = {"emptied": emptied, "failed": failed}
        raise short
    return emptied


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrashRow:
    """What a dry run needs of a host's row about an entry of its trash."""

    bytes: int
    away: list[str] = field(default_factory=list)


def _plan_empty(cloud: Cloud, host: str | None, entries: Collection[str]) -> dict[str, Any]:
    """Return what emptying the trash would remove, and the hosts where that would fail."""
    survey = inventory.survey(cloud, inventory.hosts(cloud, host=host), "virt.trash")
    if not survey.answers:
        raise survey.no_answers_error()
    out: dict[str, dict[str, int]] = {}
    failed = dict(survey.failed)
    for trash_host, answer in survey.answers.items():
        try:
            freed, reasons = _plan_for_host(trash_host, answer, entries)
        except VirtError as error:
            freed, reasons = {}, [str(error)]
        out |= {trash_host: freed} if freed else {}
        failed |= {trash_host: "; ".join(reasons)} if reasons else {}
    return {**out, **replace(survey, failed=failed).errors_by_kind()}


def _plan_for_host(
    host: str, answer: object, entries: Collection[str]
) -> tuple[dict[str, int], list[str]]:
    """Return ``{entry: bytes}`` of what would go from a host's trash, and why some would not."""
    rows = wire.read(host, "virt.trash", dict[str, _TrashRow], answer)
    missing = [entry for entry in entries if entry not in rows]
    chosen = {entry: row for entry, row in rows.items() if not entries or entry in entries}
    reasons = [f"there is no entry {entry!r} in its trash" for entry in missing]
    reasons += [reason for row in chosen.values() for reason in row.away]
    return {entry: row.bytes for entry, row in chosen.items() if not row.away}, reasons
