"""
Hints: the hosts on which each VM was last seen.

Hints are no inventory: a command that needs a VM's host asks the hosts. A hint only shows that an
unresponsive host had a VM, so that the VM's name stays taken. One file has all hints. Every survey
of names refreshes the file, and writes it only after a change. What a list shows of these VMs is in
:mod:`saltvirt.cluster.inventory.lastlisted`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saltvirt.cluster.inventory import lastlisted
from saltvirt.cluster.inventory.presence import VmPresence
from saltvirt.core.arguments import MAX_NAME
from saltvirt.core.jsonfile import JsonFile

# A host that invents names must not fill the master's disk.
_MAX_NAMES_PER_HOST = 4096

NamesByHost = dict[str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedNames:
    """
    The names in the answers of a survey.

    names_by_host
        ``{host: names}`` of hosts that listed all their VMs.
    presence_by_host
        ``{host: VmPresence}`` of one name, :attr:`name`.
    """

    names_by_host: dict[str, Collection[str]] = field(default_factory=dict)
    name: str = ""
    presence_by_host: dict[str, VmPresence] = field(default_factory=dict)


def merge_report(
    names_by_host: Mapping[str, Collection[str]], report: ReportedNames
) -> NamesByHost:
    """
    Return the hints with the answers of a survey; unresponsive hosts keep theirs.

    A name that another host reports does not change that: it may be another VM, or a lie.
    """
    out = {host: set(names) for host, names in names_by_host.items()}
    for host, names in report.names_by_host.items():
        out[host] = set(sorted(filter(_is_name, names))[:_MAX_NAMES_PER_HOST])
    for host, sighting in report.presence_by_host.items():
        host_names = out.setdefault(host, set())
        (host_names.add if sighting.is_its_own else host_names.discard)(report.name)
    return _sort_names(out)


def place_name(
    names_by_host: Mapping[str, Collection[str]], name: str, host: str | None
) -> NamesByHost:
    """Return the hints with a name on one host only; None for no host."""
    out = {hint_host: {*names} - {name} for hint_host, names in names_by_host.items()}
    if host is not None:
        out.setdefault(host, set()).add(name)
    return _sort_names(out)


def _sort_names(names_by_host: Mapping[str, Collection[str]]) -> NamesByHost:
    return {host: sorted(names) for host, names in sorted(names_by_host.items()) if names}


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME


def refresh(opts: Mapping[str, Any], report: ReportedNames) -> None:
    """Update the hints with a survey's answers."""
    _file(opts).change(lambda names_by_host: merge_report(names_by_host, report))


def record_move(opts: Mapping[str, Any], name: str, host: str) -> None:
    """Record that a VM is on this host, and on no other."""
    _file(opts).change(lambda names_by_host: place_name(names_by_host, name, host))


def record_absence(opts: Mapping[str, Any], name: str, host: str) -> None:
    """Record that a host does not have a VM; the hints of other hosts stay."""
    _file(opts).change(
        lambda names_by_host: merge_report(
            names_by_host, ReportedNames(name=name, presence_by_host={host: VmPresence()})
        ),
    )


def record_removal(opts: Mapping[str, Any], name: str) -> None:
    """Record that a VM is on no host any more."""
    _file(opts).change(lambda names_by_host: place_name(names_by_host, name, None))


def drop_unknown_hosts(opts: Mapping[str, Any], is_host: Callable[[str], bool]) -> None:
    """Drop the hints and rows of hosts that this master does not know any more."""
    lastlisted.drop_unknown_hosts(opts, is_host)
    _file(opts).change(
        lambda names_by_host: {
            host: names_by_host[host] for host in names_by_host if is_host(host)
        },
    )


def find_hosts(opts: Mapping[str, Any], name: str) -> list[str]:
    """Return the hosts on which a VM was last seen."""
    return [host for host, names in _file(opts).read().items() if name in names]


def read_all(opts: Mapping[str, Any]) -> NamesByHost:
    """Return ``{host: names}`` of the VMs that were last seen on each host."""
    return _file(opts).read()


def _file(opts: Mapping[str, Any]) -> JsonFile[NamesByHost]:
    return JsonFile(
        path=Path(opts.get("cachedir") or "/nowhere") / "salt-virt" / "hints.json",
        parse=lambda content: _sort_names(
            {host: set(names) for host, names in content["hosts"].items()}
        ),
        plain=lambda names_by_host: {"hosts": names_by_host},
        empty=dict,
    )
