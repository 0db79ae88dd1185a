"""Access between hosts: libvirt over TLS, and the pools that let another host write files here."""

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from saltvirt.core import locks
from saltvirt.core.errors import BadArgument
from saltvirt.core.journal import records
from saltvirt.core.journal.movefacts import ArrivalFacts
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect, reservations
from saltvirt.libvirt.domains import migrate
from saltvirt.libvirt.storage import pools

_POOL = "salt-virt-incoming-"
# No leading hyphen, as in an option of a program, and no character that ends a URI's host.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def refuse_strange(argument: str, target: object) -> None:
    """
    Raise BadArgument unless a target is a host's name or address, or the URI of its libvirt's TLS.

    TLS proves that the host is of this cloud: its certificate is by this cloud's CA, for that name.
    """
    if not isinstance(target, str) or not _is_host(_parse_host(target)):
        shown_target = "what was given" if "@" in str(target) else repr(target)
        raise BadArgument(
            argument,
            f"{shown_target} is not a host of this cloud; give a hypervisor's name, such as "
            "hyper2: its libvirt is reached over TLS, and in no other way",
        )


def _parse_host(target: str) -> str:
    """Return the host of ``qemu+tls://HOST[:PORT]/system``; any other target unchanged."""
    try:
        parts = urlsplit(target)
        port = "" if parts.port is None else f":{parts.port}"
        host = parts.hostname or ""
    except ValueError:
        return target
    plain_uri = f"qemu+tls://{f'[{host}]' if ':' in host else host}{port}/system"
    return host if target.lower() == plain_uri.lower() and target.startswith("qemu") else target


def _is_host(name: str) -> bool:
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return bool(_NAME.fullmatch(name))


def uri_of(target: str) -> tuple[str, str]:
    """Return ``(libvirt URI, host)`` of a target: a host's name or address, or a URI."""
    if "://" in target:
        host = urlsplit(target).hostname or ""
        return target, f"[{host}]" if ":" in host else host
    host = f"[{target}]" if ":" in target else target
    return f"qemu+tls://{host}/system", host


def refuse_unreachable(target: str) -> None:
    """Raise MigrationFailed if another host's libvirt does not accept this host's connection."""
    with migrate.target(uri_of(target)[0]):
        pass


def send_files(settings: HostSettings, target: str, files: Mapping[str, str]) -> None:
    """Send files through another host's libvirt: ``{path here: path there}``."""
    with connect.open_connection(settings), migrate.target(uri_of(target)[0]) as target_conn:
        for source_path, target_path in files.items():
            migrate.push(target_conn, source_path, target_path)


def open_folders(conn: Any, settings: HostSettings, paths: Iterable[str]) -> list[str]:
    """Let the source write these files through libvirt; return their folders."""
    folders = sorted({str(Path(path).parent) for path in paths})
    with _pools(settings):
        for folder in folders:
            digest = hashlib.sha256(folder.encode()).hexdigest()[:12]
            pools.make_reachable(conn, f"{_POOL}{digest}", folder)
    return folders


def close_folders(conn: Any, settings: HostSettings, name: str) -> None:
    """End the pools that no other arriving VM needs; the files stay."""
    with _pools(settings):
        pools.make_unreachable(conn, _POOL, exclude=_arrival_folders(settings, exclude=name))


def find_open_pools(conn: Any, settings: HostSettings) -> list[str]:
    """Return the pools made by :func:`open_folders` that no arriving VM needs."""
    return pools.find_temporary_pools(conn, _POOL, exclude=_arrival_folders(settings))


def _arrival_folders(settings: HostSettings, exclude: str | None = None) -> set[str]:
    """Return the folders that arriving VMs need, except for one VM."""
    arrivals = records.read_records(reservations.folder(settings), "arrival")
    return {
        folder
        for arrival in arrivals
        if arrival.name != exclude
        for folder in arrival.read(ArrivalFacts).folders
    }


def _pools(settings: HostSettings) -> AbstractContextManager[Any]:
    return locks.hold_lock(Path(settings.state_dir) / "locks" / "pools.lock")
