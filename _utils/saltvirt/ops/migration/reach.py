"""How another host is reached: its libvirt by TLS, and the pools that let it write files here."""

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from saltvirt import locks, records
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument
from saltvirt.kvm import connect, migrate, pools
from saltvirt.movefacts import ArrivalFacts
from saltvirt.ops import reservations

_POOL = "salt-virt-incoming-"
# Neither an option of some program nor the end of a URI's host, which says more of what follows.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def refuse_strange(argument: str, target: object) -> None:
    """
    Raise BadArgument unless a target is a host by name or address, or its libvirt over TLS.

    That the host is of this cloud, TLS says: its certificate is by this cloud's CA, for that name.
    """
    if not isinstance(target, str) or not _is_host(_named(target)):
        said = "what was given" if "@" in str(target) else repr(target)
        raise BadArgument(
            argument,
            f"{said} is not a host of this cloud; give a hypervisor's name, such as hyper2: its "
            "libvirt is reached over TLS, and in no other way",
        )


def _named(target: str) -> str:
    """Return the host of ``qemu+tls://HOST[:PORT]/system``, any other URI or name as it is."""
    try:
        found = urlsplit(target)
        port = "" if found.port is None else f":{found.port}"
        host = found.hostname or ""
    except ValueError:
        return target
    plain = f"qemu+tls://{f'[{host}]' if ':' in host else host}{port}/system"
    return host if target.lower() == plain.lower() and target.startswith("qemu") else target


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
    """Raise MigrationFailed if another host's libvirt does not let this one in."""
    with migrate.target(uri_of(target)[0]):
        pass


def send_files(settings: HostSettings, target: str, files: Mapping[str, str]) -> None:
    """Send files of this host to another's libvirt: ``{here: there}``."""
    with connect.opened(settings), migrate.target(uri_of(target)[0]) as other:
        for here, there in files.items():
            migrate.push(other, here, there)


def open_folders(conn: Any, settings: HostSettings, paths: Iterable[str]) -> list[str]:
    """Let the other host write these files through libvirt; return their folders."""
    folders = sorted({str(Path(path).parent) for path in paths})
    with _pools(settings):
        for folder in folders:
            mark = hashlib.sha256(folder.encode()).hexdigest()[:12]
            pools.make_reachable(conn, f"{_POOL}{mark}", folder)
    return folders


def close_folders(conn: Any, settings: HostSettings, name: str) -> None:
    """End the pools that no other VM needs that is coming here; the files stay."""
    with _pools(settings):
        place = reservations.folder(settings)
        others = [one for one in records.every(place, "arrival") if one.name != name]
        needed = {folder for one in others for folder in one.read(ArrivalFacts).folders}
        pools.make_unreachable(conn, _POOL, but=needed)


def left_open(conn: Any, settings: HostSettings) -> list[str]:
    """Return the pools that :func:`open_folders` made and no VM needs that is coming here."""
    arrivals = records.every(reservations.folder(settings), "arrival")
    needed = {folder for one in arrivals for folder in one.read(ArrivalFacts).folders}
    return pools.only_reachable(conn, _POOL, but=needed)


def _pools(settings: HostSettings) -> AbstractContextManager[Any]:
    return locks.held(Path(settings.state_dir) / "locks" / "pools.lock")
