"""States that are applied on a hypervisor of the lab, one after the other in one process."""

import json
import shutil
import subprocess

from labkit import node
from labkit.settings import CHECKOUT

PYTHON = "/opt/saltstack/salt/bin/python3"


class Side:
    """
    What hyper1 says, asked line by line; see stateside.py.

    options
        Options of ``virt`` that are others than the host's own.
    """

    def __init__(self, cloud, folder, **options):
        shutil.copy(CHECKOUT / "tests/data/stateside.py", cloud.folder("hyper1") / "srv")
        argv = [PYTHON, "/srv/stateside.py", folder, json.dumps(options)]
        self.process = subprocess.Popen(
            node.enter(node.pid_of(cloud.lab, "hyper1"), argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, *words):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("ANSWER"):
                return json.loads(line.removeprefix("ANSWER"))
        raise AssertionError("it has ended")

    def apply(self, state, given, test):
        """Apply a state; return what it returned."""
        return self._ask("apply", state, given, test)

    def is_waiting(self, state, given):
        """Return whether guests were asked to shut down and have not; they are helped then."""
        return self._ask("is_waiting", state, given)

    def world(self):
        """Return all that a state could change."""
        return self._ask("world")

    def reset(self):
        """Have nothing there."""
        return self._ask("reset")

    def close(self):
        """End it."""
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
