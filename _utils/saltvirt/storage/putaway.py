"""Move a file that no VM has into the trash by hand: ``virt.trash_put``."""

import shlex
from pathlib import Path
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument, StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import reservations
from saltvirt.storage import ownermark, policies, sharing, trash, usage
from saltvirt.storage.sharing import OtherHostsUsage


def put(
    conn: Any, settings: HostSettings, path: object, other_hosts: OtherHostsUsage | None = None
) -> dict[str, Any]:
    """
    Move a file into the trash, if nothing uses it; return ``{"entry", "undo"}``.

    other_hosts
        The other hosts' answers about a file on shared storage. Their doubts do not keep the file,
        as the trash can restore it. Defaults to no answers.

    Raises StorageError, with nothing changed, if the file is used, or if this host cannot tell;
    :class:`saltvirt.storage.sharing.AskAll` if the master has to ask the other hosts first.
    """
    file = _regular_file(path)
    owner = ownermark.read_owner(file)
    vm = owner.vm if owner else file.stem
    with reservations.host_lock(settings):
        index = usage.index(
            conn,
            settings,
            beside_files=[str(file)],
            removed_files=[str(file)],
            other_hosts=other_hosts,
        )
        if str(file) in reservations.list_files(settings):
            raise StorageError(f"{file} stays: a record names it; salt-run virt.settle ends that")
        for policy in (policies.LOOSE, policies.DELETE):
            verdict = index.verdict(policy, str(file))
            sharing.refuse_unasked(
                [verdict],
                "nothing is moved",
                f"salt-run virt.trash_put HOST {shlex.quote(str(file))}",
            )
            verdict.without_doubt(policies.UNSURE).refuse(f"{file} stays")
        with trash.fill_trash(
            settings,
            vm,
            reason="virt.trash_put",
            uuid=owner.uuid if owner else None,
            days=trash.settled_days(settings),
        ) as put_away:
            put_away(verdict)
    entry = put_away.entry
    return {"entry": entry, "undo": f"virt.trash_restore {shlex.quote(entry)}"}


def refuse_needed(
    conn: Any,
    settings: HostSettings,
    path: object,
    vm: str,
    ask_all: str,
    other_hosts: OtherHostsUsage | None = None,
) -> None:
    """
    Raise StorageError if something beside a VM needs a file that the VM is to lose.

    ask_all
        The command on the master that asks all hosts.
    other_hosts
        As in :func:`put`, which checks the file again once the VM has lost it.

    Raises :class:`saltvirt.storage.sharing.AskAll` if the master has to ask the other hosts first.
    """
    file = _regular_file(path)
    with reservations.host_lock(settings):
        index = usage.index(
            conn,
            settings,
            excluded_vms=[vm],
            beside_files=[str(file)],
            removed_files=[str(file)],
            other_hosts=other_hosts,
        )
        verdict = index.verdict(policies.DELETE, str(file))
    sharing.refuse_unasked([verdict], "nothing is changed", ask_all)
    verdict.without_doubt(policies.UNSURE).refuse(f"{file} has to stay, so nothing is changed")


def _regular_file(path: object) -> Path:
    file = Path(arguments.text("path", path))
    if not file.is_absolute() or not file.is_file() or file.is_symlink():
        raise BadArgument("path", f"{file} is not a regular file of this host")
    return file
