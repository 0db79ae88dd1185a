"""Look at a host and its VMs: libvirt's bulk calls, one XML each, no subprocess."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from saltvirt.core import vmfilter
from saltvirt.core.errors import BadArgument, NoSuchVm
from saltvirt.core.nics import host_needs
from saltvirt.core.options.config import HostSettings
from saltvirt.core.units import MIB
from saltvirt.core.vmfilter import VmFilter
from saltvirt.libvirt import hostfacts, maintenance, probe, reservations
from saltvirt.libvirt.domains import lifecycle, query
from saltvirt.placement import generation, resources
from saltvirt.placement.answers import (
    ComingFacts,
    CpuFacts,
    DiskProfile,
    DomainTypes,
    HostInfo,
    Load,
    MemoryFacts,
    NetworkFacts,
    NicPlace,
    NicProfile,
    Presence,
    Profiles,
    StorageFacts,
    Versions,
    VmFacts,
    VmLoad,
)
from saltvirt.storage import definitionfiles, diskpaths, trash
from saltvirt.vm import profiles
from saltvirt.vm.show.host import commitments, showndisks
from saltvirt.vm.show.host.commitments import Commitments
from saltvirt.xml.edit import readdomain

RUN_DIR = "/run/salt-virt"
_LINKS = Path("/sys/class/net")
# Memory that virt.freemem has always reserved for the host itself.
_HOST_RESERVE_MIB = 256
# The commitments, and the value of reservations.last_end() for which they hold.
_TimedCommitments = tuple[Commitments, Any]


def vm_info(conn: Any, name: str | None = None) -> dict[str, dict[str, Any]]:
    """Return ``{name: {...}}`` of all VMs or a single one, as ``virt.vm_info`` shows them."""
    disks = showndisks.Disks(conn)
    return {row["name"]: describe(row, disks) for row in rows(conn, name)}


def rows(conn: Any, name: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of all VMs or a single one, for :func:`describe`."""
    return query.rows(conn, name, with_next=True, with_fallback=True)


def describe(row: Mapping[str, Any], disks: showndisks.Disks) -> dict[str, Any]:
    """Return a VM as ``virt.vm_info`` shows it, from a row of :func:`rows`."""
    root = readdomain.domain(row["xml"])
    return {
        "cpu": row["vcpus"],
        "cputime": row["cputime_ns"],
        "disks": disks.describe(root, row["blocks"]),
        "graphics": readdomain.graphics(root),
        "nics": readdomain.nics_from_text(row["next_xml"])
        if row["next_xml"]
        else readdomain.nics(root),
        "uuid": readdomain.uuid(root),
        "loader": readdomain.loader(root),
        **readdomain.lifecycle_actions(root),
        "maxMem": row["max_memory_kib"],
        "mem": row["memory_kib"],
        "state": row["state"],
    }


def full_info(conn: Any) -> dict[str, Any]:
    """Return ``{freecpu, freemem, node_info, vm_info}``; ``freemem`` in MiB."""
    info = vms(conn, VmFilter())
    del info["names"]
    return info


def vms(conn: Any, vm_filter: VmFilter) -> dict[str, Any]:
    """Return :func:`full_info` of the VMs that a filter takes, and the ``names`` of all."""
    node, vm_rows, disks = query.node(conn), rows(conn), showndisks.Disks(conn)

    def takes(row: Mapping[str, Any]) -> bool:
        has_tags = bool(vm_filter.tag)
        notes = readdomain.describe_notes(readdomain.domain(row["xml"])) if has_tags else None
        return vm_filter.takes(row["name"], row["state"], vmfilter.tags(notes) if notes else ())

    return {
        **_free(node, vm_rows),
        "node_info": node,
        "vm_info": {
            row["name"]: vm_filter.shown(describe(row, disks)) for row in filter(takes, vm_rows)
        },
        "names": sorted(row["name"] for row in vm_rows),
    }


def free(conn: Any) -> dict[str, Any]:
    """Return ``{freecpu, freemem}`` as in :func:`full_info`, without reading any XML."""
    vm_rows = query.rows(conn, with_xml=False, with_blocks=False, with_fallback=True)
    return _free(query.node(conn), vm_rows)


