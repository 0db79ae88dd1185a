"""Run programs that manage this host's network; report a failure in one line."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence

from saltvirt.core.errors import VirtError

_ENOUGH_S = 60


class PersistenceError(VirtError):
    """The network cannot be kept over a reboot; the message has the reason."""


def run(argv: Sequence[str], timeout_s: float = _ENOUGH_S) -> str:
    """Run a program to its end and return its output; raise PersistenceError if it fails."""
    # Not a pipe: a DHCP client in the background would hold it open.
    with tempfile.TemporaryFile() as out:
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as exc:
            raise PersistenceError(f"{' '.join(argv)} failed: {exc.strerror}") from exc
        try:
            child.wait(timeout_s)
        except BaseException as exc:
            # Kill the whole process group: no second DHCP client may be left over.
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if isinstance(exc, subprocess.TimeoutExpired):
                raise PersistenceError(
                    f"{' '.join(argv)} did not end within {timeout_s} s"
                ) from exc
            raise
        out.seek(0)
        text = out.read().decode(errors="replace").strip()
    if child.returncode:
        raise PersistenceError(
            f"{' '.join(argv)} failed: {text.splitlines()[-1] if text else 'it says nothing'}"
        )
    return text
