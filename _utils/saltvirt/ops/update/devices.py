"""The devices of a definition but its disks, as a call wants them. Nothing is read here."""

import copy
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from saltvirt import defaults3006
from saltvirt.model import Nic
from saltvirt.nics import mac_for
from saltvirt.xml import amend, chardev, graphics, held, hostdev, nic
from saltvirt.xml.chardev import Chardev

Given = Mapping[str, Any]


def interfaces(root: ET.Element, vm: str, wanted: Sequence[Nic], *, is_3006: bool = False) -> None:
    """
    Have a definition have these NICs alone; those that stay keep what the call does not say.

    is_3006
        Whether those that are new have Salt 3006's defaults.
    """
    left = amend.devices(root, "interface")
    asked = [nic.of(defaults3006.nic(vm, one) if is_3006 else one) for one in wanted]
    in_place = [held.place(one) for one in asked]
    found: dict[int, ET.Element] = {}

    def take(is_same: Any) -> None:
        for number, one in enumerate(wanted):
            match = next((e for e in left if number not in found and is_same(number, one, e)), None)
            if match is not None:
                found[number] = match
                left.remove(match)

    take(lambda number, one, element: _mac(element) == one.mac)
    # A call that says no MAC means the NIC that is there, whatever MAC that was given.
    take(
        lambda number, one, element: one.mac == mac_for(vm, one.name)
        and held.place(nic.read(element)) == in_place[number]
        and nic.read(element).model == asked[number].model
    )
    take(
        lambda number, one, element: one.mac == mac_for(vm, one.name)
        and not one.has_model
        and held.place(nic.read(element)) == in_place[number]
    )
    amend.put_devices(
        root,
        "interface",
        [
            _interface(found.get(number), one, has_model=wanted[number].has_model)
            for number, one in enumerate(asked)
        ],
    )


def _mac(element: ET.Element) -> str:
    return (nic.read(element).mac or "").lower()


def _interface(element: ET.Element | None, wanted: nic.Interface, *, has_model: bool) -> ET.Element:
    if element is None:
        return nic.build(wanted)
    now = nic.read(element)
    if not has_model:
        wanted = replace(wanted, model=now.model)
    new = held.changed_nic(now, wanted)
    return held.amended_nic(element, replace(new, mac=now.mac or wanted.mac))


def displays(root: ET.Element, given: Given, *, is_3006: bool = False) -> None:
    """
    Have a definition have the one display of a call, or none.

    is_3006
        Whether one that is new has Salt 3006's defaults.
    """
    elements = amend.devices(root, "graphics")
    kind = str(given.get("type"))
    own = next((one for one in elements if graphics.read(one).type == kind), None)
    if own is None and is_3006:
        given = defaults3006.display(given) or {}
    wanted = graphics.changed(None if own is None else graphics.read(own), given)
    if wanted is None:
        amend.put_devices(root, "graphics", [])
    elif own is None:
        amend.put_devices(root, "graphics", [graphics.build(wanted)])
    else:
        graphics.amended(own, wanted)
        amend.put_devices(root, "graphics", [own])


def ports(
    root: ET.Element, serials: Sequence[Given] | None, consoles: Sequence[Given] | None
) -> None:
    """
    Have a definition have a call's serial ports and consoles; None leaves them.

    On a PC libvirt makes a console of the first serial port, and a serial port of a console
    that is to be one, whether it is told to or not.
    """
    now = [chardev.read(one) for one in amend.devices(root, "serial")]
    wanted_consoles = _asked("console", consoles, None)
    wanted_serials = _asked("serial", serials, _log(now))
    has_serials = wanted_serials if serials is not None else now
    if wanted_consoles and chardev.is_shadow(wanted_consoles[0]) and not has_serials:
        first = replace(wanted_consoles[0], element="serial", target={"port": "0"})
        wanted_serials, serials = [first], list(consoles or ())[:1]
    if serials is not None and _put(root, "serial", wanted_serials, serials):
        _drop_shadows(root)
    if consoles is not None:
        _consoles(root, wanted_consoles, consoles)


def _log(serials: Sequence[Chardev]) -> str | None:
    """Return where the first serial port that is logged is."""
    return next((one.log.get("file") for one in serials if one.log), None)


def _drop_shadows(root: ET.Element) -> None:
    """Take out the console that is made anew of what the first serial port is now."""
    others = amend.devices(root, "console")
    kept = [one for one in others if not chardev.is_shadow(chardev.read(one))]
    amend.put_devices(root, "console", kept)


def _asked(element: str, given: Sequence[Given] | None, log: str | None) -> list[Chardev]:
    serials, consoles = (given, ()) if element == "serial" else ((), given)
    return list(chardev.of(serials or (), consoles or (), log))


def _consoles(root: ET.Element, wanted: list[Chardev], given: Sequence[Given]) -> None:
    """Change the consoles, but for the first one where that is only the first serial port."""
    elements = amend.devices(root, "console")
    has_serials = bool(amend.devices(root, "serial"))
    shadows = [one for one in elements if chardev.is_shadow(chardev.read(one))]
    if has_serials and wanted and chardev.is_shadow(wanted[0]):
        wanted, given = wanted[1:], given[1:]
    if not has_serials:
        shadows = []
    _put(root, "console", wanted, given, shadows)


def _put(
    root: ET.Element,
    name: str,
    wanted: Sequence[Chardev],
    given: Sequence[Given],
    apart: Sequence[ET.Element] = (),
) -> bool:
    """Have these be the devices of a name, beside those apart; return whether any changed."""
    now = [one for one in amend.devices(root, name) if one not in apart]
    out = []
    for number, one in enumerate(wanted):
        own = now[number] if number < len(now) else None
        has_port = "target_port" in given[number] or name == "serial"
        if own is None:
            out.append(chardev.build(_at_port(one, number, has_port)))
        else:
            # libvirt counts consoles itself, whatever port is said.
            is_kept = "target_port" in given[number] and name == "serial"
            out.append(_port(own, one, given[number], is_kept))
    is_changed = out != now
    if is_changed:
        amend.put_devices(root, name, [*apart, *out])
    return is_changed


def _port(own: ET.Element, wanted: Chardev, given: Given, is_kept: bool) -> ET.Element:
    """Return a device as a call wants it; the same element if the call changes nothing."""
    now = chardev.read(own)
    wanted = chardev.completed(now, wanted, given)
    if chardev.is_like(now, wanted, is_kept):
        return own
    if now.type != wanted.type:
        return chardev.build(wanted)
    element = copy.deepcopy(own)
    amend.element(element, chardev.build(now), chardev.build(wanted))
    return element


def _at_port(one: Chardev, number: int, has_port: bool) -> Chardev:
    """Return a device at the next port, unless the call says which."""
    return one if has_port else replace(one, target={**(one.target or {}), "port": str(number)})


def host_devices(root: ET.Element, wanted: Sequence[hostdev.Hostdev]) -> None:
    """Have a definition have these of the host's devices; those calls cannot name stay."""
    elements = amend.devices(root, "hostdev")
    known = {held.host_device(hostdev.read(one)): one for one in elements}
    keys = [held.host_device(one) for one in wanted]
    out = [
        known[key] if key in known else hostdev.build(one)
        for key, one in zip(keys, wanted, strict=True)
    ]
    others = [one for one in elements if held.host_device(hostdev.read(one)) is None]
    amend.put_devices(root, "hostdev", [*out, *others])
