"""Roots as stacks of layers, each kept in the cache under the digest of all that went into it."""

import fcntl
import hashlib
import os
import shutil
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

from labkit.run import run
from labkit.say import say
from labkit.settings import CACHE, MARK

ROOT_SH = Path(__file__).with_name("root.sh")
LAYERS = CACHE / "layers"
_KEPT_DAYS = 14
_HERE = defaultdict(threading.Lock)
# What packages' scripts could do to the machine: mdadm's, for one, loads a kernel module.
_DENIED = "-sys_module,-sys_time,-sys_rawio,-syslog,-sys_boot,-mac_admin"
# Whoever is killed in the middle takes it along: the next would build in the same place.
ALONE = (
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    "--mount",
    "--propagation",
    "private",
    "--pid",
    "--fork",
    "--kill-child=KILL",
)
PLAIN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}


@contextmanager
def locked(name):
    """Hold a lock of the cache, so that two labs do not build the same thing at once."""
    CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
    # What another thread of this process builds is said by that.
    with _HERE[name], (CACHE / f"{name}.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for whoever builds {name}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def lower(stack):
    """Return overlayfs' word for a stack of layers, topmost first."""
    return ":".join(map(str, stack))


def _digest(recipe, below):
    text = "\n".join([*map(str, recipe), *(layer.name for layer in below)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def path(name, recipe, below=()):
    """Return where a layer is, or would be."""
    return LAYERS / f"{name}-{_digest(recipe, below)}"


def ensure(name, recipe, build, below=(), what=None):
    """Return a layer on top of those below it, topmost first; ``build(folder)`` fills a new one."""
    folder = path(name, recipe, below)
    with locked(f"layer-{name}"):
        if not folder.exists():
            say(f"building {what or name}")
            started = time.monotonic()
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(mode=0o755, parents=True)
            try:
                build(part)
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                raise
            part.rename(folder)
            forget_old(name)
            say(f"built {what or name} in {time.monotonic() - started:.0f} s")
        os.utime(folder)
    return [folder, *below]


def forget_old(name):
    """Remove what nobody has used for two weeks, and what a kill has left half-built."""
    for old in LAYERS.glob(f"{name}-{'?' * 12}*"):
        if old.stat().st_mtime < time.time() - _KEPT_DAYS * 86400:
            shutil.rmtree(old)


def in_chroot(stack, argv, *, scratch, log=None, **environment):
    """Run a command in a root of layers; what it writes goes to ``scratch/upper``."""
    root = scratch / "root"
    words = [
        "setpriv",
        "--bounding-set",
        _DENIED,
        "--inh-caps",
        _DENIED,
        *ALONE,
        ROOT_SH,
        "chroot",
        root,
    ]
    return run([*words, lower(stack), scratch, *argv], log=log, env={**passed_on(), **environment})


def passed_on():
    """Return the environment of what is built: the way to package indexes, and the lab's mark."""
    mine = {
        key: value
        for key, value in os.environ.items()
        if key.startswith("PIP_") or key.lower().endswith("_proxy") or key == MARK
    }
    return {**mine, **PLAIN}


def add(name, recipe, stack, what=None, inputs=(), **environment):
    """
    Return a stack with a layer more: what ``sh -c recipe`` writes in the root.

    ``inputs`` is what it depends on beside the recipe's own text.
    """

    def build(part):
        scratch = part.with_suffix(".scratch")
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            in_chroot(
                stack,
                ["sh", "-euc", recipe],
                scratch=scratch,
                log=CACHE / f"{name}.log",
                **environment,
            )
            (scratch / "upper/etc/resolv.conf").unlink(missing_ok=True)
            part.rmdir()
            (scratch / "upper").rename(part)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    return ensure(name, [recipe, *inputs], build, stack, what)
