"""Whether this master's Salt can tell which minion asks: all trust begins with that."""

import re
from collections.abc import Mapping

import salt.version

from saltvirt.errors import MasterError

# The first of each line whose master checks that a minion asks for its own pillar; later lines do.
PILLAR = {3006: 12, 3007: 4}
UPDATE = "to 3006.12, 3007.4, 3008 or a later one of these lines"


def is_since(release: str, firsts: Mapping[int, int]) -> bool:
    """
    Return whether a release of Salt, such as ``3006.12``, has what came with some releases.

    firsts
        The first of each line; later lines have it.
    """
    match = re.match(r"(\d+)(?:\.(\d+))?", release)
    line, number = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
    return number >= firsts[line] if line in firsts else line > max(firsts)


def refuse_old() -> None:
    """Raise MasterError if this master's Salt cannot tell whose pillar a minion asks for."""
    release = salt.version.__version__
    if not is_since(release, PILLAR):
        raise MasterError(
            f"Salt {release} on this master gives any minion the pillar of any other, so that any "
            f"guest could be a hypervisor: update it {UPDATE}"
        )
