"""
The buses of disks, and what follows from each.

One entry of ``BUSES`` adds a bus with targets of a prefix and one letter, and with a controller
that libvirt adds. A bus with other targets, such as the two numbers of ``nvme``, also overrides
:meth:`DiskBus.has_target` and :meth:`DiskBus.free_target`, and ``test_diskbus.py`` needs its first
and last target.
"""

from collections.abc import Container
from dataclasses import dataclass
from string import ascii_lowercase

from saltvirt.core.errors import BadArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskBus:
    """
    A bus that a guest sees disks on.

    name
        As libvirt calls it, and as ``model`` of a call's disk names it.
    prefix
        What the targets of its disks begin with; one letter follows, and nothing else.
    default_for
        The kinds of devices that are on this bus unless a call names another.
    is_hotpluggable
        Whether disks are attached and detached while the VM runs.
    """

    name: str
    prefix: str
    default_for: tuple[str, ...] = ()
    is_hotpluggable: bool = False

    def has_target(self, target: str) -> bool:
        """Return whether a target is one of this bus; buses may share a prefix."""
        return target[:-1] == self.prefix and target[-1:] in ascii_lowercase

    def free_target(self, used_targets: Container[str]) -> str:
        """Return the first target that is not used; raise BadArgument if none is left."""
        for letter in ascii_lowercase:
            if (target := self.prefix + letter) not in used_targets:
                return target
        raise BadArgument(
            "disks", f"more than {len(ascii_lowercase)} disks on the bus {self.name!r}"
        )


BUSES = {
    bus.name: bus
    for bus in (
        DiskBus(name="virtio", prefix="vd", default_for=("disk", "lun"), is_hotpluggable=True),
        DiskBus(name="scsi", prefix="sd", is_hotpluggable=True),
        DiskBus(name="sata", prefix="sd"),
        DiskBus(name="ide", prefix="hd", default_for=("cdrom",)),
        DiskBus(name="usb", prefix="sd", is_hotpluggable=True),
        DiskBus(name="fdc", prefix="fd", default_for=("floppy",)),
        DiskBus(name="xen", prefix="xvd"),
    )
}


def find_bus(name: object) -> DiskBus:
    """Return the bus of a name; raise BadArgument, which lists the names, if there is none."""
    bus = BUSES.get(str(name))
    if bus is None:
        raise BadArgument("disk model", f"{name!r}; one of {', '.join(sorted(BUSES))}")
    return bus


def default_bus(device: str) -> DiskBus:
    """Return the bus of a kind of device (``disk``, ``cdrom``, …) if the call names none."""
    return next(bus for bus in BUSES.values() if device in bus.default_for)
