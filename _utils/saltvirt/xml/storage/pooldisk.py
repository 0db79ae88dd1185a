"""A volume of a storage pool as the <source> of a disk, depending on the pool's type."""

import posixpath

from saltvirt.core.model import RemoteSource
from saltvirt.xml.storage.storagepool import Pool

# Pools with files in a folder as volumes; their disks are files, too.
FILES = ("dir", "fs", "netfs")
# Pools for which libvirt itself finds the device, or the LUN, when the VM starts.
_VOLUMES = ("logical", "disk", "iscsi", "iscsi-direct", "scsi", "zfs")
# Pools that libvirt does not take as a disk's source; the disk repeats the pool's source.
_NETWORK = ("rbd", "gluster", "sheepdog")
# Pools that libvirt does not take either; their volumes are devices.
_DEVICES = ("mpath",)
TYPES = (*FILES, *_VOLUMES, *_NETWORK, *_DEVICES)
# Pools in which libvirt can make volumes; in the others the storage's server makes them.
MADE = (*FILES, "logical", "disk", "zfs", "rbd", "sheepdog")
# Pools with volumes that take room as they are written, so more can be promised than exists.
THIN = (*FILES, *_NETWORK)
# Pools in which libvirt makes volumes as writable devices of this host.
WRITABLE = ("logical", "disk", "zfs")


def remote_source(pool: Pool, volume: str) -> RemoteSource | None:
    """Return the source of a disk for a volume, None if it is a device of this host."""
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
    """Return the path of the device of a volume on this host, None if it has none."""
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
