"""Judge hosts' answers: pure functions that yield findings."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from saltvirt.checks.engine import Checks, foreign_virt, unreadable
from saltvirt.checks.setup.master.setupcloud import (
    CELLS,
    FUN,
    HINT,
    IMAGES,
    MOVING,
    NEEDED,
    SetupCloud,
    SetupHost,
)
from saltvirt.checks.setup.setupanswer import SetupFacts
from saltvirt.core import arguments, seedmethods
from saltvirt.core.errors import BadArgument
from saltvirt.core.findings import MASTER, Finding, apply_command
from saltvirt.core.model import Requirements
from saltvirt.core.options import config
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
# Never advise opening these to all users.
_PRIVATE = ("/root", "/home")

CHECKS: Checks[SetupCloud, SetupFacts] = Checks()


def _pillar_fix(host: SetupHost, lines: str) -> str:
    return f"{lines} in the pillar of {host.name}, then salt {host.quoted} saltutil.refresh_pillar"


@CHECKS.host("other-virt", level=NEEDED)
def _foreign_virt(host: SetupHost) -> Iterator[Finding]:
    yield from foreign_virt(
        host.facts.foreign_virt,
        f"salt {host.quoted} pip.uninstall",
        f"salt {host.quoted} service.restart salt-minion no_block=True",
    )


@CHECKS.host("code", level=NEEDED)
def _code(host: SetupHost) -> Iterator[Finding]:
    if host.facts.code != host.cloud.master.code:
        yield Finding("its code of this project is not the master's", host.sync())


@CHECKS.host("hash-type", level=NEEDED)
def _hash_type(host: SetupHost) -> Iterator[Finding]:
    expected_type = str(host.cloud.master.options.get("hash_type"))
    if host.facts.hash_type != expected_type:
        yield Finding(
            f"its hash_type is {host.facts.hash_type}, and the master's {expected_type}",
            f"hash_type: {expected_type} in /etc/salt/minion.d/virt.conf on {host.name}, then "
            f"salt {host.quoted} service.restart salt-minion no_block=True",
        )


@CHECKS.host("clock", level=NEEDED)
def _clock(host: SetupHost) -> Iterator[Finding]:
    clock_s = host.facts.clock_s
    # The host read its clock between the two: only a time outside them is skew.
    skew_s = max(host.cloud.begun_s - clock_s, clock_s - host.cloud.ended_s)
    if skew_s > CLOCK_S:
        yield Finding(
            f"its clock differs from the master's by {skew_s:.0f} s: certificates and Salt's "
            "authentication depend on the time",
            f"salt {host.quoted} pkg.install chrony; salt {host.quoted} cmd.run 'chronyc "
            "makestep'; the same on the master",
        )


@CHECKS.host("options", level=NEEDED)
def _options(host: SetupHost) -> Iterator[Finding]:
    if host.facts.bad_option is not None:
        yield bad_option(host.name, host.facts.bad_option)


def bad_option(host: str, reason: str) -> Finding:
    """Return the finding about an option of a host that cannot be used."""
    fix = f"mend it in the configuration (/etc/salt/minion.d) or the pillar of {host}"
    return Finding(reason, fix, check="options", where=host)


@CHECKS.host("libvirt", level=NEEDED)
def _libvirt(host: SetupHost) -> Iterator[Finding]:
    if host.facts.libvirt is not None:
        yield Finding(
            host.facts.libvirt,
            f"{host.apply('hypervisor.libvirt')}; if it is installed already: salt {host.quoted} "
            "service.start libvirtd (virtqemud where the daemons are modular)",
        )
    elif host.facts.why_not is not None:
        yield Finding(
            host.facts.why_not,
            f"see libvirt's log: salt {host.quoted} cmd.run 'journalctl -n 20 -u libvirtd -u "
            "virtqemud'",
        )


@CHECKS.host("qemu", level=NEEDED)
def _qemu(host: SetupHost) -> Iterator[Finding]:
    if host.facts.info is not None and not host.facts.info.archs:
        yield Finding(
            "libvirt knows no emulator: QEMU is missing", host.apply("hypervisor.packages")
        )


@CHECKS.host("qemu-img", "seed", level=NEEDED)
def _tools(host: SetupHost) -> Iterator[Finding]:
    for tool in host.facts.lacking:
        check, problem = _MISSING_TOOLS.get(tool, ("not-checked", f"{tool} is missing"))
        yield Finding(problem, host.apply("hypervisor.packages"), check=check)


@CHECKS.host("domain-type", level=NEEDED)
def _domain_type(host: SetupHost) -> Iterator[Finding]:
    info = host.facts.info
    if info is not None and info.archs and info.domain_types.default is None:
        yield Finding(
            f"it is not known which guests can run there: {info.domain_types.why}",
            f"mend that, or {_pillar_fix(host, 'virt: {hypervisor: qemu}')} (emulated, slow)",
        )


@CHECKS.host("image-folder", level=NEEDED)
def _image_folder(host: SetupHost) -> Iterator[Finding]:
    folder = host.facts.folder
    other_folder = _pillar_fix(host, "virt: {images: FOLDER}")
    if folder.why_not is not None:
        yield Finding(
            f"the image folder {folder.path} (virt:images) cannot be used: {folder.why_not}",
            other_folder,
        )
    elif folder.closed is not None:
        open_command = shlex.quote(f"chmod a+x {shlex.quote(folder.closed)}")
        yield Finding(
            f"QEMU runs as {folder.user}, which cannot enter {folder.closed} on its way to "
            f"the image folder {folder.path}",
            other_folder
            if folder.closed in _PRIVATE
            else f"salt {host.quoted} cmd.run {open_command}",
        )


@CHECKS.host("pool", level=NEEDED)
def _pool(host: SetupHost) -> Iterator[Finding]:
    facts, pool = host.facts, shlex.quote(host.facts.storagepool)
    if facts.pool is not None:
        has_pool = facts.info is not None and facts.storagepool in facts.info.storage.pools
        yield Finding(
            f"virt:storagepool: {facts.pool}",
            f"salt {host.quoted} cmd.run {shlex.quote(f'virsh pool-start {pool}')}"
            if has_pool
            else f"salt {host.quoted} state.single virt.pool_running {pool} ptype=dir "
            "target=FOLDER autostart=True",
        )


@CHECKS.host("profiles", level=NEEDED)
def _profiles(host: SetupHost) -> Iterator[Finding]:
    profiles = host.facts.info.profiles if host.facts.info else None
    for kind, by_name in (("nic", profiles.nic), ("disk", profiles.disk)) if profiles else ():
        profile: Any = by_name.get("default")
        if profile and profile.error:
            yield Finding(
                f"the default {kind} profile cannot be used: {profile.error}",
                _pillar_fix(host, f"mend virt:{kind}:default"),
            )


@CHECKS.host("bridge", level=NEEDED)
def _links(host: SetupHost) -> Iterator[Finding]:
    info = host.facts.info
    if info is None:
        return
    nic = info.profiles.nic.get("default", NicProfile())
    active_networks = {name for name, state in info.networks.items() if state.active}
    for bridge in sorted({*(nic.bridges or ())} - set(info.bridges)):
        yield _missing_link(f"bridge {bridge}", _bridge_fix(host, info, bridge))
    for network in sorted({*(nic.networks or ())} - active_networks):
        start_command = shlex.quote(f"virsh net-start {shlex.quote(network)}")
        yield _missing_link(
            f"active network {network}", f"salt {host.quoted} cmd.run {start_command}"
        )
    for link in sorted({*(nic.links or ())} - set(info.links)):
        yield _missing_link(f"link {link}", _pillar_fix(host, "name another in virt:nic:default"))


def _missing_link(link: str, fix: str) -> Finding:
    return Finding(f"there is no {link}, which VMs' NICs use by default", fix)


def _bridge_fix(host: SetupHost, info: HostInfo, bridge: str) -> str:
    ports = [link for link in info.links if link not in info.bridges]
    # Among several NICs the right one is unknown, and a wrong one makes a bridge, too.
    port = _safe_link_name(ports[0], "NIC") if len(ports) == 1 else "NIC"
    nic_hint = f" (NIC: salt {host.quoted} network.default_route inet)" if port == "NIC" else ""
    bridge_setting = f"{_safe_link_name(bridge, 'BRIDGE')}: {{ports: [{port}]}}"
    return (
        f"hypervisor: {{bridges: {{{bridge_setting}}}}} in the pillar of {host.name}{nic_hint}, "
        f"then {host.apply('hypervisor.bridge')}; or without a bridge: salt-run virt.init … nic=nat"
    )


def _safe_link_name(name: str, placeholder: str) -> str:
    """Return a host's link name if valid, else a placeholder: in pillar, Jinja runs other text."""
    try:
        return arguments.link_name("link", name)
    except BadArgument:
        return placeholder


