"""Fetch Salt's minion, for guests that have none, into the file server; remove it again."""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import salt.version

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import arguments, files, locks
from saltvirt.core.errors import BadArgument, MasterError
from saltvirt.core.http import web
from saltvirt.seeding.master.minionsource import PUBLIC, Site
from saltvirt.seeding.shared import minionpackages
from saltvirt.seeding.shared.minionpackages import ONEDIR, Index, Package

_RELEASE = re.compile(r"\d+\.\d+")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MinionRequest:
    """The minion to have on the file server: its kind, release and processors."""

    kind: str
    version: str
    arches: tuple[str, ...]
    site: Site


def from_call(
    cloud: Cloud, kind: object, version: object, arch: object, source: object
) -> MinionRequest:
    """Return the request of a call; raise BadArgument if it is invalid."""
    if kind not in minionpackages.KINDS:
        raise BadArgument("kind", f"{kind!r}; one of {', '.join(minionpackages.KINDS)}")
    arches = tuple(dict.fromkeys(arguments.names("arch", arch)))
    for arch_name in arches:
        if arch_name not in minionpackages.ARCHES:
            raise BadArgument("arch", f"{arch_name!r}; {' or '.join(minionpackages.ARCHES)}")
    if not arches:
        raise BadArgument("arch", "say for which processors")
    where = str(source or cloud.settings.minion_packages.get("source") or PUBLIC)
    if not where.startswith(("https://", "http://", "/")):
        raise BadArgument(
            "source",
            f"{arguments.hide_credentials(where)!r}; write https://... or the absolute path of a "
            "folder",
        )
    site = Site(where)
    if site.is_folder and not Path(where).is_dir():
        raise BadArgument("source", f"there is no folder {where} on the master")
    return MinionRequest(kind=str(kind), version=_release(version), arches=arches, site=site)


def _release(version: object) -> str:
    master_version = str(salt.version.__version__)
    if version is None:
        if not _RELEASE.fullmatch(master_version):
            raise BadArgument(
                "version",
                f"this master's Salt is {master_version}, which is no release; say which: 3006.9",
            )
        return master_version
    version_text = str(version)
    if isinstance(version, float):
        # As numbers, 3006.10 and 3006.1 are the same.
        raise BadArgument(
            "version", f"{version_text} came as a number; quote it: version='\"3006.10\"'"
        )
    if not _RELEASE.fullmatch(version_text):
        raise BadArgument(
            "version", f"{version_text!r} is not a release of Salt, such as 3006.9; quote it"
        )
    if _version_tuple(version_text) > _version_tuple(master_version):
        raise BadArgument(
            "version",
            f"{version_text} is newer than this master ({master_version}), which no minion may be",
        )
    return version_text


def _version_tuple(version: str) -> tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, match.groups())) if match else (0,)


def fetch(cloud: Cloud, request: MinionRequest, saltenv: str, folder: object) -> dict[str, Any]:
    """
    Put a minion on the file server; return ``{"folder", "kind", "version", "fetched", "kept"}``.

    folder
        Put the files below this folder; None for the folders of ``file_roots``.
    """
    with _locked(cloud.opts):
        place = _place(cloud.opts, saltenv, folder)
        _sweep(place)
        index = _read_index(place)
        packages_by_file = _packages_by_file(index)
        kept_packages = {
            name: package for name, package in packages_by_file.items() if _is_there(place, package)
        }
        with _undo_on_error(place, set(packages_by_file)):
            current_packages = [
                _obtain(cloud, request, place, arch, name, kept_packages.get(name))
                for arch in request.arches
                for name in request.site.names(request.kind, request.version, arch)
            ]
            other_packages = [
                package
                for package in index.get(request.kind, ())
                if package.arch not in request.arches
            ]
            new_index = {**index, request.kind: [*other_packages, *current_packages]}
            files.write(place / minionpackages.INDEX, _index_text(new_index), 0o644)
        _remove(place, packages_by_file.keys() - _packages_by_file(new_index).keys())
    names = {package.file for package in current_packages}
    return {
        "folder": str(place),
        "kind": request.kind,
        "version": request.version,
        "fetched": sorted(names - kept_packages.keys()),
        "kept": sorted(names & kept_packages.keys()),
    }


def remove(cloud: Cloud, saltenv: str, folder: object) -> dict[str, Any]:
    """Remove the packages of the first indexed folder; return ``{"folder", "removed"}``."""
    with _locked(cloud.opts):
        for root in _roots(cloud.opts, saltenv, folder):
            place = root / minionpackages.FOLDER
            if (place / minionpackages.INDEX).exists():
                _sweep(place)
                names = _packages_by_file(_read_index(place)).keys()
                # The index goes first, so that hosts are offered no vanishing package.
                files.unlink(place / minionpackages.INDEX)
                _remove(place, names)
                _remove_empty(place)
                return {"folder": str(place), "removed": sorted(names)}
    return {"folder": None, "removed": []}


