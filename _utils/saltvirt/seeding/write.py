"""Write a guest's identity into its disk, or call the seeding function that the user named."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from salt.exceptions import SaltException

from saltvirt.core import wire
from saltvirt.core.errors import SeedError
from saltvirt.core.salt.context import Context
from saltvirt.core.seedmethods import GUESTFS
from saltvirt.seeding import inspection
from saltvirt.seeding.offline import appliance
from saltvirt.seeding.seedmodel import Identity, Inspection, Installation
from saltvirt.storage import writeguard


@contextmanager
def _key_files(identity: Identity) -> Iterator[tuple[str | None, str | None]]:
    """Yield the paths of temporary files with the key pair, None for each without a pair."""
    public, private = identity.public_key, identity.private_key
    if not (public and private):
        yield None, None
        return
    with tempfile.TemporaryDirectory(prefix="salt-virt-keys-") as folder:
        paths = []
        for name, text in (("minion.pub", public), ("minion.pem", private)):
            path = Path(folder) / name
            path.touch(mode=0o600)
            path.write_text(text)
            paths.append(str(path))
        yield paths[0], paths[1]


def run_command(
    context: Context,
    function: str,
    identity: Identity,
    disk_path: str | Path,
    *,
    install: object,
) -> None:
    """Seed by the function that the user named; raise SeedError if it fails or returns False."""
    # The disk is on record for its VM by now; the function may still write to it and mount it.
    with _key_files(identity) as (public, private), writeguard.allow_seeding(disk_path):
        try:
            result = context.functions[function](
                os.fspath(disk_path),
                id_=identity.id,
                config=identity.config,
                install=install,
                pub_key=public,
                priv_key=private,
            )
        except (SaltException, OSError, TypeError) as exc:
            raise SeedError(f"{function} failed on {disk_path}: {exc}") from exc
    if result is False:
        raise SeedError(f"{function} could not seed {disk_path}")


def seed_disk(
    context: Context,
    path: str | None,
    fmt: str | None,
    identity: Identity,
    *,
    via: str,
    install: Installation | None,
    content: Inspection | None = None,
    use_kvm: bool = False,
) -> Inspection:
    """
    Write an identity into a disk or, via ``folder``, below a folder; return the content.

    install
        From :func:`saltvirt.seeding.install.fetch_files`; None to fail without a minion.
    content
        The content of the disk's image, if known: the disk is not inspected again.
    """
    job = _job("seed", path, fmt, install, content)
    job |= {"via": via, "files": files_of(identity), "ssh_keys": list(identity.ssh_keys)}
    job["is_another"] = identity.is_another
    return run_job(context, job, use_kvm=use_kvm)


def install_minion(
    context: Context,
    path: str | None,
    fmt: str | None,
    install: Installation,
    *,
    content: Inspection | None = None,
    use_kvm: bool = False,
) -> Inspection:
    """Put a minion without an identity into a disk, in an appliance; return the content."""
    return run_job(context, _job("install", path, fmt, install, content), use_kvm=use_kvm)


def rename_minion(
    context: Context,
    path: str,
    fmt: str | None,
    former_id: str,
    id_: str,
    *,
    public_key: str | None,
    via: str,
    use_kvm: bool = False,
) -> Inspection:
    """
    Give the minion in a disk another id; its key and all else stay.

    former_id
        The id that it has, unless it has the new one already.
    public_key
        The key that it must have; None for any.

    Raises :class:`appliance.DiskRefused` if nothing was changed; after other errors that is
    unknown.
    """
    job = {
        "action": "rename",
        "path": path,
        "format": fmt,
        "via": via,
        "install": None,
        "network": False,
        "id": id_,
        "ids": [former_id, id_],
        "id_line": yaml.safe_dump({"id": id_}, default_flow_style=False).strip(),
        "public_key": public_key,
    }
    return run_job(context, job, use_kvm=use_kvm)


def _job(
    action: str,
    path: str | None,
    fmt: str | None,
    install: Installation | None,
    content: Inspection | None,
) -> dict[str, Any]:
    return {
        "action": action,
        "via": GUESTFS.name,
        "path": path,
        "format": fmt,
        "install": install and install.to_job(),
        "network": bool(install and install.network),
        "found": wire.plain(content),
    }


def run_job(context: Context, job: dict[str, Any], *, use_kvm: bool = False) -> Inspection:
    """Run a worker's job on a disk; return the content of the disk afterwards."""
    limits = inspection.limits(context.settings)
    if not appliance.is_needed(job["via"]):
        # The worker needs only the standard library here, which the minion's interpreter has.
        limits["python"] = sys.executable
    masters = inspection.masters(context.opts) if job["network"] else ()
    return inspection.parse_content(appliance.run(job, use_kvm=use_kvm, masters=masters, **limits))


def files_of(identity: Identity) -> list[tuple[str, str, str]]:
    """Return the files of an identity as ``[(path, text, octal mode)]``."""
    config = yaml.safe_dump(identity.config, default_flow_style=False)
    pki = "/etc/salt/pki/minion"
    entries = [
        ("/etc/salt/minion_id", f"{identity.id}\n", "644"),
        # In Salt the last file by name wins, and an image may have an id.conf of its own.
        ("/etc/salt/minion.d/zz-salt-virt.conf", config, "640"),
        ("/etc/hostname", f"{identity.id.split('.')[0]}\n", "644"),
        (f"{pki}/minion.pem", identity.private_key, "400"),
        (f"{pki}/minion.pub", identity.public_key, "644"),
        (f"{pki}/minion_master.pub", identity.master_key, "644"),
    ]
    return [(path, text, mode) for path, text, mode in entries if text]
