"""The test's end of ``swarmkit.warm``: commands in a swarm, many at once, and what they leave."""

import json
import subprocess
import threading
from dataclasses import dataclass, field

from swarmkit import life
from swarmkit.settings import HERE

_LIMIT_S = 180


@dataclass
class Asked:
    """A request, and its answer when that has come."""

    words: tuple = ()
    answer: dict | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    def come(self, answer):
        """Take the answer in."""
        self.answer = answer
        self._over.set()

    @property
    def is_over(self):
        """Whether it has come."""
        return self._over.is_set()

    def wait(self, limit_s=_LIMIT_S):
        """Return the answer; a request that hangs is a failure."""
        assert self._over.wait(limit_s), f"not over after {limit_s} s: {self.words}"
        return self.answer


class WarmSwarm:
    """A process in a swarm that does what is asked."""

    def __init__(self, swarm):
        argv = [swarm.spec.python, "-u", HERE / "warm.py"]
        self._process = subprocess.Popen(
            life.inside(swarm.place, argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._asked, self._count, self._lock = {}, 0, threading.Lock()
        self._hearing = threading.Thread(target=self._hear, daemon=True)
        self._hearing.start()

    def _hear(self):
        for line in self._process.stdout:
            answer = json.loads(line)
            self._asked.pop(answer.pop("id")).come(answer)
        for one in list(self._asked.values()):
            one.come({"error": "the process in the swarm has ended", "code": -1})

    def _ask(self, asked, **request):
        with self._lock:
            self._count += 1
            self._asked[self._count] = asked
            self._process.stdin.write(json.dumps({"id": self._count, **request}) + "\n")
            self._process.stdin.flush()
        return asked

    def begin(self, *words, kill_s=None):
        """Start a salt-run for data; it is killed after so many seconds, if that is given."""
        return self.command("salt-run", [*words, "--out=json"], kill_s=kill_s)

    def command(self, program, words, config="etc", kill_s=None):
        """Start a command of Salt's with one of the master's configurations."""
        words = list(map(str, words))
        request = {"program": program, "config": config, "words": words, "kill_s": kill_s}
        return self._ask(Asked((program, *words)), do="run", **request)

    def do(self, what, **given):
        """Do something that is not a command, and return its value."""
        answer = self._ask(Asked((what,)), do=what, given=given).wait()
        assert "error" not in answer, f"{what}: {answer['error']}"
        return answer["value"]

    def close(self):
        """End it."""
        self._process.stdin.close()
        self._process.wait(30)
        self._hearing.join(30)
        self._process.stdout.close()
