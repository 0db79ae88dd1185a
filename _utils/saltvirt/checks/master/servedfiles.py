"""Find files that a master serves and should not, or that others than the master can write."""

import contextlib
import glob
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import salt.utils.yaml

# Usual names of private keys; a file's content decides.
_KEY_NAMES = (".pem", ".key", "_rsa", "_ecdsa", "_ed25519")
# The brackets keep searches for keys from finding this file.
_MARK = re.compile(rb"PRIVATE[ ]KEY-----")
_SEARCHED_BYTES = 64 * 1024
# Tags of the engine libvirt_events, one such tag, and a reactor's call of a virt function.
_EVENTS = "libvirt_events/"
_EVENT = "salt/engines/libvirt_events/qemu/system/domain/lifecycle"
_CALLS_VIRT = re.compile(rb"\b(?:local|cmd|runner)\.virt(?:_\w+)?\.")


def find_served_keys(roots: Sequence[str]) -> list[str]:
    """Return the files below folders of the file server that hold private keys."""
    return sorted(path for path in _walk_roots(roots) if _is_served_key(path))


def find_served_pillars(pillar_roots: Sequence[str], roots: Sequence[str]) -> list[str]:
    """Return pillar folders inside folders of the file server, or around them."""
    return [
        f"{pillar} ({root})"
        for pillar in pillar_roots
        for root in roots
        if _is_within(pillar, root) or _is_within(root, pillar)
    ]


def read_lines(path: Any) -> list[str]:
    """Return the lines of a file without comments; none of a file that Salt cannot read."""
    try:
        lines = Path(path or "/nowhere").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []  # Salt does not read it either
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def list_names(folder: Any) -> list[str]:
    """Return the names in a folder, none of a missing one."""
    try:
        return sorted(os.listdir(folder)) if folder else []
    except OSError:
        return []


def find_reactors(option: Any, roots: Sequence[str]) -> Iterator[str]:
    """Yield reactor files that call functions of ``virt`` at libvirt's events."""
    rows = _reactor_map(option) if isinstance(option, str) else option
    for row in rows if isinstance(rows, list) else ():
        for tag, paths in row.items() if isinstance(row, Mapping) else ():
            if _EVENTS in str(tag) or fnmatch(_EVENT, str(tag)):
                references = paths if isinstance(paths, list) else [paths]
                files = (
                    file for path in map(str, references) for file in _reactor_files(path, roots)
                )
                yield from filter(_calls_virt, files)


def _reactor_map(path: str) -> Any:
    """Return the reactors in the file that the option names, None if it cannot be read."""
    try:
        return salt.utils.yaml.safe_load(Path(path).read_bytes())
    except (OSError, ValueError, salt.utils.yaml.YAMLError):
        return None  # Salt does not read it either


def _reactor_files(reference: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield the files that a reactor names: by a pattern, or on the file server."""
    relative_path = reference.removeprefix("salt://").partition("?")[0]
    is_served = reference.startswith("salt://")
    for pattern in (
        [os.path.join(root, relative_path) for root in roots] if is_served else [reference]
    ):
        yield from sorted(glob.glob(pattern))  # noqa: PTH207 (an absolute pattern, as to Salt)


def _calls_virt(path: str) -> bool:
    with contextlib.suppress(OSError):  # it is a folder, or was removed meanwhile
        return _CALLS_VIRT.search(Path(path).read_bytes()) is not None
    return False


def list_roots(opts: Mapping[str, Any], option: str) -> list[str]:
    """Return the folders of ``file_roots`` or ``pillar_roots``, of all environments."""
    option_value = opts.get(option) or {}
    environments = option_value.values() if isinstance(option_value, Mapping) else [option_value]
    paths = [str(path) for environment_paths in environments for path in environment_paths or ()]
    return list(dict.fromkeys(path for path in paths if path.startswith("/")))


def _is_within(path: str, folder: str) -> bool:
    return Path(path).is_dir() and Path(path).resolve().is_relative_to(Path(folder).resolve())


def _walk_roots(roots: Sequence[str]) -> Iterator[str]:
    """Yield the folders of roots, each once, and their files."""
    visited_folders: set[str] = set()
    for root in roots:
        # The file server follows links too.
        for folder, folders, names in os.walk(root, followlinks=True):
            real_path = os.path.realpath(folder)
            if real_path in visited_folders:
                folders.clear()
                continue
            visited_folders.add(real_path)
            yield folder
            yield from (os.path.join(folder, name) for name in names)


def find_loose_paths(roots: Sequence[str]) -> dict[str, list[str]]:
    """Return the paths below each folder that any user of this machine can write."""
    paths_by_root = {
        root: sorted(filter(_is_writable_by_all, _walk_roots([root]))) for root in roots
    }
    return {root: paths for root, paths in paths_by_root.items() if paths}


def _is_writable_by_all(path: str) -> bool:
    with contextlib.suppress(OSError):  # a broken link, or removed meanwhile
        return bool(os.stat(path).st_mode & stat.S_IWOTH)
    return False


def _is_served_key(path: str) -> bool:
    if not path.endswith(_KEY_NAMES):
        return False
    try:
        # Opening a pipe would block.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as handle:
            return _MARK.search(handle.read(_SEARCHED_BYTES)) is not None
    except OSError:
        return False  # the master cannot serve this file either
