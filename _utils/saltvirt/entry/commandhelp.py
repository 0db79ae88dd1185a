"""
The commands that operators type, by tasks in the order of a life, and how each is used.

The texts are those of docstrings: the runner's are read from its files, the hosts' from
:mod:`saltvirt.entry.hostcommandtexts`, as a master need not have the files of hosts. No host is
asked.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt.core import functiontext
from saltvirt.core.errors import BadArgument
from saltvirt.core.functiontext import FunctionText
from saltvirt.core.salt import lookonly
from saltvirt.entry import hostcommandtexts

_OTHERS = "Others"
# The title of each task, the runner's commands, and the hosts'; those of other modules than virt
# with their module.
_TASKS = (
    ("Try", "help setup_check next_host", "is_hyper get_hypervisor virt_type"),
    (
        "Deploy and remove",
        "init init_many clone purge undo undefine authorize unauthorize",
        "get_profiles define_xml_str define_xml_path create_xml_str create_xml_path seed.apply "
        "seed.mkconfig seed.prep_bootstrap",
    ),
    (
        "Every day",
        "status list query vm_info find start stop shutdown reboot reset pause resume console "
        "console_log ctrl_alt_del guest_info guest_exec vm_state vm_cputime vm_netstats "
        "vm_diskstats top get_disks get_nics get_macs get_graphics get_loader get_xml",
        "list_domains list_active_vms list_inactive_vms",
    ),
    (
        "Change",
        "update setmem setvcpus set_autostart hold rename disk_add disk_grow disk_remove nic_add "
        "nic_remove insert eject snapshot list_snapshots revert_snapshot delete_snapshots",
        "",
    ),
    (
        "Move",
        "migrate migrate_status migrate_cancel migrate_start_postcopy settle move_disk evacuate "
        "restore rebalance",
        "",
    ),
    (
        "Storage and images",
        "images image_pull image_prune image_build virt_image.minion_packages volume_delete "
        "volume_wipe volume_resize volume_upload trash trash_restore trash_put trash_empty",
        "list_pools pool_info pool_list_volumes pool_define pool_update pool_start pool_build "
        "pool_stop pool_refresh pool_set_autostart pool_undefine pool_delete pool_get_xml "
        "pool_capabilities volume_infos volume_define volume_clone volume_download "
        "define_vol_xml_str define_vol_xml_path qemu_img.make_image qemu_img.convert "
        "qemu_nbd.connect qemu_nbd.mount qemu_nbd.init qemu_nbd.clear guestfs.mount guestfs.umount",
    ),
    (
        "Hosts",
        "host_info allow disallow maintenance host_lost cell_job",
        "node_info freecpu freemem node_devices capabilities domain_capabilities all_capabilities "
        "cpu_baseline list_networks network_info network_define network_update network_start "
        "network_stop network_set_autostart network_undefine network_get_xml",
    ),
    (
        "Certificates",
        "virt_pki.list virt_pki.renew virt_pki.revoke virt_pki.rotate_ca virt_pki.export "
        "virt_pki.import",
        "",
    ),
    ("Troubles", "doctor audit", ""),
)
# Functions of hosts that the master calls, and that are of no use to operators.
_ANSWERS = ("virt_answers", "virt_answers_moves")
_FOR_MASTER = frozenset(
    f"virt.{name}"
    for name in (
        "doctor_facts doctor_mend setup_facts status_facts authorized evacuated load "
        "seed_non_shared_migrate"
    ).split()
)
_MOST_RELATED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """
    A command that operators type.

    task
        The title of its task.
    is_of_hosts
        Whether it is typed as ``salt HOST``, as the runner has none of that name.
    changes
        Whether it changes something.
    """

    text: FunctionText
    task: str
    is_of_hosts: bool
    changes: bool

    @property
    def usage(self) -> str:
        """What is typed."""
        program = "salt HOST" if self.is_of_hosts else "salt-run"
        return " ".join((program, self.text.name, *self.text.words))

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and its aliases."""
        return (self.text.name, *self.text.aliases)

    def has(self, pattern: re.Pattern[str]) -> bool:
        """Return whether its names, or its sentence, have what a pattern matches."""
        return any(map(pattern.search, (*self.names, self.text.sentence)))

    def is_called(self, word: str) -> bool:
        """Return whether this is its whole name, with or without the module."""
        return word in self.names or word in {name.partition(".")[2] for name in self.names}


def read_runner(folder: Path) -> dict[str, FunctionText]:
    """Return the runner's functions by name, from its files in a folder."""
    return _read_files(folder, lookonly.RUNNERS)


