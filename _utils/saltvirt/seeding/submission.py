"""Submit a VM's minion key to the master, once, with the token of virt.authorize."""

import logging
from pathlib import Path
from typing import Any

from saltvirt.core import arguments, files
from saltvirt.core.crypto import keypair
from saltvirt.core.errors import BadArgument, SeedError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context

log = logging.getLogger(__name__)


def _token_path(settings: HostSettings, name: str) -> Path:
    return Path(settings.state_dir) / "tokens" / name


def keep_token(context: Context, name: str, token: Any) -> None:
    """Keep a token that the master sealed for this host until it is used; None removes it."""
    arguments.vm_name(name)
    if token is None:
        forget_token(context.settings, name)
        return
    if not keypair.is_sealed(token):
        raise SeedError("token: it is not sealed; it comes from salt-run virt.authorize")
    key_path = Path(context.opts.get("pki_dir", "/etc/salt/pki/minion")) / "minion.pem"
    path = _token_path(context.settings, name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.write(path, keypair.unseal(token, key_path.read_text()).encode())


def forget_token(settings: HostSettings, name: str) -> None:
    """Remove a VM's token if there is one."""
    _token_path(settings, name).unlink(missing_ok=True)


def is_authorized(settings: HostSettings, name: str) -> bool:
    """Return whether the master has authorized this host to submit a VM's key."""
    return _token_path(settings, name).exists()


def refuse_reserved(context: Context, name: str) -> None:
    """
    Raise BadArgument if the master answers that a VM's name is a hypervisor's.

    A master without this project's external pillar does not answer.
    """
    arguments.vm_name(name)
    # Without a master there are no hypervisors' names.
    has_master = context.opts.get("file_client") != "local"
    if context.ask is None or context.is_ordered or not has_master:
        return
    answer = (context.ask(context.opts, {"virtkey": {"name": name}}) or {}).get("virtkey") or {}
    if answer.get("reserved"):
        raise BadArgument(f"the master refused: {answer['reserved']}")


def submit(context: Context, name: str, public: str | None) -> None:
    """
    Have the master accept a VM's key, using up the token; raise SeedError if it refuses.

    ``context.ask`` is :func:`saltvirt.core.salt.compat.ask_pillar`.
    """
    path = _token_path(context.settings, name)
    token = path.read_text()
    path.unlink()
    if context.ask is None:
        raise SeedError(f"this host cannot ask the master to accept the key of {name!r}")
    answer = context.ask(context.opts, {"virtkey": {"name": name, "key": public, "token": token}})
    virtkey_answer = answer.get("virtkey") or {}
    if virtkey_answer.get(name) is not True:
        reason = (
            virtkey_answer.get("error") or "it has no external pillar 'virtkey' (saltutil.sync_all)"
        )
        raise SeedError(f"the master did not accept the key of {name!r}: {reason}")
    log.info("the master accepted the key of %s", name)
