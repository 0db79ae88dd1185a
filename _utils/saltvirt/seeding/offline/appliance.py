"""Run a worker that reads or writes a disk, with a time limit and a certain end."""

import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from saltvirt.core import locks, terminal
from saltvirt.core.errors import SeedError
from saltvirt.core.seedmethods import GUESTFS, METHODS
from saltvirt.core.units import MIB
from saltvirt.core.writelimit import Meter, OverLimit, Room, allocated_bytes
from saltvirt.seeding.offline import barrier, lending

_WORKER = Path(__file__).with_name("worker")
# Debian's, SUSE's and RHEL's packages of the binding are for the system's own Python.
PYTHON = "/usr/bin/python3"
LIMIT_S, MEMORY_MIB = 300, 768
_GENTLE_S = 5
_LOOK_S = 0.5
# Data beside the disk: an overlay over a disk that is only read, and a socket.
_MOST_EXTRA_MIB = 1024
# The largest answer to read: names, and a few lines of errors.
_MOST_ANSWER_CHARS = 4 * MIB
_LONGEST = 1000
# The worker's word for a folder of this host, beside the names of seed methods.
FOLDER = "folder"
# What a job would have done to a disk that is refused. Defaults to "seeded".
_VERBS = {"build": "built", "rename": "given another minion id"}


class DiskRefused(SeedError):
    """A worker refuses a disk; if it was to rename the minion in it, nothing was changed."""


def is_needed(way: str) -> bool:
    """Return whether an appliance opens a disk: by a seed method's name, or ``FOLDER``."""
    return way in METHODS and METHODS[way].needs_appliance


def why_missing(python: str = PYTHON) -> str | None:
    """Return the reason why no worker can run on this host, None if one can."""
    argv = [python, "-I", "-B", str(_WORKER), "--check"]
    try:
        result = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as exc:
        return f"{python}: {exc.strerror}"
    if result.returncode == 0:
        return None
    return (
        f"{python}: {result.stderr.strip()}; install python3-guestfs (python3-libguestfs on RHEL)"
    )


def run(
    job: dict[str, Any],
    *,
    state_dir: str | Path,
    room: Room,
    python: str = PYTHON,
    limit_s: int = LIMIT_S,
    memory_mib: int = MEMORY_MIB,
    use_kvm: bool = False,
    masters: Iterable[str] = (),
) -> dict[str, Any]:
    """
    Run a job in a worker, usually in an appliance of its own, and return the worker's answer.

    job
        ``{"action": "look", "seed", "install", "rename" or "build", "path", "format", ...}``; see
        the program in the folder ``worker``.
    state_dir
        Holds libguestfs' temporary files and sockets.
    room
        How much the disk may grow: the appliance is ended when it leaves VMs too little.
    limit_s, memory_mib
        The time limit in seconds, and the appliance's memory in MiB.
    use_kvm
        Let the appliance use KVM; only where a probe proved that it works.
    masters
        Addresses that an appliance with a network must not reach, beside this host's networks.

    Raises SeedError if the disk is refused, if the appliance's user or its network rules cannot be
    had, or if the appliance fails, takes too long or writes too much.
    """
    job = {**job, "limit_s": limit_s, "memory_mib": memory_mib}
    with (
        _make_work_folder(Path(state_dir) / "appliances") as folder,
        _borrow_account(job, lending.locks_folder(state_dir), masters) as account,
        _confine_job(job, folder, room, use_kvm, account) as worker_job,
        # Files, not pipes: a worker that a guest has taken over could fill this process's memory.
        open(f"{folder}/answer", "w+", errors="replace") as out,
        open(f"{folder}/printed", "w+", errors="replace") as err,
    ):
        job_text, bytes_before = json.dumps(worker_job), _count_folder_bytes(folder)
        worker = subprocess.Popen(
            [python, "-I", "-B", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            text=True,
            env=environment(folder, use_kvm=use_kvm),
            start_new_session=True,
        )
        with worker:
            try:
                _watch(worker, job_text, job, room, folder, bytes_before)
            finally:
                _end(worker)
        return _answer(job, worker.returncode, _read_output(out), _read_output(err))


def _read_output(stream: TextIO) -> str:
    stream.seek(0)
    return stream.read(_MOST_ANSWER_CHARS)


@contextmanager
def _borrow_account(
    job: dict[str, Any], place: Path, masters: Iterable[str]
) -> Iterator[lending.Account | None]:
    """Yield a user for the appliance during the block; None for a job without an appliance."""
    if not is_needed(_way(job)):
        yield None
        return
    accounts = lending.accounts()
    if job.get("network"):
        # All appliances share this table: name all users, as other appliances may be running.
        barrier.put_up([candidate.uid for candidate in accounts], masters)
    with lending.borrow_account(accounts, place, job["limit_s"]) as account:
        yield account


@contextmanager
def _confine_job(
    job: dict[str, Any], folder: str, room: Room, use_kvm: bool, account: lending.Account | None
) -> Iterator[dict[str, Any]]:
    """Yield the worker's job, with all files that the appliance's user may have."""
    if account is None:
        yield job
        return
    worker_job = lending.prepare_job(job, folder, account, room)
    is_read, limit_s = job["action"] == "look", job["limit_s"]
    with lending.lend_during(job["path"], account, is_read=is_read, limit_s=limit_s) as lent_disk:
        worker_job["confined"] = {
            "uid": account.uid,
            "gid": account.gid,
            "folder": folder,
            "use_kvm": use_kvm,
            "lent": lent_disk,
        }
        yield worker_job


def _watch(
    worker: subprocess.Popen[str],
    job_text: str,
    job: dict[str, Any],
    room: Room,
    folder: str,
    bytes_before: int,
) -> None:
    """Wait until a worker ends; raise as soon as it takes too much room or time."""
    path, limit_s = job["path"], job["limit_s"]
    deadline = time.monotonic() + limit_s
    pending_text: str | None = job_text
    disk_bytes = allocated_bytes(path)
    # A device has a fixed size.
    grows = job["action"] != "look" and not Path(path).is_block_device()
    meter = replace(room, limit_s=limit_s).meter(path, Path(path).parent)
    while True:
        try:
            worker.communicate(pending_text, timeout=min(_LOOK_S, limit_s))
            return
        except subprocess.TimeoutExpired as exc:
            pending_text = None  # the next call writes the rest, and refuses the input again
            if time.monotonic() > deadline:
                raise SeedError(
                    f"{path}: the worker took longer than {limit_s} s; raise "
                    "virt:seed:limit_s if this host is slow"
                ) from exc
        if grows:
            _refuse_growth(meter, max(0, allocated_bytes(path) - disk_bytes))
        if _count_folder_bytes(folder) - bytes_before > _MOST_EXTRA_MIB * MIB:
            raise SeedError(
                f"{path}: the appliance wrote more than {_MOST_EXTRA_MIB} MiB beside it"
            )


def _count_folder_bytes(folder: str) -> int:
    return sum(
        allocated_bytes(f"{subfolder}/{name}")
        for subfolder, _folders, names in os.walk(folder)
        for name in names
    )


def _refuse_growth(meter: Meter, written_bytes: int) -> None:
    try:
        meter.check(written_bytes)
    except OverLimit as exc:
        raise SeedError(str(exc)) from exc


def _end(worker: subprocess.Popen[str]) -> None:
    """End a worker and its children, such as an appliance or mounts, all in one session."""
    deadline = time.monotonic() + _GENTLE_S
    # SIGTERM makes qemu-nbd release its device; SIGKILL alone may leave the kernel waiting.
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, number)
            while number == signal.SIGTERM and time.monotonic() < deadline:
                worker.poll()
                os.killpg(worker.pid, 0)
                time.sleep(0.02)


