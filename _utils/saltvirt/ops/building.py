"""Make a golden image: a base with everything in it that every VM made of it shall have."""

import json
from pathlib import Path

from saltvirt import arguments, files
from saltvirt.errors import BadArgument, SeedError, StorageError
from saltvirt.image import cache, clone, gate, tool
from saltvirt.ops import fetching, installing, looking, storage
from saltvirt.seed import appliance


def build(context, source, name, given):
    """
    Build an image and return ``{"path", "digest", "os", "has_minion", "has_cloud_init"}``.

    given
        ``{packages, files, commands, install, install_from, sysprep, saltenv, image_hash, folder,
        replace}``; see ``virt.image_build``.
    """
    arguments.vm_name(name)
    job = _job(given)
    target = _target(context.settings, name, given)
    limits = looking.limits(context.settings)
    missing = appliance.why_missing(limits["python"])
    if missing:
        raise StorageError(f"no image can be built on this host: {missing}")
    base = fetching.obtain(context, source, given["saltenv"], image_hash=given["image_hash"])
    part = files.part_path(target.parent, name)
    with clone.storing(part):
        context.say("Copying")
        tool.convert(base.path, base.format, part, "qcow2")
        job |= _brought(context, base, given)
        context.say("Building", detail="in the appliance")
        try:
            found = appliance.run({**job, "path": str(part), "format": "qcow2"}, **limits)
        except SeedError as exc:
            raise SeedError(str(exc).replace(str(part), f"image {name}")) from exc
        judged = gate.judge(part)
        part.chmod(0o644)
        part.rename(target)
    digest = _known(context.settings, target, judged, found)
    shown = {key: found[key] for key in ("os", "has_minion", "has_cloud_init")}
    return {"path": str(target), "digest": digest, **shown}


def _job(given):
    packages = arguments.names("packages", given["packages"])
    commands = given["commands"] or []
    if isinstance(commands, str):
        commands = [commands]
    if not all(isinstance(one, str) for one in commands):
        raise BadArgument("commands", f"{commands!r} is no list of commands")
    for flag in ("install", "sysprep", "replace"):
        arguments.boolean(flag, given[flag])
    for path in arguments.mapping("files", given["files"]) or {}:
        if not str(path).startswith("/"):
            raise BadArgument("files", f"{path!r} is no absolute path in the guest")
    return {"action": "build", "packages": list(packages), "commands": commands,
            "sysprep": given["sysprep"]}  # fmt: skip


def _target(settings, name, given):
    folder = Path(given["folder"] or Path(settings.images, "golden"))
    if given["folder"] is None:
        storage.made(settings.images)
        folder.mkdir(mode=0o711, exist_ok=True)
    elif not folder.is_absolute() or not folder.is_dir():
        raise BadArgument("folder", f"there is no folder {folder} on this host")
    target = folder / f"{name}.qcow2"
    if target.exists() and not given["replace"]:
        raise StorageError(f"{target} exists already; give another name, or replace=True "
                           "(VMs made of the old one keep it)")  # fmt: skip
    return target


def _brought(context, base, given):
    """Return the parts of the job that need files of this host, fetched."""
    source = installing.source(context.settings, given["install_from"])
    install = None
    if given["install"]:
        found = looking.look(context, base, use_kvm=False)
        if not found.get("has_minion"):
            install = installing.prepared(context, source, found.get("arch"), given["saltenv"])
    uploads = []
    for path, said in (given["files"] or {}).items():
        said = said if isinstance(said, dict) else {"source": said}
        arguments.refuse_unknown_keys("files", said, {"source", "mode"})
        found = fetching.obtain(context, said.get("source", ""), given["saltenv"], gate.accept_any)
        uploads.append([path, found.path, str(said.get("mode", "644"))])
    network = bool(given["packages"] or given["commands"] or (install and install["network"]))
    return {"install": install, "uploads": uploads, "network": network}


def _known(settings, target, judged, found):
    """Have a built image in the cache, without a second copy; return its digest."""
    digest = cache.adopt(settings, target, judged)
    look = {key: value for key, value in found.items() if key != "had_minion"}
    files.write(cache.look_path(settings, digest), json.dumps(look).encode(), 0o644)
    return digest