@CHECKS.host("room", level=NEEDED)
def _room(host: SetupHost) -> Iterator[Finding]:
    info = host.facts.info
    if info is None:
        return
    profile = info.profiles.disk.get("default")
    room = fit.free(info)
    needs_by_resource: Mapping[str, tuple[int, str, str]] = {
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
            yield Finding(
                f"{max(0, room[key])} {unit} are free; a VM with 1 CPU, 512 MiB and the "
                f"default disk needs {minimum}",
                f"salt-run virt.query host={host.quoted} shows its VMs: remove or move "
                f"some; or change {option}",
            )


@CHECKS.host("guest-master", level=NEEDED)
def _masters(host: SetupHost) -> Iterator[Finding]:
    fix = _pillar_fix(host, "virt: {seed: {master: ADDRESS}}, an address that guests reach,")
    if host.facts.no_master is not None:
        yield Finding(host.facts.no_master, fix)
    for master, reason in sorted(host.facts.masters.items()):
        if reason is not None:
            yield Finding(
                f"guests will use the master {master}, but {host.name} itself does not reach its "
                f"publish_port: {reason}",
                f"{fix}; or open the master's ports 4505 and 4506",
            )


@CHECKS.host("not-checked", level=NEEDED)
def _unreadable(host: SetupHost) -> Iterator[Finding]:
    yield from unreadable(host.name, host.facts.unreadable, FUN)


@CHECKS.host("libguestfs", level=IMAGES)
def _appliance(host: SetupHost) -> Iterator[Finding]:
    if host.facts.appliance is not None:
        yield Finding(
            f"it cannot look into images, or install a minion in them: {host.facts.appliance}",
            f"{host.apply('hypervisor.packages')} (not with hypervisor:guestfs: False)",
        )


@CHECKS.host("appliance-users", level=IMAGES)
def _appliance_users(host: SetupHost) -> Iterator[Finding]:
    if host.facts.users is not None:
        yield Finding(host.facts.users.partition("; run:")[0], host.apply("hypervisor.appliance"))


@CHECKS.host("seed-method", level=IMAGES)
def _seed_method(host: SetupHost) -> Iterator[Finding]:
    if not seedmethods.reads_image(host.facts.seed_method):
        yield Finding(
            f"virt:seed:method is {arguments.hide_credentials(host.facts.seed_method)}: it looks "
            "into no image, and puts no minion into a VM whose image has none",
            f"{_pillar_fix(host, 'virt: {seed: {method: auto}}')}, unless each image has a minion",
        )


@CHECKS.host("kvm", level=HINT)
def _emulation(host: SetupHost) -> Iterator[Finding]:
    facts, types = host.facts, host.facts.info.domain_types if host.facts.info else None
    if types is None or facts.info is None or not facts.info.archs or types.default is None:
        return
    if "kvm" in types.usable or types.why.startswith("virt:hypervisor"):
        return
    problem = f"guests are emulated, many times slower than with KVM: {types.why}"
    fix = f"salt {host.quoted} cmd.run 'virt-host-validate qemu' says what KVM lacks there"
    if not facts.virtualization:
        problem += "; its CPU shows no virtualization"
        fix = "enable VT-x or AMD-V in its firmware; if it is a VM itself, nested virtualization"
    elif not facts.has_kvm:
        problem += "; there is no /dev/kvm, though its CPU has virtualization"
        module = _KVM_MODULES.get(facts.virtualization, "kvm")
        fix = f"salt {host.quoted} kmod.load {module} persist=True"
    yield Finding(problem, fix)


@CHECKS.host("maintenance", level=HINT)
def _maintenance(host: SetupHost) -> Iterator[Finding]:
    if host.facts.info is not None and host.facts.info.maintenance:
        yield Finding(
            "it is in maintenance, so it gets no new VMs",
            f"salt {host.quoted} virt.maintenance off",
        )


@CHECKS.cloud("misspelt", level=HINT)
def _misspelt(cloud: SetupCloud) -> Iterator[Finding]:
    place = (
        "in /etc/salt/master.d/virt.conf, or where it stands, then systemctl restart salt-master"
    )
    names_by_place = {MASTER: (config.find_misspelt(cloud.master.options), place)}
    for host, facts in cloud.hosts.items():
        place = f"in {host}'s pillar or grains, or in its configuration; then restart its minion"
        names_by_place[host] = (dict(facts.misspelt), place)
    for where, (options_by_misspelling, place) in names_by_place.items():
        for name, option in sorted(options_by_misspelling.items()):
            yield Finding(
                f"there is no option virt:{name}: it is ignored; is virt:{option} meant?",
                f"write {option} instead of {name} {place}",
                where=where,
            )


@CHECKS.host("deep-disks", level=HINT)
def _deep_disks(host: SetupHost) -> Iterator[Finding]:
    for vm, paths in sorted(host.facts.deep.items()):
        yield Finding(
            f"{', '.join(paths)} of {vm} has more than 20 files below it: libvirt before 12.0 "
            "may not start that VM again",
            f"delete external snapshots: salt {host.quoted} virt.delete_snapshots "
            f"{shlex.quote(vm)} NAME; before libvirt 9.9 virsh blockcommit (docs/snapshots.md)",
        )


@CHECKS.host("certificates", level=MOVING)
def _certificates(host: SetupHost) -> Iterator[Finding]:
    paths = host.facts.moving.certificates
    if paths:
        more_text = f" and {len(paths) - 1} more" if paths[1:] else ""
        yield Finding(
            f"{paths[0]}{more_text} missing: VMs move over TLS only", host.apply("hypervisor.keys")
        )


@CHECKS.host("tls", level=MOVING)
def _tls(host: SetupHost) -> Iterator[Finding]:
    if not host.facts.moving.certificates and not host.facts.moving.listens:
        yield Finding(
            "nothing listens at port 16514, libvirt's for TLS", host.apply("hypervisor.libvirt")
        )


@CHECKS.host("names", level=MOVING)
def _unresolved_names(host: SetupHost) -> Iterator[Finding]:
    """Yield hosts that cannot resolve others' ids, by which libvirt finds the target of a move."""
    reasons, known_hosts = host.facts.moving.names, {*host.cloud.hosts, *host.cloud.unasked_hosts}
    peers = sorted(peer for peer in reasons if reasons[peer] is not None and peer in known_hosts)
    if peers:
        yield Finding(
            f"it finds no address for {', '.join(peers)} ({reasons[peers[0]]}): VMs move to a "
            "host by its minion id",
            "have a name server know the ids of all hypervisors; or of each, here: salt "
            f"{host.quoted} hosts.add_host ADDRESS {shlex.quote(peers[0])}",
        )


@CHECKS.cloud("names", level=HINT)
def _cloned_machines(cloud: SetupCloud) -> Iterator[Finding]:
    """Yield hosts with the machine id of another, as clones of one installation have."""
    hosts_by_machine: dict[str, list[str]] = {}
    for host, facts in sorted(cloud.hosts.items()):
        if facts.machine:
            hosts_by_machine.setdefault(facts.machine, []).append(host)
    for first_host, *other_hosts in hosts_by_machine.values():
        for host in other_hosts:
            yield Finding(
                f"its /etc/machine-id is that of {first_host}, so each takes files of the other on "
                "shared storage for its own",
                f"on {host}: rm /etc/machine-id, then systemd-machine-id-setup, then reboot",
                where=host,
            )


@CHECKS.cloud("firewall", level=MOVING)
def _closed_ports(cloud: SetupCloud) -> Iterator[Finding]:
    """Yield hosts that others do not reach though libvirt listens there, or should."""
    listening_hosts = {
        *cloud.unasked_hosts,
        *(host for host, facts in cloud.hosts.items() if facts.moving.listens),
    }
    reasons_by_peer: dict[str, dict[str, str]] = {}
    for host, facts in sorted(cloud.hosts.items()):
        for peer, reason in sorted(facts.moving.peers.items()):
            if reason is not None and peer in listening_hosts:
                reasons_by_peer.setdefault(peer, {})[host] = reason
    for peer, reasons in reasons_by_peer.items():
        caller, reason = next(iter(reasons.items()))
        yield Finding(
            f"{', '.join(reasons)} cannot reach its port 16514 ({reason})",
            f"{apply_command(peer, 'hypervisor.firewall')}; if that mends nothing, see what is "
            f"between them: salt {shlex.quote(caller)} network.connect {shlex.quote(peer)} 16514",
            where=peer,
        )


@CHECKS.cloud("cells", level=CELLS)
def _cells(cloud: SetupCloud) -> Iterator[Finding]:
    for fault in cloud.cell_faults:
        level = NEEDED if fault.concerns_all else CELLS
        yield Finding(fault.problem, fault.fix, where=fault.where, level=level)
