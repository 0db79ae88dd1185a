"""Read what this host has and lacks of what VMs need; answer even if parts are missing."""

import hashlib
import os
import pwd
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from saltvirt.certificates.host import installed
from saltvirt.checks.audit.host.conffiles import Conf, FileReader, read_settings
from saltvirt.checks.audit.host.facts import listening
from saltvirt.checks.installed import find_foreign_virt
from saltvirt.checks.setup.setupanswer import FolderFacts, MovingFacts, SetupFacts
from saltvirt.core import filecontent
from saltvirt.core.errors import BadConfig, HostUnreachable, VirtError
from saltvirt.core.model import Disk
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.placement.answers import HostInfo
from saltvirt.seeding import identity, inspection, nocloud
from saltvirt.seeding.offline import appliance, lending
from saltvirt.storage import chains, diskpaths
from saltvirt.vm.create.host import poolvolumes
from saltvirt.vm.show.host import inspect

_QEMU_USERS = ("libvirt-qemu", "qemu")
_LISTS = "system.posix_acl_access"


def read_image_folder(path: str, conf: Conf) -> FolderFacts:
    """
    Return the facts of the image folder.

    conf
        The settings of ``qemu.conf``.
    """
    user = _qemu_user(str(conf.get("user") or ""))
    return FolderFacts(
        path=path,
        why_not=_explain_unwritable(Path(path)),
        user=user.pw_name if user else None,
        closed=next(_closed_folders(Path(path), user), None) if user else None,
    )


def _qemu_user(configured_name: str) -> pwd.struct_passwd | None:
    """Return the account that QEMU runs as: by qemu.conf, a name or a number, else by package."""
    accounts = pwd.getpwall()
    for name in (configured_name,) if configured_name else _QEMU_USERS:
        number = name.removeprefix("+")
        for account in accounts:
            if name == account.pw_name or number == str(account.pw_uid):
                return account
    return None


def _explain_unwritable(path: Path) -> str | None:
    # Commands for VMs make a missing folder.
    nearest_folder = next(folder for folder in (path, *path.parents) if folder.exists())
    if not nearest_folder.is_dir():
        return f"{nearest_folder} is not a folder"
    return None if os.access(nearest_folder, os.W_OK) else f"{nearest_folder} cannot be written"


def _closed_folders(path: Path, user: pwd.struct_passwd) -> Iterator[str]:
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    for folder in (*reversed(path.resolve().parents), path.resolve()):
        if folder.is_dir() and not _can_enter(folder, user.pw_uid, groups):
            yield str(folder)


def _can_enter(folder: Path, uid: int, groups: list[int]) -> bool:
    # ACLs are not read, as they usually admit more users.
    if uid == 0 or _LISTS in os.listxattr(folder):
        return True
    status = folder.stat()
    if status.st_uid == uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid in groups:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


LIMIT_S = 2.0
_AT_ONCE = 32

Address = tuple[str, int]
_Asked = TypeVar("_Asked", str, Address)


def explain_unreached(
    addresses: Iterable[Address], limit_s: float = LIMIT_S
) -> dict[Address, str | None]:
    """
    Return why each address is not reached, None for those that are.

    limit_s
        The limit for a connection, and again for the look-up of a name. Defaults to 2 seconds.
    """
    return _ask_at_once(partial(_connection_reason, limit_s=limit_s), addresses, 2 * limit_s)


def explain_unresolved(names: Iterable[str], limit_s: float = LIMIT_S) -> dict[str, str | None]:
    """
    Return why each name does not resolve, None for those that do.

    limit_s
        The limit for all names. Defaults to 2 seconds.
    """
    return _ask_at_once(_resolution_reason, names, limit_s)


def _ask_at_once(
    explain: Callable[[_Asked], str | None], items: Iterable[_Asked], limit_s: float
) -> dict[_Asked, str | None]:
    pool = ThreadPoolExecutor(max_workers=_AT_ONCE)
    try:
        futures = {item: pool.submit(explain, item) for item in items}
        wait(futures.values(), timeout=limit_s)
        return {
            item: future.result() if future.done() else "no answer"
            for item, future in futures.items()
        }
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _connection_reason(address: Address, limit_s: float) -> str | None:
    try:
        socket.create_connection(address, timeout=limit_s).close()
    except (OSError, ValueError, OverflowError) as exc:  # also for invalid names
        return getattr(exc, "strerror", None) or str(exc)
    return None


def _resolution_reason(name: str) -> str | None:
    try:
        socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as exc:
        return getattr(exc, "strerror", None) or str(exc)
    return None


_QEMU_CONF, _PROC = Path("/etc/libvirt/qemu.conf"), Path("/proc")
_KVM, _MACHINE = Path("/dev/kvm"), Path("/etc/machine-id")
# The CPU flags of virtualization: Intel's, AMD's.
_FLAGS = ("vmx", "svm")
TLS_PORT = 16514
# Each host tries to reach so many others, so as many try to reach it.
_PEERS = 3
_ADDRESSES = 4


