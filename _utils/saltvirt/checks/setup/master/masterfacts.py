"""Read the master's facts for the setup check: options, start time, served files, keys."""

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import salt.loader
import salt.version
from salt.exceptions import SaltException
from salt.fileserver import Fileserver

from saltvirt.cluster import candidates, membership
from saltvirt.core.salt import compat
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterFacts:
    """
    The facts of the master that are judged.

    release
        Salt's, such as ``3006.25``.
    options
        The master's configuration.
    newer
        Configuration files written after the running master started.
    is_synced
        Whether this library came by the file server, and not by pip.
    has_pillar
        Whether this project's external pillar for certificates is loaded.
    root
        The first folder of the file server, None if there is none.
    accepted, waiting
        Ids of accepted and of waiting keys.
    named
        Hosts that the caller has named; empty for all.
    """

    release: str
    options: Mapping[str, Any]
    members: membership.Members
    newer: Sequence[str] = ()
    is_synced: bool = True
    served: ServedFiles = field(default_factory=ServedFiles)
    has_pillar: bool = True
    root: str | None = None
    accepted: Sequence[str] = ()
    waiting: Sequence[str] = ()
    may_be: Mapping[str, candidates.Candidate] = field(default_factory=dict)
    named: Sequence[str] = ()


def read_facts(
    opts: Mapping[str, Any], members: membership.Members, named_hosts: Sequence[str] = ()
) -> MasterFacts:
    """Return the facts of this master; create nothing, and ask no minion."""
    key_store, library_path = compat.KeyStore(opts), Path(__file__).resolve()
    started_s = _read_start_s(Path(opts.get("pidfile") or "/nowhere"))
    roots = (opts.get("file_roots") or {}).get(_ENV) or []
    return MasterFacts(
        release=salt.version.__version__,
        options=opts,
        members=members,
        newer=[path for path in _files(opts) if started_s and _is_newer(path, started_s)],
        is_synced=library_path.is_relative_to(Path(opts["extension_modules"]).resolve()),
        served=_read_served(opts),
        has_pillar=_has_pillar(opts),
        root=str(roots[0]) if roots else None,
        accepted=key_store.accepted(),
        waiting=key_store.waiting(),
        may_be=candidates.find_candidates(opts, members),
        named=named_hosts,
    )


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


def _files(opts: Mapping[str, Any]) -> Iterator[str]:
    main_path = Path(opts.get("conf_file") or "/nowhere")
    yield str(main_path)
    include_option = opts.get("include") or []
    include_patterns = [include_option] if isinstance(include_option, str) else include_option
    for pattern in (opts.get("default_include") or "", *include_patterns):
        relative_pattern = str(main_path.parent / pattern).lstrip("/")
        yield from sorted(map(str, Path("/").glob(relative_pattern))) if pattern else ()


def _is_newer(path: str, started_s: float) -> bool:
    try:
        return Path(path).is_file() and os.stat(path).st_mtime > started_s + _ROUNDED_S
    except OSError:
        return False


def _read_served(opts: Mapping[str, Any]) -> ServedFiles:
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


def _has_pillar(opts: Mapping[str, Any]) -> bool:
    pillars = salt.loader.pillars(dict(opts), {})
    return _PILLAR in pillars and _ARGUMENT in inspect.signature(pillars[_PILLAR]).parameters
