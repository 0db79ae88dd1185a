"""Judge hosts that cannot say what they have: by what Salt says of them, and what it knows."""

import shlex
from collections.abc import Mapping
from typing import Any

from saltvirt.fleet.findings import apply_command
from saltvirt.fleet.setup.gaps import Gap
from saltvirt.fleet.setup.ofhost import unchecked_gap
from saltvirt.fleet.setup.ofmaster import is_old

# What our own modules say of a minion without libvirt's Python module.
_NO_BINDING = "the Python module 'libvirt' is missing"
# What Salt says of a function that it has not loaded.
_NOT_LOADED = ("is not available", "__virtual__ returned False")
_OLDEST_PYTHON = (3, 10)


def gap(
    host: str, reason: str | None, answer: str | None, grains: Mapping[str, Any], *, is_synced: bool
) -> Gap:
    """
    Return what is missing on a host that gave no answer that could be judged.

    why
        What is known of its signed answer: it is of another release, or posed.
    said
        What it answers, unsigned if that is not ``why`` too, in Salt's words; None if it is silent.
    grains
        What the master's cache has of it; nothing is sure to be in it.
    is_synced
        Whether this project comes to minions by the file server, and not by pip.
    """
    name = shlex.quote(host)
    if answer is None:
        return Gap(
            check="silent",
            where=host,
            what="it does not answer",
            fix=f"on {host}: systemctl restart salt-minion; then salt {name} test.ping",
        )
    if _NO_BINDING in answer:
        return Gap(
            check="packages",
            where=host,
            what="libvirt's Python module is missing there, so virt is not loaded",
            fix=apply_command(host, "hypervisor.packages"),
        )
    if answer != reason:  # any minion may say what no host has signed
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
