"""A filter of VMs and of their fields, the same for master and hosts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument

STATES = ("running", "paused", "shutdown", "crashed")
HOLD = "hold"
# The fields of a VM, as ``vm.show.host.inspect.describe`` returns them.
FIELDS = (
    "cpu",
    "cputime",
    "disks",
    "graphics",
    "loader",
    "maxMem",
    "mem",
    "nics",
    "on_crash",
    "on_poweroff",
    "on_reboot",
    "state",
    "uuid",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VmFilter:
    """
    A filter of VMs; each empty field takes all.

    name
        Ids and globs, of which one must match.
    state
        States, of which one must match.
    tag
        Tags that must all match: affinity and anti-affinity groups, and ``hold``.
    fields
        The fields to return of each VM.
    """

    name: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()

    @property
    def is_narrow(self) -> bool:
        """Whether the filter leaves out any VM."""
        return bool(self.name or self.state or self.tag)

    def takes(self, name: str, state: str, tags: Collection[str] = ()) -> bool:
        """Return whether the filter takes a VM."""
        is_named = not self.name or any(fnmatchcase(name, pattern) for pattern in self.name)
        return is_named and (not self.state or state in self.state) and {*tags}.issuperset(self.tag)

    def shown(self, vm: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a VM that the filter takes, if the VM has them."""
        return {key: value for key, value in vm.items() if not self.fields or key in self.fields}

    def plain(self) -> dict[str, list[str]]:
        """Return the keyword arguments of the module's ``virt.vms`` for this filter."""
        keywords = {"name": self.name, "state": self.state, "tag": self.tag, "fields": self.fields}
        return {key: list(values) for key, values in keywords.items() if values}


def from_call(
    name: Any = None,
    state: Any = None,
    tag: Any = None,
    fields: Any = None,
    known: Collection[str] = FIELDS,
) -> VmFilter:
    """
    Return the filter for a call's arguments, lists or texts with commas; refuse other values.

    known
        The fields to accept. Defaults to those of VMs.
    """
    return VmFilter(
        name=arguments.names("name", name),
        state=_check_names("state", state, STATES),
        tag=arguments.names("tag", tag),
        fields=_check_names("fields", fields, known),
    )


def _check_names(argument: str, requested: Any, allowed_names: Collection[str]) -> tuple[str, ...]:
    """Return names; refuse an unknown one, which would leave out everything."""
    names = arguments.names(argument, requested)
    unknown_names = sorted(set(names).difference(allowed_names))
    if unknown_names:
        raise BadArgument(argument, f"{unknown_names[0]!r}; one of {', '.join(allowed_names)}")
    return names


def tags(notes: Mapping[str, Any]) -> set[str]:
    """Return the tags of a VM, from this project's notes in its metadata."""
    return {*notes["affinity"], *notes["anti_affinity"], *([HOLD] if notes["stay"] else [])}
