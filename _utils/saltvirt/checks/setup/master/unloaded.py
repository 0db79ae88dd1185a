"""Judge hosts without a usable answer, by Salt's own reply and the cached grains."""

import shlex
from collections.abc import Mapping
from typing import Any

from saltvirt.checks.setup.master.gaps import Gap
from saltvirt.checks.setup.master.hostchecks import unchecked_gap
from saltvirt.checks.setup.master.masterchecks import is_old
from saltvirt.cluster.rpc.replies import NO_ANSWER
from saltvirt.core.findings import apply_command

# Our modules' message on a minion without libvirt's Python module.
_NO_BINDING = "the Python module 'libvirt' is missing"
# Salt's messages about a function that is not loaded.
_NOT_LOADED = ("is not available", "__virtual__ returned False")
_OLDEST_PYTHON = (3, 10)


def gap(
    host: str, reason: str | None, answer: str | None, grains: Mapping[str, Any], *, is_synced: bool
) -> Gap:
    """
    Return the gap of a host without a usable answer.

    reason
        Why its signed answer cannot be used: another release, or a forgery.
    answer
        Its reply in Salt's words, unsigned unless it equals ``reason``; None if it is unresponsive.
    grains
        Its cached grains; any may be missing.
    is_synced
        Whether minions get this project by the file server, and not by pip.
    """
    name = shlex.quote(host)
    if answer is None:
        return Gap(
            check="silent",
            where=host,
            what=NO_ANSWER,
            fix=f"on {host}: systemctl restart salt-minion; then salt {name} test.ping",
        )
    if _NO_BINDING in answer:
        return Gap(
            check="packages",
            where=host,
            what="libvirt's Python module is missing there, so virt is not loaded",
            fix=apply_command(host, "hypervisor.packages"),
        )
    if answer != reason:  # unsigned: any minion may have sent it
        answer = f"in its name, not proved: {answer}"
    if not any(words in answer for words in _NOT_LOADED):
        return unchecked_gap(host, reason or answer)
    return _not_loaded_gap(host, answer, grains, is_synced=is_synced)


def _not_loaded_gap(host: str, answer: str, grains: Mapping[str, Any], *, is_synced: bool) -> Gap:
    name = shlex.quote(host)
    if is_old(grains.get("saltversion", "")):
        return Gap(
            check="salt-release",
            where=host,
            what=f"its Salt is {grains['saltversion']}, too old for this project",
            fix=f"update salt-minion on {host} to the release of the master",
        )
    python = _parse_version(grains.get("pythonversion"))
    if python and python < _OLDEST_PYTHON:
        return Gap(
            check="python",
            where=host,
            what=f"its minion runs on Python {python[0]}.{python[1]}; this project needs 3.10",
            fix=f"install Salt's own packages (onedir), which bring their Python, on {host}",
        )
    return Gap(
        check="modules",
        where=host,
        what=f"this project's modules are missing there, or are of another release: {answer}",
        fix=f"salt {name} saltutil.sync_all"
        if is_synced
        else f"on {host}: salt-pip install '.[hypervisor]', then systemctl restart salt-minion",
    )


def _parse_version(grain: object) -> tuple[int, int] | None:
    numbers = grain[:2] if isinstance(grain, list | tuple) else []
    match numbers:
        case [int() as first, int() as second]:
            return first, second
    return None
