"""
What a host does of a job: a question is answered at once, all else in a process of its own.

A real minion forks for each job. Here a question of the runner's is answered by the host's process
itself, which costs a tenth of that; whatever changes something, or takes time, is forked, so that
it can be ended, and leaves what it had begun.
"""

import contextlib
import json
import os
import signal
import struct
import sys
import traceback

import salt.loader
import salt.minion
import salt.payload
from salt.exceptions import CommandExecutionError

from swarmkit.standin import refusals

SIGNED = "virt.signed"
# Whatever else is asked would have all of Salt's modules loaded, 38 MiB in each process.
_MODULES = {"config", "event", "grains", "pillar", "saltutil", "state", "test", "virt"}
# The last four are what Salt 3006's own runner asks for: neither runner's questions are forked.
_AT_ONCE = {
    "test.ping",
    "saltutil.find_job",
    "saltutil.is_running",
    "saltutil.running",
    "virt.full_info",
    "virt.freecpu",
    "virt.freemem",
    "virt.vm_info",
}
# Questions that take their time.
_LONG = {"virt.load", "virt.settle", "virt.maintenance"}
_LENGTH = struct.Struct("!I")
FAILED, MISSING = 1, 254


def asked(load, private):
    """Return ``(function, whether it is an order)`` of what a job is really about."""
    if load["fun"] != SIGNED or not load["arg"]:
        return load["fun"], load["fun"] not in _AT_ONCE
    what = load["arg"][0]
    if isinstance(what, str):
        from saltvirt.core.crypto import keypair

        what = json.loads(keypair.unseal(what, private)) if keypair.is_sealed(what) else {}
        return str(what.get("fun", SIGNED)), True
    fun = str(what.get("fun", SIGNED))
    return fun, fun in _LONG or bool(what.get("id"))


def functions(opts, own, *, is_alone):
    """
    Return a host's functions.

    own
        Those that it has in place of Salt's.
    is_alone
        Whether no other host is in this process. Salt 3008 has one module object for all loaders
        of a process, with the ``__opts__`` of the last: others answer with that one's id and key.
    """
    # What Salt's modules are called in this process.
    space = {} if is_alone else {"loaded_base_name": f"swarm.{opts['id']}"}
    utils = salt.loader.utils(opts, **space)
    found = salt.loader.minion_mods(opts, utils=utils, context={}, **space)
    for name, function in own.items():
        found[name] = function
    return found


def call(loaded, load, rule, fun):
    """Return ``(return, retcode)`` of a job's function."""
    if load["fun"].partition(".")[0] not in _MODULES or load["fun"] not in loaded:
        return f"'{load['fun']}' is not available.", MISSING
    with _failing(loaded, rule, fun), refusals.planted(rule.get("libvirt", {})):
        context = loaded.pack["__context__"]
        context["retcode"] = 0
        try:
            function = loaded[load["fun"]]
            words, options = salt.minion.load_args_and_kwargs(function, list(load["arg"]), load)
            return function(*words, **options), context.get("retcode") or 0
        except CommandExecutionError as error:
            return f"ERROR: {error}", FAILED
        except Exception as error:  # the job ends with an answer, as a minion's does
            traceback.print_exc()
            return f"The minion function caused an exception: {error!r}", FAILED


@contextlib.contextmanager
def _failing(loaded, rule, fun):
    """Have one function fail, if the rule says so, until the block ends."""
    if "error" not in rule:
        yield
        return

    def failing(*_words, **_options):
        raise CommandExecutionError(rule["error"])

    plain = loaded[fun]
    loaded[fun] = failing
    try:
        yield
    finally:
        loaded[fun] = plain


def _frame(what):
    text = salt.payload.dumps(what)
    return _LENGTH.pack(len(text)) + text


class Forked:
    """A job in a process of its own, and what has come from it."""

    def __init__(self, do):
        self.reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.reading)
            self._child(writing, do)
        os.close(writing)
        self._came = b""

    @staticmethod
    def _child(writing, do):
        """Do it and say what it returned; never come back."""
        try:
            # As a minion's job: what it had begun is undone.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))
            os.setpgid(0, 0)

            def say(what):
                left = memoryview(_frame(what))
                while left:
                    left = left[os.write(writing, left) :]

            say({"return": do(say)})
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def read(self):
        """Return ``(what it has said since, whether that is all)``."""
        came = os.read(self.reading, 1 << 20)
        self._came += came
        out = []
        while len(self._came) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._came)[0]
            if len(self._came) < end:
                break
            out.append(salt.payload.loads(self._came[_LENGTH.size : end]))
            self._came = self._came[end:]
        if not came:
            os.close(self.reading)
            os.waitpid(self.pid, 0)
        return out, not came

    def end(self, number):
        """Send a signal to all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)
