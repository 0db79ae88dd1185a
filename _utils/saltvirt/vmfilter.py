"""Which VMs are looked at, and what of each is shown; the same to master and hosts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from saltvirt import arguments
from saltvirt.errors import BadArgument

STATES = ("running", "paused", "shutdown", "crashed")
HOLD = "hold"
# What is shown of a VM, as ``ops.inspect.describe`` says it.
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
    What is asked for; empty for all.

    name
        Ids and globs, of which one must match.
    state
        One of these.
    tag
        Each of these: affinity and anti-affinity groups, and ``hold``.
    fields
        What is shown of each VM.
    """

    name: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves out any VM."""
        return bool(self.name or self.state or self.tag)

    def takes(self, name: str, state: str, tags: Collection[str] = ()) -> bool:
        """Return whether a VM is asked for."""
        is_named = not self.name or any(fnmatchcase(name, pattern) for pattern in self.name)
        return is_named and (not self.state or state in self.state) and {*tags}.issuperset(self.tag)

    def shown(self, vm: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is shown of a VM; what it does not have is left out."""
        return {key: value for key, value in vm.items() if not self.fields or key in self.fields}

    def plain(self) -> dict[str, list[str]]:
        """Return the keyword arguments of the module's ``virt.vms`` that ask for it."""
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
    Return the filter of a call's arguments, lists or texts with commas; refuse what is none.

    known
        The fields that there are. Defaults to those of VMs.
    """
    return VmFilter(
        name=arguments.names("name", name),
        state=_check_names("state", state, STATES),
        tag=arguments.names("tag", tag),
        fields=_check_names("fields", fields, known),
    )


def _check_names(argument: str, requested: Any, allowed_names: Collection[str]) -> tuple[str, ...]:
    """Return names, of which each must be known: another would leave out all there is."""
    names = arguments.names(argument, requested)
    unknown_names = sorted(set(names).difference(allowed_names))
    if unknown_names:
        raise BadArgument(argument, f"{unknown_names[0]!r}; one of {', '.join(allowed_names)}")
    return names


def tags(notes: Mapping[str, Any]) -> set[str]:
    """Return the tags of a VM, by what this project noted in its metadata."""
    return {*notes["affinity"], *notes["anti_affinity"], *([HOLD] if notes["stay"] else [])}
