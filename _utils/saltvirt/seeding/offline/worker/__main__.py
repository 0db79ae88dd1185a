"""
Look into a guest's disk, write its identity or a minion there, or build an image from it.

An interpreter with the ``guestfs`` binding, which Salt's own seldom has, runs this folder as a
program; so it imports nothing of the project. It reads one job as JSON from its standard input and
writes one answer as JSON to its standard output: no secret is in an argument or a file.
"""

import json
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import building
import chroottree
import confined
import guestfstree
import identity
import installing
import mounting
import nbd
import renaming
from identity import Refused

_GENTLE_S = 3


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """Run a job and return its answer."""
    openers = {
        "guestfs": guestfstree.opened,
        "nbd": chroottree.attached,
        "folder": chroottree.entered,
    }
    if job.get("confined"):
        confined.enter(job, guestfstree.search_path())
    with openers[job.get("via", "guestfs")](job) as (tree, system):
        if job["action"] == "look":
            return identity.look(tree, system)
        if system["root"] is None:
            raise Refused("there is no operating system in it")
        had_minion = identity.has_minion(tree)
        if job["action"] == "build":
            building.build(tree, system, job)
        elif job["action"] == "rename":
            renaming.rename(tree, job)
        else:
            installing.make_sure(tree, system, job.get("install"))
            if job["action"] == "seed":
                identity.seed(tree, job)
            else:
                # cloud-init's seed brings the identity, and starts the minion.
                identity.relabel(tree)
        return {**identity.look(tree, system), "had_minion": had_minion}


def run_and_answer(job: dict[str, Any]) -> None:
    """Run a job and write its answer."""
    try:
        answer = run_job(job)
    except (Refused, nbd.Unusable) as exc:
        answer = {"refused": str(exc)}
    except (RuntimeError, OSError) as exc:  # libguestfs' errors; those of the host's own kernel
        text = " ".join(str(exc).split())
        # After a failed rename the host must know for certain whether the guest has its old id.
        is_untouched = job["action"] == "rename" and not job.get("is_written")
        answer = {"refused": text} if is_untouched else {"failed": text}
    json.dump(answer, sys.stdout)
    sys.stdout.flush()


def run_watched(job: dict[str, Any], limit_s: int) -> None:
    """Run a job in a child process, which ends with the caller, even if the caller is killed."""
    parent_pid = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        signal.alarm(limit_s + _GENTLE_S)  # the caller times out first, with a better message
        run_and_answer(job)
        os._exit(0)
    ended_pid, status = 0, 0
    while not ended_pid:
        _end_if_orphaned(parent_pid, job)
        signal.sigtimedwait({signal.SIGCHLD}, 0.5)
        ended_pid, status = os.waitpid(child, os.WNOHANG)
    _end_if_orphaned(parent_pid, job)
    if os.waitstatus_to_exitcode(status) < 0:
        print(f"its process was ended by signal {os.WTERMSIG(status)}", file=sys.stderr)


def _end_if_orphaned(parent_pid: int, job: dict[str, Any]) -> None:
    """Clean up and end everything if the job's caller, which would do that, is gone."""
    if os.getppid() != parent_pid:
        with suppress(OSError):  # a failure must not skip the remaining steps
            confined.give_back((job.get("confined") or {}).get("lent"))
        Path(f"{os.environ['TMPDIR']}.lock").unlink(missing_ok=True)
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)  # makes qemu-nbd release its device
        time.sleep(_GENTLE_S)
        os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Run one job, or one mount; with ``--check`` only report whether this interpreter can."""
    if sys.argv[1:] == ["--check"]:
        if not guestfstree.is_there():
            print("this interpreter has no module 'guestfs'", file=sys.stderr)
        return int(not guestfstree.is_there())
    job = json.load(sys.stdin)
    os.umask(0o022)
    if sys.argv[1:] == ["--mount"]:
        return mounting.mount(job)
    run_watched(job, job["limit_s"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
