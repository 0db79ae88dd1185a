"""Progress of the lab, one line a step, on standard error."""

import sys
import time

_STARTED = time.monotonic()


def say(text):
    """Print one line of progress with the seconds since the start."""
    # In one piece, as threads speak too.
    sys.stderr.write(f"[{time.monotonic() - _STARTED:6.1f} s] {text}\n")
    sys.stderr.flush()
