"""A volume of a storage pool as the <source> of a disk, by what the pool's type allows."""

import posixpath

from saltvirt.model import RemoteSource
from saltvirt.xml.pool import Pool

# Their volumes are files in a folder, and disks are files there.
FILES = ("dir", "fs", "netfs")
# libvirt itself finds the device, or the LUN, when the VM starts.
_VOLUMES = ("logical", "disk", "iscsi", "iscsi-direct", "scsi", "zfs")
# libvirt does not take their volumes as such; the disk says what the pool says.
_NETWORK = ("rbd", "gluster", "sheepdog")
# Nor these, which are devices.
_DEVICES = ("mpath",)
TYPES = (*FILES, *_VOLUMES, *_NETWORK, *_DEVICES)
# Where libvirt can make volumes; the others' are made by whoever serves them.
MADE = (*FILES, "logical", "disk", "zfs", "rbd", "sheepdog")
# Where a volume takes its room as it is written, so that more can be promised than there is.
THIN = (*FILES, *_NETWORK)
# Where it makes them as devices of this host, which can be written to.
WRITABLE = ("logical", "disk", "zfs")


def remote_source(pool: Pool, volume: str) -> RemoteSource | None:
    """Return where a volume is as a disk, None if it is a device of this host."""
    if pool.type in _DEVICES:
        return None
    if pool.type not in _NETWORK:
        return RemoteSource(type="volume", source={"pool": pool.name, "volume": volume})
    pool_source = pool.source
    name = f"{pool_source.name}/{volume}" if pool_source.name else volume
    auth = None
    if pool_source.auth is not None:
        auth = {
            "username": pool_source.auth.username or "",
            "type": "ceph",
            **pool_source.auth.secret,
        }
    hosts = tuple(
        {k: v for k, v in host.items() if k in ("name", "port")} for host in pool_source.hosts
    )
    return RemoteSource(
        type="network", source={"protocol": pool.type, "name": name}, hosts=hosts, auth=auth
    )


def path(pool: Pool, volume: str) -> str | None:
    """Return the device that a volume will be on this host, None if it is none."""
    is_here = pool.type in (*_VOLUMES, *_DEVICES) and pool.type != "iscsi-direct"
    return posixpath.join(pool.target, volume) if is_here and pool.target else None


def next_partition_name(device: str, existing_names: list[str]) -> str:
    """Return the name of the next partition of a device, as the kernel names them."""
    base = posixpath.basename(device)
    # nvme0n1p1, and not nvme0n11, which would be another disk.
    stem = f"{base}p" if base[-1:].isdigit() else base
    used_suffixes = {name.removeprefix(stem) for name in existing_names}
    return next(
        f"{stem}{n}" for n in range(1, len(existing_names) + 2) if str(n) not in used_suffixes
    )
