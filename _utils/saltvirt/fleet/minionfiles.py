"""Salt's minion for guests that have none: fetched once into the file server, and removed again."""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import salt.version

from saltvirt import arguments, files, locks, minionpackages, web
from saltvirt.errors import BadArgument, MasterError
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.minionsource import PUBLIC, Site
from saltvirt.minionpackages import ONEDIR, Index, Package

_RELEASE = re.compile(r"\d+\.\d+")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be on the file server: a kind of minion, of one release, for some processors."""

    kind: str
    version: str
    arches: tuple[str, ...]
    site: Site


def wanted(cloud: Cloud, kind: object, version: object, arch: object, source: object) -> Wanted:
    """Return what a call asks for; raise BadArgument if there is no such thing."""
    if kind not in minionpackages.KINDS:
        raise BadArgument("kind", f"{kind!r}; one of {', '.join(minionpackages.KINDS)}")
    arches = tuple(dict.fromkeys(arguments.names("arch", arch)))
    for one in arches:
        if one not in minionpackages.ARCHES:
            raise BadArgument("arch", f"{one!r}; {' or '.join(minionpackages.ARCHES)}")
    if not arches:
        raise BadArgument("arch", "say for which processors")
    where = str(source or cloud.settings.minion_packages.get("source") or PUBLIC)
    if not where.startswith(("https://", "http://", "/")):
        raise BadArgument(
            "source",
            f"{arguments.shown(where)!r}; write https://... or the absolute path of a folder",
        )
    site = Site(where)
    if site.is_folder and not Path(where).is_dir():
        raise BadArgument("source", f"there is no folder {where} on the master")
    return Wanted(kind=str(kind), version=_release(version), arches=arches, site=site)


def _release(given: object) -> str:
    own = str(salt.version.__version__)
    if given is None:
        if not _RELEASE.fullmatch(own):
            raise BadArgument(
                "version", f"this master's Salt is {own}, which is no release; say which: 3006.9"
            )
        return own
    said = str(given)
    if isinstance(given, float):
        # 3006.10 and 3006.1 are the same number.
        raise BadArgument("version", f"{said} came as a number; quote it: version='\"3006.10\"'")
    if not _RELEASE.fullmatch(said):
        raise BadArgument("version", f"{said!r} is not a release of Salt, such as 3006.9; quote it")
    if _number(said) > _number(own):
        raise BadArgument(
            "version", f"{said} is newer than this master ({own}), which no minion may be"
        )
    return said


def _number(version: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else (0,)


def fetch(cloud: Cloud, asked: Wanted, saltenv: str, folder: object) -> dict[str, Any]:
    """
    Have a minion on the file server; return ``{"folder", "kind", "version", "fetched", "kept"}``.

    folder
        Below which folder, where the files of ``file_roots`` are not meant; None for those.
    """
    with _locked(cloud.opts):
        place = _place(cloud.opts, saltenv, folder)
        _sweep(place)
        index = _known(place)
        before = {one.file: one for packages in index.values() for one in packages}
        kept = {name: one for name, one in before.items() if _is_there(place, one)}
        with _taken_back(place, set(before)):
            found = [
                _obtained(cloud, asked, place, arch, name, kept.get(name))
                for arch in asked.arches
                for name in asked.site.names(asked.kind, asked.version, arch)
            ]
            others = [one for one in index.get(asked.kind, ()) if one.arch not in asked.arches]
            now = {**index, asked.kind: [*others, *found]}
            files.write(place / minionpackages.INDEX, _text(now), 0o644)
        _remove(place, before.keys() - {one.file for packages in now.values() for one in packages})
    names = {one.file for one in found}
    return {
        "folder": str(place),
        "kind": asked.kind,
        "version": asked.version,
        "fetched": sorted(names - kept.keys()),
        "kept": sorted(names & kept.keys()),
    }


def remove(cloud: Cloud, saltenv: str, folder: object) -> dict[str, Any]:
    """Remove all of it; return ``{"folder", "removed"}``."""
    with _locked(cloud.opts):
        for root in _roots(cloud.opts, saltenv, folder):
            place = root / minionpackages.FOLDER
            if (place / minionpackages.INDEX).exists():
                _sweep(place)
                names = {one.file for packages in _known(place).values() for one in packages}
                # First, so that no host is told of what is going.
                files.unlink(place / minionpackages.INDEX)
                _remove(place, names)
                for empty in (place, place.parent):
                    with contextlib.suppress(OSError):
                        empty.rmdir()
                return {"folder": str(place), "removed": sorted(names)}
    return {"folder": None, "removed": []}


def _locked(opts: Mapping[str, Any]) -> contextlib.AbstractContextManager[object]:
    return locks.held(Path(opts["cachedir"]) / "salt-virt" / "minion-packages.lock")


def _roots(opts: Mapping[str, Any], saltenv: str, folder: object) -> list[Path]:
    """Return the folders of the file server's environment, or the one that was named."""
    arguments.text("saltenv", saltenv)
    if folder is not None:
        if not Path(str(folder)).is_absolute() or not Path(str(folder)).is_dir():
            raise BadArgument("folder", f"there is no folder {folder} on the master")
        return [Path(str(folder))]
    served = opts.get("file_roots") or {}
    named = served.get(saltenv) or [
        str(one).replace("__env__", saltenv) for one in served.get("__env__", ())
    ]
    is_served = {"roots", "file"} & set(opts.get("fileserver_backend") or ["roots"])
    found = [Path(one) for one in named if str(one).startswith("/")] if is_served else []
    if not found:
        raise MasterError(
            f"the file server has no folder of this machine for saltenv {saltenv} (file_roots); "
            f"give folder=, such as a checkout of what it serves: {minionpackages.FOLDER} is made "
            "below it"
        )
    return found