def _locked(opts: Mapping[str, Any]) -> contextlib.AbstractContextManager[object]:
    return locks.hold_lock(Path(opts["cachedir"]) / "salt-virt" / "minion-packages.lock")


def _roots(opts: Mapping[str, Any], saltenv: str, folder: object) -> list[Path]:
    """Return the folders of the file server's environment, or the given folder."""
    arguments.text("saltenv", saltenv)
    if folder is not None:
        if not Path(str(folder)).is_absolute() or not Path(str(folder)).is_dir():
            raise BadArgument("folder", f"there is no folder {folder} on the master")
        return [Path(str(folder))]
    roots_by_env = opts.get("file_roots") or {}
    configured_roots = roots_by_env.get(saltenv) or [
        str(root).replace("__env__", saltenv) for root in roots_by_env.get("__env__", ())
    ]
    is_served = {"roots", "file"} & set(opts.get("fileserver_backend") or ["roots"])
    roots = (
        [Path(root) for root in configured_roots if str(root).startswith("/")] if is_served else []
    )
    if not roots:
        raise MasterError(
            f"the file server has no folder of this machine for saltenv {saltenv} (file_roots); "
            f"give folder=, such as a checkout of what it serves: {minionpackages.FOLDER} is made "
            "below it"
        )
    return roots


def _place(opts: Mapping[str, Any], saltenv: str, folder: object) -> Path:
    """Return the package folder below the first root that is writable; make it if missing."""
    roots = _roots(opts, saltenv, folder)
    roots_with_index = [
        candidate
        for candidate in roots
        if (candidate / minionpackages.FOLDER / minionpackages.INDEX).exists()
    ]
    failed = []
    for root in (*roots_with_index, *roots):
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


def _read_index(place: Path) -> dict[str, list[Package]]:
    """Return the index; raise MasterError if it cannot be read."""
    path = place / minionpackages.INDEX
    try:
        index: Index = minionpackages.read_index(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as exc:
        raise MasterError(
            f"{path} cannot be read: {exc}; remove the folder {place}, and fetch anew"
        ) from exc
    return {kind: list(packages) for kind, packages in index.items()}


def _index_text(index: Index) -> bytes:
    try:
        return minionpackages.format_index(index).encode()
    except ValueError as exc:
        raise MasterError(f"{exc}: hosts would not take it; rename it, or leave it out") from exc


def _sweep(place: Path) -> None:
    """Remove partial files of killed calls; the lock excludes a running one."""
    for part in place.glob(".*.part*"):
        part.unlink(missing_ok=True)


def _packages_by_file(index: Index) -> dict[str, Package]:
    return {package.file: package for packages in index.values() for package in packages}


def _remove(place: Path, names: Iterable[str]) -> None:
    for name in sorted(names):
        files.unlink(place / name)


def _remove_empty(place: Path) -> None:
    for folder in (place, place.parent):
        with contextlib.suppress(OSError):
            folder.rmdir()


@contextlib.contextmanager
def _undo_on_error(place: Path, before: set[str]) -> Iterator[None]:
    """Remove the files that came inside the block if the block fails."""
    existing_names = {path.name for path in place.iterdir()}
    try:
        yield
    except BaseException:
        new_names = {path.name for path in place.iterdir()} - existing_names - before
        for name in new_names:
            (place / name).unlink(missing_ok=True)
        _remove_empty(place)
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


def _obtain(
    cloud: Cloud,
    request: MinionRequest,
    place: Path,
    arch: str,
    name: str,
    kept_package: Package | None,
) -> Package:
    family = None if request.kind == ONEDIR else request.kind
    sha256 = kept_package.sha256 if kept_package else _download(cloud, request, place, name)
    return Package(file=name, arch=arch, version=request.version, sha256=sha256, family=family)


def _download(cloud: Cloud, request: MinionRequest, place: Path, name: str) -> str:
    """Download and check a file, then put it in its place; return its digest."""
    kind, version, site = request.kind, request.version, request.site
    sha256, part = site.digest(kind, version, name), files.part_path(place, name)
    try:
        site.bring(kind, version, name, part, _steps(cloud, name))
        actual_sha256 = _digest(part)
        if actual_sha256 != sha256:
            raise MasterError(
                f"{name} is not what its checksum says: its SHA-256 is {actual_sha256[:16]}..., "
                f"not {sha256[:16]}...; try again, or ask the operator of "
                f"{arguments.hide_credentials(site.location)}"
            )
        part.chmod(0o644)
        files.make_durable(part)
        part.rename(place / name)
        files.sync_folder(place)
    finally:
        web.forget_part(part)
    return sha256


def _steps(cloud: Cloud, name: str) -> Callable[[int, int], None]:
    """Return a callback that reports every tenth of a file."""
    last = -1

    def progress(done_bytes: int, total_bytes: int) -> None:
        nonlocal last
        step = 10 * done_bytes // total_bytes if total_bytes else done_bytes // (64 * _CHUNK)
        if step > last:
            last = step
            figures = {"done_bytes": done_bytes, "total_bytes": total_bytes}
            cloud.progress(f"{name}: Fetching", **figures)

    return progress
