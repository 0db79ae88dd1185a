"""Checks before this host writes to a guest's disk that no running VM uses."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from saltvirt.core.options import config
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.storage import diskpaths, policies, usage
from saltvirt.storage.verdict import Verdict

_seeded: ContextVar[str | None] = ContextVar("_seeded", default=None)


@contextmanager
def allow_seeding(path: str | Path) -> Iterator[None]:
    """Let a function that the user named write to its disk during the block."""
    token = _seeded.set(os.path.realpath(path))
    try:
        yield
    finally:
        _seeded.reset(token)


def opened_format(settings: HostSettings, path: str | Path) -> str:
    """
    Return the format of a guest's disk; raise if this host must not write to the disk.

    Checks :func:`saltvirt.storage.diskpaths.opened_format`, and that the write spoils nothing else:
    see ``write`` in :mod:`saltvirt.storage.policies`.
    """
    path = str(path)
    fmt = diskpaths.opened_format(settings, path)
    if config.is_local(settings.uri) and not connect.why_missing():
        with connect.open_connection(settings) as conn:
            verdict = _judge_write(conn, settings, path)
    else:
        verdict = _judge_write(None, settings, path)
    verdict.refuse(f"{path} is not written to")
    return fmt


def _judge_write(conn: Any, settings: HostSettings, path: str) -> Verdict:
    verdict = usage.index(conn, settings, beside_files=[path]).verdict(policies.WRITE, path)
    # The record of the running build names the disk that its function seeds.
    is_seeded = os.path.realpath(path) == _seeded.get()
    return verdict.without(policies.COMING) if is_seeded else verdict
