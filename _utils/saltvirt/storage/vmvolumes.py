"""Volumes of storage pools that belong to a single VM, and their removal with the VM."""

import logging
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saltvirt.core.errors import StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.libvirt.storage import diskvolumes, pools
from saltvirt.libvirt.storage import volumes as volumes_
from saltvirt.storage import diskpaths, door, policies, sharing, trash, usage
from saltvirt.storage.images import tool
from saltvirt.storage.policies import Policy
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.storage.verdict import Verdict
from saltvirt.xml import parse
from saltvirt.xml.domain.disk import Disk
from saltvirt.xml.storage import storagepool, storagevolume

log = logging.getLogger(__name__)
# Arguments of runner functions after the host, the pool and the volume.
_MORE_ARGUMENTS = {"virt.volume_upload": " FILE", "virt.volume_resize": " SIZE shrink=True"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VmVolumes:
    """
    The volumes of a VM.

    paths
        Volumes that are files, which are removed like all files of a VM.
    volumes
        ``[pool, volume]`` or ``[pool, volume, number]`` of volumes that only libvirt can remove.
    """

    paths: list[str] = field(default_factory=list)
    volumes: list[list[str]] = field(default_factory=list)


def find_volumes(
    conn: Any,
    settings: HostSettings,
    name: str,
    *,
    removables: bool,
    left: dict[str, str] | None = None,
) -> VmVolumes:
    """
    Return the volumes that belong to a VM alone; the log names the others.

    left
        Gets the others, each with the reason. Defaults to none.
    """
    vm_volumes, left = VmVolumes(), {} if left is None else left
    for disk in storagevolume.places(parse(lifecycle.inactive_xml(conn, name))):
        if disk.device in ("cdrom", "floppy") and not removables:
            continue
        location = diskvolumes.find(conn, disk)
        if location is None:
            attributes = sorted((disk.source or {}).items())
            source_text = " ".join(f"{key}={value}" for key, value in attributes)
            left[source_text] = "it is in no pool of this host"
            log.warning("disk %s of VM %s stays: it is in no pool of this host", source_text, name)
        elif reason := _find_obstacle(conn, settings, name, disk, location):
            left[f"{location.pool}/{location.volume}"] = reason
            log.warning("volume %s/%s stays: %s", location.pool, location.volume, reason)
        elif location.path is not None:
            vm_volumes.paths.append(location.path)
        else:
            number = diskvolumes.find_volume_key(conn, location.pool, location.volume)
            vm_volumes.volumes.append(
                [location.pool, location.volume, *([number] if number else [])]
            )
    return vm_volumes


def _find_obstacle(
    conn: Any,
    settings: HostSettings,
    name: str,
    disk: Disk,
    location: diskvolumes.DiskVolume,
) -> str | None:
    """Return why a volume does not go with its VM, None if it does."""
    verdict = judge_volume(conn, settings, policies.DELETE, location.pool, location.volume, name)
    if verdict.used_by:
        return verdict.used_by[0].reason
    is_file = location.path is not None
    is_only_read = disk.is_readonly or (is_file and disk.device in ("cdrom", "floppy"))
    # VMs of all hosts may read a shared volume that this VM only reads.
    if is_only_read and (not is_file or sharing.is_shared(settings, location.path or "")):
        return f"VM {name} only reads it, and others may"
    if not is_file and not location.can_go:
        return "libvirt cannot delete volumes of such a pool"
    return None


def judge_volume(
    conn: Any,
    settings: HostSettings,
    policy: Policy,
    pool: str,
    name: str,
    *excluded_vms: str,
    other_hosts: OtherHostsUsage | None = None,
) -> Verdict:
    """Return whether a policy allows the use of a volume, by whichever name it is referenced."""
    path = diskvolumes.path_of(conn, pool, name)
    removed_files = [path] if path.startswith("/") else []
    index = usage.index(
        conn,
        settings,
        excluded_vms=excluded_vms,
        removed_files=removed_files,
        other_hosts=other_hosts,
    )
    return index.verdict(policy, f"{pool}/{name}", path)


def find_shared_devices(
    conn: Any, settings: HostSettings, volumes: Iterable[Sequence[str]]
) -> list[str]:
    """Return the devices of those volumes that other hosts see."""
    paths = (diskvolumes.path_of(conn, pool, name) for pool, name, *_number in volumes)
    return [path for path in paths if path and sharing.is_shared(settings, path)]


def lock_volume(conn: Any, pool: str, name: str) -> AbstractContextManager[None]:
    """Keep VMs from starting with a volume during the block, which writes over the volume."""
    return diskpaths.keep_from_qemu(diskvolumes.path_of(conn, pool, name))


def refuse_open(conn: Any, settings: HostSettings, pool: str, names: Iterable[str]) -> None:
    """
    Raise StorageError if a volume is in use, though no VM that runs here has it.

    A QEMU here or on a host that shares the volume may have it open, or the volume is made for a VM
    on its way here. The volume is not locked: an open logical volume cannot be removed.
    """
    for name in names:
        path = diskvolumes.path_of(conn, pool, name)
        reservations.refuse_coming(settings, [path, f"{pool}/{name}"])
        if path.startswith("/") and diskpaths.is_open(path):
            raise tool.in_use_error(path)
        if Path(path).name == trash.FOLDER:
            trash.refuse_noted(settings, Path(path).parent)


def judge_deletion(
    conn: Any,
    settings: HostSettings,
    pool: str,
    names: Sequence[str],
    other_hosts: OtherHostsUsage | None = None,
    policy: Policy = policies.VOLUME,
    doubt_exempt: Collection[str] = (),
    removed_files: Collection[str] = (),
    call: str = "virt.volume_delete",
) -> list[Verdict]:
    """
    Return whether volumes may be deleted or written over without spoiling files based on them.

    other_hosts
        Other hosts' usage of volumes that they see. Defaults to nothing.
    policy
        The intended use. Defaults to deletion.
    doubt_exempt
        VMs with backing chains that need not be readable, beside the VMs that use these volumes.
        Defaults to none.
    removed_files
        Files removed together with the volumes; their own references do not count. Defaults to
        none.
    call
        The runner's function that asks all hosts first. Defaults to ``virt.volume_delete``.

    Raises StorageError if a QEMU has a volume open, or it is made for a VM on its way here.
    """
    refuse_open(conn, settings, pool, names)
    paths = {name: diskvolumes.path_of(conn, pool, name) for name in names}
    index = usage.index(
        conn,
        settings,
        removed_files=[path for path in (*paths.values(), *removed_files) if path.startswith("/")],
        doubt_exempt={*doubt_exempt, *_find_users(conn, pool, names)} if names else (),
        other_hosts=other_hosts,
    )
    verdicts = [index.verdict(policy, f"{pool}/{name}", path) for name, path in paths.items()]
    quoted_names = " ".join(map(shlex.quote, (pool, *names[:1])))
    more = _MORE_ARGUMENTS.get(call, "")
    sharing.refuse_unasked(
        verdicts, "nothing is changed", f"salt-run {call} HOST {quoted_names}{more}"
    )
    return verdicts


def refuse_deletion(
    conn: Any,
    settings: HostSettings,
    pool: str,
    names: Sequence[str],
    doubt_exempt: Collection[str] = (),
    removed_files: Collection[str] = (),
) -> None:
    """Raise StorageError if a volume must not be deleted; see :func:`judge_deletion`."""
    for verdict in judge_deletion(
        conn, settings, pool, names, doubt_exempt=doubt_exempt, removed_files=removed_files
    ):
        verdict.refuse(f"volume {verdict.path} stays")


def refuse_group(conn: Any, settings: HostSettings, pool: str) -> None:
    """
    Raise StorageError if deleting a pool deletes its volumes and something needs such a volume.

    Call it under the host's lock.
    """
    group = volumes_.find_group_pool(conn, pool)
    if group is None:
        return
    volumes_.refuse_group_of_vms(conn, group)
    _refuse_shared_group(settings, group)
    index = usage.index(conn, settings)
    index.refuse_doubts(policies.GROUP, f"pool {pool!r} stays")
    references = index.references(policies.GROUP)
    for place in volumes_.list_in_group(conn, group, sorted(references)):
        raise StorageError(
            f"pool {pool!r} stays, as {place} would go with it: {references[place].reason}"
        )


def _refuse_shared_group(settings: HostSettings, group: storagepool.Pool) -> None:
    """Raise StorageError if other hosts see a volume group: their VMs may use its volumes."""
    is_shared = sharing.is_shared(settings, group.target or "")
    if is_shared or any(storagepool.has_device(group, path) for path in settings.shared_paths):
        raise StorageError(
            f"pool {group.name!r} stays: its group is on storage that other hosts see "
            "(virt:shared_paths), and VMs there may have volumes of it; delete its volumes by "
            "salt-run virt.volume_delete, which asks all hosts, then the group by vgremove"
        )


def _find_users(conn: Any, pool: str, names: Sequence[str] | None = None) -> set[str]:
    """Return the VMs that use any of the named volumes, by default any volume of the pool."""
    infos_by_name = volumes_.infos(conn, pool).get(pool, {})
    chosen_infos = (info for name, info in infos_by_name.items() if names is None or name in names)
    return {vm for info in chosen_infos for vm in info["used_by"]}


def judge_resize(
    conn: Any,
    settings: HostSettings,
    pool: str,
    name: str,
    other_hosts: OtherHostsUsage,
    is_cut: bool,
) -> list[Verdict]:
    """Return whether a volume may be resized; shrinking would spoil the disks based on it."""
    if is_cut:
        call_arguments = (conn, settings, pool, [name], other_hosts, policies.FILL)
        return judge_deletion(*call_arguments, call="virt.volume_resize")
    refuse_open(conn, settings, pool, [name])
    return []


def get_deletion_lock(
    conn: Any, settings: HostSettings, pool: str, volume_names: Sequence[str]
) -> Callable[[Sequence[str]], AbstractContextManager[None]]:
    """
    Return a context manager that holds the host's lock while some volumes are deleted.

    It checks the volumes again under the lock: another job may have taken one before.

    volume_names
        All volumes of the pool to be deleted; empty for an inactive pool, as libvirt does not list
        its volumes.
    """
    users = _find_users(conn, pool, volume_names)
    removed_files = [diskvolumes.path_of(conn, pool, name) for name in volume_names]

    @contextmanager
    def hold_volumes(names: Sequence[str]) -> Iterator[None]:
        with reservations.host_lock(settings):
            for name in names:
                volumes_.refuse_running(conn, pool, name)
            refuse_deletion(
                conn, settings, pool, names, doubt_exempt=users, removed_files=removed_files
            )
            yield

    return hold_volumes


def judge_wipe(
    conn: Any, settings: HostSettings, pool: str, name: str, other_hosts: OtherHostsUsage
) -> list[Verdict]:
    """Return whether a volume may be wiped: no VM has it as a disk or in a backing chain."""
    verdicts = [judge_volume(conn, settings, policies.WIPE, pool, name, other_hosts=other_hosts)]
    quoted_names = " ".join(map(shlex.quote, (pool, name)))
    sharing.refuse_unasked(
        verdicts, "nothing is wiped", f"salt-run virt.volume_wipe HOST {quoted_names}"
    )
    return verdicts


def remove(
    conn: Any,
    settings: HostSettings,
    volumes: list[list[str]],
    *,
    vm: str | None = None,
    is_late: bool = False,
    other_hosts: OtherHostsUsage | None = None,
    left: dict[str, str] | None = None,
) -> None:
    """
    Delete volumes, except those in use by now; missing volumes are fine.

    vm
        The VM for which a build has just made the volumes; its record does not count as use.
        Defaults to none.
    is_late
        Whether the job that recorded the volumes was interrupted: in a shared pool another host may
        have made a volume of the same name since. Defaults to False.
    other_hosts
        Other hosts' usage of volumes that they see. Defaults to nothing.
    left
        Gets the volumes that stay, each with the reason. Defaults to none.

    Raises StorageError if a volume cannot be deleted; the others are deleted all the same.
    """
    failures = []
    for pool, name, *number in volumes:
        if is_late and number != [diskvolumes.find_volume_key(conn, pool, name)]:
            log.warning(
                "volume %s/%s stays, as it may be another VM's by now; if it is there and is not: "
                "virt.volume_delete %s %s",
                *(pool, name, pool, name),
            )
            continue
        policy = policies.DELETE if vm is None else policies.UNDO
        verdict = judge_volume(conn, settings, policy, pool, name, other_hosts=other_hosts)
        verdict = verdict if vm is None else verdict.without(policies.COMING, vm)
        if not verdict.is_free:
            log.warning(
                "volume %s/%s stays (%s); if nothing needs it: virt.volume_delete %s %s",
                *(pool, name, verdict.reason, pool, name),
            )
            if left is not None:
                left[f"{pool}/{name}"] = verdict.reason or "unknown"
            continue
        error = door.drop_volume(conn, pool, name, verdict)
        if error is not None:
            failures.append(f"{pool}/{name} ({error})")
    if failures:
        raise StorageError(
            f"these volumes cannot be removed: {', '.join(failures)}; remove them by "
            "virt.volume_delete POOL VOLUME"
        )


def settle_made(conn: Any, settings: HostSettings, vm: str, volumes: list[list[str]]) -> None:
    """
    Delete the volumes that an interrupted build of a VM has made.

    Raises StorageError for a volume without a recorded number: the build was interrupted around its
    creation, so whether the build made it is unknown.
    """
    for pool, name, *number in volumes:
        libvirt_pool = pools.find(conn, pool)
        if libvirt_pool is None:
            continue
        if not libvirt_pool.isActive():
            raise StorageError(
                f"pool {pool!r}, which has volume {name!r} of an interrupted build, does not run; "
                f"virt.pool_start {pool} first"
            )
        if name not in volumes_.names(conn, pool):
            continue
        if not number:
            raise StorageError(
                f"volume {pool}/{name} exists, but was not recorded as made by the interrupted "
                f"build; see what it is, then remove it with virt.volume_delete {pool} {name}"
            )
        has_number = diskvolumes.find_volume_key(conn, pool, name) or ""
        if number != [has_number]:
            log.warning("volume %s/%s stays: it is another one by now", pool, name)
            continue
        remove(conn, settings, [[pool, name]], vm=vm)
