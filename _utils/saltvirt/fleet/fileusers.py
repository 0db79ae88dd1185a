"""
Ask all hosts who needs files on storage that they share, before one of them removes or spoils any.

A host never says of such a file that it is free. Its answer to an order that brings nothing of the
others is the list of files to ask about; the order that follows brings what they said.
"""

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from saltvirt import arguments, terminal, wire
from saltvirt.errors import MasterError
from saltvirt.fleet import inventory
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.hosts import DeployError, act
from saltvirt.placement.answers import ASK, FileUsers

FUN = "virt.file_users"
# No host has so many files to remove at once; of each, all others look through all that they have.
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
) -> Any:
    """
    Have a host do what can spoil files, after all hosts were asked about those that they share.

    force
        Do it though a host is silent: what the host is in doubt about goes into its trash, if it is
        a file that is removed. Defaults to False.

    Raises MasterError, with nothing changed, if a host that may need a file does not answer, and
    DeployError if the host refuses, or asks about further files time and again.
    """
    forced = arguments.boolean("force", force)
    given = dict(kwarg or {})
    replies: dict[str, Any] = {}
    asked: list[str] = []
    # A host may find out about further files only once those before them are known to be free.
    for _ in range(_ROUNDS):
        reply = act(cloud, host, fun, *args, kwarg={**given, "replies": replies})
        paths = _to_ask(host, fun, reply)
        if not paths:
            return reply
        asked = sorted({*asked, *paths})
        replies = ask(cloud, host, asked, force=forced)
    raise DeployError(_asks_again(host, asked))


def refuse_unasked(host: str, fun: str, reply: object) -> None:
    """Raise DeployError if a host did nothing, as it asks about further files."""
    paths = _to_ask(host, fun, reply)
    if paths:
        raise DeployError(_asks_again(host, paths))


def _asks_again(host: str, paths: Sequence[str]) -> str:
    return (
        f"{host} has changed nothing, as it asks for further files on storage that other hosts see "
        f"({terminal.some(paths)}); run the command again, and if that is said again, rename there "
        "what has a name with characters that cannot be shown"
    )


def _to_ask(host: str, fun: str, reply: object) -> list[str]:
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
    Return ``{"free", "used", "doubts"}`` of files, as all hosts but one say.

    uuid
        A VM whose definitions elsewhere need nothing: it is the one that is removed.
    force
        Take a silent host for one that is in doubt. Defaults to False: MasterError.
    """
    if len(paths) > _MOST_PATHS:
        raise MasterError(
            f"{host} names {len(paths):,} files to ask all hosts about, and nothing is changed: "
            f"{_MOST_PATHS:,} is the most; find out what {host} says, and why"
        )
    others = [one for one in inventory.allowed(cloud) if one != host]
    cloud.progress("Asking", detail=f"{terminal.counted(len(others), 'host')} who needs its files")
    found = inventory.survey(cloud, others, FUN, [sorted(paths)], {"uuid": uuid})
    silent = found.reasons()
    if silent and not force:
        raise MasterError(_silent(host, paths, silent))
    return decide(paths, found.answers, silent)


def decide(
    paths: Collection[str], answers: Mapping[str, Mapping[str, FileUsers]], silent: Collection[str]
) -> dict[str, Any]:
    """
    Return which files are free, used and in doubt, by what the other hosts answered.

    A file that a host's answer leaves out is in doubt.
    """
    wanted = set(paths)
    used: dict[str, str] = {}
    doubts: dict[str, str] = {}
    for host, known in sorted(answers.items()):
        for path, users in known.items():
            if path in wanted and users.used_by:
                used.setdefault(path, f"{host}: {users.used_by[0]}")
            elif path in wanted and users.doubts:
                doubts.setdefault(path, f"{host}: {users.doubts[0]}")
        for path in wanted.difference(known):
            doubts.setdefault(path, f"{host}: its answer does not name the file")
    for path in paths if silent else ():
        doubts.setdefault(path, f"{', '.join(sorted(silent))} cannot be asked, and may need it")
    doubts = {path: reason for path, reason in doubts.items() if path not in used}
    free = sorted(wanted.difference(used, doubts))
    return {"free": free, "used": used, "doubts": doubts}


def _silent(host: str, paths: Collection[str], silent: Mapping[str, str]) -> str:
    listed = terminal.some(sorted(paths))
    names = ", ".join(sorted(silent))
    lost = sorted(silent)[0]
    return (
        f"{listed} on {host} is on storage that other hosts see, and {names} may need it and "
        "cannot be asked, so nothing is changed; wait until all hosts answer; if a host is lost: "
        f"salt-run virt.disallow {shlex.quote(lost)}; or if none of its VMs needs the files, give "
        "force=True"
    )
