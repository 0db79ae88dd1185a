"""Show, restore and empty the trash of all hosts."""

from typing import Any

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc.hostcommands import act
from saltvirt.core import wire
from saltvirt.core.errors import BadArgument, VirtError


class NotAllEmptied(VirtError):
    """The trash of some hosts was not emptied; ``table`` says which, and what was removed."""


def list_trash(cloud: Cloud, host: str | None) -> dict[str, Any]:
    """Return ``{host: {entry: {...}}}`` of the hosts with entries, and the unresponsive hosts."""
    survey = inventory.survey(cloud, inventory.hosts(cloud, host=host), "virt.trash")
    if not survey.answers:
        raise survey.silence()
    return {
        **{trash_host: entries for trash_host, entries in survey.answers.items() if entries},
        **survey.beside(),
    }


def restore_trash(cloud: Cloud, host: str, entry: str) -> dict[str, Any]:
    """Restore an entry on its host; return ``{host: {"files", "definition"}}``."""
    host = inventory.require_host(cloud, host)
    answer = act(cloud, host, "virt.trash_restore", entry)
    return {host: wire.read(host, "virt.trash_restore", dict[str, Any], answer)}


def empty_trash(
    cloud: Cloud, host: str | None, entries: tuple[object, ...]
) -> dict[str, dict[str, int]]:
    """
    Remove entries of one host, or of all, for good; return ``{host: {entry: bytes}}``.

    Raises NotAllEmptied, with the same data, if a host fails; the others are emptied all the same.
    """
    if entries and host is None:
        raise BadArgument("host", "say on which host these entries are")
    out, failed = {}, {}
    for trash_host in inventory.hosts(cloud, host=host):
        try:
            answer = act(cloud, trash_host, "virt.trash_empty", *entries)
            out[trash_host] = wire.read(trash_host, "virt.trash_empty", dict[str, int], answer)
        except VirtError as error:
            failed[trash_host] = str(error)
    emptied = {trash_host: freed for trash_host, freed in out.items() if freed}
    if failed:
        short = NotAllEmptied("; ".join(failed.values()))
        short.table = {"emptied": emptied, "failed": failed}
        raise short
    return emptied
