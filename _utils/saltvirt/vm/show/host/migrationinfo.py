"""Facts that another host must know to take a VM, obstacles, and marks of its shared disks."""

import errno
import itertools
import os
import stat
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from saltvirt.core import files
from saltvirt.core.errors import NoSuchVm
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.domains import lifecycle, query, snapshots
from saltvirt.placement.answers import DiskFacts, FileFacts, ImageFacts, MigrationInfo
from saltvirt.storage import claims, diskpaths
from saltvirt.storage.images import cache
from saltvirt.vm.power.host import startlock
from saltvirt.xml.edit import copied, hostdependencies, hostfiles, newerfeatures, readdomain
from saltvirt.xml.storage import pooldisk
from saltvirt.xml.storage.snapshot import Snapshot

_ELSEWHERE = (
    "declare where that is in virt:shared_paths if every host has it, or take it out of the "
    "definition"
)


def host_obstacles(settings: HostSettings, root: ET.Element, *, is_running: bool) -> Iterator[str]:
    """Yield a reason for each resource of this host that keeps a VM from moving."""
    if readdomain.has_host_device(root) or hostdependencies.has_tpm(root):
        yield "it has a device of this host, which cannot move; detach it first"
    for target, description in hostdependencies.disks(root):
        yield f"its disk {target} is {description}, which cannot move; detach it first"
    for path, description in _paths(root):
        if not diskpaths.is_declared(settings, path):
            yield f"{description}, which does not move; {_ELSEWHERE}"
    variables = readdomain.firmware_variables(root)
    if variables is not None and _is_untrusted(settings, variables):
        yield (
            f"its firmware's variables are in {variables}, a link that root has not made; see what "
            "it leads to, and put the file in its place"
        )
    elif variables is not None and _is_device(settings, variables):
        yield f"its firmware's variables are in {variables}, a device of this host; {_ELSEWHERE}"
    if not is_running:
        yield from _left_behind(settings, root)


def _paths(root: ET.Element) -> Iterator[tuple[str, str]]:
    """Yield ``(path, description)`` of the paths that a VM uses beside its disks."""
    for path in hostdependencies.folders(root):
        yield path, f"its guest shares {path} with this host"
    for path in copied.find_argument_files(root):
        yield path, f"QEMU is given {path} by <qemu:commandline>"


def _is_untrusted(settings: HostSettings, path: str) -> bool:
    """Return whether a path is a link that QEMU's user may have made."""
    if diskpaths.is_declared(settings, path) or not Path(path).is_symlink():
        return False
    try:
        os.close(files.open_by_trusted_links(path, os.O_RDONLY))
    except OSError as exc:
        return exc.errno == errno.ELOOP
    return False


def _is_device(settings: HostSettings, path: str) -> bool:
    is_there = os.path.exists(path) and not diskpaths.is_declared(settings, path)
    return is_there and not os.path.isfile(path)


def _left_behind(settings: HostSettings, root: ET.Element) -> Iterator[str]:
    """Yield a reason for each state that a stopped VM would lose; QEMU sends a running VM's."""
    state = readdomain.tpm_state(root)
    # libvirt makes the TPM's state at the first start; before that nothing can be lost.
    if state is not None and os.path.exists(state):
        yield (
            "its emulated TPM has its state on this host, which does not move; start it and "
            "move it live"
        )
    for path in hostdependencies.memories(root):
        if os.path.exists(path) and not diskpaths.is_declared(settings, path):
            yield (
                f"its persistent memory is in {path} on this host, which does not move; start it "
                "and move it live, or detach that memory"
            )


