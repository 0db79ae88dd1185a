"""
Clocks that jump: what ``time.time`` says on one host, or to the master's commands.

How far, in seconds, is in a file for each. What the kernel stamps on files goes on as it was.
"""

import os
import time

from swarmkit.settings import ROOT

FOLDER = ROOT / "clock"


def follow(who):
    """Have this process's clock be ahead, or behind, by what its file says at each moment."""
    real, path, known = time.time, FOLDER / who, {"stamp": None, "by": 0.0}

    def now():
        try:
            stamp = os.stat(path).st_mtime_ns
        except FileNotFoundError:
            return real()
        if stamp != known["stamp"]:
            known.update(stamp=stamp, by=float(path.read_text()))
        return real() + known["by"]

    time.time = now
