"""Seed a disk or a folder outside a build, as Salt's ``seed.apply`` does."""

import os
import shutil
import stat
import tempfile
import uuid
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import yaml
from salt.exceptions import SaltException

from saltvirt.core import arguments, files, undo
from saltvirt.core.crypto import keypair
from saltvirt.core.errors import BadArgument, SeedError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.core.seedmethods import GUESTFS, NBD
from saltvirt.seeding import firstboot, identity, inspection, install, submission, write
from saltvirt.seeding.install import REFUSED, prepare, source, uses_network
from saltvirt.seeding.offline import appliance
from saltvirt.seeding.seedmodel import Identity, Inspection, Installation
from saltvirt.seeding.shared.minionpackages import Package
from saltvirt.storage import diskpaths, writeguard
from saltvirt.storage.images import fetch, validation

_PREPARED = Installation(kind="boot", script=firstboot.install())


def apply(
    context: Context,
    path: str | Path,
    id_: str | None,
    config: object,
    keys_: Any,
    *,
    approve_key: bool,
    install: bool,
    prep_install: bool,
) -> Inspection:
    """
    Write a minion's identity into a disk image or device, or a folder; return its content.

    keys_
        ``(public, private)``, as text or paths; both None to generate a pair if this host may
        submit it.
    prep_install
        Have the guest install its minion at boot, if it has none.
    """
    arguments.boolean("install", install)
    arguments.boolean("prep_install", prep_install)
    new_identity = _decide_identity(context, id_, config, keys_, approve_key)
    via, fmt = _choose_way(context.settings, path)
    content: Inspection | None = None
    installation: Installation | None = None
    with diskpaths.claim_device(path) if Path(path).is_block_device() else nullcontext():
        if prep_install:
            installation = _PREPARED
        elif install:
            installation, content = _prepare_install(context, via, path, fmt)
        seeded_content = write.seed_disk(
            context, str(path), fmt, new_identity, via=via, install=installation, content=content
        )
    if new_identity.is_submitted:
        submission.submit(context, new_identity.id, new_identity.public_key)
    return seeded_content


def _choose_way(settings: HostSettings, path: str | Path) -> tuple[str, str | None]:
    """Return ``(way, format)``: an appliance if possible, else a mount if that is allowed."""
    path = Path(path)
    if path.is_dir():
        if path.resolve() == Path("/"):
            raise BadArgument("path", "/ is this host itself, not a guest's root")
        return appliance.FOLDER, None
    if not path.is_file() and not path.is_block_device():
        raise BadArgument("path", f"there is no file, device or folder {path} on this host")
    fmt = writeguard.opened_format(settings, path)
    missing_reason = appliance.why_missing(settings.seed.get("python", appliance.PYTHON))
    if not missing_reason:
        return GUESTFS.name, fmt
    if settings.seed.get("allow_host_mount") is True:
        return NBD.name, fmt
    raise SeedError(
        f"no disk can be opened safely on this host: {missing_reason}; or set "
        "virt:seed:allow_host_mount: True to have its own kernel do it"
    )


def _prepare_install(
    context: Context, via: str, path: str | Path, fmt: str | None
) -> tuple[Installation | None, Inspection | None]:
    """Return the installation of a minion, and the disk's content if it had to be inspected."""
    if not appliance.is_needed(via):
        return _PREPARED, None
    urls, content = source(context.settings, None), None
    packages: tuple[Package, ...] = ()
    if not urls or any("{arch}" in url for url in urls):
        content = inspection.parse_content(inspection.look_into(context.settings, str(path), fmt))
    if not urls:
        packages = install.find_suitable(context, content, "base")
    if not (urls or packages or uses_network(context.settings)):
        return REFUSED, content
    arch = content.arch if content else None
    return prepare(context, urls, arch, "base", packages), content


def _decide_identity(
    context: Context, id_: str | None, config: object, keys_: Any, approve_key: bool
) -> Identity:
    arguments.boolean("approve_key", approve_key)
    config = arguments.mapping("config", config) or {}
    name = id_ or config.get("id")
    if not name:
        raise BadArgument("id_", "give the id of the minion: id_=NAME")
    submission.refuse_reserved(context, name)
    return identity.identity(context, name, config, keys_, approve_key=approve_key)


