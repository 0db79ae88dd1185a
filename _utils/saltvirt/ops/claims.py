"""
Claims: what is being built on this host, and what a builder that died has left.

A claim is a file, locked by the process that builds the VM. While the lock is held it
counts against the host's capacity; when the process dies the lock goes with it, and the
file says what to clean up. Nothing outside the host is needed.
"""

import json
import os
import time
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path

from saltvirt import locks
from saltvirt.errors import NameTaken, StorageError
from saltvirt.model import Need

_TRIES, _AGAIN_S = 100, 0.01


def folder(settings):
    """Return the folder of the claims."""
    return Path(settings.state_dir) / "claims"


def _path(settings, name):
    return folder(settings) / f"{name}.json"


class Claim:
    """A live claim; what is about to be made is written down first."""

    def __init__(self, handle, content):
        self._handle, self._content = handle, content
        self._write()

    def will_make(self, path):
        """Note a file that is about to be made."""
        self._content["paths"].append(str(path))
        self._write()

    def will_define(self):
        """Note that the domain is about to be defined."""
        self._content["defines"] = True
        self._write()

    def _write(self):
        # The file is never replaced, as that would lose its lock.
        self._handle.seek(0)
        self._handle.truncate()
        json.dump(self._content, self._handle)
        self._handle.flush()
        os.fsync(self._handle.fileno())


def _read(path):
    for _ in range(_TRIES):
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError:
            # Whoever holds it is writing it at this moment.
            if not locks.is_held(path):
                break
            time.sleep(_AGAIN_S)
    # The builder died before it had written, so before it had made anything.
    return _content(Need(name=path.stem, vcpus=0, memory_mib=0))


def _all(settings):
    for path in sorted(folder(settings).glob("*.json")):
        content = _read(path)
        if content is not None:
            yield path, content


def _is_live(path, claim):
    # A VM that another host sends has no process here: its claim is good until a time.
    return claim.get("until", 0) > time.time() or locks.is_held(path)


def live(settings):
    """Return ``{name: claim}`` of the VMs being built, or expected, at this moment."""
    return {c["name"]: c for path, c in _all(settings) if _is_live(path, c)}


def stale(settings):
    """Return ``{name: claim}`` of the VMs whose builder died, or which did not come in time."""
    return {c["name"]: c for path, c in _all(settings) if not _is_live(path, c)}


def known(settings, name):
    """Return the claim of a VM, live or not, None if there is none."""
    return _read(_path(settings, name))


def expected(settings, name):
    """Return the claim of a VM that another host sends, None if there is none."""
    claim = known(settings, name)
    return claim if claim and "until" in claim else None


def drop(settings, name):
    """Forget a stale claim."""
    _note_end(settings)
    _path(settings, name).unlink(missing_ok=True)


def _note_end(settings):
    (Path(settings.state_dir) / "claims.ended").write_text(uuid.uuid4().hex)


def last_end(settings):
    """Return a text that changes before any claim ends."""
    try:
        return (Path(settings.state_dir) / "claims.ended").read_text()
    except FileNotFoundError:
        return ""


def gate(settings):
    """Return the lock under which claims are checked and made."""
    return locks.held(Path(settings.state_dir) / "claims.lock")


@contextmanager
def claimed(settings, need, check, until=None):
    """
    Yield a :class:`Claim` on this host's room for a VM; it ends with the block.

    until
        Let it live on until this time (seconds since 1970) unless the block fails.

    check
        Called under the host's lock; it raises if the VM cannot be here.
    """
    path = _path(settings, need.name)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise StorageError(f"cannot make the folder {path.parent}: {exc.strerror}") from exc
    with ExitStack() as holding:
        with gate(settings):
            if need.name in live(settings):
                raise NameTaken(f"VM {need.name!r} is being built on this host at this moment")
            check()
            ending = []
            is_done = (lambda: not ending) if until else (lambda: True)
            handle = holding.enter_context(locks.held(path, wait=False, is_done=is_done))
            claim = Claim(handle, {**_content(need), **({"until": until} if until else {})})
            holding.callback(_note_end, settings)
        yield claim
        ending.append("well")


@contextmanager
def reopened(settings, name):
    """Yield the claim of a VM that another host sends, so that more can be noted in it."""
    with gate(settings):
        content = expected(settings, name)
    if content is None:
        raise StorageError(f"VM {name!r} is not expected here any more; begin anew")
    with locks.held(_path(settings, name), is_done=lambda: False) as handle:
        yield Claim(handle, content)


def _content(need):
    return {
        "name": need.name,
        "vcpus": need.vcpus,
        "memory_mib": need.memory_mib,
        "disk_mib": need.disk_mib,
        "affinity": list(need.affinity),
        "anti_affinity": list(need.anti_affinity),
        "paths": [],
        "defines": False,
    }
