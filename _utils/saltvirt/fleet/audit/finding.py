"""What an audit finds."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Those that change VMs or hosts; who may call them is as good as root on a hypervisor.
_CHANGING = (
    *("init", "signed", "purge", "undefine", "image_pull", "image_prune", "image_build"),
    *("define_xml_str", "define_xml_path", "create_xml_str", "create_xml_path"),
    *("start", "stop", "shutdown", "reboot", "reset", "pause", "resume", "maintenance"),
    *("setmem", "setvcpus", "set_autostart", "migrate", "evacuate", "rebalance", "settle"),
    *("allow", "disallow", "authorize", "seed_non_shared_migrate"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    One thing that falls short of docs/security.md.

    check
        Which of the checks it is, as docs/security.md names them.
    where
        ``master``, or the id of a minion.
    fix
        A command, or what is to be changed where.
    """

    check: str
    where: str
    what: str
    fix: str


def granted(grants: object) -> Iterator[str]:
    """Yield what of Salt's lists of allowed functions lets somebody change VMs or hosts."""
    if isinstance(grants, str):
        if _lets(grants):
            yield grants
    elif isinstance(grants, dict):
        for target, functions in grants.items():
            yield from _below(str(target), functions)
    elif isinstance(grants, list | tuple):
        for one in grants:
            yield from granted(one)


def _below(target: str, functions: Any) -> Iterator[str]:
    # A function with conditions on its arguments has them in a mapping; the name is what counts.
    names = functions if isinstance(functions, list | tuple) else [functions]
    for name in names:
        texts = list(name) if isinstance(name, dict) else [name]
        yield from (f"{target}: {text}" for text in texts if isinstance(text, str) and _lets(text))


def _lets(pattern: str) -> bool:
    if pattern.startswith("@"):
        return pattern.rstrip("s") in ("@runner", "@wheel")
    try:
        # As Salt does: from its beginning, not to its end.
        return any(re.match(pattern, f"virt.{name}") for name in _CHANGING)
    except re.error:
        return False
