"""What is missing, in the order of need."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from saltvirt.fleet.findings import MASTER, Finding

# What for: without the first no VM is deployed, with the others alone it is.
NEEDED, IMAGES, MOVING, CELLS, HINT = LEVELS = (
    "needed",
    "for images without a minion",
    "for moving VMs",
    "for VMs of a cell",
    "hint",
)
# What comes first is mended first: what comes later needs it, or is only seen with it.
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
        What for it is needed, one of :data:`LEVELS`.
    """

    level: str = NEEDED


def sort_gaps(gaps: Iterable[Gap]) -> list[Gap]:
    """Return what is missing in the order in which it is to be mended, the master's own first."""
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
    Yield the options that are passed over, as none is called so.

    place
        Where they are mended, and what has that read.
    """
    for name, option in sorted(options_by_misspelling.items()):
        yield Gap(
            check="misspelt",
            where=where,
            what=f"there is no option virt:{name}: it is ignored; is virt:{option} meant?",
            fix=f"write {option} instead of {name} {place}",
            level=HINT,
        )
