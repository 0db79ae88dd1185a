"""Refuse calls that would remove devices because their lists do not name them."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Sequence

from saltvirt.core.errors import BadArgument
from saltvirt.vm.update.host import listed, live
from saltvirt.vm.update.host.listed import DeviceKind
from saltvirt.vm.update.host.plan import Plan
from saltvirt.vm.update.host.request import Request
from saltvirt.xml.domain import chardev, disk, graphics
from saltvirt.xml.edit import amend, devicematch

_FindLost = Callable[[ET.Element, ET.Element], Iterator[str]]
# Remedies: how a call keeps a device.
_KEEP_ADVICE = {
    "disks": "list all disks that are to stay",
    "interfaces": "list all NICs that are to stay, with their mac",
}


def refuse(definition: ET.Element, plan: Plan, changes: live.Live, request: Request) -> None:
    """
    Raise BadArgument if a call would remove devices that it does not name.

    ``detach`` of the call allows it, and so does ``virt:compat: 3006``. A call for no display
    needs neither.

    changes
        The changes to the running VM.
    """
    if request.detach or request.is_3006:
        return
    for argument, find in _LISTS.items():
        if getattr(request, argument) is None:
            continue
        lost_devices = [
            *find(definition, plan.root),
            *_find_unplugged(argument, plan.root, changes),
        ]
        if lost_devices:
            # The definition and the running VM mostly list the same devices.
            names = ", ".join(dict.fromkeys(lost_devices))
            raise BadArgument(
                argument,
                f"VM {request.name!r} would lose {names}, which the call does not name; "
                f"{_KEEP_ADVICE.get(argument, 'list all that is to stay')}, or give detach=True",
            )


def _find_unplugged(argument: str, root: ET.Element, changes: live.Live) -> Iterator[str]:
    """Yield detached devices of the running VM that the new definition lacks."""
    for step in changes.steps:
        kind = listed.KINDS[step.device]
        if step.how == live.DETACH and kind.argument == argument:
            yield from _missing(kind, [step.element], root)


def _missing(
    kind: DeviceKind, elements: Iterable[ET.Element], new_root: ET.Element
) -> Iterator[str]:
    """Yield those of some devices that a new definition lacks."""
    kept_contents = [kind.content(element) for element in amend.devices(new_root, kind.element)]
    return (
        kind.describe(element) for element in elements if kind.content(element) not in kept_contents
    )


def _removed(kind: DeviceKind) -> _FindLost:
    return lambda old_root, new_root: _missing(kind, kind.list(old_root), new_root)


def _disks(old_root: ET.Element, new_root: ET.Element) -> Iterator[str]:
    """Yield the removed disks; of drives only the surplus."""
    old_disks, new_disks = listed.DISK.list(old_root), listed.DISK.list(new_root)
    disks = [element for element in old_disks if _device(element) not in devicematch.DRIVES]
    yield from _missing(listed.DISK, disks, new_root)
    targets = set(map(listed.target_of, new_disks))
    for device in devicematch.DRIVES:
        drives = [element for element in old_disks if _device(element) == device]
        surplus_count = len(drives) - sum(_device(element) == device for element in new_disks)
        gone_drives = [drive for drive in drives if listed.target_of(drive) not in targets]
        yield from map(listed.DISK.describe, gone_drives[: max(surplus_count, 0)])


def _device(element: ET.Element) -> str | None:
    return disk.read(element).device


def _serials(old_root: ET.Element, new_root: ET.Element) -> Iterator[str]:
    return _surplus("serial", amend.devices(old_root, "serial"), amend.devices(new_root, "serial"))


def _consoles(old_root: ET.Element, new_root: ET.Element) -> Iterator[str]:
    return _surplus("console", _unshadowed_consoles(old_root), _unshadowed_consoles(new_root))


def _unshadowed_consoles(root: ET.Element) -> list[ET.Element]:
    """Return the consoles that do not mirror the first serial port."""
    consoles = amend.devices(root, "console")
    return [console for console in consoles if not chardev.is_shadow(chardev.read(console))]


def _surplus(
    name: str, old_elements: Sequence[ET.Element], new_elements: Sequence[ET.Element]
) -> Iterator[str]:
    """Yield the devices beyond the end of a shorter new list."""
    for number, element in enumerate(old_elements):
        if number >= len(new_elements):
            yield f"{name} {number} ({element.get('type')})"


def _displays(old_root: ET.Element, new_root: ET.Element) -> Iterator[str]:
    """Yield the removed displays, except one that the call replaces."""
    old_kinds, new_kinds = (
        [str(graphics.read(element).type) for element in amend.devices(root, "graphics")]
        for root in (old_root, new_root)
    )
    other_kinds = [kind for kind in old_kinds if kind not in new_kinds]
    # A new type replaces one display; a call for no display removes all on purpose.
    is_replaced = bool(new_kinds) and len(other_kinds) == len(old_kinds)
    lost_kinds = other_kinds[1:] if is_replaced else other_kinds if new_kinds else ()
    return (f"display {kind}" for kind in lost_kinds)


_LISTS: dict[str, _FindLost] = {
    "disks": _disks,
    "interfaces": _removed(listed.NIC),
    "host_devices": _removed(listed.HOST_DEVICE),
    "serials": _serials,
    "consoles": _consoles,
    "graphics": _displays,
}
