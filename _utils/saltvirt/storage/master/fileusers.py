"""
Ask all hosts whether they need files on shared storage, before one host removes or spoils any.

A host alone never decides that such a file is free. Without the other hosts' replies a host
answers an order with the list of files to ask about; the next order passes these replies.
"""

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed, act
from saltvirt.core import arguments, terminal, wire
from saltvirt.core.errors import MasterError
from saltvirt.placement.answers import ASK, FileUsers

FUN = "virt.file_users"
# No host removes so many files at once; for each, all other hosts search all that they have.
_MOST_PATHS = 10_000
# How often a host may ask about further files.
_ROUNDS = 4


def order(
    cloud: Cloud,
    host: str,
    fun: str,
    args: Sequence[Any],
    kwarg: Mapping[str, Any] | None = None,
    *,
    force: object = False,
    watch: minions.Watch | None = None,
    limit_s: float | None = None,
) -> Any:
    """
    Have a host do what can spoil files, after asking all other hosts about shared files.

    force
        Proceed although a host is unresponsive: a file in doubt goes to the trash instead of being
        removed. Defaults to False.
    watch, limit_s
        As those of :func:`saltvirt.cluster.rpc.hostcommands.act`.

    Raises MasterError, with nothing changed, if a host that may need a file does not answer, and
    HostCommandFailed if the host refuses, or keeps asking about further files.
    """
    is_forced = arguments.boolean("force", force)
    options = dict(kwarg or {})
    replies: dict[str, Any] = {}
    asked_paths: list[str] = []
    # A host may find further files only after the first ones are known to be free.
    for _ in range(_ROUNDS):
        kwargs = {**options, "replies": replies}
        reply = act(cloud, host, fun, *args, kwarg=kwargs, watch=watch, limit_s=limit_s)
        paths = _paths_to_ask(host, fun, reply)
        if not paths:
            return reply
        asked_paths = sorted({*asked_paths, *paths})
        replies = ask(cloud, host, asked_paths, force=is_forced)
    raise HostCommandFailed(_asks_again_message(host, asked_paths))


def refuse_unasked(host: str, fun: str, reply: object) -> None:
    """Raise HostCommandFailed if a host did nothing, as it asks about further files."""
    paths = _paths_to_ask(host, fun, reply)
    if paths:
        raise HostCommandFailed(_asks_again_message(host, paths))


def _asks_again_message(host: str, paths: Sequence[str]) -> str:
    return (
        f"{host} has changed nothing, as it asks for further files on storage that other hosts see "
        f"({terminal.join_some(paths)}); run the command again; if it fails again, rename the "
        "files there whose names have characters that cannot be shown"
    )


def _paths_to_ask(host: str, fun: str, reply: object) -> list[str]:
    if not isinstance(reply, dict) or ASK not in reply:
        return []
    paths: list[str] = wire.read(host, fun, list[str], reply[ASK])
    return paths


def ask(
    cloud: Cloud,
    host: str,
    paths: Collection[str],
    *,
    uuid: str | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """
    Return ``{"free", "used", "doubts"}`` of a host's files, by all other hosts' answers.

    uuid
        The VM that is removed: its definitions on other hosts do not count.
    force
        Count an unresponsive host as in doubt. Defaults to False: raise MasterError.
    """
    if len(paths) > _MOST_PATHS:
        raise MasterError(
            f"{host} names {len(paths):,} files to ask all hosts about, and nothing is changed: "
            f"{_MOST_PATHS:,} is the most; see on {host} why it names so many"
        )
    other_hosts = [
        other_host for other_host in inventory.allowed_hosts(cloud) if other_host != host
    ]
    cloud.progress(
        "Asking", detail=f"{terminal.count_text(len(other_hosts), 'host')} who needs its files"
    )
    survey = inventory.survey(cloud, other_hosts, FUN, [sorted(paths)], {"uuid": uuid})
    unresponsive_hosts = survey.reasons()
    if unresponsive_hosts and not force:
        raise MasterError(_unresponsive_message(host, paths, unresponsive_hosts))
    return decide(paths, survey.answers, unresponsive_hosts)


def decide(
    paths: Collection[str],
    answers: Mapping[str, Mapping[str, FileUsers]],
    unresponsive_hosts: Collection[str],
) -> dict[str, Any]:
    """
    Return the files that are free, used and in doubt, by the other hosts' answers.

    A file that an answer omits is in doubt.
    """
    requested_paths = set(paths)
    use_by_path: dict[str, str] = {}
    doubts: dict[str, str] = {}
    for host, users_by_path in sorted(answers.items()):
        for path, users in users_by_path.items():
            if path in requested_paths and users.used_by:
                use_by_path.setdefault(path, f"{host}: {users.used_by[0]}")
            elif path in requested_paths and users.doubts:
                doubts.setdefault(path, f"{host}: {users.doubts[0]}")
        for path in requested_paths.difference(users_by_path):
            doubts.setdefault(path, f"{host}: its answer does not name the file")
    for path in paths if unresponsive_hosts else ():
        doubts.setdefault(
            path, f"{', '.join(sorted(unresponsive_hosts))} cannot be asked, and may need it"
        )
    doubts = {path: reason for path, reason in doubts.items() if path not in use_by_path}
    free_paths = sorted(requested_paths.difference(use_by_path, doubts))
    return {"free": free_paths, "used": use_by_path, "doubts": doubts}


def _unresponsive_message(
    host: str, paths: Collection[str], unresponsive_hosts: Mapping[str, str]
) -> str:
    paths_text = terminal.join_some(sorted(paths))
    names = ", ".join(sorted(unresponsive_hosts))
    lost_host = sorted(unresponsive_hosts)[0]
    return (
        f"{paths_text} on {host} is on storage that other hosts see, and {names} may need it and "
        "cannot be asked, so nothing is changed; wait until all hosts answer; if a host is lost: "
        f"salt-run virt.host_lost {shlex.quote(lost_host)}; or if none of its VMs needs the files, "
        "give force=True"
    )
