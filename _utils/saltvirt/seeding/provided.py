"""Minion packages for guests from the master's file server, read once per build."""

import platform
from dataclasses import replace

from salt.exceptions import SaltException

from saltvirt.core.errors import SeedError
from saltvirt.core.salt.context import Context
from saltvirt.seeding.seedmodel import Inspection
from saltvirt.seeding.shared import minionpackages
from saltvirt.seeding.shared.minionpackages import BASE, Package


def read_index(context: Context, saltenv: str) -> minionpackages.Index:
    """Return the index of packages on the file server; empty if the master has fetched none."""
    url = f"salt://{minionpackages.FOLDER}/{minionpackages.INDEX}"
    try:
        # Check first: Salt logs an error when a missing file is requested.
        if not context.functions["cp.hash_file"](url, saltenv):
            return {}
        text = context.functions["cp.get_file_str"](url, saltenv)
        return minionpackages.read_index(text or "")
    except (SaltException, OSError, ValueError) as exc:
        reason = " ".join(str(exc).split())
        raise SeedError(
            f"{url} cannot be read: {reason}; {minionpackages.remedy(saltenv)}"
        ) from exc


def find_suitable(
    context: Context, content: Inspection | None, saltenv: str
) -> tuple[Package, ...]:
    """
    Return the packages for an image; none if the image has a minion.

    An unreadable index in the image's own environment is an error: another environment's minion,
    perhaps of another release, would hide that error.
    """
    if content is None or content.root is None or content.has_minion:
        return ()
    packages = _choose_packages(read_index(context, saltenv), content)
    if packages or saltenv == BASE:
        return packages
    # An environment for images need not have minion packages of its own.
    return tuple(
        replace(package, saltenv=BASE)
        for package in _choose_packages(read_index(context, BASE), content)
    )


def _choose_packages(
    package_index: minionpackages.Index, content: Inspection
) -> tuple[Package, ...]:
    return minionpackages.choose_packages(
        package_index,
        content.os,
        content.arch,
        runs_here=content.arch == platform.machine(),
        has_systemd=content.has_systemd,
    )
