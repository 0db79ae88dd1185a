"""What an image has in it, found in libguestfs' appliance, once per content."""

import json
from pathlib import Path
from typing import Any

from saltvirt import files, locks
from saltvirt.config import HostSettings
from saltvirt.image import cache, validation
from saltvirt.ops.context import Context
from saltvirt.seed import appliance


def python(settings: HostSettings) -> str:
    """Return the interpreter that has libguestfs' binding."""
    found: str = settings.seed.get("python", appliance.PYTHON)
    return found


def limits(settings: HostSettings) -> dict[str, Any]:
    """Return what :func:`saltvirt.seed.appliance.run` needs to know of this host."""
    seed = settings.seed
    return {
        "python": python(settings),
        "state_dir": settings.state_dir,
        "limit_s": int(seed.get("limit_s", appliance.LIMIT_S)),
        "memory_mib": int(seed.get("memory_mib", appliance.MEMORY_MIB)),
    }


def kept(settings: HostSettings, base: validation.ValidatedImage) -> dict[str, Any] | None:
    """Return what was found in a cached image before, None if nobody has looked into it."""
    digest = cache.digest_of(settings, base.path)
    path = cache.look_path(settings, digest) if digest else None
    return json.loads(path.read_text()) if path and path.exists() else None


def look(context: Context, base: validation.ValidatedImage, *, use_kvm: bool) -> dict[str, Any]:
    """
    Return what a cached image has in it: ``{root, os, arch, has_minion, has_cloud_init, ...}``.

    It is looked for once per content and kept beside the image.
    """
    digest = cache.digest_of(context.settings, base.path)
    job = {"action": "look", "path": base.path, "format": base.format}
    if digest is None:
        return appliance.run(job, use_kvm=use_kvm, **limits(context.settings))
    kept = cache.look_path(context.settings, digest)
    with locks.held(Path(context.settings.state_dir) / "locks" / f"look-{digest}.lock"):
        if kept.exists():
            out: dict[str, Any] = json.loads(kept.read_text())
            return out
        context.progress("Looking", detail="into the image, once")
        found = appliance.run(job, use_kvm=use_kvm, **limits(context.settings))
        files.write(kept, json.dumps(found).encode(), 0o644)
    return found
