"""Which way a guest is seeded: by what its image has in it, found once per content."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from saltvirt import files, locks
from saltvirt.errors import SeedError
from saltvirt.image import cache
from saltvirt.ops import installing, seeding
from saltvirt.seed import appliance, credentials, guest


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a VM is seeded: by one of our methods, or by the function that the user named."""

    method: str
    install: Mapping | None = None
    found: Mapping | None = None


def way(context, deployment, fetched, identity):
    """
    Return the :class:`Way` of seeding a VM; raise before anything is made if it cannot work.

    fetched
        ``{image: judged cached copy}``; the first disk that has one is seeded.
    identity
        As :func:`saltvirt.ops.seeding.prepare` returns it.
    """
    if deployment.seed_cmd != seeding.OWN:
        return Way(method=deployment.seed_cmd)
    source = installing.source(context.settings, deployment.install_from)
    asked = deployment.seed_method or context.settings.seed.get("method", "auto")
    if asked == "nbd":
        refuse_host_mount(context.settings)
    found = None
    if asked == "credentials" and not deployment.start:
        raise SeedError("credentials are handed over when the VM starts; leave out start=False")
    if asked in ("auto", "guestfs", "credentials"):
        image = next(disk.image for disk in deployment.vm.disks if disk.image)
        asked, found = _looked(context, deployment, image, fetched[image], asked, source)
    cloud = identity["cloud"]
    if asked != "nocloud" and (any(cloud["user_data"]) or cloud["network"]):
        raise SeedError(f"user_data and the guest's part of interfaces are for cloud-init; with "
                        f"{asked} nothing in the guest would read them")  # fmt: skip
    install = _install(context, deployment, asked, found, source)
    return Way(method=asked, install=install, found=found)


def refuse_host_mount(settings):
    """Raise SeedError unless the operator allowed that this host's kernel mounts guests' disks."""
    if settings.seed.get("allow_host_mount") is not True:
        raise SeedError(
            "mounting a guest's disk on this host lets its kernel read what a stranger may have "
            "made; use guestfs, or set virt:seed:allow_host_mount: True"
        )


def _install(context, deployment, method, found, source):
    """Return how the minion is installed; a source is fetched only if there is none yet."""
    if not deployment.install or (found and found.get("has_minion")):
        return None
    if method == "nocloud":
        if source:
            raise SeedError("install_from needs seed_method=guestfs: cloud-init installs from the "
                            "guest's own repositories")  # fmt: skip
        return {"kind": "boot"}
    if method == "credentials":
        return None
    if method == "nbd":
        if source:
            raise SeedError("install_from needs seed_method=guestfs: a host never runs what is in "
                            "a guest's disk")  # fmt: skip
        return {"kind": "boot", "script": guest.install()}
    return installing.prepared(context, source, (found or {}).get("arch"), deployment.saltenv)


def _looked(context, deployment, image, base, asked, source):
    """Return ``(method, what was found)``; what is found decides if nobody asked for a method."""
    missing = appliance.why_missing(_python(context.settings))
    if missing:
        return _unlooked(context, asked, missing), None
    try:
        found = look(context, base, use_kvm=deployment.vm.domain_type == "kvm")
    except SeedError as exc:
        if asked != "auto":
            raise
        # Whatever is wrong with it, the seed of cloud-init does no harm.
        context.say("Seeding", detail=f"by nocloud: {exc}")
        return "nocloud", None
    _refuse_unfit(image, found, asked, deployment.install)
    if asked != "auto":
        return asked, found
    return "nocloud" if found["root"] is None else _fitting(found, source), found


def _unlooked(context, asked, missing):
    """Return the method if this host cannot look into images."""
    if asked == "guestfs":
        raise SeedError(f"seed_method guestfs does not work on this host: {missing}")
    if asked == "auto":
        context.say("Seeding", detail="by nocloud; nothing here could look into the image")
        return "nocloud"
    return asked


def _refuse_unfit(image, found, asked, install):
    if found["root"] is None:
        if asked != "auto":
            raise SeedError(f"image {image} cannot be seeded: there is no operating system in it")
        return
    if not found["has_minion"] and not install:
        raise SeedError(f"image {image} ({found['os']}) has no salt-minion, and install=False; "
                        "give another image, install=True, or seed=False")  # fmt: skip
    if asked == "credentials":
        _refuse_without_credentials(image, found)


def _refuse_without_credentials(image, found):
    if not found["has_minion"]:
        raise SeedError(f"image {image} has no salt-minion, and credentials install none; "
                        "use seed_method=guestfs")  # fmt: skip
    version = found.get("systemd_version")
    if not found["has_systemd"] or (version and version < credentials.LEAST_SYSTEMD):
        raise SeedError(f"image {image} has systemd {version or 'of no kind'}; credentials need "
                        f"{credentials.LEAST_SYSTEMD} or later")  # fmt: skip


def _fitting(found, source):
    """Return the cheapest safe method that an image supports."""
    is_put_in = source is not None and not found["has_minion"]
    return "nocloud" if found["has_cloud_init"] and not is_put_in else "guestfs"


def _python(settings):
    return settings.seed.get("python", appliance.PYTHON)


def limits(settings):
    """Return what :func:`saltvirt.seed.appliance.run` needs to know of this host."""
    seed = settings.seed
    return {"python": _python(settings), "state_dir": settings.state_dir,
            "limit_s": int(seed.get("limit_s", appliance.LIMIT_S)),
            "memory_mib": int(seed.get("memory_mib", appliance.MEMORY_MIB))}  # fmt: skip


def look(context, base, *, use_kvm):
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
            return json.loads(kept.read_text())
        context.say("Looking", detail="into the image, once")
        found = appliance.run(job, use_kvm=use_kvm, **limits(context.settings))
        files.write(kept, json.dumps(found).encode(), 0o644)
    return found


def write(context, deployment, identity, disk, way):
    """Write a guest's identity into its disk, which nobody has open yet."""
    seed_disk(context, disk.path, disk.format, identity, via=way.method, install=way.install,
              found=way.found, use_kvm=deployment.vm.domain_type == "kvm")  # fmt: skip


def seed_disk(context, path, fmt, identity, *, via, install, found=None, use_kvm=False):
    """
    Write an identity into a disk or, via ``folder``, below a folder; return what was found.

    install
        As :func:`saltvirt.ops.installing.prepared` returns it; None to refuse if there is none.
    found
        What was found in the image that the disk is made of: it need not be inspected again.
    """
    own = limits(context.settings)
    if via != "guestfs":
        # Nothing but the standard library is needed, so the minion's own interpreter does.
        own["python"] = sys.executable
    job = {
        "action": "seed", "via": via, "path": path, "format": fmt, "install": install,
        "network": bool(install and install.get("network")), "files": files_of(identity),
        "found": found,
    }  # fmt: skip
    return appliance.run(job, use_kvm=use_kvm, **own)


def files_of(identity):
    """Return the files of an identity as ``[(path, text, octal mode)]``."""
    config = yaml.safe_dump(identity["config"], default_flow_style=False)
    pki = "/etc/salt/pki/minion"
    wanted = [
        ("/etc/salt/minion_id", f"{identity['id']}\n", "644"),
        ("/etc/salt/minion.d/99-salt-virt.conf", config, "640"),
        ("/etc/hostname", f"{identity['id'].split('.')[0]}\n", "644"),
        (f"{pki}/minion.pem", identity["private_key"], "400"),
        (f"{pki}/minion.pub", identity["public_key"], "644"),
        (f"{pki}/minion_master.pub", identity["master_key"], "644"),
    ]
    return [one for one in wanted if one[1]]