@contextmanager
def _make_work_folder(parent: Path) -> Iterator[str]:
    """Yield a work folder, and remove it afterwards; remove those of killed processes, too."""
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in parent.glob("*.lock"):
        with locks.hold_lock(path, wait=False) as handle:
            if handle:
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
    folder = new_folder(parent)
    with locks.hold_lock(folder.with_suffix(".lock")):
        folder.mkdir(mode=0o700)
        try:
            yield str(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def new_folder(parent: Path) -> Path:
    """Return a new work folder's path; short, as a socket's path has at most 107 characters."""
    return parent / uuid.uuid4().hex[:8]


def environment(folder: str, *, use_kvm: bool) -> dict[str, str]:
    """Return the environment of a program that uses libguestfs, with its files in a folder."""
    plain = {
        "PATH": os.environ.get("PATH", os.defpath),
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        "XDG_RUNTIME_DIR": folder,
        "LIBGUESTFS_BACKEND": "direct",
    }
    return plain if use_kvm else {**plain, "LIBGUESTFS_BACKEND_SETTINGS": "force_tcg"}


def _answer(job: dict[str, Any], code: int, out: str, err: str) -> dict[str, Any]:
    try:
        answer = json.loads(out)
    except (ValueError, RecursionError):
        last = (err.strip().splitlines() or [f"exit code {code}"])[-1]
        answer = {"failed": last}
    if not isinstance(answer, dict):
        answer = {"failed": "its worker's answer is no mapping"}
    if "refused" in answer:
        verb = _VERBS.get(job["action"], "seeded")
        raise DiskRefused(f"{job['path']} cannot be {verb}: {_one_line(answer['refused'])}")
    if "failed" in answer:
        method = METHODS.get(_way(job))
        tool_name = (method.tool or method.name) if method else "writing"
        raise SeedError(f"{tool_name} failed on {job['path']}: {_one_line(answer['failed'])}")
    result: dict[str, Any] = answer
    return result


def _way(job: dict[str, Any]) -> str:
    """Return how a job's disk is opened: a seed method's name, or ``FOLDER``."""
    way: str = job.get("via", GUESTFS.name)
    return way


def _one_line(reason: object) -> str:
    # The reason may contain names from an image, and output of its programs.
    return terminal.one_line(str(reason), _LONGEST)