def read_hosts(folder: Path) -> dict[str, FunctionText]:
    """Return those functions of hosts that operators type, from the files in a folder."""
    runner_names = _names(lookonly.RUNNERS.values())
    files = [file for file in lookonly.MODULES if file not in _ANSWERS]
    return {
        name: text
        for name, text in _read_files(folder, files).items()
        if name not in runner_names | _FOR_MASTER
    }


def _read_files(folder: Path, files: Iterable[str]) -> dict[str, FunctionText]:
    out = {}
    for file in files:
        path = folder / f"{file}.py"
        if path.exists():
            texts = functiontext.read(path.read_text(encoding="utf-8"), file)
            out.update({text.name: text for text in texts})
    return out


def _names(functions: Iterable[lookonly.Functions]) -> frozenset[str]:
    return frozenset().union(*(row.looking() | row.changing() for row in functions))


def list_commands(folder: Path) -> list[Command]:
    """Return all commands in the order of their tasks; the runner's files are in a folder."""
    runner, hosts = read_runner(folder), hostcommandtexts.read()
    changing = frozenset().union(
        *(row.changing() for row in (*lookonly.RUNNERS.values(), *lookonly.MODULES.values()))
    )

    def of_task(task: str, texts: Mapping[str, FunctionText], words: str) -> Iterator[Command]:
        names = (word if "." in word else f"virt.{word}" for word in words.split())
        for text in filter(None, map(texts.get, names)):
            yield Command(
                text=text, task=task, is_of_hosts=texts is hosts, changes=text.name in changing
            )

    return [
        command
        for task, runner_names, host_names in (*_TASKS, *_others(runner, hosts))
        for command in (*of_task(task, runner, runner_names), *of_task(task, hosts, host_names))
    ]


def _others(
    runner: Mapping[str, FunctionText], hosts: Mapping[str, FunctionText]
) -> Iterator[tuple[str, str, str]]:
    """Yield a task with the functions that no task names, if there are some."""
    named = {
        word if "." in word else f"virt.{word}"
        for _task, *names in _TASKS
        for words in names
        for word in words.split()
    }
    others = [" ".join(name for name in texts if name not in named) for texts in (runner, hosts)]
    if any(others):
        yield (_OTHERS, others[0], others[1])


def report(folder: Path, word: str | None = None) -> dict[str, Any]:
    """
    Return the commands by task, those that have a word, or all about the one with that name.

    folder
        Where the runner's files are.

    Raises BadArgument if no command has the word.
    """
    commands = list_commands(folder)
    if word is None:
        return {"tasks": _by_task(commands)}
    called = next((command for command in commands if command.is_called(word)), None)
    if called is not None:
        return {"command": _describe(called), "related": _find_related(commands, called, word)}
    matches = _find_matches(commands, word)
    if not matches:
        raise BadArgument(
            "word", f"no command has {word!r} in its name or sentence; all: salt-run virt.help"
        )
    return {"tasks": _by_task(matches)}


def _at_start(word: str) -> re.Pattern[str]:
    """Return a pattern of a word at the beginning of words: "age" is in "agent", not in "image"."""
    return re.compile(rf"(?<![a-z0-9]){re.escape(word)}", re.IGNORECASE)


def _find_related(commands: Iterable[Command], called: Command, word: str) -> list[str]:
    """Return the other commands with such a name."""
    pattern = _at_start(word.rpartition(".")[2])
    others = (command for command in commands if command is not called)
    related = [row.text.name for row in others if any(map(pattern.search, row.names))]
    return related[:_MOST_RELATED]


def _find_matches(commands: Sequence[Command], word: str) -> list[Command]:
    """Return the commands with a word at the beginning of words; if there are none, anywhere."""
    matches = [command for command in commands if command.has(_at_start(word))]
    anywhere = re.compile(re.escape(word), re.IGNORECASE)
    return matches or [command for command in commands if command.has(anywhere)]


def _by_task(commands: Sequence[Command]) -> list[dict[str, Any]]:
    return [
        {
            "task": task,
            "commands": [
                {
                    "name": command.text.name,
                    "on": "hosts" if command.is_of_hosts else "master",
                    "changes": command.changes,
                    "does": command.text.sentence,
                }
                for command in commands
                if command.task == task
            ],
        }
        for task in dict.fromkeys(command.task for command in commands)
    ]


def _describe(command: Command) -> dict[str, Any]:
    """Return all that a docstring says of a command."""
    text = command.text
    remarks = [
        remark.replace(f"Undo: {text.undo}.", "").strip() if text.undo else remark
        for remark in text.remarks
    ]
    return {
        "name": text.name,
        "also": list(text.aliases),
        "usage": command.usage,
        "on": "hosts" if command.is_of_hosts else "master",
        "changes": command.changes,
        "does": text.sentence,
        "arguments": dict(text.about_arguments),
        "more": [remark for remark in remarks if remark],
        "examples": list(text.commands),
        "undo": text.undo,
    }
