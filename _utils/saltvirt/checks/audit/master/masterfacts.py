"""Read the master's facts for ``virt.audit``: options, CA files, hosts, served files."""

import glob
import os
import pwd
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import salt.utils.yaml
import salt.version
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from saltvirt.ca import ca, certified, layout, store
from saltvirt.ca.authorities import LIBVIRT, USES, Authorities
from saltvirt.cluster import candidates, membership, minionkeys
from saltvirt.core import filecontent
from saltvirt.core.salt import compat

# Usual names of private keys; a file's content decides.
_KEY_NAMES = (".pem", ".key", "_rsa", "_ecdsa", "_ed25519")
# Salt 3006's external pillar made these for each host, in a folder of its own.
_OLD_KEYS, _OLD_CERTIFICATES = (
    ("serverkey.pem", "clientkey.pem"),
    ("servercert.pem", "clientcert.pem"),
)
# The brackets keep searches for keys from finding this file.
_MARK = re.compile(rb"PRIVATE[ ]KEY-----")
_SEARCHED_BYTES = 64 * 1024
# Tags of the engine libvirt_events, one such tag, and a reactor's call of a virt function.
_EVENTS = "libvirt_events/"
_EVENT = "salt/engines/libvirt_events/qemu/system/domain/lifecycle"
_CALLS_VIRT = re.compile(rb"\b(?:local|cmd|runner)\.virt(?:_\w+)?\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A file or folder of the CAs."""

    path: str
    mode: int
    owner: str
    is_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OldKeysFacts:
    """
    A folder with one host's private keys, which Salt 3006 made and kept on the master.

    is_trusted
        Whether libvirt's present CA signed their certificates, or these cannot be read.
    """

    path: str
    is_trusted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterFacts:
    """
    The facts of the master that are judged.

    release
        Salt's, such as ``3006.25``.
    options
        The master's configuration.
    user
        The user that the master runs as.
    ends
        When each CA expires: ``{path: time}``.
    old_keys
        The folders of hosts' keys that Salt 3006 left.
    autosign
        Lines of ``autosign_file``.
    autosign_grains
        Files of ``autosign_grains_dir``.
    patterns
        The patterns of ``virt:hypervisors``.
    without_key, may_be
        Allowed ids without an accepted key; candidates by their ids.
    planted
        Accepted ids with key files that a minion may have written itself.
    served
        Files with private keys that any minion can read.
    loose
        Files of states and pillar that any user of this machine can write, by folder.
    pillar_served
        Pillar folders inside folders of the file server, or around them.
    strange
        Foreign or damaged files in the folders of the CAs and of the records of VMs' keys.
    reactors
        Reactor files that call functions of ``virt`` at libvirt's events.
    """

    release: str
    options: Mapping[str, Any]
    user: str
    now: datetime
    files: Sequence[FileFacts] = ()
    ends: Mapping[str, datetime] = field(default_factory=dict)
    old_keys: Sequence[OldKeysFacts] = ()
    autosign: Sequence[str] = ()
    autosign_grains: Sequence[str] = ()
    patterns: Sequence[str] = ()
    without_key: Sequence[str] = ()
    may_be: Mapping[str, candidates.Candidate] = field(default_factory=dict)
    planted: Sequence[str] = ()
    served: Sequence[str] = ()
    loose: Mapping[str, Sequence[str]] = field(default_factory=dict)
    pillar_served: Sequence[str] = ()
    strange: Sequence[str] = ()
    reactors: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """
    What the master compares hosts' answers with.

    code
        The digest of the master's own library.
    trusted
        Fingerprints of the CAs by use.
    listed
        Serials that each use's revocation list must have: revoked, and not yet expired.
    issued
        The host of each certificate: ``{serial: host}``.
    """

    code: str
    trusted: Mapping[str, frozenset[str]]
    listed: Mapping[str, frozenset[str]]
    issued: Mapping[str, str]
    revoked: frozenset[str]
    now: datetime


def read_facts(opts: Mapping[str, Any], members: membership.Members, now: datetime) -> MasterFacts:
    """Return the facts of this master; create nothing, and ask no minion."""
    authorities, accepted_ids = (
        Authorities(membership.folder(opts)),
        compat.KeyStore(opts).accepted(),
    )
    roots, pillar_roots = _roots(opts, "file_roots"), _roots(opts, "pillar_roots")
    return MasterFacts(
        release=salt.version.__version__,
        options=opts,
        user=str(opts.get("user") or "root"),
        now=now,
        files=list(_files(authorities)),
        ends=dict(_read_ends(authorities)),
        old_keys=list(_find_old_keys(authorities.stores[LIBVIRT])),
        autosign=_lines(opts.get("autosign_file")),
        autosign_grains=_names(opts.get("autosign_grains_dir")),
        patterns=members.patterns,
        without_key=sorted(
            host for host in members.named.difference(accepted_ids) if members.has(host)
        ),
        may_be=candidates.find_candidates(opts, members),
        planted=sorted(filter(membership.may_be_planted, accepted_ids)),
        served=sorted(path for path in _walk_roots(roots) if _is_served_key(path)),
        loose=_find_loose_paths([*roots, *pillar_roots]),
        strange=sorted(
            {
                str(path)
                for path in (
                    *_find_strange_files(authorities),
                    *minionkeys.find_foreign_files(opts),
                )
            }
        ),
        reactors=sorted(_find_reactors(opts.get("reactor"), roots)),
        pillar_served=[
            f"{pillar} ({root})"
            for pillar in pillar_roots
            for root in roots
            if _is_within(pillar, root) or _is_within(root, pillar)
        ],
    )


def _find_strange_files(authorities: Authorities) -> Iterator[Path]:
    """Yield files in the CAs' folders that a minion may have written, and damaged records."""
    yield from authorities.strange()
    for folder in (
        authorities.folder,
        *(ca_store.folder for ca_store in authorities.stores.values()),
    ):
        for subfolder in (".", "enrolled", layout.NEXT, layout.PREVIOUS):
            names = certified.names_in(folder / subfolder)
            yield from (
                folder / subfolder / name for name in names if membership.may_be_planted(name)
            )


def read_baseline(opts: Mapping[str, Any], now: datetime) -> Baseline:
    """Return the master's records of hosts' certificates, and the digest of its own code."""
    authorities = Authorities(membership.folder(opts))
    fingerprints_by_use = {
        use: frozenset(_fingerprints(ca_store)) for use, ca_store in authorities.stores.items()
    }
    revoked_by_use = {
        use: frozenset(_find_revoked_serials(ca_store, now))
        for use, ca_store in authorities.stores.items()
    }
    return Baseline(
        code=filecontent.of_code(),
        trusted=fingerprints_by_use,
        listed=revoked_by_use,
        issued={row["serial"]: row["host"] for row in authorities.issued()},
        revoked=frozenset(authorities.revoked()),
        now=now,
    )


def _find_revoked_serials(ca_store: store.Store, now: datetime) -> set[str]:
    rows = ca_store.issued()
    return ca_store.revoked() - {
        row["serial"] for row in rows if datetime.fromisoformat(row["not_after"]) <= now
    }


def _certificate_paths(ca_store: store.Store) -> Iterator[Path]:
    for subfolder in (".", layout.NEXT, layout.PREVIOUS):
        path = ca_store.folder / subfolder / layout.CERTIFICATE
        if store.exists(path):
            yield path


def _fingerprints(ca_store: store.Store) -> Iterator[str]:
    for path in _certificate_paths(ca_store):
        yield from ca.fingerprints(path.read_bytes())


def _read_ends(authorities: Authorities) -> Iterator[tuple[str, datetime]]:
    for ca_store in authorities.stores.values():
        for path in _certificate_paths(ca_store):
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
            yield str(path), certificate.not_valid_after_utc


def _find_old_keys(libvirt_store: store.Store) -> Iterator[OldKeysFacts]:
    """Yield the subfolders of libvirt's CA folder that hold hosts' keys."""
    names = sorted(os.listdir(libvirt_store.folder)) if store.exists(libvirt_store.folder) else []
    for folder in (libvirt_store.folder / name for name in names):
        if any(os.path.exists(folder / key) for key in _OLD_KEYS):
            yield OldKeysFacts(path=str(folder), is_trusted=_is_trusted(libvirt_store, folder))


def _is_trusted(libvirt_store: store.Store, folder: Path) -> bool:
    try:
        signers = [
            x509.load_pem_x509_certificate(path.read_bytes())
            for path in _certificate_paths(libvirt_store)
        ]
        host_certificates = [
            x509.load_pem_x509_certificate((folder / name).read_bytes())
            for name in _OLD_CERTIFICATES
            if (folder / name).exists()
        ]
    except (OSError, ValueError):
        return True
    return any(
        _has_signed(signer, certificate) for signer in signers for certificate in host_certificates
    )


def _has_signed(signer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _files(authorities: Authorities) -> Iterator[FileFacts]:
    """Yield the CAs' folders and their entries, without the records in subfolders."""
    folders = {
        authorities.folder / use_folder / subfolder
        for use_folder, _name in USES.values()
        for subfolder in (".", layout.NEXT, layout.PREVIOUS)
    }
    for folder in sorted(folders):
        if store.exists(folder):
            yield _read_file(folder)
            paths = (folder / name for name in sorted(os.listdir(folder)))
            yield from (_read_file(path) for path in paths if path.is_file() or path.is_dir())


def _read_file(path: Path) -> FileFacts:
    status = path.stat()
    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = str(status.st_uid)
    is_key = path.name.startswith(layout.KEY)
    return FileFacts(path=str(path), mode=stat.S_IMODE(status.st_mode), owner=owner, is_key=is_key)


def _lines(path: Any) -> list[str]:
    try:
        lines = Path(path or "/nowhere").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []  # Salt does not read it either
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _names(folder: Any) -> list[str]:
    try:
        return sorted(os.listdir(folder)) if folder else []
    except OSError:
        return []


def _find_reactors(option: Any, roots: Sequence[str]) -> Iterator[str]:
    """Yield reactor files that call functions of ``virt`` at libvirt's events."""
    rows = _reactor_map(option) if isinstance(option, str) else option
    for row in rows if isinstance(rows, list) else ():
        for tag, paths in row.items() if isinstance(row, Mapping) else ():
            if _EVENTS in str(tag) or fnmatch(_EVENT, str(tag)):
                references = paths if isinstance(paths, list) else [paths]
                files = (
                    file for path in map(str, references) for file in _reactor_files(path, roots)
                )
                yield from filter(_calls_virt, files)


def _reactor_map(path: str) -> Any:
    """Return the reactors in the file that the option names, None if it cannot be read."""
    try:
        return salt.utils.yaml.safe_load(Path(path).read_bytes())
    except (OSError, ValueError, salt.utils.yaml.YAMLError):
        return None  # Salt does not read it either


def _reactor_files(reference: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield the files that a reactor names: by a pattern, or on the file server."""
    relative_path = reference.removeprefix("salt://").partition("?")[0]
    is_served = reference.startswith("salt://")
    for pattern in (
        [os.path.join(root, relative_path) for root in roots] if is_served else [reference]
    ):
        yield from sorted(glob.glob(pattern))  # noqa: PTH207 (an absolute pattern, as to Salt)


def _calls_virt(path: str) -> bool:
    try:
        return _CALLS_VIRT.search(Path(path).read_bytes()) is not None
    except OSError:
        return False  # it is a folder, or was removed meanwhile


def _roots(opts: Mapping[str, Any], option: str) -> list[str]:
    option_value = opts.get(option) or {}
    environments = option_value.values() if isinstance(option_value, Mapping) else [option_value]
    paths = [str(path) for environment_paths in environments for path in environment_paths or ()]
    return list(dict.fromkeys(path for path in paths if path.startswith("/")))


def _is_within(path: str, folder: str) -> bool:
    return Path(path).is_dir() and Path(path).resolve().is_relative_to(Path(folder).resolve())


def _walk_roots(roots: Sequence[str]) -> Iterator[str]:
    """Yield the folders of roots, each once, and their files."""
    visited_folders: set[str] = set()
    for root in roots:
        # The file server follows links too.
        for folder, folders, names in os.walk(root, followlinks=True):
            real_path = os.path.realpath(folder)
            if real_path in visited_folders:
                folders.clear()
                continue
            visited_folders.add(real_path)
            yield folder
            yield from (os.path.join(folder, name) for name in names)


def _find_loose_paths(roots: Sequence[str]) -> dict[str, list[str]]:
    paths_by_root = {
        root: sorted(filter(_is_writable_by_all, _walk_roots([root]))) for root in roots
    }
    return {root: paths for root, paths in paths_by_root.items() if paths}


def _is_writable_by_all(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & stat.S_IWOTH)
    except OSError:
        return False  # a broken link, or removed meanwhile


def _is_served_key(path: str) -> bool:
    if not path.endswith(_KEY_NAMES):
        return False
    try:
        # Opening a pipe would block.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as handle:
            return _MARK.search(handle.read(_SEARCHED_BYTES)) is not None
    except OSError:
        return False  # the master cannot serve this file either
