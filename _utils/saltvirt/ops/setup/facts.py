"""Read what this host has, and lacks, of what VMs need; whatever is missing, it answers."""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from saltvirt import content
from saltvirt.config import HostSettings
from saltvirt.errors import HostUnreachable, VirtError
from saltvirt.kvm import connect
from saltvirt.model import Disk
from saltvirt.ops import chains, inspect, storage
from saltvirt.ops.audit.conffiles import Conf, Looking, settings
from saltvirt.ops.audit.facts import listening
from saltvirt.ops.build import poolvolumes
from saltvirt.ops.certificates import installed
from saltvirt.ops.seeding import identity, inspection
from saltvirt.ops.setup import folder, reaching
from saltvirt.placement.answers import HostInfo
from saltvirt.placement.setup import MovingFacts, SetupFacts
from saltvirt.seed import appliance, lending, nocloud

_QEMU_CONF, _PROC = Path("/etc/libvirt/qemu.conf"), Path("/proc")
_KVM, _MACHINE = Path("/dev/kvm"), Path("/etc/machine-id")
# Of the CPUs that have it: Intel's, AMD's.
_FLAGS = ("vmx", "svm")
TLS_PORT = 16514
# Each host looks at so many others, and so each is looked at by as many.
_PEERS = 3
_ADDRESSES = 4


def of_host(
    opts: Mapping[str, Any],
    options: HostSettings,
    basepath: str,
    peers: Mapping[str, Iterable[str]],
    misspelt: Mapping[str, str],
) -> SetupFacts:
    """
    Return what this host has of what VMs need.

    misspelt
        See :func:`saltvirt.config.misspelt`.
    basepath
        Where its certificates are.
    peers
        The addresses of hypervisors by their ids, this one's own passed over.
    """
    look, empty = Looking(), Conf()
    libvirt, info, pool, why_not, deep = _of_libvirt(options)
    masters, no_master = _masters(options, opts)
    near = _near(opts["id"], peers)
    reached = reaching.reached({*masters.values(), *(one for its in near.values() for one in its)})
    return SetupFacts(
        code=content.of_code(),
        hash_type=str(opts.get("hash_type")),
        virtualization=look.at(_PROC / "cpuinfo", _virtualization, ""),
        has_kvm=_KVM.exists(),
        libvirt=libvirt,
        info=info,
        why_not=why_not,
        folder=folder.facts(options.images, look.at(_QEMU_CONF, settings, empty)),
        lacking=_lacking(),
        storagepool=options.storagepool or "",
        pool=pool,
        appliance=appliance.why_missing(inspection.python(options)),
        seed_method=str(options.seed.get("method", "auto")),
        users=_why(lending.accounts),
        masters={name: reached[address] for name, address in masters.items()},
        no_master=no_master,
        moving=MovingFacts(
            certificates=_certificates(basepath),
            listens=_listens(look),
            peers={host: _best(reached[one] for one in its) for host, its in near.items()},
            names=reaching.named(_next(opts["id"], peers)),
        ),
        unreadable=look.unreadable,
        misspelt=dict(misspelt),
        machine=look.at(_MACHINE, _digest, ""),
        deep=deep,
        # Last: the master compares it with its own time when it has the answer.
        clock_s=time.time(),
    )


_Libvirt = tuple[str | None, HostInfo | None, str | None, str | None, dict[str, list[str]]]


def _of_libvirt(options: HostSettings) -> _Libvirt:
    """
    Return what libvirt says, or why it says nothing.

    Why it does not answer, the host's info, what is wrong with the pool, why there is no info, and
    the disks that are made of too many files.
    """
    try:
        # The probe of KVM starts a guest.
        with connect.opened(options, readonly=False) as conn:
            info, deep = inspect.host_info(conn, options), chains.deep(conn)
    except HostUnreachable as exc:
        return str(exc), None, None, None, {}
    except (VirtError, OSError) as exc:
        return None, None, None, str(exc), {}
    return None, info, _why(_pool, options, info), None, deep


def _pool(options: HostSettings, info: HostInfo) -> None:
    """Refuse a virt:storagepool that no disk could be made in."""
    disk = Disk(name="system", target="vda")
    if not poolvolumes.is_in_one(options, info.storage.pools, disk):
        storage.place(options, info.storage.pools, disk)


def _why(function: Callable[..., object], *args: Any) -> str | None:
    """Return why something is refused, None if it is not."""
    try:
        function(*args)
    except VirtError as exc:
        return str(exc)
    return None


def _digest(path: Path) -> str:
    """Return what tells a machine from another without saying its id, which is confidential."""
    machine = path.read_bytes().strip()
    return hashlib.sha256(b"salt-virt" + machine).hexdigest()[:16] if machine else ""


def _virtualization(path: Path) -> str:
    words = set(path.read_text().split())
    return next((flag for flag in _FLAGS if flag in words), "")


def _lacking() -> list[str]:
    out = [name for name in ("qemu-img", "prlimit") if not shutil.which(name)]
    return [*out, "pycdlib"] if _why(nocloud.refuse_if_impossible) else out


def _masters(
    options: HostSettings, opts: Mapping[str, Any]
) -> tuple[dict[str, reaching.Address], str | None]:
    try:
        found = identity.master_of_guests(options, opts)
    except VirtError as exc:
        return {}, str(exc)
    port = int(opts.get("publish_port", 4505))
    names = [found] if isinstance(found, str) else list(found)
    return {str(name): (identity.host_of(str(name)), port) for name in names}, None


def _near(own: str, peers: Mapping[str, Iterable[str]]) -> dict[str, list[reaching.Address]]:
    """
    Return the addresses of the hosts that come next after this one.

    One that this host has as well, such as that of libvirt's NAT network, leads to itself.
    """
    mine = set(peers.get(own, ()))
    out = {
        host: [(one, TLS_PORT) for one in peers[host] if one not in mine][:_ADDRESSES]
        for host in _next(own, peers)
    }
    return {host: addresses for host, addresses in out.items() if addresses}


def _next(own: str, peers: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the hosts that come next after this one, in a ring."""
    others = sorted(set(peers) - {own})
    ring = [one for one in others if one > own] + [one for one in others if one < own]
    return ring[:_PEERS]


def _best(whys: Iterable[str | None]) -> str | None:
    """Return why none of a host's addresses is reached, None if one is."""
    found = list(whys)
    return None if None in found else found[0]


def _certificates(basepath: str) -> list[str]:
    places = installed.places(basepath)
    wanted = (places[purpose] for purpose in installed.DEFAULT_PURPOSES)
    paths = (path for place in wanted for path in (place.certificate, place.key))
    return sorted(str(path) for path in paths if not path.exists())


def _listens(look: Looking) -> bool:
    tables = [look.at(_PROC / "net" / name, Path.read_text, "") for name in ("tcp", "tcp6")]
    return bool(listening(tables, TLS_PORT))
