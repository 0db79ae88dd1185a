"""Remedies for the reasons for which hosts cannot take a VM."""

import re
from collections.abc import Iterable

# A regular expression for a reason, and the remedy, in the order of display.
_CURES = (
    ("already has a VM called", "choose another name, or remove that VM: salt-run virt.purge NAME"),
    ("kept the definition of", "salt HOST virt.undefine NAME, if the VM runs elsewhere"),
    ("is being built there", "wait until that is over"),
    (" CPUs wanted", "fewer CPUs, more of them per CPU of the host: virt:cpu_ratio"),
    (" MiB of memory wanted", "less memory, or more to hand out: virt:memory_ratio, virt:capacity"),
    (" MiB of disk wanted", "a smaller size= of disks, more room in virt:images, virt:disk_ratio"),
    (" of hugepages ", "less memory, or more huge pages on the host"),
    ("no hugepages ", "mem= without hugepages, or huge pages on the host"),
    (" of NUMA node ", "less memory, or another nodeset in numatune="),
    ("no NUMA node ", "another nodeset in numatune="),
    (
        " of storage pool ",
        "smaller disks, a larger pool, another pool= of a disk, virt:pool_ratio",
    ),
    ("no storage pool ", "salt HOST virt.pool_start POOL, or another pool= of the disk"),
    ("in maintenance", "salt-run virt.maintenance HOST off, or virt.restore HOST"),
    ("no kvm guests ", "salt-run virt.setup_check HOST; or emulated guests: hypervisor=qemu"),
    ("no qemu guests ", "salt-run virt.setup_check HOST, or hypervisor=kvm"),
    ("no (?!kvm |qemu )[a-z0-9_]+ guests ", "another arch=, or the host's package of that QEMU"),
    ("cannot say which guests", "salt-run virt.setup_check HOST says why, or set virt:hypervisor"),
    ("its CPU lacks", "a CPU model that all hosts have: cpu={model: …}"),
    ("machine type", "machine= of the oldest host, as salt HOST virt.host_info shows them"),
    ("no bridge ", "nic=nat, a NIC profile in virt:nic, or a bridge: state virt.bridge_present"),
    ("no active network ", "salt HOST virt.network_start NETWORK; of default: hypervisor.nat"),
    ("no link ", "a NIC profile in virt:nic with a link that the host has"),
    ("no nic profile ", "name a profile that the host has in virt:nic, or nic=nat"),
    ("no disk profile ", "name a profile that the host has in virt:disk"),
    ("anti-affinity group ", "more hosts than the group has VMs, or another anti_affinity="),
    ("the affinity group ", "room on the host that has the group, or another affinity="),
    ("headroom:", "more hosts, or headroom=False"),
)
_BEGIN = "; what helps: "


def find_cures(reasons: Iterable[str]) -> list[str]:
    """Return the remedies for the reasons, each once."""
    texts = list(reasons)
    return [cure for words, cure in _CURES if any(re.search(words, text) for text in texts)]


def format_cures(reasons: Iterable[str]) -> str:
    """Return the remedies as the end of an error's line; empty if there are none."""
    cures = find_cures(reasons)
    return f"{_BEGIN}{'; '.join(cures)}" if cures else ""


def strip_cures(error: str) -> str:
    """Return the line of an error without the remedies."""
    return error.partition(_BEGIN)[0]
