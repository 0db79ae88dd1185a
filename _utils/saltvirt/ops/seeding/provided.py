"""The minion for guests that the master has put on the file server, read once per build."""

import platform
from dataclasses import replace

from salt.exceptions import SaltException

from saltvirt import minionpackages
from saltvirt.errors import SeedError
from saltvirt.minionpackages import BASE, Package
from saltvirt.ops.context import Context
from saltvirt.seed.model import Found


def index(context: Context, saltenv: str) -> minionpackages.Index:
    """Return what is on the file server, nothing if the master has fetched nothing."""
    url = f"salt://{minionpackages.FOLDER}/{minionpackages.INDEX}"
    try:
        # Salt logs an error for a file that is asked for and missing.
        if not context.functions["cp.hash_file"](url, saltenv):
            return {}
        text = context.functions["cp.get_file_str"](url, saltenv)
        return minionpackages.read(text or "")
    except (SaltException, OSError, ValueError) as exc:
        why = " ".join(str(exc).split())
        raise SeedError(f"{url} cannot be read: {why}; {minionpackages.remedy(saltenv)}") from exc


def suitable(context: Context, found: Found | None, saltenv: str) -> tuple[Package, ...]:
    """
    Return what of it an image's minion is installed from; none if the image has a minion.

    An index of the image's own environment that is there and cannot be read is an error: to take
    another minion then, perhaps of another release, would pass over what is wrong.
    """
    if found is None or found.root is None or found.has_minion:
        return ()
    own = _chosen(index(context, saltenv), found)
    if own or saltenv == BASE:
        return own
    # An environment for images need not have minions of its own.
    return tuple(replace(one, saltenv=BASE) for one in _chosen(index(context, BASE), found))


def _chosen(served: minionpackages.Index, found: Found) -> tuple[Package, ...]:
    return minionpackages.chosen(
        served,
        found.os,
        found.arch,
        runs_here=found.arch == platform.machine(),
        has_systemd=found.has_systemd,
    )
