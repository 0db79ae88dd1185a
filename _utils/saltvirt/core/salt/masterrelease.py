"""Whether this master's Salt can tell which minion asks: all trust begins there."""

import re
from collections.abc import Mapping

import salt.version

from saltvirt.core.errors import MasterError

# In each line, the first release in which the master gives a minion no pillar but its own.
OWN_PILLAR_SINCE = {3006: 12, 3007: 4}
OWN_PILLAR_UPDATE = "to 3006.12, 3007.4, 3008 or a later one of these lines"


def is_since(release: str, firsts: Mapping[int, int]) -> bool:
    """
    Return whether a release of Salt, such as ``3006.12``, includes a change.

    firsts
        First release of each line with the change; later lines have it, too.
    """
    match = re.match(r"(\d+)(?:\.(\d+))?", release)
    line, number = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
    return number >= firsts[line] if line in firsts else line > max(firsts)


def refuse_old_master() -> None:
    """Raise MasterError if this master's Salt gives a minion the pillar of another."""
    release = salt.version.__version__
    if not is_since(release, OWN_PILLAR_SINCE):
        raise MasterError(
            f"Salt {release} on this master gives any minion the pillar of any other, so that any "
            f"guest could be a hypervisor: update it {OWN_PILLAR_UPDATE}"
        )