def read_host_facts(
    opts: Mapping[str, Any],
    options: HostSettings,
    basepath: str,
    peers: Mapping[str, Iterable[str]],
    options_by_misspelling: Mapping[str, str],
) -> SetupFacts:
    """
    Return what this host has of what VMs need.

    options_by_misspelling
        See :func:`saltvirt.core.options.config.find_misspelt`.
    basepath
        The folder of its certificates.
    peers
        The addresses of hypervisors by their ids; those of this host are ignored.
    """
    reader, empty_conf = FileReader(), Conf()
    libvirt_facts = _ask_libvirt(options)
    masters, no_master = _masters(options, opts)
    addresses_by_host = _near_addresses(opts["id"], peers)
    reasons_by_address = explain_unreached(
        {
            *masters.values(),
            *(address for addresses in addresses_by_host.values() for address in addresses),
        }
    )
    return SetupFacts(
        code=filecontent.of_code(),
        hash_type=str(opts.get("hash_type")),
        virtualization=reader.at(_PROC / "cpuinfo", _virtualization, ""),
        has_kvm=_KVM.exists(),
        **libvirt_facts,
        folder=read_image_folder(options.images, reader.at(_QEMU_CONF, read_settings, empty_conf)),
        lacking=_missing_tools(),
        storagepool=options.storagepool or "",
        appliance=appliance.why_missing(inspection.python(options)),
        seed_method=str(options.seed.get("method", "auto")),
        users=_explain_refusal(lending.accounts),
        masters={
            name: reasons_by_address[master_address] for name, master_address in masters.items()
        },
        no_master=no_master,
        moving=MovingFacts(
            certificates=_missing_certificates(basepath),
            listens=bool(listening(reader, TLS_PORT)),
            peers={
                host: _best_reason(reasons_by_address[address] for address in addresses)
                for host, addresses in addresses_by_host.items()
            },
            names=explain_unresolved(_next_hosts(opts["id"], peers)),
        ),
        unreadable=reader.unreadable,
        misspelt=dict(options_by_misspelling),
        machine=reader.at(_MACHINE, _digest, ""),
        foreign_virt=find_foreign_virt(),
        # Read last: the master compares it with its own time on receipt.
        clock_s=time.time(),
    )


def _ask_libvirt(options: HostSettings) -> dict[str, Any]:
    """Return the fields of :class:`SetupFacts` that libvirt's answers decide."""
    out: dict[str, Any] = {"libvirt": None, "info": None, "why_not": None, "pool": None}
    try:
        # The probe of KVM starts a guest.
        with connect.open_connection(options, readonly=False) as conn:
            info, deep_disks = inspect.host_info(conn, options), chains.find_too_deep(conn)
    except HostUnreachable as exc:
        return {**out, "libvirt": str(exc)}
    except BadConfig as exc:
        return {**out, "bad_option": str(exc)}
    except (VirtError, OSError) as exc:
        return {**out, "why_not": str(exc)}
    pool_reason = _explain_refusal(_refuse_bad_pool, options, info)
    return {**out, "info": info, "pool": pool_reason, "deep": deep_disks}


def _refuse_bad_pool(options: HostSettings, info: HostInfo) -> None:
    """Refuse a virt:storagepool that no disk could be made in."""
    disk = Disk(name="system", target="vda")
    if not poolvolumes.is_pool_volume(options, info.storage.pools, disk):
        diskpaths.find_place(options, info.storage.pools, disk)


def _explain_refusal(function: Callable[..., object], *args: Any) -> str | None:
    """Return why a function refuses, None if it does not."""
    try:
        function(*args)
    except VirtError as exc:
        return str(exc)
    return None


def _digest(path: Path) -> str:
    """Return a digest that identifies a machine without its id, which is confidential."""
    machine = path.read_bytes().strip()
    return hashlib.sha256(b"salt-virt" + machine).hexdigest()[:16] if machine else ""


def _virtualization(path: Path) -> str:
    words = set(path.read_text().split())
    return next((flag for flag in _FLAGS if flag in words), "")


def _missing_tools() -> list[str]:
    out = [name for name in ("qemu-img", "prlimit") if not shutil.which(name)]
    return [*out, "pycdlib"] if _explain_refusal(nocloud.refuse_if_impossible) else out


def _masters(
    options: HostSettings, opts: Mapping[str, Any]
) -> tuple[dict[str, Address], str | None]:
    try:
        masters = identity.master_of_guests(options, opts)
    except VirtError as exc:
        return {}, str(exc)
    port = int(opts.get("publish_port", 4505))
    names = [masters] if isinstance(masters, str) else list(masters)
    return {str(name): (identity.host_of(str(name)), port) for name in names}, None


def _near_addresses(own_id: str, peers: Mapping[str, Iterable[str]]) -> dict[str, list[Address]]:
    """
    Return the addresses of the hosts that follow this one in the ring.

    An address that this host has, too, such as that of libvirt's NAT network, is left out: it leads
    back to this host.
    """
    own_addresses = set(peers.get(own_id, ()))
    addresses_by_host = {
        host: [(address, TLS_PORT) for address in peers[host] if address not in own_addresses][
            :_ADDRESSES
        ]
        for host in _next_hosts(own_id, peers)
    }
    return {host: addresses for host, addresses in addresses_by_host.items() if addresses}


def _next_hosts(own_id: str, peers: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the hosts that follow this one in a ring of all ids."""
    other_hosts = sorted(set(peers) - {own_id})
    ring = [host for host in other_hosts if host > own_id] + [
        host for host in other_hosts if host < own_id
    ]
    return ring[:_PEERS]


def _best_reason(peer_reasons: Iterable[str | None]) -> str | None:
    """Return why none of a host's addresses is reached, None if one is."""
    reasons = list(peer_reasons)
    return None if None in reasons else reasons[0]


def _missing_certificates(basepath: str) -> list[str]:
    places = installed.places(basepath)
    default_places = (places[purpose] for purpose in installed.DEFAULT_PURPOSES)
    paths = (path for place in default_places for path in (place.certificate, place.key))
    return sorted(str(path) for path in paths if not path.exists())
