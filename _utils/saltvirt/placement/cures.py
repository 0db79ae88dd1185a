"""What helps against the reasons why a host cannot take a VM."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cure:
    """
    What helps against a reason.

    pattern
        A regular expression for the reason.
    call
        What the call that makes a VM can be given.
    vm
        What can be done about a VM that exists, before it is moved.
    host
        What an operator can do about the hosts.
    """

    pattern: str
    call: str = ""
    vm: str = ""
    host: str = ""


# In the order of display. NAME is the VM's.
_CURES = (
    _Cure(
        pattern="already has a VM called",
        call="choose another name, or remove that VM: salt-run virt.purge NAME",
        vm="see which of them is the VM: salt-run virt.find NAME",
    ),
    _Cure(
        pattern="kept the definition of",
        host="salt HOST virt.undefine NAME, if the VM runs elsewhere",
    ),
    _Cure(pattern="is being built there", host="wait until that is over"),
    _Cure(
        pattern=" CPUs wanted",
        call="fewer CPUs",
        vm="fewer CPUs of the VM, by virt.update NAME cpu=",
        host="more of them per CPU of the host: virt:cpu_ratio",
    ),
    _Cure(
        pattern=" MiB of memory wanted",
        call="less memory",
        vm="less memory of the VM, by virt.update NAME mem=",
        host="more to hand out: virt:memory_ratio, virt:capacity",
    ),
    _Cure(
        pattern=" MiB of disk wanted",
        call="a smaller size= of disks",
        host="more room in virt:images, virt:disk_ratio",
    ),
    _Cure(
        pattern=" MiB are in its trash",
        host="salt-run virt.trash_empty HOST, which removes for good what was purged",
    ),
    _Cure(pattern=" of hugepages ", call="less memory", host="more huge pages on the host"),
    _Cure(pattern="no hugepages ", call="mem= without hugepages", host="huge pages on the host"),
    _Cure(
        pattern=" of NUMA node ",
        call="less memory, or another nodeset in numatune=",
        vm="another nodeset of the VM, by virt.update NAME numatune=",
    ),
    _Cure(
        pattern="no NUMA node ",
        call="another nodeset in numatune=",
        vm="another nodeset of the VM, by virt.update NAME numatune=",
    ),
    _Cure(
        pattern=" of storage pool ",
        call="smaller disks, another pool= of a disk",
        host="a larger pool, virt:pool_ratio",
    ),
    _Cure(
        pattern="no storage pool ",
        call="another pool= of the disk",
        host="salt HOST virt.pool_start POOL",
    ),
    _Cure(
        pattern="in maintenance", host="salt-run virt.maintenance HOST off, or virt.restore HOST"
    ),
    _Cure(
        pattern="no kvm guests ",
        call="emulated guests: hypervisor=qemu",
        host="salt-run virt.setup_check HOST",
    ),
    _Cure(pattern="no qemu guests ", call="hypervisor=kvm", host="salt-run virt.setup_check HOST"),
    _Cure(
        pattern="no (?!kvm |qemu )[a-z0-9_]+ guests ",
        call="another arch=",
        host="the host's package of that QEMU",
    ),
    _Cure(
        pattern="cannot say which guests",
        host="salt-run virt.setup_check HOST says why, or set virt:hypervisor",
    ),
    _Cure(
        pattern="its CPU lacks",
        call="a CPU model that all hosts have: cpu={model: …}",
        vm="a CPU model that all hosts have, by virt.update NAME cpu={model: …} and a restart",
    ),
    _Cure(
        pattern="machine type",
        call="machine= of the oldest host, as salt-run virt.host_info fields=machines shows them",
        vm="a newer QEMU there: this VM keeps the machine type that it was made with",
    ),
    _Cure(
        pattern="no bridge ",
        call="nic=nat, a NIC profile in virt:nic",
        host="a bridge: state virt.bridge_present",
    ),
    _Cure(
        pattern="no active network ",
        host="salt HOST virt.network_start NETWORK; of default: hypervisor.nat",
    ),
    _Cure(pattern="no link ", call="a NIC profile in virt:nic with a link that the host has"),
    _Cure(
        pattern="no nic profile ", call="name a profile that the host has in virt:nic, or nic=nat"
    ),
    _Cure(pattern="no disk profile ", call="name a profile that the host has in virt:disk"),
    _Cure(
        pattern="anti-affinity group ",
        call="another anti_affinity=",
        host="more hosts than the group has VMs",
    ),
    _Cure(
        pattern="the affinity group ",
        call="another affinity=",
        host="room on the host that has the group",
    ),
    _Cure(pattern="headroom:", call="headroom=False", host="more hosts"),
)
_BEGIN = "; what helps: "
# Commands that get a VM onto a host.
INIT, CLONE, MIGRATE = "virt.init", "virt.clone", "virt.migrate"


def find_cures(reasons: Iterable[str], command: str = INIT, name: str = "NAME") -> list[str]:
    """
    Return the remedies for the reasons, each once.

    command
        The operator's command: it can be given the one thing, and not the other. A clone has the
        size of its source.
    name
        The VM's name. Defaults to a placeholder, for several VMs.
    """
    texts = list(reasons)
    remedies = []
    for cure in _CURES:
        if any(re.search(cure.pattern, text) for text in texts):
            own_part = {INIT: cure.call, MIGRATE: cure.vm}.get(command, "")
            cure_text = ", or ".join(filter(None, [own_part, cure.host]))
            remedies.append(cure_text.replace("NAME", shlex.quote(name)))
    return list(filter(None, remedies))


def format_cures(reasons: Iterable[str], command: str = INIT, name: str = "NAME") -> str:
    """Return the remedies as the end of an error's line; empty if there are none."""
    remedies = find_cures(reasons, command, name)
    return f"{_BEGIN}{'; '.join(remedies)}" if remedies else ""


def strip_cures(error: str) -> str:
    """Return the line of an error without the remedies."""
    return error.partition(_BEGIN)[0]