def inode(path: str) -> int | None:
    """Return the inode of a regular file; None for a device or an inaccessible path."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino if stat.S_ISREG(status.st_mode) else None


def mark_shared(moving: MigrationInfo, token: str) -> list[str]:
    """Make the marks of a move; return the paths of those that could be made."""
    mark_paths = []
    for path in {
        Path(disk.path).parent: disk.path for disk in _filter_shared(moving.disks)
    }.values():
        mark_path = str(claims.mark(path, token))
        try:
            os.close(files.private(mark_path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW))
        except OSError:
            continue  # a read-only folder; the inodes may be the same on both hosts
        mark_paths.append(mark_path)
    return mark_paths


def unmark_shared(disks: Iterable[list[str]], token: str) -> None:
    """Remove the marks of a move from the folders of its recorded disks."""
    for _target, path, how in disks:
        if how == "shared" and path.startswith("/"):
            try:
                claims.mark(path, token).unlink(missing_ok=True)
            except OSError:
                continue  # no mark could be made there either


def find_different(moving: MigrationInfo) -> Iterator[str]:
    """Yield a reason for each shared disk that is another file on this host, once a move began."""
    for disk in _filter_shared(moving.disks) if moving.marks is not None else ():
        local_inode = inode(disk.path)
        is_same = local_inode == disk.inode or _is_marked(disk.path, moving.marks or [])
        if local_inode is not None and not is_same:
            yield (
                f"the file {disk.path} there is not the one that the VM has; is the storage "
                f"mounted there?"
            )


def _filter_shared(disks: Iterable[DiskFacts]) -> Iterator[DiskFacts]:
    for disk in disks:
        if disk.how == "shared" and disk.inode is not None and disk.path.startswith("/"):
            yield disk


def _is_marked(path: str, marks: Iterable[str]) -> bool:
    folder_marks = [mark_path for mark_path in marks if Path(mark_path).parent == Path(path).parent]
    return any(
        claims.is_mark(mark_path) and os.path.lexists(mark_path) for mark_path in folder_marks
    )


_T = TypeVar("_T")


class _HostFacts(TypedDict):
    """libvirt's facts about all domains and about the host, read once."""

    snapshots: dict[str, list[Snapshot]]
    checkpoints: set[str]
    saved: set[str]
    active: set[str]
    autostart: set[str]
    host_cpu: str | None
    qemu: str
    nat: set[str]
    pools: dict[str, dict[str, Any]]


def gather(conn: Any, settings: HostSettings, name: str | None = None) -> dict[str, MigrationInfo]:
    """
    Return ``{name: facts}`` that another host must know to take VMs.

    name
        The only VM to read. Defaults to all, except VMs that left only their definition here.
    """
    host_facts: _HostFacts = {
        "snapshots": snapshots.read_all(conn, name),
        "checkpoints": lifecycle.list_domains_with_checkpoints(conn),
        "saved": lifecycle.saved(conn),
        "active": set(query.names(conn, active=True)),
        "autostart": lifecycle.list_autostarted_domains(conn),
        "host_cpu": hostfacts.own_cpu(conn),
        "qemu": hostfacts.versions(conn)["qemu"],
        "pools": hostfacts.pools(conn),
        "nat": {
            network_name
            for network_name, network in hostfacts.networks(conn).items()
            if network["forward"] == "nat"
        },
    }
    out = {
        definition.name: _facts(settings, definition, host_facts)
        for definition in query.definitions(conn, name, with_next=True)
        if name is not None or not readdomain.describe_notes(definition.root)["moved_to"]
    }
    # query.definitions leaves out a VM that vanishes meanwhile.
    if name is not None and name not in out:
        raise NoSuchVm(name)
    return out


def _facts(settings: HostSettings, vm: query.Definition, host_facts: _HostFacts) -> MigrationInfo:
    name, root = vm.name, vm.root
    # The definition moves too, and may differ from the running XML: the target must know both.
    roots = [root] if vm.next_root is None else [root, vm.next_root]
    vcpus, memory_mib = readdomain.sizes(root)
    machines = [readdomain.system(definition_root).machine for definition_root in roots]
    is_running = vm.state in ("running", "paused")
    pools = host_facts["pools"]
    paths_left, needed_paths = _split_next_disks(settings, roots, pools)
    sources = [
        disk_source
        for disk_source in readdomain.disk_sources(root)
        if disk_source["path"] is not None
    ]
    disks = [_disk(settings, source, is_running, pools) for source in sources]
    metadata = readdomain.describe_notes(root)
    links = readdomain.links(root)
    return MigrationInfo(
        name=name,
        uuid=readdomain.uuid(root),
        state=vm.state,
        vcpus=vcpus,
        memory_mib=memory_mib,
        disks=disks,
        images=settings.images,
        affinity=metadata["affinity"],
        anti_affinity=metadata["anti_affinity"],
        stay=metadata["stay"],
        domain_type=root.get("type", ""),
        arch=readdomain.system(root).arch or "",
        machine=machines[0],
        next_machine=machines[-1] if machines[-1] != machines[0] else None,
        newer=_union(
            newerfeatures.find_newer_features(definition_root) for definition_root in roots
        ),
        **_cpu(root, host_facts, is_running),
        **links,
        nat=[network for network in links["networks"] if network in host_facts["nat"]],
        obstacles=[
            *_obstacles(vm, host_facts, is_running=is_running),
            *_snapshot_obstacles(host_facts["snapshots"].get(name, []), sources, is_running),
            *_disk_obstacles(disks),
            *map(_next_disk_obstacle, paths_left),
            *host_obstacles(settings, root, is_running=is_running),
        ],
        nvram=_firmware(settings, root, is_running),
        files=_union(
            [
                *_host_files(roots, is_running),
                needed_paths,
            ]
        ),
        autostart=name in host_facts["autostart"],
    )


