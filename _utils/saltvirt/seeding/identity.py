"""A guest's identity: its name, its master and its keys, decided before anything is made."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization

from saltvirt.core import sshkeys
from saltvirt.core.crypto import keypair
from saltvirt.core.errors import BadArgument, SeedError
from saltvirt.core.model import Deployment
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.seeding import cloudconfig, nocloud, submission
from saltvirt.seeding.seedmodel import CloudInit, Identity


def _text(argument: str, value: object) -> str:
    if not isinstance(value, str):
        raise SeedError(f"{argument} is not text")  # do not show it: it may be secret
    if value.startswith("/"):
        try:
            return Path(value).read_text()
        except OSError as exc:
            raise SeedError(f"{argument} {value}: {exc.strerror} on this host") from exc
        except UnicodeDecodeError:
            raise SeedError(f"{argument} {value} is not a PEM file") from None
    return value


def read_key_pair(
    pub_key: str | None, priv_key: str | None, minion_pki: str
) -> tuple[str | None, str | None]:
    """
    Return ``(public, private)`` PEM texts, both None without keys.

    pub_key, priv_key
        PEM text, an absolute path on this host, or (private only) text sealed for this minion.
    minion_pki
        The folder with this minion's own ``minion.pem``.
    """
    if bool(pub_key) != bool(priv_key):
        raise SeedError("pub_key and priv_key go together: give both or neither")
    if not (pub_key and priv_key):
        return None, None
    if keypair.is_sealed(priv_key):
        minion_key = _text("this minion's key", os.path.join(minion_pki, "minion.pem"))
        priv_key = keypair.unseal(priv_key, minion_key)
    public, private = _text("pub_key", pub_key), _text("priv_key", priv_key)
    _refuse_mismatch(public, private)
    return public, private


def _refuse_mismatch(public: str, private: str) -> None:
    try:
        public_key = serialization.load_pem_public_key(public.strip().encode())
        # This key signs nothing here; the operator answers for its primes.
        derived = serialization.load_pem_private_key(
            private.encode(), password=None, unsafe_skip_rsa_key_validation=True
        ).public_key()
    except (ValueError, TypeError):
        raise SeedError("pub_key or priv_key is not a PEM key without a passphrase") from None
    plain = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if public_key.public_bytes(*plain) != derived.public_bytes(*plain):
        raise SeedError("pub_key is not the public half of priv_key")


OWN_COMMAND = "seed.apply"
# As the distributions' /etc/hosts has them; 127.0.1.1 is Debian's for the host's own name.
_LOOPBACK = (
    *("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"),
    *("127.0.0.1", "127.0.1.1", "::1"),
)
_BRACKETED = re.compile(r"\[([^]]*)\](?::\d+)?")


def prepare(context: Context, deployment: Deployment) -> Identity | None:
    """
    Return the guest's identity, or None if it gets none; raise if seeding cannot work.

    Nothing is written here: all checks are made before a VM exists.
    """
    values_by_argument = {
        "pub_key": deployment.pub_key or deployment.priv_key,
        "ssh_authorized_keys": deployment.ssh_keys,
    }
    if not deployment.is_seeded:
        for argument in (name for name, value in values_by_argument.items() if value):
            raise BadArgument(argument, "there is nothing to seed: give an image and seed=True")
        return None
    if deployment.seed_cmd != OWN_COMMAND and deployment.seed_cmd not in context.functions:
        raise BadArgument("seed_cmd", f"this minion has no function {deployment.seed_cmd!r}")
    if deployment.seed_cmd == OWN_COMMAND:
        nocloud.refuse_if_impossible()
    pair = (deployment.pub_key, deployment.priv_key)
    new_identity = identity(context, deployment.vm.name, deployment.config, pair)
    keys = sshkeys.merge_keys(_host_keys(context), deployment.ssh_keys)
    return replace(new_identity, ssh_keys=keys, cloud_init=_cloud_init(context, deployment))


def _host_keys(context: Context) -> tuple[str, ...]:
    option = "ssh_authorized_keys"
    return sshkeys.read_keys(f"virt:seed:{option}", context.settings.seed.get(option))


def identity(
    context: Context,
    name: str,
    config: Mapping[str, Any],
    key_pair: Any,
    *,
    approve_key: bool = True,
) -> Identity:
    """
    Return the identity of a minion.

    key_pair
        ``(public, private)``: text or paths. Without a pair this host generates one if the master
        lets it submit the key; otherwise the guest makes its own and waits to be accepted.
    """
    pki = context.opts.get("pki_dir", "/etc/salt/pki/minion")
    public, private = read_key_pair(key_pair[0], key_pair[1], pki)
    is_submitted = bool(
        approve_key and not public and submission.is_authorized(context.settings, name)
    )
    if is_submitted:
        public, private = keypair.generate()
    config = _config(context, name, config)
    return Identity(
        id=name,
        config=config,
        public_key=public,
        private_key=private,
        master_key=_master_key(context, config, pki),
        is_submitted=is_submitted,
    )


def nameless_identity(context: Context, config: Mapping[str, Any], key_pair: Any) -> Identity:
    """Return the identity of a minion that takes its id from its hostname; see :func:`identity`."""
    new_identity = identity(context, "", config, key_pair, approve_key=False)
    return replace(
        new_identity,
        config={key: value for key, value in new_identity.config.items() if key != "id"},
    )


def _cloud_init(context: Context, deployment: Deployment) -> CloudInit:
    seed = context.settings.seed
    return CloudInit(
        user_data=(
            cloudconfig.mapping("virt:seed:user_data", seed.get("user_data")),
            cloudconfig.mapping("user_data", deployment.user_data),
        ),
        vendor_data=cloudconfig.mapping("virt:seed:vendor_data", seed.get("vendor_data")),
        network=cloudconfig.network(deployment.vm.nics),
    )


def master_of_guests(
    settings: HostSettings, opts: Mapping[str, Any], requested_master: Any = None
) -> Any:
    """Return the master's names by which guests reach it; raise SeedError if there are none."""
    master = requested_master or settings.seed.get("master") or opts.get("master")
    names = master if isinstance(master, list | tuple) else [master or ""]
    hosts = [host_of(str(name)).casefold() for name in names]
    if all(host in ("", *_LOOPBACK) for host in hosts):
        raise SeedError(
            f"the guest cannot reach a master called {master!r}; set virt:seed:master to an "
            "address that guests can reach, or give config='{master: ...}'"
        )
    return master


def host_of(master: str) -> str:
    """Return a master's name or address without its port, if any."""
    if match := _BRACKETED.fullmatch(master):
        return match[1]
    return master.rpartition(":")[0] if master.count(":") == 1 else master


def _config(context: Context, name: str, requested_config: Mapping[str, Any]) -> dict[str, Any]:
    seed, opts = context.settings.seed, context.opts
    if requested_config.get("id", name) != name:
        raise BadArgument(
            "config",
            f"its id is {requested_config['id']!r}, but the minion will be {name!r}; "
            "leave the id out",
        )
    master = master_of_guests(context.settings, opts, requested_config.get("master"))
    master_config = {"master": master}
    for port, default in (("master_port", 4506), ("publish_port", 4505)):
        if opts.get(port, default) != default:
            master_config[port] = opts[port]
    return {**master_config, **(seed.get("config") or {}), **requested_config, "id": name}


def _master_key(context: Context, config: Mapping[str, Any], pki: str) -> str | None:
    """Return the master's public key, so that the guest trusts this master and no other."""
    if config["master"] != context.opts.get("master") or not isinstance(config["master"], str):
        return None
    path = Path(pki) / "minion_master.pub"
    return path.read_text() if path.exists() else None