def mkconfig(
    context: Context,
    config: object,
    tmp: str | None,
    id_: str | None,
    keys_: Any,
    *,
    approve_key: bool,
) -> dict[str, str]:
    """
    Write a minion's configuration and key pair into a folder; return their paths.

    Returns ``{"config", "pubkey", "privkey"}``; only root can read the files. Without an id the
    minion is named after its guest's hostname, and the key is not submitted.
    """
    if tmp not in (None, ""):
        arguments.folder("tmp", tmp)
    if id_ or (arguments.mapping("config", config) or {}).get("id"):
        new_identity = _decide_identity(context, id_, config, keys_, approve_key)
    else:
        arguments.boolean("approve_key", approve_key)
        new_identity = identity.nameless_identity(
            context, arguments.mapping("config", config) or {}, keys_
        )
    public, private = new_identity.public_key, new_identity.private_key
    if not (public and private):
        public, private = keypair.generate()
    folder, out = _folder(tmp), {}
    for key, leaf, text in (
        ("config", "minion", yaml.safe_dump(new_identity.config, default_flow_style=False)),
        ("pubkey", "minion.pub", public),
        ("privkey", "minion.pem", private),
    ):
        out[key] = str(folder / leaf)
        files.write(out[key], text.encode())
    if new_identity.is_submitted:
        submission.submit(context, new_identity.id, public)
    return out


def _folder(tmp: str | None) -> Path:
    """Make and return the folder for a configuration and a key pair; undo that if refused."""
    folder = Path(tmp or tempfile.mkdtemp(prefix="salt-virt-seed-"))
    missing_folders = [
        missing_folder
        for missing_folder in (folder, *folder.parents)
        if not missing_folder.exists()
    ]
    with undo.on_failure() as steps:
        for missing_folder in reversed(missing_folders if tmp else [folder]):
            steps.undo_with(_remove_empty, missing_folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_anothers(folder)
    return folder


def _remove_empty(folder: Path) -> None:
    # The folder may not exist yet, or have other files in it.
    with suppress(OSError):
        folder.rmdir()


def _refuse_anothers(folder: Path) -> None:
    """Raise SeedError if users other than root could replace files in a folder."""
    real_folder = folder.resolve()
    for checked_folder in dict.fromkeys(
        [folder, *folder.absolute().parents, real_folder, *real_folder.parents]
    ):
        status = checked_folder.lstat()
        is_ours = status.st_uid in (0, os.geteuid())
        # A link's mode means nothing; in a sticky folder such as /tmp users cannot replace files.
        is_open = not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o022
        if not is_ours or (is_open and not status.st_mode & stat.S_ISVTX):
            raise SeedError(
                f"{checked_folder} is a folder of, or open to, other users, who could replace the "
                f"key and the configuration in {folder}; give tmp= a folder of root's, or none"
            )


def prep_bootstrap(context: Context, mpt: str) -> tuple[str, str]:
    """
    Copy the bootstrap script below a guest's ``/tmp``; return its paths on host and in guest.

    The script is from ``virt:seed:bootstrap``, else Salt's own.
    """
    root = Path(mpt)
    if not root.is_dir():
        raise BadArgument("mpt", f"there is no folder {mpt} on this host")
    script = _obtain_bootstrap(context)
    tmp = root / "tmp"
    if tmp.is_symlink():
        raise SeedError(f"{tmp} is a link, and would lead out of the guest")
    folder = tmp / str(uuid.uuid4())
    folder.mkdir(mode=0o700, parents=True)
    shutil.copy(script, folder)
    host_path = folder / Path(script).name
    return str(host_path), f"/{folder.relative_to(root)}"


def _obtain_bootstrap(context: Context) -> str:
    url = context.settings.seed.get("bootstrap")
    if url:
        return fetch.obtain(context, url, "base", validation.accept_any).path
    try:
        script_path = context.functions["config.gather_bootstrap_script"]()
    except (KeyError, SaltException, OSError) as exc:
        raise SeedError(
            f"Salt's bootstrap script cannot be fetched: {exc}; put one on the file "
            "server and name it in virt:seed:bootstrap"
        ) from exc
    if not script_path:
        raise SeedError(
            "Salt's bootstrap script cannot be fetched; put one on the file server and "
            "name it in virt:seed:bootstrap"
        )
    out: str = script_path
    return out
