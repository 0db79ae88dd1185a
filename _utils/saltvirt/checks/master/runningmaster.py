"""Read what the running master has: its start time, files of its file server, its pillars."""

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import salt.loader
from salt.exceptions import SaltException
from salt.fileserver import Fileserver

from saltvirt.core.options import saltfiles
from saltvirt.seeding.shared import minionpackages

_PROC = Path("/proc")
# The times of a file and of a process are rounded differently.
_ROUNDED_S = 2
_ENV = "base"
_MODULE, _FORMULA = "_modules/virt_query.py", "hypervisor/init.sls"
_MINION = f"{minionpackages.FOLDER}/{minionpackages.INDEX}"
_PILLAR = "libvirt"
# A parameter of our external pillar, which Salt's of the same name lacks.
_ARGUMENT = "certificates"
# Other formats, such as .vmdk, are refused.
_IMAGES = (".qcow2", ".img", ".raw")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFiles:
    """
    The needed files on the file server: modules and formula, a minion for guests, an image.

    ``error`` is the reason why they cannot be listed, None if they can.
    """

    error: str | None = None
    has_modules: bool = False
    has_formula: bool = False
    has_minion: bool = False
    has_image: bool = False


def find_newer_files(opts: Mapping[str, Any]) -> list[str]:
    """Return the configuration files that were written after the running master started."""
    started_s = _read_start_s(Path(opts.get("pidfile") or "/nowhere"))
    paths = saltfiles.config_paths(opts) if started_s else []
    return [str(path) for path in paths if started_s and _is_newer(path, started_s)]


def _read_start_s(pidfile: Path) -> float | None:
    """Return when the running master started, in seconds since 1970; None if unknown."""
    try:
        process = _PROC / str(int(pidfile.read_text()))
        if b"salt-master" not in (process / "cmdline").read_bytes():
            return None
        # The name of the process can have blanks and parentheses.
        ticks = int((process / "stat").read_text().rpartition(")")[2].split()[19])
        lines = (_PROC / "stat").read_text().splitlines()
        boot_s = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    except (OSError, ValueError, LookupError, StopIteration):
        return None
    return boot_s + ticks / os.sysconf("SC_CLK_TCK")


def _is_newer(path: Path, started_s: float) -> bool:
    try:
        return path.is_file() and path.stat().st_mtime > started_s + _ROUNDED_S
    except OSError:
        return False


def read_served(opts: Mapping[str, Any]) -> ServedFiles:
    """Return which of the needed files the file server has."""
    try:
        # Files added a moment ago count, too.
        server = Fileserver({**opts, "fileserver_list_cache_time": 0})
        names = server.file_list({"saltenv": _ENV})
    except (SaltException, OSError) as exc:
        return ServedFiles(error=" ".join(str(exc).split()))
    return ServedFiles(
        has_modules=_MODULE in names,
        has_formula=_FORMULA in names,
        has_minion=_MINION in names,
        has_image=any(name.lower().endswith(_IMAGES) for name in names),
    )


def has_pillar(opts: Mapping[str, Any]) -> bool:
    """Return whether this project's external pillar for certificates is loaded."""
    pillars = salt.loader.pillars(dict(opts), {})
    return _PILLAR in pillars and _ARGUMENT in inspect.signature(pillars[_PILLAR]).parameters


def is_synced(opts: Mapping[str, Any]) -> bool:
    """Return whether this library came by the file server, and not by pip."""
    return Path(__file__).resolve().is_relative_to(Path(opts["extension_modules"]).resolve())


def first_root(opts: Mapping[str, Any]) -> str | None:
    """Return the first folder of the file server, None if there is none."""
    roots = (opts.get("file_roots") or {}).get(_ENV) or []
    return str(roots[0]) if roots else None