def _free(node: Mapping[str, Any], vm_rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    active = [row for row in vm_rows if row["state"] in ("running", "paused")]
    used_mib = sum(row["memory_kib"] for row in active) / 1024
    return {
        "freecpu": node["cpus"] - sum(row["vcpus"] for row in active),
        "freemem": node["phymemory"] - _HOST_RESERVE_MIB - used_mib,
    }


def load(conn: Any, seconds: float) -> Load:
    """Return the CPU and memory that VMs use, measured over some seconds."""

    def sample() -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in query.rows(conn, with_xml=False, with_blocks=False)}

    first_by_name, begin = sample(), time.monotonic()
    time.sleep(seconds)
    last_by_name, passed_ns = sample(), (time.monotonic() - begin) * 1e9
    node = query.node(conn)
    return Load(
        cpus=node["cpus"],
        memory_mib=node["phymemory"],
        vms={
            name: VmLoad(
                # The counter of a VM restarted in between began at 0 again.
                cpu=round(
                    max(0, row["cputime_ns"] - first_by_name[name]["cputime_ns"]) / passed_ns, 3
                ),
                memory_mib=row["rss_kib"] // 1024,
            )
            for name, row in last_by_name.items()
            if name in first_by_name and row["state"] == "running"
        },
    )


def read_timed_commitments(conn: Any, settings: HostSettings) -> _TimedCommitments:
    """Read the commitments for :func:`host_info`, with the end of records they hold for."""
    holds_until = reservations.last_end(settings)
    return commitments.read_commitments(conn, settings), holds_until


def host_info(
    conn: Any, settings: HostSettings, timed_commitments: _TimedCommitments | None = None
) -> HostInfo:
    """
    Return everything that placement needs to know about this host.

    timed_commitments
        From :func:`read_timed_commitments`. Reading a domain blocks while the domain starts, so
        callers read commitments before they take a lock. If a record has ended since, this function
        reads them again.
    """
    capabilities = hostfacts.capabilities(conn)
    node = query.node(conn)
    # Read records before domains: a VM is listed as a domain if its record ends in between. In the
    # other order it would be in neither list, and its room would be given away twice.
    coming_by_name = reservations.read_coming_vms(settings)
    if timed_commitments is None or timed_commitments[-1] != reservations.last_end(settings):
        timed_commitments = read_timed_commitments(conn, settings)
    vm_commitments = timed_commitments[0]
    vms = vm_commitments.vms
    coming_vms = [facts for name, facts in coming_by_name.items() if name not in vms]
    types, pools = domain_types(conn, settings, capabilities), hostfacts.pools(conn)
    features = {kind: hostfacts.cpu_features(conn, capabilities, kind) for kind in types.usable}
    return HostInfo(
        maintenance=maintenance.is_on(settings),
        tags=dict(settings.tags),
        vms=vms,
        kept=vm_commitments.kept_definitions,
        building=sorted(coming_by_name),
        coming=coming_by_name,
        unfinished=reservations.find_unfinished(settings),
        unreadable=unreadable(conn, settings),
        cpu=_cpu(settings, node, capabilities, vms, coming_vms, features),
        memory=_memory(conn, settings, node, vms, coming_vms),
        storage=_storage(pools, settings, vm_commitments.promises, coming_vms),
        bridges=bridges(),
        links=links(),
        networks={
            name: NetworkFacts(**network) for name, network in hostfacts.networks(conn).items()
        },
        profiles=Profiles(
            nic={name: _nic_needs(settings, name) for name in {*profiles.NICS, *settings.nic}},
            disk={name: _disk_needs(settings, name) for name in {*profiles.DISKS, *settings.disk}},
        ),
        domain_types=types,
        machines=generation.summarize_machines(capabilities["guests"], capabilities["arch"]),
        archs=sorted({guest["arch"] for guest in capabilities["guests"]}),
        versions=Versions(**hostfacts.versions(conn)),
        stocks=commitments.count_stocks(
            capabilities["nodes"],
            pools,
            vm_commitments.stock_totals,
            [*coming_vms, *reservations.read_coming_disks(settings)],
            settings.pool_ratio,
        ),
    )


def unreadable(conn: Any, settings: HostSettings) -> dict[str, str]:
    """Return ``{VM: reason}`` of records and libvirt definitions that cannot be read."""
    return {**definitionfiles.find_not_loaded(conn), **reservations.find_unreadable(settings)}


def _cpu(
    settings: HostSettings,
    node: Mapping[str, Any],
    capabilities: Mapping[str, Any],
    vms: Mapping[str, VmFacts],
    coming_vms: Iterable[ComingFacts],
    features: dict[str, list[str]],
) -> CpuFacts:
    total = settings.capacity.get("vcpus", node["cpus"])
    return CpuFacts(
        threads=node["cpus"],
        model=capabilities["model"],
        vendor=capabilities["vendor"],
        arch=capabilities["arch"],
        vcpus_limit=int(total * settings.cpu_ratio),
        vcpus_committed=_sum("vcpus", vms, coming_vms),
        features=features,
    )


def _memory(
    conn: Any,
    settings: HostSettings,
    node: Mapping[str, Any],
    vms: Mapping[str, VmFacts],
    coming_vms: Iterable[ComingFacts],
) -> MemoryFacts:
    total = settings.capacity.get("memory_mib", node["phymemory"])
    return MemoryFacts(
        total_mib=node["phymemory"],
        free_mib=hostfacts.free_memory_mib(conn),
        limit_mib=int(total * settings.memory_ratio - settings.reserve_mib),
        committed_mib=_sum("memory_mib", vms, coming_vms),
    )


