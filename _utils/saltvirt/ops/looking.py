"""Which way a guest is seeded: by what its image has in it, found once per content."""

import json
from pathlib import Path

import yaml

from saltvirt import files, locks
from saltvirt.errors import SeedError
from saltvirt.image import cache
from saltvirt.ops import seeding
from saltvirt.seed import appliance, guest


def method(context, deployment, fetched):
    """
    Return how a VM is seeded: ``nocloud``, ``guestfs``, or the function that the user named.

    fetched
        ``{image: judged cached copy}``; the first disk that has one is seeded.

    Raises SeedError, before anything is made, if it cannot work.
    """
    if deployment.seed_cmd != seeding.OWN:
        return deployment.seed_cmd
    asked = deployment.seed_method or context.settings.seed.get("method", "auto")
    missing = None if asked == "nocloud" else appliance.why_missing(_python(context))
    if asked == "guestfs" and missing:
        raise SeedError(f"seed_method guestfs does not work on this host: {missing}")
    if asked != "auto":
        return asked
    if missing:
        context.say("Seeding", detail="by nocloud; nothing here could look into the image")
        return "nocloud"
    image = next(disk.image for disk in deployment.vm.disks if disk.image)
    return _fitting(context, deployment, image, fetched[image])


def _fitting(context, deployment, image, base):
    try:
        found = look(context, base, use_kvm=deployment.vm.domain_type == "kvm")
    except SeedError as exc:
        # Whatever is wrong with it, the seed of cloud-init does no harm.
        context.say("Seeding", detail=f"by nocloud: {exc}")
        return "nocloud"
    if found["root"] is None:
        return "nocloud"
    if not found["has_minion"] and not deployment.install:
        raise SeedError(f"image {image} ({found['os']}) has no salt-minion, and install=False; "
                        "give another image, install=True, or seed=False")  # fmt: skip
    return "nocloud" if found["has_cloud_init"] else "guestfs"


def _python(context):
    return context.settings.seed.get("python", appliance.PYTHON)


def _limits(context):
    seed = context.settings.seed
    return {"python": _python(context), "state_dir": context.settings.state_dir,
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
        return appliance.run(job, use_kvm=use_kvm, **_limits(context))
    kept = cache.look_path(context.settings, digest)
    with locks.held(Path(context.settings.state_dir) / "locks" / f"look-{digest}.lock"):
        if kept.exists():
            return json.loads(kept.read_text())
        context.say("Looking", detail="into the image, once")
        found = appliance.run(job, use_kvm=use_kvm, **_limits(context))
        files.write(kept, json.dumps(found).encode(), 0o644)
    return found


def write(context, deployment, identity, disk):
    """Write a guest's identity into its disk, which nobody has open yet."""
    job = {
        "action": "seed", "path": disk.path, "format": disk.format, "install": deployment.install,
        "files": _files(identity), "install_script": guest.install(),
    }  # fmt: skip
    appliance.run(job, use_kvm=deployment.vm.domain_type == "kvm", **_limits(context))


def _files(identity):
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
