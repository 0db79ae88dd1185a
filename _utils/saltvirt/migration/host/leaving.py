"""Checks on the source that a VM handed over has left, before files are removed."""

import os
from collections.abc import Iterator
from typing import Any

from saltvirt.core import filecontent
from saltvirt.core.journal.movefacts import DepartureFacts
from saltvirt.libvirt.domains import lifecycle, migrate, snapshots


def signatures(facts: DepartureFacts) -> dict[str, list[int]]:
    """Return signatures: the recorded ones, and new ones of existing files to be removed."""
    existing_paths = [path for path in facts.paths if os.path.exists(path)]
    return {
        **(facts.signatures or {}),
        **{path: filecontent.signature(path) for path in existing_paths},
    }


def find_written(facts: DepartureFacts) -> Iterator[str]:
    """Yield the files that have changed since they were sent or handed over."""
    for path, old_signature in (facts.signatures or {}).items():
        if not os.path.exists(path) or filecontent.signature(path) != old_signature:
            yield path


def find_obstacles_here(conn: Any, name: str, facts: DepartureFacts) -> Iterator[str]:
    """Yield why this host must not remove anything of a VM, by its own checks."""
    # Only existing files that are to be removed can be lost.
    changed_paths = filter(os.path.exists, find_written(facts)) if facts.leaves else ()
    for path in changed_paths:
        yield (
            f"{path} was written to after it was sent (see which is right; if it is the other "
            f"host's, move this one away, then salt-run virt.settle {name})"
        )
    domain = lifecycle.name_of(conn, facts.uuid)
    # No domain is no obstacle: an interrupted removal may have undefined it.
    if domain is None and lifecycle.is_defined(conn, name):
        yield "it is another VM of this name"
    elif domain is not None and lifecycle.is_active(conn, domain):
        yield "it runs here"


def find_missing_there(conn: Any, target_conn: Any, facts: DepartureFacts) -> Iterator[str]:
    """Yield the parts of a VM that the target's libvirt lacks; ``conn`` is this host's."""
    domain = lifecycle.name_of(conn, facts.uuid)
    return migrate.find_missing_on_target(
        target_conn,
        facts.uuid,
        is_kept=facts.leaves,
        sizes=facts.sizes or {},
        # A target of a move by hand runs no check of its own.
        snapshots=snapshots.names(conn, domain) if domain and facts.leaves else (),
    )
