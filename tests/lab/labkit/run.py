"""Run commands and wait for conditions."""

import contextlib
import subprocess
import time

from labkit.settings import LabError


def run(argv, *, log=None, **options):
    """Run a command; raise LabError with its last lines if it fails; return its output."""
    done = subprocess.run(
        [str(word) for word in argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        **options,
    )
    if log is not None:
        # What it says is worth more than why it could not be kept.
        with contextlib.suppress(OSError):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(done.stdout)
    if done.returncode:
        tail = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise LabError(f"{' '.join(map(str, argv[:4]))} … exited with {done.returncode}:\n{tail}")
    return done.stdout


def wait_for(what, condition, timeout_s=60, every_s=0.05):
    """Wait until ``condition()`` is true; raise LabError that names ``what`` if it never is."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise LabError(f"{what}: not within {timeout_s} s")
        time.sleep(every_s)
    return value
