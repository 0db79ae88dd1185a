"""
The table of the runner's commands on one VM: where each runs, what it needs, and its outcome.

The lists of functions that only look (:mod:`saltvirt.core.salt.lookonly`), that go on while the
master's configuration is broken (:mod:`saltvirt.cluster.masterconfig`), and that go to a VM's cell
(:mod:`saltvirt.cells.routes`) are derived from this table.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# The purposes of saltvirt.cluster.inventory.whereabouts that the commands of the table have.
_READ, _ACT, _REMOVE = "READ", "ACT", "REMOVE"
_TEXT, _MAPPING = str, dict[str, Any]
_DAY_S = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class VmCommand:
    """
    One command on a named VM.

    name
        What users type after ``virt.``.
    file
        The file below ``_runners``; empty for a planned command, which no file has yet.
    aliases
        Other names of the same command.
    only_looks
        Whether it changes nothing.
    is_quick
        Whether it only looks, and ends in seconds; a cell then answers it at once.
    purpose
        What the VM is located for: a name of :class:`Purpose`.
    vm_argument
        The runner's argument with the VM's name. Defaults to ``name``.
    outcome
        What has become of the VM, as a participle that "would be" can precede.
    would
        What a dry run returns. Defaults to "would be" with the outcome.
    already
        ``{state: outcome}`` of the states in which there is nothing to do.
    refused
        ``{state: reason}`` of the states in which the command fails; ``{vm}`` stands for the name
        in a command.
    remarks
        ``{state: what is added to the outcome}`` of the states that need an advice, as ``refused``.
    awaits
        The state in which the VM is once its guest has obeyed; the command waits for it. Defaults
        to none: the command does not wait.
    answer
        The type of the host's answer, which the runner returns instead of the outcome. Defaults to
        None: the answer says nothing.
    empty
        The text by which the host answers an empty list, which the runner returns. Defaults to
        none.
    is_by_name
        Whether the host's answer is a mapping from the VM's name to what is returned.
    keeps_lines
        Whether the texts of the answer keep their lines.
    keeps_failure
        Whether an answer with a non-zero exit code is returned beside the error.
    takes_several
        Whether it takes several VMs.
    asks_all_hosts
        Whether all hosts are asked about shared files before the host acts.
    progress_tag
        The tag of the host's events with its progress. Defaults to none: it reports nothing.
    limit_s
        How many seconds the host may take. Defaults to 0: ``virt:deploy_timeout_s``.
    dry_argument
        The argument with which the host itself makes a dry run. Defaults to none: the master only
        locates the VM.
    keywords
        Further keyword arguments for the host, separated by blanks. Others are refused, so that no
        caller passes ``connection`` or ``replies`` to a host.
    for_one_vm
        Those of the keywords that are refused for several VMs.
    """

    name: str
    file: str = ""
    aliases: tuple[str, ...] = ()
    only_looks: bool = False
    is_quick: bool = False
    purpose: str = _ACT
    vm_argument: str = "name"
    outcome: str = ""
    would: str = ""
    already: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)
    awaits: str = ""
    answer: Any = None
    empty: str = ""
    is_by_name: bool = False
    keeps_lines: bool = False
    keeps_failure: bool = False
    takes_several: bool = False
    asks_all_hosts: bool = False
    progress_tag: str = ""
    limit_s: int = 0
    dry_argument: str = ""
    keywords: str = ""
    for_one_vm: str = ""

    @property
    def function(self) -> str:
        """The function, of the runner and of the hosts, such as ``virt.start``."""
        return f"virt.{self.name}"

    @property
    def names(self) -> tuple[str, ...]:
        """The name and its aliases."""
        return (self.name, *self.aliases)

    @property
    def dry_outcome(self) -> str:
        """What a dry run returns if the host makes none."""
        return self.would or f"would be {self.outcome}"


def _look(name: str, file: str, answer: Any = _MAPPING, **fields: Any) -> VmCommand:
    return VmCommand(
        name=name,
        file=file,
        answer=answer,
        only_looks=True,
        purpose=_READ,
        **{"is_quick": True, "takes_several": True, **fields},
    )


def _change(name: str, file: str, outcome: str, **fields: Any) -> VmCommand:
    return VmCommand(name=name, file=file, outcome=outcome, takes_several=True, **fields)


def _device(name: str, keywords: str = "", **fields: Any) -> VmCommand:
    return VmCommand(
        name=name,
        file="virt_device",
        answer=_MAPPING,
        dry_argument="test",
        keywords=keywords,
        **fields,
    )


_IS_OFF = {"shutdown": "is not running; start it: salt-run virt.start {vm}"}
_HAS_CRASHED = {
    "crashed": "has crashed, and is kept as it was then; end it: salt-run virt.stop {vm}; then "
    "start it"
}
_RESUME = "let it go on: salt-run virt.resume {vm}"
_UPDATES = (
    "cpu mem disk_profile disks nic_profile interfaces graphics live boot numatune boot_dev "
    "hypervisor_features clock serials consoles stop_on_reboot host_devices autostart detach"
)
_DISK_KEYS = (
    "live image image_hash pool format model source_file device io iothread_id overlay_image "
    "backing_store_path backing_store_format"
)
_NIC_KEYS = (
    "live type source bridge network mac model vlan filter portgroup mode virtualport bandwidth "
    "queues mtu"
)
_ROWS = (
    # Power.
    _change(
        "start",
        "virt",
        "started",
        already={"running": "already running; nothing was done"},
        refused={"paused": f"is paused; {_RESUME}", **_HAS_CRASHED},
    ),
    _change(
        "stop",
        "virt",
        "stopped at once, by pulling its plug",
        aliases=("force_off",),
        already={"shutdown": "already off; nothing was done"},
    ),
    _change(
        "shutdown",
        "virt",
        "asked to shut down",
        already={"shutdown": "already off; nothing was done"},
        refused={
            "paused": f"is paused, so its guest cannot shut down; {_RESUME}; or pull its plug: "
            "salt-run virt.stop {vm}",
            **_HAS_CRASHED,
        },
        awaits="shutdown",
    ),
    _change(
        "reboot",
        "virt_act",
        "asked to reboot; its guest may ignore that",
        would="would be asked to reboot",
        refused={
            "paused": f"is paused, so its guest cannot reboot; {_RESUME}",
            **_IS_OFF,
            **_HAS_CRASHED,
        },
    ),
    _change(
        "reset",
        "virt",
        "reset at once, without asking its guest",
        refused=_IS_OFF,
        remarks={"paused": f"; it is paused all the same; {_RESUME}"},
    ),
    _change(
        "pause",
        "virt",
        "paused",
        already={"paused": "already paused; nothing was done"},
        refused={**_IS_OFF, **_HAS_CRASHED},
    ),
    _change(
        "resume",
        "virt",
        "resumed",
        already={"running": "already running; nothing was done"},
        refused={**_IS_OFF, **_HAS_CRASHED},
    ),
    _change(
        "ctrl_alt_del",
        "virt_act",
        "sent Ctrl-Alt-Del",
        refused={
            "paused": f"is paused, so its guest gets no keys; {_RESUME}",
            **_IS_OFF,
            **_HAS_CRASHED,
        },
    ),
    # Definition.
    _change(
        "update",
        "virt_act",
        "updated",
        answer=_MAPPING,
        keeps_lines=True,
        dry_argument="test",
        keywords=_UPDATES,
        for_one_vm="disks interfaces graphics host_devices",
    ),
    _change("setmem", "virt_act", "given that memory"),
    _change("setvcpus", "virt_act", "given these CPUs"),
    _change("set_autostart", "virt_act", "set to start with its host"),
    _change("hold", "virt_act", "held"),
    VmCommand(name="undefine", file="virt_act", outcome="undefined", purpose=_REMOVE),
    # Single devices.
    _device("disk_add", _DISK_KEYS),
    _device("disk_grow"),
    _device("disk_remove", "live", asks_all_hosts=True),
    _device(
        "move_disk",
        asks_all_hosts=True,
        progress_tag="salt/virt/move_disk",
        limit_s=_DAY_S,
    ),
    _device("nic_add", _NIC_KEYS),
    _device("nic_remove", "live"),
    _device("eject", "live"),
    _device("insert", "live"),
    # Snapshots.
    _change("snapshot", "virt_act", "", answer=_MAPPING, would="would get a snapshot"),
    _look(
        "list_snapshots",
        "virt_details",
        Any,
        aliases=("snapshots",),
        empty="N/A",
        is_by_name=True,
    ),
    VmCommand(
        name="delete_snapshots",
        file="virt_files",
        answer=_MAPPING,
        would="would lose these snapshots",
        asks_all_hosts=True,
        keywords="all",
    ),
    VmCommand(
        name="revert_snapshot",
        file="virt_files",
        aliases=("revert",),
        answer=_MAPPING,
        would="would be reverted",
        asks_all_hosts=True,
        keywords="cleanup",
    ),
    # The guest.
    _look("guest_info", "virt_guest", is_quick=False),
    _change(
        "guest_exec",
        "virt_guest",
        "",
        answer=_MAPPING,
        keeps_lines=True,
        keeps_failure=True,
        would="its guest would run the command",
        keywords="stdin timeout_s output_bytes",
    ),
    # What the host knows of the VM.
    _look("vm_info", "virt_vm", takes_several=False),
    _look("console_log", "virt_vm", _TEXT, takes_several=False),
    _look("vm_state", "virt_details", _TEXT, is_by_name=True),
    _look("get_xml", "virt_details", _TEXT, takes_several=False),
    _look("get_disks", "virt_details"),
    _look("get_nics", "virt_details"),
    _look("get_macs", "virt_details", list[str]),
    _look("get_graphics", "virt_details"),
    _look("get_loader", "virt_details"),
    _look("vm_cputime", "virt_details", is_by_name=True),
    _look("vm_netstats", "virt_details", is_by_name=True),
    _look("vm_diskstats", "virt_details", is_by_name=True),
    _look("migrate_status", "virt_details"),
    # A move under way.
    _change("migrate_cancel", "virt_act", "told to stay where it is"),
    _change("migrate_start_postcopy", "virt_act", "switched to post-copy"),
    # Commands with protocols of their own.
    VmCommand(name="purge", file="virt", outcome="purged", purpose=_REMOVE),
    VmCommand(name="migrate", file="virt_migrate"),
    VmCommand(name="settle", file="virt_migrate"),
    VmCommand(name="clone", file="virt_clone", vm_argument="source"),
    VmCommand(name="rename", file="virt_rename", outcome="renamed", purpose=_REMOVE),
)
# By the name that users type after the dot, without aliases.
COMMANDS: Mapping[str, VmCommand] = {row.name: row for row in _ROWS}


def of_file(file: str, *, only_looks: bool) -> str:
    """Return the names, separated by blanks, of a file's commands that look, or of the others."""
    return " ".join(
        name
        for row in COMMANDS.values()
        if row.file == file and row.only_looks == only_looks
        for name in row.names
    )


