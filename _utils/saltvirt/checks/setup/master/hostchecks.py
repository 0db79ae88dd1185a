"""Judge hosts' answers: pure functions that yield gaps."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.checks.setup.master.gaps import HINT, IMAGES, Gap, misspelt_gaps
from saltvirt.checks.setup.setupanswer import SetupFacts
from saltvirt.core import arguments, seedmethods
from saltvirt.core.errors import BadArgument
from saltvirt.core.findings import apply_command, sync_command
from saltvirt.core.model import Requirements
from saltvirt.placement import fit
from saltvirt.placement.answers import HostInfo, NicProfile

# With more skew, certificates seem not valid yet, and minions' proofs too old.
CLOCK_S = 60
# The VM of the command in run.READY: one CPU, 512 MiB, and the default profiles.
_VM = Requirements(name="", vcpus=1, memory_mib=512, nic_profile="default", disk_profile="default")
_KVM_MODULES = {"vmx": "kvm_intel", "svm": "kvm_amd"}
_MISSING_TOOLS = {
    "qemu-img": ("qemu-img", "qemu-img is missing: it cannot check or clone images"),
    "prlimit": ("qemu-img", "prlimit (util-linux) is missing: qemu-img is run with limits by it"),
    "pycdlib": ("seed", "the Python module pycdlib is missing: it cannot make seeds"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """
    What the master compares hosts' answers with.

    code
        The digest of the master's own library.
    begun_s, ended_s
        The master's time before asking and after the answers, in seconds since 1970.
    """

    code: str
    hash_type: str
    begun_s: float
    ended_s: float


def gaps(host: str, facts: SetupFacts, baseline: Baseline) -> Iterator[Gap]:
    """Yield all gaps of a host."""
    yield from _compare_with_master(host, facts, baseline)
    yield from _libvirt(host, facts)
    yield from _tools(host, facts)
    yield from _folder(host, facts)
    yield from _masters(host, facts)
    yield from _appliance(host, facts)
    place = f"in {host}'s pillar or grains, or in its configuration; then restart its minion"
    yield from misspelt_gaps(host, facts.misspelt, place)
    yield from _deep_disks(host, facts.deep)
    if facts.info is not None:
        yield from _guests(host, facts, facts.info)
        yield from _profiles(host, facts.info)
        yield from _links(host, facts.info)
        yield from _room(host, facts.info)
    for path, reason in sorted(facts.unreadable.items()):
        yield unchecked_gap(host, f"{path} cannot be read: {reason}")


def unchecked_gap(host: str, reason: str) -> Gap:
    """Return the gap for something that could not be checked."""
    return Gap(
        check="not-checked",
        where=host,
        what=f"it could not be checked: {reason}",
        fix=f"see what it says: salt {shlex.quote(host)} virt.setup_facts",
    )


def _deep_disks(host: str, disks: Mapping[str, list[str]]) -> Iterator[Gap]:
    for vm, paths in sorted(disks.items()):
        yield Gap(
            check="deep-disks",
            where=host,
            what=f"{', '.join(paths)} of {vm} has more than 20 files below it: libvirt before 12.0 "
            "may not start that VM again",
            fix=f"delete external snapshots: salt {shlex.quote(host)} virt.delete_snapshots "
            f"{shlex.quote(vm)} NAME; before libvirt 9.9 virsh blockcommit (docs/snapshots.md)",
            level=HINT,
        )


def _pillar_fix(host: str, lines: str) -> str:
    return f"{lines} in the pillar of {host}, then salt {shlex.quote(host)} saltutil.refresh_pillar"


def _compare_with_master(host: str, facts: SetupFacts, baseline: Baseline) -> Iterator[Gap]:
    name = shlex.quote(host)
    if facts.code != baseline.code:
        yield Gap(
            check="code",
            where=host,
            what="its code of this project is not the master's",
            fix=sync_command(host),
        )
    if facts.hash_type != baseline.hash_type:
        yield Gap(
            check="hash-type",
            where=host,
            what=f"its hash_type is {facts.hash_type}, and the master's {baseline.hash_type}",
            fix=f"hash_type: {baseline.hash_type} in /etc/salt/minion.d/virt.conf on {host}, then "
            f"salt {name} service.restart salt-minion no_block=True",
        )
    # The host read its clock between the two: only a time outside them is skew.
    skew_s = max(baseline.begun_s - facts.clock_s, facts.clock_s - baseline.ended_s)
    if skew_s > CLOCK_S:
        yield Gap(
            check="clock",
            where=host,
            what=f"its clock differs from the master's by {skew_s:.0f} s: certificates and Salt's "
            "authentication depend on the time",
            fix=f"salt {name} pkg.install chrony; salt {name} cmd.run 'chronyc makestep'; the same "
            "on the master",
        )


def _libvirt(host: str, facts: SetupFacts) -> Iterator[Gap]:
    name = shlex.quote(host)
    if facts.libvirt is not None:
        yield Gap(
            check="libvirt",
            where=host,
            what=facts.libvirt,
            fix=f"{apply_command(host, 'hypervisor.libvirt')}; if it is installed already: salt "
            f"{name} "
            "service.start libvirtd (virtqemud where the daemons are modular)",
        )
    elif facts.why_not is not None:
        is_option = facts.why_not.startswith("option ")
        yield Gap(
            check="options" if is_option else "libvirt",
            where=host,
            what=facts.why_not,
            fix=f"see what libvirt says: salt {name} cmd.run 'journalctl -n 20 -u libvirtd -u "
            "virtqemud'",
        )
    if facts.pool is not None:
        yield _pool(host, facts)


def _pool(host: str, facts: SetupFacts) -> Gap:
    name, pool = shlex.quote(host), shlex.quote(facts.storagepool)
    is_there = facts.info is not None and facts.storagepool in facts.info.storage.pools
    return Gap(
        check="pool",
        where=host,
        what=f"virt:storagepool: {facts.pool}",
        fix=f"salt {name} cmd.run {shlex.quote(f'virsh pool-start {pool}')}"
        if is_there
        else f"salt {name} state.single virt.pool_running {pool} ptype=dir target=FOLDER "
        "autostart=True",
    )


# Never advise opening these to all users.
_PRIVATE = ("/root", "/home")


def _tools(host: str, facts: SetupFacts) -> Iterator[Gap]:
    for tool in facts.lacking:
        check, problem = _MISSING_TOOLS.get(tool, ("not-checked", f"{tool} is missing"))
        yield Gap(
            check=check, where=host, what=problem, fix=apply_command(host, "hypervisor.packages")
        )


def _folder(host: str, facts: SetupFacts) -> Iterator[Gap]:
    name, folder = shlex.quote(host), facts.folder
    if folder.why_not is not None:
        yield Gap(
            check="image-folder",
            where=host,
            what=f"the image folder {folder.path} (virt:images) cannot be used: {folder.why_not}",
            fix=_pillar_fix(host, "virt: {images: FOLDER}"),
        )
    elif folder.closed is not None:
        yield Gap(
            check="image-folder",
            where=host,
            what=f"QEMU runs as {folder.user}, which cannot enter {folder.closed} on its way to "
            f"the image folder {folder.path}",
            fix=_pillar_fix(host, "virt: {images: FOLDER}")
            if folder.closed in _PRIVATE
            else f"salt {name} cmd.run {shlex.quote(f'chmod a+x {shlex.quote(folder.closed)}')}",
        )


def _masters(host: str, facts: SetupFacts) -> Iterator[Gap]:
    fix = _pillar_fix(host, "virt: {seed: {master: ADDRESS}}, an address that guests reach,")
    if facts.no_master is not None:
        yield Gap(check="guest-master", where=host, what=facts.no_master, fix=fix)
    for master, reason in sorted(facts.masters.items()):
        if reason is not None:
            yield Gap(
                check="guest-master",
                where=host,
                what=f"guests will use the master {master}, but {host} itself does not reach that "
                f"one's publish_port: {reason}",
                fix=f"{fix}; or open the master's ports 4505 and 4506",
            )


def _appliance(host: str, facts: SetupFacts) -> Iterator[Gap]:
    if facts.appliance is not None:
        yield Gap(
            check="libguestfs",
            where=host,
            what=f"it cannot look into images, or install a minion in them: {facts.appliance}",
            fix=f"{apply_command(host, 'hypervisor.packages')} (not with hypervisor:guestfs: "
            "False)",
            level=IMAGES,
        )
    if not seedmethods.reads_image(facts.seed_method):
        yield Gap(
            check="seed-method",
            where=host,
            what=f"virt:seed:method is {arguments.hide_credentials(facts.seed_method)}: it looks "
            "into no "
            "image, and puts no minion into a VM whose image has none",
            fix=f"{_pillar_fix(host, 'virt: {seed: {method: auto}}')}, unless each image has a "
            f"minion",
            level=IMAGES,
        )
    if facts.users is not None:
        yield Gap(
            check="appliance-users",
            where=host,
            what=facts.users.partition("; run:")[0],
            fix=apply_command(host, "hypervisor.appliance"),
            level=IMAGES,
        )


def _guests(host: str, facts: SetupFacts, info: HostInfo) -> Iterator[Gap]:
    types = info.domain_types
    if not info.archs:
        yield Gap(
            check="qemu",
            where=host,
            what="libvirt knows no emulator: QEMU is missing",
            fix=apply_command(host, "hypervisor.packages"),
        )
    elif types.default is None:
        yield Gap(
            check="domain-type",
            where=host,
            what=f"it is not known which guests can run there: {types.why}",
            fix=f"mend that, or {_pillar_fix(host, 'virt: {hypervisor: qemu}')} (emulated, slow)",
        )
    elif "kvm" not in types.usable and not types.why.startswith("virt:hypervisor"):
        yield _emulation_gap(host, facts, types.why)
    if info.maintenance:
        yield Gap(
            check="maintenance",
            where=host,
            what="it is in maintenance, so it gets no new VMs",
            fix=f"salt {shlex.quote(host)} virt.maintenance off",
            level=HINT,
        )


def _emulation_gap(host: str, facts: SetupFacts, reason: str) -> Gap:
    name, problem = (
        shlex.quote(host),
        f"guests are emulated, many times slower than with KVM: {reason}",
    )
    fix = f"salt {name} cmd.run 'virt-host-validate qemu' says what KVM lacks there"
    if not facts.virtualization:
        problem += "; its CPU shows no virtualization"
        fix = "enable VT-x or AMD-V in its firmware; if it is a VM itself, nested virtualization"
    elif not facts.has_kvm:
        problem += "; there is no /dev/kvm, though its CPU has virtualization"
        module = _KVM_MODULES.get(facts.virtualization, "kvm")
        fix = f"salt {name} kmod.load {module} persist=True"
    return Gap(check="kvm", where=host, what=problem, fix=fix, level=HINT)


def _profiles(host: str, info: HostInfo) -> Iterator[Gap]:
    nic, disk = info.profiles.nic.get("default"), info.profiles.disk.get("default")
    for kind, profile in (("nic", nic), ("disk", disk)):
        if profile and profile.error:
            yield Gap(
                check="profiles",
                where=host,
                what=f"the default {kind} profile cannot be used: {profile.error}",
                fix=_pillar_fix(host, f"mend virt:{kind}:default"),
            )


def _links(host: str, info: HostInfo) -> Iterator[Gap]:
    nic = info.profiles.nic.get("default", NicProfile())
    active_networks = {name for name, state in info.networks.items() if state.active}
    for bridge in sorted({*(nic.bridges or ())} - set(info.bridges)):
        yield _missing_bridge(host, info, bridge)
    for network in sorted({*(nic.networks or ())} - active_networks):
        yield _missing_link(
            host,
            f"active network {network}",
            f"salt {shlex.quote(host)} cmd.run "
            + shlex.quote(f"virsh net-start {shlex.quote(network)}"),
        )
    for link in sorted({*(nic.links or ())} - set(info.links)):
        yield _missing_link(
            host, f"link {link}", _pillar_fix(host, "name another in virt:nic:default")
        )


def _missing_bridge(host: str, info: HostInfo, bridge: str) -> Gap:
    ports = [link for link in info.links if link not in info.bridges]
    # Among several NICs the right one is unknown, and a wrong one makes a bridge, too.
    port = _safe_link_name(ports[0], "NIC") if len(ports) == 1 else "NIC"
    nic_hint = (
        f" (NIC: salt {shlex.quote(host)} network.default_route inet)" if port == "NIC" else ""
    )
    bridge_setting = f"{_safe_link_name(bridge, 'BRIDGE')}: {{ports: [{port}]}}"
    return _missing_link(
        host,
        f"bridge {bridge}",
        f"hypervisor: {{bridges: {{{bridge_setting}}}}} in the pillar of {host}{nic_hint}, then "
        f"{apply_command(host, 'hypervisor.bridge')}; or without a bridge: salt-run virt.init … "
        "nic=nat",
    )


def _safe_link_name(name: str, placeholder: str) -> str:
    """Return a host's link name if valid, else a placeholder: in pillar, Jinja runs other text."""
    try:
        return arguments.link_name("link", name)
    except BadArgument:
        return placeholder


def _missing_link(host: str, problem: str, fix: str) -> Gap:
    problem = f"there is no {problem}, which VMs' NICs use by default"
    return Gap(check="bridge", where=host, what=problem, fix=fix)


def _room(host: str, info: HostInfo) -> Iterator[Gap]:
    profile = info.profiles.disk.get("default")
    room = fit.free(info)
    needs_by_resource: Mapping[str, Any] = {
        "vcpus": (_VM.vcpus, "CPUs", "virt:cpu_ratio"),
        "memory_mib": (_VM.memory_mib, "MiB of memory", "virt:reserve_mib or virt:memory_ratio"),
        "disk_mib": (
            (profile and profile.size_mib) or 0,
            "MiB of disk",
            "virt:disk:default or virt:disk_reserve_mib",
        ),
    }
    for key, (minimum, unit, option) in needs_by_resource.items():
        if room[key] < minimum:
            yield Gap(
                check="room",
                where=host,
                what=f"{max(0, room[key])} {unit} are free; a VM with 1 CPU, 512 MiB and the "
                f"default disk needs {minimum}",
                fix=f"salt-run virt.query host={shlex.quote(host)} shows its VMs: remove or move "
                f"some; or change {option}",
            )
