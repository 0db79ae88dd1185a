"""Answer the master above this cell: where a VM is, and the state of a job."""

import contextlib
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from saltvirt.cells.answers import NameReport
from saltvirt.cluster import orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen, presence
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose, Whereabouts
from saltvirt.core import arguments, files, locks, wire
from saltvirt.core.errors import BadArgument
from saltvirt.core.journal import records

_STEP_S = 0.2
# How long a busy master may take to begin a job, and then to store its answer.
_BEGIN_S = 15
# Ample: the master above asks for an answer within seconds.
_KEPT_S = 24 * 3600


def find(cloud: Cloud, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return ``{name: NameReport as plain data}`` of this master and its hosts."""
    for name in names:
        arguments.vm_name(name)
    # A master without hypervisors has no VM.
    if not inventory.allowed_hosts(cloud):
        return {name: _report_name(cloud, name, None) for name in names}
    if len(names) == 1:
        (name,) = names
        return {name: _report_name(cloud, name, locate(cloud, name, Purpose.REPORT))}
    survey = inventory.survey(cloud, inventory.all_hosts(cloud), "virt.host_info")
    # To locate a VM reads a large file: spare it the unknown names, most of hundreds.
    known_names = {
        *presence.names(survey.answers),
        *itertools.chain(*lastseen.read_all(cloud.opts).values()),
    }
    return {
        name: _report_name(
            cloud,
            name,
            locate(cloud, name, Purpose.REPORT, survey=survey) if name in known_names else None,
        )
        for name in names
    }


def _report_name(cloud: Cloud, name: str, vm: Whereabouts | None) -> dict[str, Any]:
    """Return the :class:`NameReport` of a name as plain data; without ``vm``, no host has it."""
    vm = vm or Whereabouts(name=name, presence_by_host={})
    order = records.read_record(orders.folder(cloud.opts), orders.PURPOSE, name)
    report = NameReport(
        hosts={host: str(vm.presence_by_host[host].state) for host in vm.hosts},
        traces=[host for host in vm.traces if host not in vm.hosts],
        may_have=vm.may_have,
        order=order.phase if order else None,
    )
    plain: dict[str, Any] = wire.plain(report)
    return plain


@contextlib.contextmanager
def hold_job_lock(opts: Mapping[str, Any], jid: str | None) -> Iterator[None]:
    """Hold a lock during the block, which shows that a job of this master runs."""
    if jid is None:
        yield
        return
    path = _lock_path(opts, jid)
    locks.sweep(path.parent)  # left by killed jobs
    with locks.hold_lock(path):
        yield


def _lock_path(opts: Mapping[str, Any], jid: str) -> Path:
    return Path(opts["cachedir"]) / "salt-virt" / "jobs" / f"{jid}.lock"


def job(cloud: Cloud, jid: str, wait_s: int) -> dict[str, Any]:
    """
    Return a job as ``answers.Job``, as plain data, at its end or after ``wait_s`` seconds.

    Jobs other than this project's are not reported: the caller may have no right to see them.
    """
    if not jid.replace("_", "").isdigit():
        raise BadArgument("jid", f"{jid!r} is not the id of a job")
    path, begin = _lock_path(cloud.opts, jid), time.monotonic()
    last_held_s = begin
    while True:
        now = time.monotonic()
        elapsed_s = now - begin
        if locks.is_held(path):
            last_held_s = now
        else:
            answer = _read_answer(cloud.opts, jid)
            if answer is not None:
                return _job_state("over", answer[0])
            # The job has not begun, or its answer is not stored yet.
            if now - last_held_s > _BEGIN_S:
                return _job_state("lost")
        if elapsed_s >= wait_s:
            return _job_state("running")
        time.sleep(_STEP_S if elapsed_s < 2 else 2 * _STEP_S)


def _job_state(state: str, answer: Any = None) -> dict[str, Any]:
    return {"state": state, "answer": answer}


def keep_answer(opts: Mapping[str, Any], jid: str, answer: Any) -> None:
    """
    Store the answer of a job of this master for the master above.

    Salt's job cache proves nothing: a guest's minion may act as a syndic and return to any job in
    any minion's name, even this master's, and the cache stores the first return.
    """
    path = _answer_path(opts, jid)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old_path in path.parent.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - old_path.stat().st_mtime > _KEPT_S:
                old_path.unlink()
    files.write(path, json.dumps({"answer": answer}, default=str).encode())


def _answer_path(opts: Mapping[str, Any], jid: str) -> Path:
    return _lock_path(opts, jid).with_suffix(".json")


def _read_answer(opts: Mapping[str, Any], jid: str) -> tuple[Any] | None:
    """Return the stored answer of a job as ``(answer,)``, None if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return (json.loads(_answer_path(opts, jid).read_text())["answer"],)
    return None