def _place(opts: Mapping[str, Any], saltenv: str, folder: object) -> Path:
    """Return the first folder that the master can write to, made if it is missing."""
    roots = _roots(opts, saltenv, folder)
    known = [one for one in roots if (one / minionpackages.FOLDER / minionpackages.INDEX).exists()]
    failed = []
    for root in (*known, *roots):
        place = root / minionpackages.FOLDER
        try:
            place.mkdir(mode=0o755, parents=True, exist_ok=True)
            probe = files.part_path(place, "probe")
            probe.touch()
            probe.unlink()
        except OSError as exc:
            failed.append(f"{root}: {exc.strerror}")
        else:
            return place
    top, user = Path(minionpackages.FOLDER).parts[0], opts.get("user") or "root"
    raise MasterError(
        f"user {user}, as which the master runs, can write to none of its folders "
        f"({', '.join(dict.fromkeys(failed))}); make one: install -d -o {user} {roots[0] / top}"
    )


def _known(place: Path) -> dict[str, list[Package]]:
    """Return what the index says; raise MasterError if it cannot be understood."""
    path = place / minionpackages.INDEX
    try:
        found: Index = minionpackages.read(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as exc:
        raise MasterError(
            f"{path} cannot be read: {exc}; remove the folder {place}, and fetch anew"
        ) from exc
    return {kind: list(packages) for kind, packages in found.items()}


def _text(index: Index) -> bytes:
    try:
        return minionpackages.written(index).encode()
    except ValueError as exc:
        raise MasterError(f"{exc}: hosts would not take it; rename it, or leave it out") from exc


def _sweep(place: Path) -> None:
    """Remove what a call that was killed has left; the lock says that none is at work."""
    for part in place.glob(".*.part*"):
        part.unlink(missing_ok=True)


def _remove(place: Path, names: set[str]) -> None:
    for name in sorted(names):
        files.unlink(place / name)


@contextlib.contextmanager
def _taken_back(place: Path, before: set[str]) -> Iterator[None]:
    """Remove what has come since, if not all of it comes."""
    there = {path.name for path in place.iterdir()}
    try:
        yield
    except BaseException:
        made = {path.name for path in place.iterdir()} - there - before
        for name in made:
            (place / name).unlink(missing_ok=True)
        for empty in (place, place.parent):
            with contextlib.suppress(OSError):
                empty.rmdir()
        raise


def _is_there(place: Path, package: Package) -> bool:
    path = place / package.file
    return path.is_file() and _digest(path) == package.sha256


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        while chunk := handle.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _obtained(
    cloud: Cloud, asked: Wanted, place: Path, arch: str, name: str, kept: Package | None
) -> Package:
    family = None if asked.kind == ONEDIR else asked.kind
    sha256 = kept.sha256 if kept else _brought(cloud, asked, place, name)
    return Package(file=name, arch=arch, version=asked.version, sha256=sha256, family=family)


def _brought(cloud: Cloud, asked: Wanted, place: Path, name: str) -> str:
    """Bring a file to its place, checked; return its digest."""
    kind, version, site = asked.kind, asked.version, asked.site
    sha256, part = site.digest(kind, version, name), files.part_path(place, name)
    try:
        site.bring(kind, version, name, part, _steps(cloud, name))
        got = _digest(part)
        if got != sha256:
            raise MasterError(
                f"{name} is not what its checksum says: its SHA-256 is {got[:16]}..., not "
                f"{sha256[:16]}...; try again, or ask whoever runs {arguments.shown(site.where)}"
            )
        part.chmod(0o644)
        files.durable(part)
        part.rename(place / name)
        files.sync_folder(place)
    finally:
        web.forget(part)
    return sha256


def _steps(cloud: Cloud, name: str) -> Callable[[int, int], None]:
    """Return what shows every tenth of a file."""
    last = -1

    def progress(done_bytes: int, total_bytes: int) -> None:
        nonlocal last
        step = 10 * done_bytes // total_bytes if total_bytes else done_bytes // (64 * _CHUNK)
        if step > last:
            last = step
            figures = {"done_bytes": done_bytes, "total_bytes": total_bytes}
            cloud.progress(f"{name}: Fetching", **figures)

    return progress