def _sum(key: str, vms: Mapping[str, VmFacts], coming_vms: Iterable[ComingFacts]) -> int:
    total: int = sum(getattr(facts, key) for facts in (*vms.values(), *coming_vms))
    return total


def _storage(
    pools: dict[str, dict[str, Any]],
    settings: HostSettings,
    promises: dict[str, int],
    coming_vms: Iterable[ComingFacts],
) -> StorageFacts:
    total, free = diskpaths.free_mib(settings.images)
    capacity = settings.capacity.get("disk_mib")
    trash_bytes = trash.taken_bytes(settings)
    if capacity is None:
        committed_mib = total - free + promises["growth"] // MIB
    else:
        # Files in the trash take room too; above, total - free includes them.
        committed_mib = (promises["virtual"] + trash_bytes) // MIB
    limit = (capacity or total) * settings.disk_ratio - settings.disk_reserve_mib
    return StorageFacts(
        images={"path": settings.images, "total_mib": total, "free_mib": free},
        pools=pools,
        limit_mib=int(limit),
        committed_mib=committed_mib + sum(facts.disk_mib for facts in coming_vms),
        trash_mib=trash_bytes // MIB or None,
    )


def _nic_needs(settings: HostSettings, name: str) -> NicProfile:
    try:
        nics = profiles.nics("probe", settings.nic, name, None)
    except BadArgument as exc:
        return NicProfile(error=str(exc))
    needs = host_needs(nics)
    return NicProfile(
        bridges=list(needs["bridges"]),
        networks=list(needs["networks"]),
        links=list(needs["links"]),
        bridge_vlans=needs["bridge_vlans"],
        nics={
            nic.name: NicPlace(
                type=nic.type, on=nic.on, tagged=nic.is_tagged, switched=nic.is_switched
            )
            for nic in nics
        },
    )


def _disk_needs(settings: HostSettings, name: str) -> DiskProfile:
    try:
        disks_ = profiles.disks(settings.disk, name, None, None)
    except BadArgument as exc:
        return DiskProfile(error=str(exc))
    return DiskProfile(
        size_mib=sum(disk.size_mib or 0 for disk in disks_ if not resources.is_named(disk.pool)),
        has_image=any(disk.image for disk in disks_),
    )


def domain_types(conn: Any, settings: HostSettings, capabilities: Mapping[str, Any]) -> DomainTypes:
    """
    Return the usable domain types; ``virt:hypervisor`` wins, then the probe of KVM.

    There is no default if the probe of KVM was inconclusive: emulation would be many times slower,
    without a visible cause.
    """
    offered_types = {kind for guest in capabilities["guests"] for kind in guest["domain_types"]}
    if settings.hypervisor:
        reason = f"virt:hypervisor is set to {settings.hypervisor}"
        return DomainTypes(default=settings.hypervisor, usable=[settings.hypervisor], why=reason)
    kvm_result = probe.kvm(conn, capabilities, RUN_DIR)
    usable_types = [
        kind
        for kind in ("kvm", "qemu")
        if kind in offered_types and (kind != "kvm" or kvm_result["usable"])
    ]
    is_open = kvm_result["usable"] is None
    reason = (
        f"{kvm_result['why']}; set virt:hypervisor to kvm or qemu" if is_open else kvm_result["why"]
    )
    default = usable_types[0] if usable_types and not is_open else None
    return DomainTypes(default=default, usable=usable_types, why=reason)


def bridges() -> list[str]:
    """Return the host's bridges."""
    return sorted(path.parent.name for path in _LINKS.glob("*/bridge"))


def links() -> list[str]:
    """Return the host's own links, without the loopback and the links of VMs."""
    # The kernel's bonding module adds a file, bonding_masters, to this folder.
    names = (path.name for path in _LINKS.iterdir() if path.is_dir())
    return sorted(name for name in names if name != "lo" and not name.startswith("vnet"))


def presence(conn: Any, settings: HostSettings, name: str) -> Presence:
    """Return the facts by which the master locates a VM."""
    state = moved_to = uuid = notes_made = None
    with suppress(NoSuchVm):
        state, uuid = query.state(conn, name), lifecycle.uuid(conn, name)
        notes = readdomain.notes(readdomain.domain(lifecycle.inactive_xml(conn, name)))
        moved_to, notes_made = notes.moved_to, notes.made is not None or None
    return Presence(
        state=state,
        moved_to=moved_to,
        uuid=uuid,
        notes_made=notes_made,
        reports=True,
        building=name in reservations.read_coming_vms(settings),
        unfinished=name in reservations.find_unfinished(settings),
    )