def _union(lists: Iterable[Iterable[_T]]) -> list[_T]:
    """Return the items of all lists without duplicates, in order."""
    out = []
    for item in itertools.chain.from_iterable(lists):
        if item not in out:
            out.append(item)
    return out


def _cpu(root: ET.Element, host_facts: _HostFacts, is_running: bool) -> dict[str, Any]:
    """
    Return the requirements on a host so that the guest sees the same CPU there.

    ``cpu_qemu`` is the version of QEMU that started a guest with a whole CPU, emulated or the
    host's: the XML does not list its features, and an older QEMU would remove some of them from the
    running guest.
    """
    mode, cpu = readdomain.cpu(root)
    is_emulated = root.get("type") == "qemu"
    # A stopped VM gets the target's CPU when it starts there.
    has_whole_cpu = is_running and mode in ("maximum", "host-passthrough")
    has_host_cpu = has_whole_cpu and not (mode == "maximum" and is_emulated)
    # Without the check libvirt starts a VM on any host, leaving out features that QEMU lacks.
    is_checked = is_running or readdomain.is_cpu_checked(root)
    return {
        "cpu": cpu if mode == "custom" and is_checked else None,
        "host_cpu": host_facts["host_cpu"] if has_host_cpu else None,
        "cpu_qemu": (readdomain.describe_notes(root)["cpu_qemu"] or host_facts["qemu"])
        if has_whole_cpu
        else None,
    }


def _disk(
    settings: HostSettings,
    source: Mapping[str, Any],
    is_running: bool,
    pools: Mapping[str, Mapping[str, Any]],
) -> DiskFacts:
    """Return the facts of a disk with a source."""
    location = _locate(source, pools)
    is_declared = diskpaths.is_declared(settings, location)
    pool = None if is_declared else _pool_of_files(source, pools)
    out = DiskFacts(
        target=source["target"],
        path=source["path"] if pool is None else location,
        format=source["format"],
        device=source["device"],
        how="missing",
        base=None,
        image=None,
        pool=pool,
    )
    if is_declared or (source["type"] != "file" and pool is None):
        is_shared = is_declared or source["type"] == "network"
        number = inode(location) if is_declared else None
        return replace(out, how="shared" if is_shared else "device", inode=number)
    is_written = source["device"] == "disk" and not source["is_readonly"]
    return _measure(settings, out, how="copy" if is_running and is_written else "push")


def _measure(settings: HostSettings, disk: DiskFacts, how: str) -> DiskFacts:
    """Return a file disk with its sizes and base image; unchanged if the file is unreadable."""
    sizes = diskpaths.measure(disk.path, disk.format)
    if sizes is None:
        return disk
    if sizes["is_split"]:
        return replace(disk, how="split")
    base = cache.digest_of(settings, sizes["backing"])
    image = cache.read_note(settings, base)
    return replace(
        disk,
        how=how,
        virtual_bytes=sizes["virtual"],
        actual_bytes=sizes["actual"],
        base=base,
        image=ImageFacts(**image) if image else None,
        backing=sizes["backing"],
        size_bytes=os.path.getsize(disk.path),
    )


