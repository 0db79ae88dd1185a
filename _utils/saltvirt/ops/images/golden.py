"""Make a golden image: a base with everything in it that every VM made of it shall have."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from saltvirt import arguments, files, room, wire
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument, SeedError, StorageError
from saltvirt.image import cache, clone, tool, validation
from saltvirt.image.source import Index, local_digest
from saltvirt.kvm import connect
from saltvirt.ops import reservations, storage
from saltvirt.ops.context import Context
from saltvirt.ops.images import fetch
from saltvirt.ops.seeding import inspection, install, provided
from saltvirt.seed import appliance
from saltvirt.seed.model import Found
from saltvirt.storage import door, policies, usage
from saltvirt.storage.verdict import Verdict


def build(context: Context, source: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """
    Build an image and return ``{"path", "digest", "os", "has_minion", "has_cloud_init"}``.

    given
        ``{packages, files, commands, install, install_from, sysprep, saltenv, image_hash, folder,
        replace}``; see ``virt.image_build``.
    """
    arguments.text("source", source)
    arguments.vm_name(name)
    job = _job(given)
    refuse_packages(job["packages"], is_networked=install.uses_network(context.settings))
    target = _target(context.settings, name, given)
    limits = inspection.limits(context.settings)
    missing = appliance.why_missing(limits["python"])
    if missing:
        raise StorageError(f"no image can be built on this host: {missing}")
    base = fetch.obtain(context, source, given["saltenv"], image_hash=given["image_hash"])
    part = files.part_path(target.parent, name)
    with clone.storing(part):
        context.progress("Copying")
        meter = room.of(context.settings).meter(arguments.shown(source), target.parent)
        tool.convert(base.path, base.format, part, "qcow2", meter)
        job |= _brought(context, base, given)
        context.progress("Building", detail="in the appliance")
        try:
            masters = inspection.masters(context.opts) if job["network"] else ()
            told = {**job, "path": str(part), "format": "qcow2"}
            answer = appliance.run(told, masters=masters, **limits)
        except SeedError as exc:
            raise SeedError(str(exc).replace(str(part), f"image {name}")) from exc
        validated = validation.validate(part)
        _place(context.settings, part, name, given)
    found = inspection.found(answer)
    digest, warnings = _kept(context.settings, target, validated, found)
    return {
        "path": str(target),
        "digest": digest,
        "os": found.os,
        "has_minion": found.has_minion,
        "has_cloud_init": found.has_cloud_init,
        **({"warnings": warnings} if warnings else {}),
    }


def _place(settings: HostSettings, part: Path, name: str, given: Mapping[str, Any]) -> None:
    """Give a built image its name: neither an older one of it nor this one goes by a crash."""
    part.chmod(0o644)
    # It may take a while, in which nobody else is kept from anything.
    files.durable(part)
    with reservations.host_lock(settings):
        # Somebody may have made a file of that name, or a VM based on it, meanwhile.
        target = _target(settings, name, given)
        door.replace(part, _verdict(settings, target))


def refuse_packages(packages: Sequence[str], *, is_networked: bool) -> None:
    """Refuse packages of the guest's repositories where nobody has said that they may be used."""
    if packages and not is_networked:
        raise BadArgument(
            "packages",
            "they come from the guest's own repositories; set virt:seed:install_network: True for "
            "that, or bring them with files= and install them with commands=",
        )


def _job(given: Mapping[str, Any]) -> dict[str, Any]:
    packages = arguments.names("packages", given["packages"])
    commands = given["commands"] or []
    if isinstance(commands, str):
        commands = [commands]
    if not isinstance(commands, list) or not all(isinstance(one, str) for one in commands):
        raise BadArgument("commands", f"{commands!r} is not a list of commands")
    for flag in ("install", "sysprep", "replace"):
        arguments.boolean(flag, given[flag])
    for path in arguments.mapping("files", given["files"]) or {}:
        if not str(path).startswith("/"):
            raise BadArgument("files", f"{path!r} is not an absolute path in the guest")
    return {
        "action": "build",
        "packages": list(packages),
        "commands": commands,
        "sysprep": given["sysprep"],
    }


def _target(settings: HostSettings, name: str, given: Mapping[str, Any]) -> Path:
    asked = given["folder"]
    usual = Path(settings.images, "golden")
    folder = usual if asked is None else Path(arguments.text("folder", asked))
    if asked is None:
        storage.made(settings.images)
        folder.mkdir(mode=0o711, exist_ok=True)
    elif not folder.is_absolute() or not folder.is_dir():
        raise BadArgument("folder", f"there is no folder {folder} on this host")
    target = folder / f"{name}.qcow2"
    if target.exists() and not given["replace"]:
        raise StorageError(
            f"{target} exists already; give another name, or replace=True "
            "(VMs made of the old one keep it)"
        )
    if target.exists():
        _verdict(settings, target).refuse(f"{target} is not replaced")
    return target


def _verdict(settings: HostSettings, target: Path) -> Verdict:
    """Return whether a golden image may be replaced: a VM can have it by its path."""
    if connect.why_missing():
        return usage.index(None, settings).verdict(policies.REPLACE, str(target))
    with connect.opened(settings) as conn:
        index = usage.index(conn, settings, beside=[str(target)])
        return index.verdict(policies.REPLACE, str(target))


def _brought(
    context: Context, base: validation.ValidatedImage, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parts of the job that need files of this host, fetched."""
    source = install.source(context.settings, given["install_from"])
    installed = None
    if given["install"]:
        found = inspection.look(context, base, use_kvm=False)
        if not found.has_minion:
            saltenv = given["saltenv"]
            packages = () if source else provided.suitable(context, found, saltenv)
            installed = install.prepared(context, source, found.arch, saltenv, packages)
    uploads = []
    for path, said in (given["files"] or {}).items():
        said = said if isinstance(said, dict) else {"source": said}
        arguments.refuse_unknown_keys("files", said, {"source", "mode"})
        file = fetch.obtain(
            context, said.get("source", ""), given["saltenv"], validation.accept_any
        )
        uploads.append([path, file.path, str(said.get("mode", "644"))])
    wants = bool(given["packages"] or given["commands"] or (installed and installed.network))
    network = wants and install.uses_network(context.settings)
    return {"install": installed and installed.to_job(), "uploads": uploads, "network": network}


def _kept(
    settings: HostSettings,
    target: Path,
    validated: validation.ValidatedImage,
    found: Found,
) -> tuple[str, list[str]]:
    """Keep a copy of a built image in the cache; return its digest, and warnings."""
    warnings = []
    try:
        digest = cache.adopt(settings, target, validated)
    except room.OverLimit as exc:
        # The image itself is complete. The first VM of it needs that room, and says so.
        digest = local_digest(str(target), Index(cache.folder(settings) / "index.json"))
        warnings = [f"the cache has no copy of {target}, which the first VM of it needs: {exc}"]
    files.write(cache.look_path(settings, digest), json.dumps(wire.plain(found)).encode())
    return digest, warnings
