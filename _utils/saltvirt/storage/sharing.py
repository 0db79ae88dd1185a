"""
Storage that other hosts see: one host alone never calls a file there free.

A call on the host refuses, and names the runner on the master that asks all hosts. The master's
order passes their answers on (:class:`OtherHostsUsage`), or learns which files to ask about.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from saltvirt.core import arguments, mountinfo, terminal
from saltvirt.core.errors import StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.placement.answers import ASK
from saltvirt.storage import diskpaths
from saltvirt.storage.verdict import Verdict

# The end of a remedy that names the command on the master.
UNLESS_OWN = "; or if no other host sees its folder, list that in virt:own_paths"
_KEYS = ("free", "used", "doubts")
# Network and cluster file systems. A FUSE file system may be one.
_NETWORKED = {
    *("nfs", "nfs4", "cifs", "smb3", "ceph", "gfs2", "ocfs2", "gpfs", "lustre", "afs", "9p"),
    *("fuse", "fuseblk", "virtiofs", "glusterfs", "beegfs", "orangefs"),
}
# The number of hosts that a message names.
_MAX_NAMED_HOSTS = 10
_Answer = TypeVar("_Answer")


class AskAll(StorageError):
    """Other hosts may use files; :attr:`paths` are the files they were not asked about."""

    def __init__(self, message: str, paths: list[str]) -> None:
        super().__init__(message)
        self.paths = paths


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherHostsUsage:
    """
    The other hosts' answers about files, as the master passes them on.

    free
        Files that no other host uses.
    used
        ``{path: reason}`` of files that another host uses.
    doubts
        ``{path: reason}`` of files that another host is unsure about.
    """

    free: frozenset[str] = frozenset()
    used: Mapping[str, str] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)

    def is_told(self, path: str) -> bool:
        """Return whether the other hosts were asked about a file."""
        return path in self.free or path in self.used or path in self.doubts


def usage_from_replies(replies: object) -> OtherHostsUsage:
    """Return the other hosts' answers that the master's order passes on; empty without replies."""
    values = arguments.mapping("replies", replies) or {}
    arguments.refuse_unknown_keys("replies", values, set(_KEYS))
    return OtherHostsUsage(
        free=frozenset(arguments.paths("replies", values.get("free") or [])),
        used=arguments.mapping("replies", values.get("used")) or {},
        doubts=arguments.mapping("replies", values.get("doubts")) or {},
    )


def run_or_ask(
    replies: object, work: Callable[[OtherHostsUsage], _Answer]
) -> _Answer | dict[str, Any]:
    """
    Return the result of ``work``, or the files that the master has to ask all hosts about first.

    replies
        What the master's order passes on; None for a call on the host, which raises AskAll instead.
    """
    try:
        return work(usage_from_replies(replies))
    except AskAll as error:
        if replies is None:
            raise
        return {ASK: error.paths}


def refuse_unasked(verdicts: Iterable[Verdict], outcome: str, ask_all: str) -> None:
    """
    Raise AskAll if the other hosts were not asked about a file on storage that they see.

    outcome
        What is not done, as in ``nothing is removed``.
    ask_all
        The command on the master that asks all hosts.
    """
    paths = [name for verdict in verdicts for name in verdict.unasked]
    if paths:
        raise AskAll(
            f"{outcome}: {', '.join(paths)} is on storage that other hosts see, and VMs there may "
            f"need it; this host cannot tell; ask all hosts: {ask_all}{UNLESS_OWN}",
            paths,
        )


def refuse_unseen_users(
    context: Context, path: str | None, vm: str, disk_name: str, subject: str
) -> None:
    """
    Raise StorageError if VMs of other hosts may have a file or a volume that a new VM is to take.

    path
        Its path, None for a volume without a path, which hosts may share.
    disk_name
        Its name by the pattern ``VM_DISK``, which may be that of another VM's disk.
    subject
        The file or volume in messages, as in ``volume p/v is there already``.
    """
    if path is not None and not is_shared(context.settings, path):
        return
    if path is not None and not context.is_ordered:
        raise StorageError(
            f"{subject}, on storage that other hosts see, and this host cannot tell whether one of "
            "their VMs has it; salt-run virt.init asks all hosts, or give it as source_file"
        )
    if context.hosts_without_names:
        hosts = terminal.join_some(context.hosts_without_names, _MAX_NAMED_HOSTS)
        raise StorageError(
            f"{subject}, on storage that other hosts see, and {hosts} may have a VM with it and "
            "cannot be asked; wait until all answer, or, if you know that they have no such VM, "
            "give force=True"
        )
    other_vms = context.namesakes(vm, disk_name)
    if other_vms:
        raise StorageError(
            f"{subject}, and by its name it may be a disk of VM "
            f"{' or '.join(map(repr, other_vms))} on another host; choose another name for the "
            "disk, or for the VM, or give it as source_file"
        )


def is_shared(settings: HostSettings, path: str | Path) -> bool:
    """
    Return whether other hosts see a file: by ``virt:shared_paths``, or by its file system.

    ``virt:own_paths`` overrides the file system, for network storage that only this host uses.
    """
    if diskpaths.is_declared(settings, str(path)):
        return True
    return _is_networked(Path(path)) and not diskpaths.is_below(str(path), settings.own_paths)


def _is_networked(path: Path) -> bool:
    if not path.is_absolute():
        return False
    # Root may not search a folder on NFS; its parent is nearly always on the same file system.
    while not os.path.exists(path):
        path = path.parent
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    # A btrfs subvolume has another device number than its mount, and is local.
    return _file_systems_by_device().get(number, "").partition(".")[0] in _NETWORKED


def _file_systems_by_device() -> dict[str, str]:
    """Return ``{device: kind of file system}`` of the mounts."""
    return {mount.device: mount.kind for mount in mountinfo.mounts()}
