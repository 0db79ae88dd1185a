"""
Let callers give ``host=`` to runner functions that first had another word for their hosts.

The older words stay. A call gives one of the two words.
"""

from collections.abc import Sequence
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument


def either(host: Any, word: str, value: Any) -> Any:
    """
    Return the host, or the hosts, of a call, which may give it by either word.

    word, value
        The older word, and what the call gives by it; None for nothing.

    Raises BadArgument if the call gives both.
    """
    if host is not None and value is not None and host != value:
        raise BadArgument("host", f"{host!r} and {word}={value!r}: give one of the two")
    return value if host is None else host


def several(host: object, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts of a call that names any number of them, or gives ``host=``."""
    return tuple(either(arguments.names("host", host) or None, "hosts", tuple(hosts) or None) or ())