def _locate(source: Mapping[str, Any], pools: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the path of a disk on this host, also of a pool's volume."""
    path: str = source["path"]
    pool, _slash, volume = path.partition("/")
    folder = pools.get(pool, {}).get("path") if source["type"] == "volume" else None
    return f"{folder}/{volume}" if folder else path


def _pool_of_files(source: Mapping[str, Any], pools: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the pool of a disk that is a volume and a file, else None."""
    name = source["path"].partition("/")[0] if source["type"] == "volume" else ""
    return name if pools.get(name, {}).get("type") in pooldisk.FILES else None


def _obstacles(vm: query.Definition, host_facts: _HostFacts, *, is_running: bool) -> Iterator[str]:
    """Yield why a VM cannot be moved to any host."""
    name, root = vm.name, vm.root
    if not is_running and name in host_facts["active"]:
        yield (
            f"it has crashed, and its QEMU is still there; stop it first (virt.stop {name})"
            if vm.state == "crashed"
            else "it is being shut down at this moment; try again when it is off"
        )
    if name in host_facts["checkpoints"]:
        # libvirt would refuse to undefine the VM here, too.
        yield (
            "it has checkpoints, which libvirt does not move; remove them first (virsh "
            f"checkpoint-list {name}), and begin its backups again afterwards"
        )
    if name in host_facts["saved"]:
        # The saved state would stay here, and be resumed over changed disks if the VM returns.
        yield (
            "it has a saved state, which libvirt does not move; start it, or drop that state "
            f"with virsh managedsave-remove {name}"
        )
    moved_to = readdomain.describe_notes(root)["moved_to"]
    if moved_to is not None:
        yield startlock.kept_message(moved_to, name)
    if readdomain.has_seed_credential(root):
        yield (
            "it runs for the first time since it was seeded by credentials, which are on this "
            "host; stop and start it once"
        )


def _snapshot_obstacles(
    vm_snapshots: Sequence[Snapshot], disks: Iterable[Mapping[str, Any]], is_running: bool
) -> Iterator[str]:
    """Yield why a VM cannot move with its snapshots; internal ones move while the VM is off."""
    external_names = sorted(snapshot.name for snapshot in vm_snapshots if snapshot.is_external)
    if external_names:
        yield (
            f"it has external snapshots ({', '.join(external_names)}), which do not move; remove "
            "them first, and have each disk go on in one file (virsh blockcommit, and never "
            "without --shallow, or the image below it is written to)"
        )
    elif vm_snapshots and is_running:
        yield (
            "it has snapshots, which libvirt does not move while a VM runs; stop it, or remove "
            "them first"
        )
    paths = {disk["path"] for disk in disks}
    for snapshot in vm_snapshots:
        yield from (
            f"its snapshot {snapshot.name} is in {path} too, which is not a disk of it any more; "
            "remove that snapshot first"
            for path in snapshot.files
            if path not in paths
        )


def _disk_obstacles(disks: Iterable[DiskFacts]) -> Iterator[str]:
    for disk in disks:
        if disk.how == "missing":
            yield f"its disk {disk.path} is missing or cannot be read"
        elif disk.how == "split":
            yield (
                f"its disk {disk.path} has its content in a data file of its own, which does not "
                "move; make it one file (qemu-img convert -O qcow2)"
            )
        elif disk.how == "device":
            yield (
                f"its disk {disk.path} is a device of this host, or a volume of a pool; declare "
                "where that is (/dev/GROUP, a folder) in virt:shared_paths if every host has it"
            )
        elif disk.backing and not disk.base:
            yield (
                f"its disk {disk.path} is based on {disk.backing}, which is not a cached "
                "image; declare its folder in virt:shared_paths, or flatten the disk"
            )


def _split_next_disks(
    settings: HostSettings, roots: Sequence[ET.Element], pools: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], list[str]]:
    """
    Return paths of disks that a VM has only from its next start on: those that would stay behind,
    and those of media and shared disks, which the target must have.
    """
    running_paths = {disk["path"] for disk in readdomain.disk_sources(roots[0])}
    paths_left, needed_paths = list[str](), list[str]()
    for disk in (disk for root in roots[1:] for disk in readdomain.disk_sources(root)):
        path = disk["path"]
        if not path or path in running_paths:
            continue
        if _stays_behind(settings, disk, pools):
            paths_left.append(path)
        elif path.startswith("/"):
            needed_paths.append(path)
    return paths_left, needed_paths


def _next_disk_obstacle(path: str) -> str:
    return (
        f"its definition has the disk {path}, without which it runs; attach that, or take it out "
        "of the definition"
    )


def _stays_behind(
    settings: HostSettings, disk: Mapping[str, Any], pools: Mapping[str, Mapping[str, Any]]
) -> bool:
    is_here = disk["type"] in ("file", "block", "volume") and disk["device"] == "disk"
    return is_here and not diskpaths.is_declared(settings, _locate(disk, pools))


def _host_files(roots: Sequence[ET.Element], is_running: bool) -> Iterator[list[str]]:
    """Yield the files beside disks that definitions name and the target must have."""
    for root in roots:
        yield readdomain.boot_files(root)
        yield hostfiles.required_files(root)
        template = _template(root, is_running)
        # For a running guest libvirt makes the variables anew on the target. libvirt names a
        # template for a stopped VM too, which may be missing here as well.
        is_needed = template is not None and (is_running or os.path.exists(template))
        yield [template] if template is not None and is_needed else []


def _template(root: ET.Element, is_running: bool) -> str | None:
    """Return the template of the firmware variables, unless their file itself is sent."""
    variables = readdomain.firmware_variables(root)
    is_sent = not is_running and variables is not None and os.path.isfile(variables)
    return None if is_sent else hostfiles.template(root)


def _firmware(settings: HostSettings, root: ET.Element, is_running: bool) -> list[FileFacts]:
    """Return the files of a VM's firmware variables; QEMU sends those of a running VM."""
    path = readdomain.firmware_variables(root)
    if path is None or diskpaths.is_declared(settings, path) or not os.path.isfile(path):
        return []
    stat = os.stat(path)
    return [
        FileFacts(
            path=path,
            how="copy" if is_running else "push",
            size_bytes=stat.st_size,
            actual_bytes=stat.st_blocks * 512,
        )
    ]
