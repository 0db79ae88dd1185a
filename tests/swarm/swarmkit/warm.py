"""
A process in a swarm that has imported Salt already: each command is a fork of it, any may be ended.

It reads requests as JSON, one a line, and answers each when it is done: ``run`` one of Salt's
commands, maybe ``kill_s`` seconds long, ``look`` at all there is, ``reset`` all of it, ``mark`` a
disk, ``signal`` the processes of jobs or hosts. Nothing of Salt's own has run before the fork.
"""

import contextlib
import gc
import json
import os
import selectors
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

_HERE = Path(__file__).resolve().parent
# Beside it are names that others have too.
sys.path[0] = str(_HERE.parent)
sys.path.insert(1, str(_HERE.parents[2] / "_utils"))

from swarmkit import clock, conf, seen  # noqa: E402

_PROGRAMS = {"salt-run": "salt_run", "salt": "salt_main"}
_IMPORTED = (
    *("cli.run", "client", "minion", "runner", "scripts"),
    # What Salt's loader has those import.
    *("daemons.masterapi", "fileserver.gitfs", "key", "master", "modules.file", "modules.network"),
    *("pillar.git_pillar", "runners.winrepo", "transport.tcp", "transport.zeromq", "wheel"),
)


def _text(handle):
    return os.pread(handle, os.fstat(handle).st_size, 0).decode()


class Command:
    """A command of its own, and what it says."""

    def __init__(self, request):
        self.request, self.began = request, time.monotonic()
        self._said = [os.memfd_create(name) for name in ("out", "err")]
        self.pid = os.fork()
        if self.pid == 0:
            self._be()
        self.handle = os.pidfd_open(self.pid)

    def _be(self):
        os.setsid()
        for number, handle in enumerate((os.open(os.devnull, os.O_RDONLY), *self._said)):
            os.dup2(handle, number)
        clock.follow("master")
        program, config = self.request["program"], conf.MASTER / self.request["config"]
        sys.argv = [f"/usr/bin/{program}", "-c", str(config), *self.request["words"]]
        code = 1
        try:
            code = getattr(import_module("salt.scripts"), _PROGRAMS[program])() or 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    @property
    def left_s(self):
        """For how long it may go on, None for as long as it takes."""
        limit_s = self.request.get("kill_s")
        return None if limit_s is None else max(0.0, self.began + limit_s - time.monotonic())

    def kill(self):
        """End it at once."""
        self.request["kill_s"] = None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self):
        """Return how it ended."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        out, err = map(_text, self._said)
        for handle in (*self._said, self.handle):
            os.close(handle)
        return {
            "code": code,
            "out": out,
            "err": err,
            "seconds": round(time.monotonic() - self.began, 2),
        }


class Server:
    """All commands that are under way, and whoever asks for them."""

    def __init__(self):
        self._commands = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(sys.stdin.buffer.raw, selectors.EVENT_READ)
        self._came = b""

    def serve(self):
        """Do what is asked until nobody can ask any more."""
        while True:
            limits = [one.left_s for one in self._commands.values() if one.left_s is not None]
            for key, _events in self._selector.select(min(limits, default=None)):
                if key.data is None:
                    if not self._hear():
                        return
                else:
                    self._over(key.data)
            for one in self._commands.values():
                if one.left_s == 0:
                    one.kill()

    def _hear(self):
        came = os.read(0, 1 << 16)
        self._came += came
        *lines, self._came = self._came.split(b"\n")
        for line in lines:
            self._do(json.loads(line))
        return bool(came)

    def _do(self, request):
        if request["do"] == "run":
            command = Command(request)
            self._commands[command.pid] = command
            self._selector.register(command.handle, selectors.EVENT_READ, command)
            return
        try:
            self._say(request, {"value": seen.DO[request["do"]](**request.get("given", {}))})
        except Exception as error:  # whoever has asked is told
            self._say(request, {"error": repr(error)})

    def _over(self, command):
        self._selector.unregister(command.handle)
        del self._commands[command.pid]
        self._say(command.request, command.end())

    @staticmethod
    def _say(request, answer):
        print(json.dumps({"id": request["id"], **answer}), flush=True)


def main():
    """Import all that a command needs, and serve."""
    for name in _IMPORTED:
        import_module(f"salt.{name}")
    # What each command imports besides, and Salt's loader of files, is compiled once.
    sys.pycache_prefix, sys.dont_write_bytecode = str(conf.ROOT / "bytecode"), False
    gc.collect()
    gc.freeze()
    Server().serve()


if __name__ == "__main__":
    main()
