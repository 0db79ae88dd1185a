"""
How VMs were in the last whole list: their state and sizes, to show while their host is silent.

No command goes by these: which VMs a host had, and whose names stay taken, are the hints of
:mod:`saltvirt.cluster.inventory.lastseen`.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from saltvirt.core import wire
from saltvirt.core.jsonfile import JsonFile
from saltvirt.placement.shownvms import ListedVm

RowsByName = dict[str, ListedVm]
# A host that invents VMs must not fill the master's disk.
_MAX_ROWS_PER_HOST = 4096


def remember(opts: Mapping[str, Any], rows_by_host: Mapping[str, RowsByName]) -> None:
    """Keep how the VMs of some hosts were, for lists while these hosts do not answer."""

    def change(before: Mapping[str, RowsByName]) -> dict[str, RowsByName]:
        kept = {
            host: dict(sorted(rows.items())[:_MAX_ROWS_PER_HOST])
            for host, rows in rows_by_host.items()
        }
        return {host: rows for host, rows in sorted({**before, **kept}.items()) if rows}

    if rows_by_host:
        _file(opts).change(change)


def read(opts: Mapping[str, Any], hosts: Iterable[str]) -> dict[str, RowsByName]:
    """Return ``{host: {name: ListedVm}}`` of these hosts, as they were last listed."""
    wanted_hosts = set(hosts)
    if not wanted_hosts:
        return {}
    rows_by_host = _file(opts).read()
    return {host: rows for host, rows in rows_by_host.items() if host in wanted_hosts}


def drop_unknown_hosts(opts: Mapping[str, Any], is_host: Callable[[str], bool]) -> None:
    """Drop the rows of hosts that this master does not know any more."""
    _file(opts).change(
        lambda rows_by_host: {host: rows for host, rows in rows_by_host.items() if is_host(host)}
    )


def _file(opts: Mapping[str, Any]) -> JsonFile[dict[str, RowsByName]]:
    return JsonFile(
        path=Path(opts.get("cachedir") or "/nowhere") / "salt-virt" / "listed.json",
        parse=lambda content: wire.read_recorded(dict[str, RowsByName], content["hosts"]),
        plain=lambda rows_by_host: {"hosts": wire.plain(rows_by_host)},
        empty=dict,
    )
