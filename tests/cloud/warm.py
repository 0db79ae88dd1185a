"""
Salt's commands in the nodes, each by a child of a process there that has imported Salt already.

What a command does, prints and ends with is its own: the child is forked before any of Salt's own
code has run. What is saved is the half second of processor time that Salt's imports take, at each
of the thousand commands of a run. Who looks at a command from outside, or sends it signals, begins
one of its own (``Cloud.begin``).
"""

import json
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass

from labkit import node

PROGRAMS = ("salt", "salt-call", "salt-run")
_PYTHON = "/opt/saltstack/salt/bin/python3"
_SERVER = """
import gc, json, os, sys
import salt.cli.call, salt.cli.run, salt.cli.salt, salt.client, salt.minion, salt.runner
import salt.scripts
# What Salt's loader has these import.
import cryptography.x509, salt.daemons.masterapi, salt.fileserver.gitfs, salt.key, salt.master
import salt.modules.file, salt.modules.network, salt.pillar.git_pillar, salt.runners.winrepo
import salt.transport.tcp, salt.transport.zeromq, salt.wheel

def text(handle):
    return os.pread(handle, os.fstat(handle).st_size, 0).decode()

# The node's own systemd is to be its parent: nsenter, which is outside, stops when systemd stops
# all processes before it ends them, and then a node that shuts down would never be over.
if os.fork():
    os._exit(0)
os.setsid()
gc.freeze()
for line in sys.stdin:
    program, *words = json.loads(line)
    said = [os.memfd_create(name) for name in ("out", "err")]
    child = os.fork()
    if child == 0:
        for number, handle in enumerate((os.open(os.devnull, os.O_RDONLY), *said)):
            os.dup2(handle, number)
        sys.argv = ["/usr/bin/" + program, *words]
        name = {"salt": "salt_main"}.get(program, program.replace("-", "_"))
        sys.exit(getattr(salt.scripts, name)())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, *map(text, said)]), flush=True)
    for handle in said:
        os.close(handle)
"""


@dataclass
class _Server:
    """The process of a node; whoever holds the lock has a command of its own done."""

    pid: int
    process: subprocess.Popen
    lock: threading.Lock


class Warm:
    """The processes of a lab's nodes, each begun when it is first needed."""

    def __init__(self):
        self._servers = {}
        self._lock = threading.Lock()

    def run(self, name, pid, program, words):
        """Run a command in a node; return ``(code, out, err)``, None if the process is busy."""
        server = self._server(name, pid)
        if not server.lock.acquire(blocking=False):
            return None
        try:
            server.process.stdin.write(json.dumps([program, *map(str, words)]) + "\n")
            server.process.stdin.flush()
            said = server.process.stdout.readline()
        except BrokenPipeError:
            said = ""
        except BaseException:
            # A test was ended over it, and what is said later would be the next one's answer.
            with self._lock:
                self._servers.pop(name, None)
            server.process.kill()
            raise
        finally:
            server.lock.release()
        if said:
            return tuple(json.loads(said))
        with self._lock:
            self._end(self._servers.pop(name, None))
        return -9, "", f"{name} has gone under {program}"

    def _server(self, name, pid):
        with self._lock:
            there = self._servers.get(name)
            # A node that was booted anew has another first process.
            if there is None or there.pid != pid:
                self._end(self._servers.pop(name, None))
                process = subprocess.Popen(
                    node.enter(pid, [_PYTHON, "-u", "-c", _SERVER]),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                there = self._servers[name] = _Server(pid, process, threading.Lock())
            return there

    @staticmethod
    def _end(server):
        if server is not None:
            # It ends when nobody can ask it any more.
            with suppress(BrokenPipeError):
                server.process.stdin.close()
            server.process.stdout.close()
            server.process.wait()

    def close(self):
        """End all processes."""
        for server in self._servers.values():
            self._end(server)
        self._servers.clear()