def existing() -> Iterator[VmCommand]:
    """Yield the commands that are not only planned."""
    yield from (row for row in COMMANDS.values() if row.file)


def looking() -> frozenset[str]:
    """Return the functions that only look, such as ``virt.vm_info``, without aliases."""
    return frozenset(row.function for row in existing() if row.only_looks)


def quick() -> frozenset[str]:
    """Return the functions that only look and end in seconds, without aliases."""
    return frozenset(row.function for row in existing() if row.is_quick)


def vm_arguments() -> dict[str, str]:
    """Return ``{function: its argument with the VM's name}``, also of planned commands."""
    return {row.function: row.vm_argument for row in COMMANDS.values()}


def several_names(value: object) -> list[str]:
    """
    Return the names and globs of a call's name that means several VMs; empty for one VM.

    Several VMs are a list, or a text with a wildcard. A text with commas is one name: Salt's ACLs
    match a text by its beginning, so that a list within a text would let callers act on VMs that
    the ACL does not name.
    """
    if isinstance(value, list | tuple):
        return [str(item) for item in value]
    return [value] if isinstance(value, str) and is_glob(value) else []


def is_of_several(value: object) -> bool:
    """Return whether a call's name means several VMs; an empty list does, too."""
    return isinstance(value, list | tuple) or bool(several_names(value))


def is_glob(text: str) -> bool:
    """Return whether a text has a wildcard of a glob."""
    return any(sign in text for sign in "*?[")


def literal_start(text: str) -> str:
    """Return what a text has before its first wildcard."""
    return re.split(r"[*?[]", text, maxsplit=1)[0]
