"""Judge hosts that cannot say what they have: by what Salt says of them, and what it knows."""

import shlex
from collections.abc import Mapping
from typing import Any

from saltvirt.fleet.findings import apply
from saltvirt.fleet.setup.gaps import Gap
from saltvirt.fleet.setup.ofhost import not_checked
from saltvirt.fleet.setup.ofmaster import is_old

# What our own modules say of a minion without libvirt's Python module.
_NO_BINDING = "the Python module 'libvirt' is missing"
# What Salt says of a function that it has not loaded.
_NOT_LOADED = ("is not available", "__virtual__ returned False")
_OLDEST_PYTHON = (3, 10)


def gap(
    host: str, why: str | None, said: str | None, grains: Mapping[str, Any], *, is_synced: bool
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
    if said is None:
        return Gap(
            check="silent",
            where=host,
            what="it does not answer",
            fix=f"on {host}: systemctl restart salt-minion; then salt {name} test.ping",
        )
    if _NO_BINDING in said:
        return Gap(
            check="packages",
            where=host,
            what="libvirt's Python module is missing there, so virt is not loaded",
            fix=apply(host, "hypervisor.packages"),
        )
    if said != why:  # any minion may say what no host has signed
        said = f"in its name, not proved: {said}"
    if not any(words in said for words in _NOT_LOADED):
        return not_checked(host, why or said)
    return _not_loaded(host, said, grains, is_synced=is_synced)


def _not_loaded(host: str, said: str, grains: Mapping[str, Any], *, is_synced: bool) -> Gap:
    name = shlex.quote(host)
    if is_old(grains.get("saltversion", "")):
        return Gap(
            check="salt-release",
            where=host,
            what=f"its Salt is {grains['saltversion']}, too old for this project",
            fix=f"update salt-minion on {host} to the release of the master",
        )
    python = _version(grains.get("pythonversion"))
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
        what=f"this project's modules are missing there, or are of another release: {said}",
        fix=f"salt {name} saltutil.sync_all"
        if is_synced
        else f"on {host}: salt-pip install '.[hypervisor]', then systemctl restart salt-minion",
    )


def _version(said: object) -> tuple[int, int] | None:
    numbers = said[:2] if isinstance(said, list | tuple) else []
    match numbers:
        case [int() as first, int() as second]:
            return first, second
    return None
