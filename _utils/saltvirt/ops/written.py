"""A guest's disk that this host is to write to, while no VM runs with it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from saltvirt import config
from saltvirt.config import HostSettings
from saltvirt.errors import StorageError
from saltvirt.image import cache
from saltvirt.kvm import connect, lifecycle, snapshots
from saltvirt.ops import reservations, snapshotted, storage, trashbases

_seeded: ContextVar[str | None] = ContextVar("_seeded", default=None)


@contextmanager
def seeding(path: str | Path) -> Iterator[None]:
    """Have a function that the user named write into the disk that it is given."""
    token = _seeded.set(os.path.realpath(path))
    try:
        yield
    finally:
        _seeded.reset(token)


def opened_format(settings: HostSettings, path: str | Path) -> str:
    """
    Return the format of a guest's disk that is to be written to; raise if it may not be.

    As :func:`saltvirt.ops.storage.opened_format`, and nothing may be spoilt by what is written: no
    VM, on or off, no snapshot and no disk in the trash.
    """
    fmt = storage.opened_format(settings, path)
    for why in _reasons(settings, str(path)):
        raise StorageError(f"{path} is not written to: {why}")
    trashbases.refuse_needed(settings, [str(path)])
    return fmt


def _reasons(settings: HostSettings, path: str) -> Iterator[str]:
    if cache.digest_of(settings, path) is not None or cache.is_kept_in(settings, path):
        yield (
            "it is a cached or golden image, on which VMs may be based, and they would be spoilt; "
            "write to a copy"
        )
    # Before the domains: what is on record no more is defined by then.
    if os.path.realpath(path) != _seeded.get():
        reservations.refuse_on_record(settings, "", {path, os.path.realpath(path)})
    if config.is_local(settings.uri) and not connect.why_missing():
        with connect.opened(settings) as conn:
            yield from _of_vms(conn, path)


def _of_vms(conn: Any, path: str) -> Iterator[str]:
    based = storage.based(conn)
    above = storage.known_as(path, based)
    if above is not None:
        yield (
            f"a disk of VM {based[above]!r} is based on it, as after a snapshot, and would be "
            "spoilt; give the newest file of such a disk, or write to a copy"
        )
    taken = snapshotted.needed(conn, externally=True)
    known = storage.known_as(path, taken)
    if known is not None:
        yield (
            f"a snapshot of VM {taken[known]!r} goes back to it; delete that "
            "(virt.delete_snapshots) first, or write to a copy"
        )
    is_other = above is None and known is None
    twin = storage.twin(path, [*based, *taken]) if is_other else None
    if twin is not None:
        yield (
            f"it is a hard link of {twin}, which a disk or a snapshot of VM "
            f"{(based | taken)[twin]!r} is based on, and what is written into one is in both; "
            "write to a copy"
        )
    disks = lifecycle.disks(conn)
    for vm in sorted(lifecycle.saved(conn)):
        its = {*disks[vm], *map(os.path.realpath, disks[vm])}
        if storage.known_as(path, its) is not None or storage.twin(path, its) is not None:
            yield snapshots.saved_too(vm, "would go on over what is in it by then")
