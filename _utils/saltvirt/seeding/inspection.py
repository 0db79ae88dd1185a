"""Inspect an image in libguestfs' appliance, once per content."""

import json
import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from saltvirt.core import files, locks, wire, writelimit
from saltvirt.core.errors import BadArgument, SeedError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.seeding.offline import appliance
from saltvirt.seeding.seedmodel import Inspection
from saltvirt.storage.images import cache, validation

_ARCH = re.compile(r"\w{1,32}", re.ASCII)


def python(settings: HostSettings) -> str:
    """Return the Python interpreter that has libguestfs' binding."""
    interpreter: str = settings.seed.get("python", appliance.PYTHON)
    return interpreter


def limits(settings: HostSettings) -> dict[str, Any]:
    """Return this host's arguments for :func:`saltvirt.seeding.offline.appliance.run`."""
    seed = settings.seed
    return {
        "python": python(settings),
        "state_dir": settings.state_dir,
        "room": writelimit.from_settings(settings),
        "limit_s": int(seed.get("limit_s", appliance.LIMIT_S)),
        "memory_mib": int(seed.get("memory_mib", appliance.MEMORY_MIB)),
    }


def masters(opts: Mapping[str, Any]) -> list[str]:
    """Return the addresses of this minion's masters; raise SeedError if any is unknown."""
    uri = opts.get("master_uri") or ""
    if opts.get("file_client") == "local" and not uri:
        return []
    configured_masters = opts.get("master") or []
    names = (
        [configured_masters] if isinstance(configured_masters, str) else list(configured_masters)
    )
    address = uri.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if address:
        # The minion is connected to this address; the master's name may not resolve any more.
        names = [address, *(names if len(names) > 1 else ())]
    return [master_address for name in names for master_address in _addresses(str(name))]


def _addresses(name: str) -> list[str]:
    host = name.rpartition(":")[0] if name.count(":") == 1 else name
    try:
        rows = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise SeedError(
            f"the address of the master {name} is not known, and an appliance with a network must "
            f"not reach it: {exc.strerror or exc}"
        ) from exc
    return sorted({str(row[4][0]).partition("%")[0] for row in rows})


def parse_content(answer: object) -> Inspection:
    """Parse a worker's answer, new or cached, about a disk; raise SeedError if it is malformed."""
    try:
        out: Inspection = wire.argument("the disk's content", Inspection, answer)
    except BadArgument as exc:
        raise SeedError(f"the worker's answer about the disk cannot be read: {exc}") from exc
    # The architecture is used in paths and URLs, and a hostile image may control the worker.
    is_name = out.arch is None or _ARCH.fullmatch(out.arch)
    return out if is_name else replace(out, arch="unknown")


def read_kept_content(settings: HostSettings, base: validation.ValidatedImage) -> Inspection | None:
    """Return the kept content of a cached image, None if the image was never inspected."""
    digest = cache.digest_of(settings, base.path)
    path = cache.inspection_path(settings, digest) if digest else None
    return parse_content(json.loads(path.read_text())) if path and path.exists() else None


def look(context: Context, base: validation.ValidatedImage, *, use_kvm: bool) -> Inspection:
    """Return the content of a cached image, inspected once and kept beside the image."""
    settings, digest = context.settings, cache.digest_of(context.settings, base.path)
    if digest is None:
        return parse_content(look_into(settings, base.path, base.format, use_kvm=use_kvm))
    with locks.hold_lock(Path(settings.state_dir) / "locks" / f"look-{digest}.lock"):
        kept_content = read_kept_content(settings, base)
        if kept_content is not None:
            return kept_content
        context.progress("Looking", detail="into the image, once")
        answer = look_into(settings, base.path, base.format, use_kvm=use_kvm)
        files.write(cache.inspection_path(settings, digest), json.dumps(answer).encode())
    return parse_content(answer)


def look_into(
    settings: HostSettings, path: str, fmt: str | None, *, use_kvm: bool = False
) -> dict[str, Any]:
    """Return the worker's answer about the content of a disk or an image."""
    job = {"action": "look", "path": path, "format": fmt}
    return appliance.run(job, use_kvm=use_kvm, **limits(settings))
