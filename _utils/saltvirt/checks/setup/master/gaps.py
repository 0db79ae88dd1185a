"""Gaps of a setup, in the order of mending."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from saltvirt.core.findings import MASTER, Finding

# What a gap prevents: NEEDED stops every deployment, the others alone do not.
NEEDED, IMAGES, MOVING, CELLS, HINT = LEVELS = (
    "needed",
    "for images without a minion",
    "for moving VMs",
    "for VMs of a cell",
    "hint",
)
# Checks in the order of mending: later ones depend on earlier ones, or show only after them.
ORDER = (
    *("salt-release", "restart", "file-server", "modules-served", "hash-type"),
    *("hypervisors", "keys", "silent", "python", "modules", "packages", "code", "clock"),
    *("options", "libvirt", "qemu", "qemu-img", "seed", "domain-type", "image-folder"),
    *("pool", "profiles", "bridge", "room", "guest-master", "not-checked"),
    *("libguestfs", "appliance-users", "seed-method", "minion-packages"),
    *("pillar", "minion-data-cache", "certificates", "tls", "names", "firewall"),
    *("cells", "formula", "image", "kvm", "maintenance", "misspelt", "deep-disks"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap(Finding):
    """
    One thing that is missing.

    level
        What it is needed for, one of :data:`LEVELS`.
    """

    level: str = NEEDED


def sort_gaps(gaps: Iterable[Gap]) -> list[Gap]:
    """Return gaps in the order of mending, the master's first."""
    return sorted(
        gaps,
        key=lambda gap: (
            LEVELS.index(gap.level),
            ORDER.index(gap.check),
            gap.where != MASTER,
            gap.where,
        ),
    )


def misspelt_gaps(
    where: str, options_by_misspelling: Mapping[str, str], place: str
) -> Iterator[Gap]:
    """
    Yield a gap for each misspelt option, which is ignored.

    place
        Where to mend them, and how to apply the change.
    """
    for name, option in sorted(options_by_misspelling.items()):
        yield Gap(
            check="misspelt",
            where=where,
            what=f"there is no option virt:{name}: it is ignored; is virt:{option} meant?",
            fix=f"write {option} instead of {name} {place}",
            level=HINT,
        )
