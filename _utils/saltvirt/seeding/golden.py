"""Build a golden image from a base image."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from saltvirt.core import arguments, files, wire, writelimit
from saltvirt.core.errors import BadArgument, SeedError, StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.core.seedmethods import GUESTFS
from saltvirt.libvirt import connect, reservations
from saltvirt.seeding import inspection, install, write
from saltvirt.seeding.offline import appliance
from saltvirt.seeding.seedmodel import Inspection
from saltvirt.storage import diskpaths, door, policies, usage
from saltvirt.storage.images import cache, clone, fetch, tool, validation
from saltvirt.storage.images.source import Index, local_digest
from saltvirt.storage.verdict import Verdict


def build(context: Context, source: str, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """
    Build an image; return ``{path, digest, os, has_minion, has_cloud_init}``, maybe ``warnings``.

    options
        ``{packages, files, commands, install, install_from, sysprep, saltenv, image_hash, folder,
        replace}``; see ``virt.image_build``.
    """
    arguments.text("source", source)
    arguments.vm_name(name)
    job = _job(options)
    refuse_packages(job["packages"], is_networked=install.uses_network(context.settings))
    target = _target(context.settings, name, options)
    missing_reason = appliance.why_missing(inspection.python(context.settings))
    if missing_reason:
        raise StorageError(f"no image can be built on this host: {missing_reason}")
    base = fetch.obtain(context, source, options["saltenv"], image_hash=options["image_hash"])
    part_path = files.part_path(target.parent, name)
    with clone.remove_on_failure(part_path):
        context.progress("Copying")
        meter = writelimit.from_settings(context.settings).meter(
            arguments.hide_credentials(source), target.parent
        )
        tool.convert(base.path, base.format, part_path, "qcow2", meter)
        job |= _fetch_inputs(context, base, options)
        context.progress("Building", detail="in the appliance")
        try:
            worker_job = {**job, "via": GUESTFS.name, "path": str(part_path), "format": "qcow2"}
            content = write.run_job(context, worker_job)
        except SeedError as exc:
            raise SeedError(str(exc).replace(str(part_path), f"image {name}")) from exc
        validated_image = validation.validate(part_path)
        _place(context.settings, part_path, name, options)
    digest, warnings = _cache_copy(context.settings, target, validated_image, content)
    return {
        "path": str(target),
        "digest": digest,
        "os": content.os,
        "has_minion": content.has_minion,
        "has_cloud_init": content.has_cloud_init,
        **({"warnings": warnings} if warnings else {}),
    }


def _place(settings: HostSettings, part_path: Path, name: str, options: Mapping[str, Any]) -> None:
    """Move a built image to its name; a crash loses neither the old image nor the new one."""
    part_path.chmod(0o644)
    # Sync before taking the lock: that may take a while.
    files.make_durable(part_path)
    with reservations.host_lock(settings):
        # Check again: meanwhile, there may be a file of that name, or a VM based on it.
        target = _target(settings, name, options)
        door.replace(part_path, _verdict(settings, target))


def refuse_packages(packages: Sequence[str], *, is_networked: bool) -> None:
    """Refuse packages, which come from the guest's repositories, without the network for them."""
    if packages and not is_networked:
        raise BadArgument(
            "packages",
            "they come from the guest's own repositories; set virt:seed:install_network: True for "
            "that, or bring them with files= and install them with commands=",
        )


def _job(options: Mapping[str, Any]) -> dict[str, Any]:
    packages = arguments.names("packages", options["packages"])
    commands = options["commands"] or []
    if isinstance(commands, str):
        commands = [commands]
    if not isinstance(commands, list) or not all(isinstance(command, str) for command in commands):
        raise BadArgument("commands", f"{commands!r} is not a list of commands")
    for flag in ("install", "sysprep", "replace"):
        arguments.boolean(flag, options[flag])
    for path in arguments.mapping("files", options["files"]) or {}:
        if not str(path).startswith("/"):
            raise BadArgument("files", f"{path!r} is not an absolute path in the guest")
    return {
        "action": "build",
        "packages": list(packages),
        "commands": commands,
        "sysprep": options["sysprep"],
    }


def _target(settings: HostSettings, name: str, options: Mapping[str, Any]) -> Path:
    folder_option = options["folder"]
    default_folder = Path(settings.images, "golden")
    folder = (
        default_folder if folder_option is None else Path(arguments.text("folder", folder_option))
    )
    if folder_option is None:
        diskpaths.make_image_folder(settings.images)
        folder.mkdir(mode=0o711, exist_ok=True)
    elif not folder.is_absolute() or not folder.is_dir():
        raise BadArgument("folder", f"there is no folder {folder} on this host")
    target = folder / f"{name}.qcow2"
    if target.exists() and not options["replace"]:
        raise StorageError(
            f"{target} exists already; give another name, or replace=True "
            "(VMs made of the old one keep it)"
        )
    if target.exists():
        _verdict(settings, target).refuse(f"{target} is not replaced")
    return target


def _verdict(settings: HostSettings, target: Path) -> Verdict:
    """Return the verdict on replacing a golden image: a VM may use it by its path."""
    if connect.why_missing():
        return usage.index(None, settings).verdict(policies.REPLACE, str(target))
    with connect.open_connection(settings) as conn:
        index = usage.index(conn, settings, beside_files=[str(target)])
        return index.verdict(policies.REPLACE, str(target))


def _fetch_inputs(
    context: Context, base: validation.ValidatedImage, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Fetch the files that the job needs; return these parts of the job."""
    source = install.source(context.settings, options["install_from"])
    installation = None
    if options["install"]:
        content = inspection.look(context, base, use_kvm=False)
        if not content.has_minion:
            saltenv = options["saltenv"]
            packages = () if source else install.find_suitable(context, content, saltenv)
            installation = install.prepare(context, source, content.arch, saltenv, packages)
    uploads = []
    for path, file_options in (options["files"] or {}).items():
        file_options = file_options if isinstance(file_options, dict) else {"source": file_options}
        arguments.refuse_unknown_keys("files", file_options, {"source", "mode"})
        file = fetch.obtain(
            context, file_options.get("source", ""), options["saltenv"], validation.accept_any
        )
        uploads.append([path, file.path, str(file_options.get("mode", "644"))])
    is_network_needed = bool(
        options["packages"] or options["commands"] or (installation and installation.network)
    )
    network = is_network_needed and install.uses_network(context.settings)
    return {
        "install": installation and installation.to_job(),
        "uploads": uploads,
        "network": network,
    }


def _cache_copy(
    settings: HostSettings,
    target: Path,
    validated_image: validation.ValidatedImage,
    content: Inspection,
) -> tuple[str, list[str]]:
    """Copy a built image into the cache; return ``(digest, warnings)``."""
    warnings = []
    try:
        digest = cache.adopt(settings, target, validated_image)
    except writelimit.OverLimit as exc:
        # The image itself is complete; building the first VM from it needs that room.
        digest = local_digest(str(target), Index(cache.ensure_folder(settings) / "index.json"))
        warnings = [f"the cache has no copy of {target}, which the first VM of it needs: {exc}"]
    files.write(cache.inspection_path(settings, digest), json.dumps(wire.plain(content)).encode())
    return digest, warnings
