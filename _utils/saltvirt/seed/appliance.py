"""Have a worker look into a disk, or write to it: bounded in time, and always ended."""

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

from saltvirt import locks, terminal
from saltvirt.errors import SeedError
from saltvirt.room import Meter, OverLimit, Room, taken
from saltvirt.seed import barrier, lending
from saltvirt.units import MIB

_WORKER = Path(__file__).with_name("worker")
# Debian's, SUSE's and RHEL's packages of the binding are for the system's own Python.
PYTHON = "/usr/bin/python3"
LIMIT_S, MEMORY_MIB = 300, 768
_GENTLE_S = 5
_LOOK_S = 0.5
# What is written beside the disk: an overlay over one that is only read, and a socket.
_BESIDE_MIB = 1024
# So many characters of an answer are read: what it finds is names, and some lines of errors.
_SAID_MOST = 4 * MIB
_LONGEST = 1000
_WHO = {"guestfs": "libguestfs", "nbd": "mounting by this host", "folder": "writing"}


def why_missing(python: str = PYTHON) -> str | None:
    """Return why no worker can run on this host, None if one can."""
    argv = [python, "-I", "-B", str(_WORKER), "--check"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as exc:
        return f"{python}: {exc.strerror}"
    if done.returncode == 0:
        return None
    return f"{python}: {done.stderr.strip()}; install python3-guestfs (python3-libguestfs on RHEL)"


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
    Do a job, in an appliance of its own mostly, and return the worker's answer.

    job
        ``{"action": "look", "seed", "install" or "build", "path", "format", "via", ...}``; see the
        program in the folder ``worker``.
    state_dir
        Where libguestfs keeps its temporary files and sockets meanwhile.
    room
        How much the disk may take: the appliance is ended where it leaves VMs too little.
    limit_s, memory_mib
        How long it may take, in seconds, and how much memory the appliance has, in MiB.
    use_kvm
        Let the appliance use KVM; only where that was proved to work.
    masters
        Addresses that an appliance with a network must not reach, beside this host's networks.

    Raises SeedError if the disk is refused, the appliance's user or the rules for its network
    cannot be had, or the appliance fails, takes too long or writes too much.
    """
    job = {**job, "limit_s": limit_s, "memory_mib": memory_mib}
    with (
        _folder(Path(state_dir) / "appliances") as folder,
        _account(job, lending.place(state_dir), masters) as who,
        _confined(job, folder, room, use_kvm, who) as told,
        # Not pipes: whoever has taken a worker over could fill this process's memory.
        open(f"{folder}/answer", "w+", errors="replace") as out,
        open(f"{folder}/printed", "w+", errors="replace") as err,
    ):
        given, before = json.dumps(told), _all_taken(folder)
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
                _watched(worker, given, job, room, folder, before)
            finally:
                _end(worker)
        return _answer(job, worker.returncode, _read(out), _read(err))


def _read(said: TextIO) -> str:
    said.seek(0)
    return said.read(_SAID_MOST)


@contextmanager
def _account(
    job: dict[str, Any], place: Path, masters: Iterable[str]
) -> Iterator[lending.Account | None]:
    """Yield the user that an appliance is meanwhile; None for a job without one."""
    if job.get("via", "guestfs") != "guestfs":
        yield None
        return
    known = lending.accounts()
    if job.get("network"):
        # It is one table for all of them: others may be at work.
        barrier.put_up([one.uid for one in known], masters)
    with lending.borrowed(known, place, job["limit_s"]) as who:
        yield who


@contextmanager
def _confined(
    job: dict[str, Any], folder: str, room: Room, use_kvm: bool, who: lending.Account | None
) -> Iterator[dict[str, Any]]:
    """Yield the job as the worker gets it, with all that the appliance's user may have."""
    if who is None:
        yield job
        return
    told = lending.furnished(job, folder, who, room)
    is_read, limit_s = job["action"] == "look", job["limit_s"]
    with lending.lent(job["path"], who, is_read=is_read, limit_s=limit_s) as lent:
        told["confined"] = {
            "uid": who.uid,
            "gid": who.gid,
            "folder": folder,
            "use_kvm": use_kvm,
            "lent": lent,
        }
        yield told


def _watched(
    worker: subprocess.Popen[str],
    given: str,
    job: dict[str, Any],
    room: Room,
    folder: str,
    beside: int,
) -> None:
    """Wait until a worker ends; raise as soon as it takes too much room or time."""
    path, limit_s = job["path"], job["limit_s"]
    deadline = time.monotonic() + limit_s
    told: str | None = given
    before = taken(path)
    # A device has its size.
    grows = job["action"] != "look" and not Path(path).is_block_device()
    meter = replace(room, limit_s=limit_s).meter(path, Path(path).parent)
    while True:
        try:
            worker.communicate(told, timeout=min(_LOOK_S, limit_s))
            return
        except subprocess.TimeoutExpired as exc:
            told = None  # what is not written yet is, and a second time is refused
            if time.monotonic() > deadline:
                raise SeedError(
                    f"{path}: the worker took longer than {limit_s} s; raise "
                    "virt:seed:limit_s if this host is slow"
                ) from exc
        if grows:
            _refuse_growth(meter, max(0, taken(path) - before))
        if _all_taken(folder) - beside > _BESIDE_MIB * MIB:
            raise SeedError(f"{path}: the appliance wrote more than {_BESIDE_MIB} MiB beside it")


def _all_taken(folder: str) -> int:
    return sum(taken(f"{at}/{name}") for at, _folders, names in os.walk(folder) for name in names)


def _refuse_growth(meter: Meter, written_bytes: int) -> None:
    try:
        meter.check(written_bytes)
    except OverLimit as exc:
        raise SeedError(str(exc)) from exc


def _end(worker: subprocess.Popen[str]) -> None:
    """End a worker with all that it started, which is in the same session: an appliance, mounts."""
    deadline = time.monotonic() + _GENTLE_S
    # qemu-nbd lets go of its device when it is asked to; killed, it may leave the kernel waiting.
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, number)
            while number == signal.SIGTERM and time.monotonic() < deadline:
                worker.poll()
                os.killpg(worker.pid, 0)
                time.sleep(0.02)


@contextmanager
def _folder(every: Path) -> Iterator[str]:
    """Yield a folder that goes with the block; those of processes that were killed go too."""
    every.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in every.glob("*.lock"):
        with locks.held(path, wait=False) as handle:
            if handle:
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
    folder = new_folder(every)
    with locks.held(folder.with_suffix(".lock")):
        folder.mkdir(mode=0o700)
        try:
            yield str(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def new_folder(every: Path) -> Path:
    """Return the path of an appliance's folder; short, as a socket's has at most 107 characters."""
    return every / uuid.uuid4().hex[:8]


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
        answer = {"failed": "its worker has answered with something else than it was asked"}
    if "refused" in answer:
        done = "built" if job["action"] == "build" else "seeded"
        raise SeedError(f"{job['path']} cannot be {done}: {_line(answer['refused'])}")
    if "failed" in answer:
        who = _WHO[job.get("via", "guestfs")]
        raise SeedError(f"{who} failed on {job['path']}: {_line(answer['failed'])}")
    found: dict[str, Any] = answer
    return found


def _line(why: object) -> str:
    # Names in an image, and what its programs print, are in it.
    return terminal.one_line(str(why), _LONGEST)
