"""The devices that a call would take from a VM because its lists do not name them."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Sequence

from saltvirt.errors import BadArgument
from saltvirt.ops.update import live
from saltvirt.ops.update.plan import Plan
from saltvirt.ops.update.request import Request
from saltvirt.xml import amend, chardev, disk, graphics, held, hostdev, nic

_List = Callable[[ET.Element, ET.Element], Iterator[str]]
# How a call keeps a device.
_NAMED = {
    "disks": "list all disks that are to stay",
    "interfaces": "list all NICs that are to stay, with their mac",
}


def refuse(now: ET.Element, plan: Plan, changes: live.Live, request: Request) -> None:
    """
    Raise BadArgument if a call would take devices that it does not name.

    ``detach`` of the call allows it, and so does ``virt:compat: 3006``. A display goes without
    either where the call says that there is to be none.

    now
        The VM's definition.
    plan
        The definition that the call leads to.
    changes
        What is done to the running VM.
    """
    if request.detach or request.is_3006:
        return
    for argument, find in _LISTS.items():
        if getattr(request, argument) is None:
            continue
        lost = [*find(now, plan.root), *_unplugged(argument, plan.root, changes)]
        if lost:
            # The running VM mostly has the devices of its definition.
            names = ", ".join(dict.fromkeys(lost))
            raise BadArgument(
                argument,
                f"VM {request.name!r} would lose {names}, which the call does not name; "
                f"{_NAMED.get(argument, 'list all that is to stay')}, or give detach=True",
            )


def _unplugged(argument: str, root: ET.Element, changes: live.Live) -> Iterator[str]:
    """Yield the devices of the running VM that are detached and not in the new definition."""
    rows = _PLUGGED.get(argument)
    if rows is None:
        return
    device, identify, describe = rows
    kept = [identify(one) for one in amend.devices(root, device)]
    for step in changes.steps:
        is_lost = step.how == live.DETACH and step.device == device
        if is_lost and identify(step.element) not in kept:
            yield describe(step.element)


def _content(element: ET.Element) -> object:
    return held.content(disk.read(element))


def _disk(element: ET.Element) -> str:
    found = disk.read(element)
    where = f" ({found.path})" if found.path else ""
    return f"{found.device or 'disk'} {found.target.get('dev')}{where}"


def _mac(element: ET.Element) -> object:
    return (nic.read(element).mac or "").lower()


def _nic(element: ET.Element) -> str:
    found = nic.read(element)
    return f"NIC {found.mac} ({found.type} {held.place(found)[1] or ''}".rstrip() + ")"


def _device(element: ET.Element) -> object:
    return held.host_device(hostdev.read(element))


def _host_device(element: ET.Element) -> str:
    found = hostdev.read(element)
    if found.type == "usb":
        maker, product = found.vendor or {}, found.product or {}
        return f"USB device {maker.get('id')}:{product.get('id')}"
    numbers = held.number(found.address) or (0, 0, 0, 0)
    return "PCI device {:04x}:{:02x}:{:02x}.{:x}".format(*numbers)


def _disks(now: ET.Element, then: ET.Element) -> Iterator[str]:
    """Yield the disks that go; of drives only as many as there are to be fewer."""
    contents = [_content(one) for one in _own_disks(then)]
    targets = {disk.read(one).target.get("dev") for one in _own_disks(then)}
    for element in _own_disks(now):
        found = disk.read(element)
        if found.device not in held.DRIVES and _content(element) not in contents:
            yield _disk(element)
    for kind in held.DRIVES:
        drives = [one for one in _own_disks(now) if disk.read(one).device == kind]
        fewer = len(drives) - sum(disk.read(one).device == kind for one in _own_disks(then))
        gone = [one for one in drives if disk.read(one).target.get("dev") not in targets]
        yield from map(_disk, gone[: max(fewer, 0)])


def _own_disks(root: ET.Element) -> list[ET.Element]:
    return [one for one in amend.devices(root, "disk") if not held.is_seed(one)]


def _interfaces(now: ET.Element, then: ET.Element) -> Iterator[str]:
    kept = [_mac(one) for one in amend.devices(then, "interface")]
    return (_nic(one) for one in amend.devices(now, "interface") if _mac(one) not in kept)


def _host_devices(now: ET.Element, then: ET.Element) -> Iterator[str]:
    kept = [_device(one) for one in amend.devices(then, "hostdev")]
    return (_host_device(one) for one in amend.devices(now, "hostdev") if _device(one) not in kept)


def _serials(now: ET.Element, then: ET.Element) -> Iterator[str]:
    return _surplus("serial", amend.devices(now, "serial"), amend.devices(then, "serial"))


def _consoles(now: ET.Element, then: ET.Element) -> Iterator[str]:
    return _surplus("console", _own_consoles(now), _own_consoles(then))


def _own_consoles(root: ET.Element) -> list[ET.Element]:
    """Return the consoles that are not another name of the first serial port."""
    consoles = amend.devices(root, "console")
    return [one for one in consoles if not chardev.is_shadow(chardev.read(one))]


def _surplus(name: str, now: Sequence[ET.Element], then: Sequence[ET.Element]) -> Iterator[str]:
    """Yield the devices at the end of a list that is to be shorter."""
    for number, element in enumerate(now):
        if number >= len(then):
            yield f"{name} {number} ({element.get('type')})"


def _displays(now: ET.Element, then: ET.Element) -> Iterator[str]:
    """Yield the displays beside the one that the call names, or puts in another's place."""
    kinds = [graphics.read(one).type for one in amend.devices(then, "graphics")]
    has = [str(graphics.read(one).type) for one in amend.devices(now, "graphics")]
    others = [kind for kind in has if kind not in kinds]
    # One of another type is changed, none at all is what the call says.
    is_replaced = bool(kinds) and len(others) == len(has)
    return _display_names(others[1:] if is_replaced else others if kinds else ())


def _display_names(kinds: Iterable[str]) -> Iterator[str]:
    return (f"display {kind}" for kind in kinds)


_LISTS: dict[str, _List] = {
    "disks": _disks,
    "interfaces": _interfaces,
    "host_devices": _host_devices,
    "serials": _serials,
    "consoles": _consoles,
    "graphics": _displays,
}
_PLUGGED: dict[str, tuple[str, Callable[[ET.Element], object], Callable[[ET.Element], str]]] = {
    "disks": ("disk", _content, _disk),
    "interfaces": ("interface", _mac, _nic),
    "host_devices": ("hostdev", _device, _host_device),
}
