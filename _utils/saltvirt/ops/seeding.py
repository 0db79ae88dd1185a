"""Give a new VM's disk its identity: our own seed, or a function the user named."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

from salt.exceptions import SaltException

from saltvirt import keypair
from saltvirt.errors import BadArgument, SeedError
from saltvirt.ops import approve
from saltvirt.seed import cloudconfig, keys, nocloud

OWN = "seed.apply"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def prepare(context, deployment):
    """
    Return the guest's identity, or None if it gets none; refuse what cannot work.

    Nothing is written here: everything that can be refused is refused before a VM exists.
    """
    given = deployment.pub_key or deployment.priv_key
    if not deployment.is_seeded:
        if given:
            raise BadArgument("pub_key", "there is nothing to seed: give an image and seed=True")
        return None
    if deployment.seed_cmd != OWN and deployment.seed_cmd not in context.functions:
        raise BadArgument("seed_cmd", f"this minion has no function {deployment.seed_cmd!r}")
    if deployment.seed_cmd == OWN:
        nocloud.refuse_if_impossible()
    given = (deployment.pub_key, deployment.priv_key)
    made = identity(context, deployment.vm.name, deployment.config, given)
    return {**made, "cloud": _cloud(context, deployment)}


def identity(context, name, config, given, *, approve_key=True):
    """
    Return ``{id, config, public_key, private_key, master_key, is_submitted}`` of a minion.

    given
        ``(public, private)``: text or paths. If neither is given, a pair is made when the master
        lets this host submit it; otherwise the guest makes its own and waits to be accepted.
    """
    pki = context.opts.get("pki_dir", "/etc/salt/pki/minion")
    public, private = keys.read(*given, pki)
    is_submitted = bool(
        approve_key and not public and approve.is_allowed(context.settings, name)
    )
    if is_submitted:
        public, private = keypair.generate()
    config = _config(context, name, config)
    return {
        "id": name,
        "config": config,
        "public_key": public,
        "private_key": private,
        "master_key": _master_key(context, config, pki),
        "is_submitted": is_submitted,
    }


def _cloud(context, deployment):
    """Return what cloud-init is told beside the identity; only a seed of NoCloud can say it."""
    seed = context.settings.seed
    return {
        "user_data": (cloudconfig.mapping("virt:seed:user_data", seed.get("user_data")),
                      cloudconfig.mapping("user_data", deployment.user_data)),
        "vendor_data": cloudconfig.mapping("virt:seed:vendor_data", seed.get("vendor_data")),
        "network": cloudconfig.network(deployment.vm.nics),
    }  # fmt: skip


def _config(context, name, given):
    seed, opts = context.settings.seed, context.opts
    if given.get("id", name) != name:
        raise BadArgument("config", f"its id is {given['id']!r}, but the minion will be {name!r}; "
                          "leave the id out")  # fmt: skip
    master = given.get("master") or seed.get("master") or opts.get("master")
    if not master or (isinstance(master, str) and master in _LOOPBACK):
        raise SeedError(
            f"the guest cannot reach a master called {master!r}; set virt:seed:master to an "
            "address that guests can reach, or give config='{master: ...}'"
        )
    own = {"master": master}
    for port, usual in (("master_port", 4506), ("publish_port", 4505)):
        if opts.get(port, usual) != usual:
            own[port] = opts[port]
    return {**own, **(seed.get("config") or {}), **given, "id": name}


def _master_key(context, config, pki):
    """Return the master's public key, so that the guest trusts this master and no other."""
    if config["master"] != context.opts.get("master") or not isinstance(config["master"], str):
        return None
    path = Path(pki) / "minion_master.pub"
    return path.read_text() if path.exists() else None


def path_for(settings, name):
    """Return where a VM's seed lies."""
    return Path(settings.images) / f"{name}_seed.iso"


def write(path, identity, uuid, *, install):
    """Write the seed of our own method."""
    nocloud.build(path, {**identity, "instance": uuid}, install=install)


@contextmanager
def _key_files(identity):
    """Yield the paths of the key pair for a function that wants files; None without keys."""
    if not identity["private_key"]:
        yield None, None
        return
    with tempfile.TemporaryDirectory(prefix="salt-virt-keys-") as folder:
        paths = []
        for name, text in (("minion.pub", identity["public_key"]),
                           ("minion.pem", identity["private_key"])):  # fmt: skip
            path = Path(folder) / name
            path.touch(mode=0o600)
            path.write_text(text)
            paths.append(str(path))
        yield tuple(paths)


def run_command(context, deployment, made, disk_path):
    """Seed with the function the user named; it must not return False."""
    with _key_files(made) as (public, private):
        try:
            done = context.functions[deployment.seed_cmd](
                os.fspath(disk_path),
                id_=made["id"],
                config=made["config"],
                install=deployment.install,
                pub_key=public,
                priv_key=private,
            )
        except (SaltException, OSError, TypeError) as exc:
            raise SeedError(f"{deployment.seed_cmd} failed on {disk_path}: {exc}") from exc
    if done is False:
        raise SeedError(f"{deployment.seed_cmd} could not seed {disk_path}")
