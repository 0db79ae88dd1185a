"""How another host is reached: its libvirt by TLS, and the pools that let it write files here."""

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from saltvirt import locks, records
from saltvirt.config import HostSettings
from saltvirt.kvm import connect, migrate, pools
from saltvirt.movefacts import ArrivalFacts
from saltvirt.ops import reservations

_POOL = "salt-virt-incoming-"


def uri_of(target: str) -> tuple[str, str]:
    """Return ``(libvirt URI, host)`` of a target: a host's name, or a URI."""
    if "://" in target:
        host = urlsplit(target).hostname or ""
        return target, f"[{host}]" if ":" in host else host
    return f"qemu+tls://{target}/system", target


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


def _pools(settings: HostSettings) -> AbstractContextManager[Any]:
    return locks.held(Path(settings.state_dir) / "locks" / "pools.lock")
