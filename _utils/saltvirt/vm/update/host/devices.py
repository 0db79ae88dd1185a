"""Change a definition's devices, except disks, as a call requests; pure functions."""

import copy
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from saltvirt.core.model import Nic
from saltvirt.core.nics import mac_for
from saltvirt.core.options import defaults3006
from saltvirt.vm.update.host import listed
from saltvirt.xml.domain import chardev, graphics, hostdev, nic
from saltvirt.xml.domain.chardev import Chardev
from saltvirt.xml.edit import amend, devicematch

Options = Mapping[str, Any]


def interfaces(
    root: ET.Element, vm: str, requested: Sequence[Nic], *, is_3006: bool = False
) -> None:
    """
    Replace a definition's NICs; a NIC that stays keeps settings that the call does not give.

    is_3006
        Give new NICs Salt 3006's defaults.
    """
    new_interfaces = [
        nic.from_call(defaults3006.nic(vm, requested_nic) if is_3006 else requested_nic)
        for requested_nic in requested
    ]

    def is_at_place(number: int, element: ET.Element) -> bool:
        # Without a MAC (mac_for gives the default), match a NIC at the same place with any MAC.
        has_default_mac = requested[number].mac == mac_for(vm, requested[number].name)
        place = devicematch.place(nic.read(element))
        return has_default_mac and place == devicematch.place(new_interfaces[number])

    elements = listed.match(
        range(len(requested)),
        amend.devices(root, "interface"),
        (
            lambda number, element: listed.mac_of(element) == requested[number].mac,
            lambda number, element: (
                is_at_place(number, element)
                and nic.read(element).model == new_interfaces[number].model
            ),
            lambda number, element: (
                is_at_place(number, element) and not requested[number].has_model
            ),
        ),
    )
    new_elements = [
        _change_interface(element, interface, has_model=requested_nic.has_model)
        for element, interface, requested_nic in zip(
            elements, new_interfaces, requested, strict=True
        )
    ]
    amend.put_devices(root, "interface", new_elements)


def single_interface(
    root: ET.Element, vm: str, mac: str, requested: Sequence[Nic], *, is_3006: bool = False
) -> None:
    """Replace the NIC with a MAC, if there is one, by new NICs; all others stay as they are."""
    kept_elements = [
        element for element in amend.devices(root, "interface") if listed.mac_of(element) != mac
    ]
    new_elements = [
        nic.build(nic.from_call(defaults3006.nic(vm, new_nic) if is_3006 else new_nic))
        for new_nic in requested
    ]
    amend.put_devices(root, "interface", [*kept_elements, *new_elements])


def _change_interface(
    element: ET.Element | None, requested: nic.Interface, *, has_model: bool
) -> ET.Element:
    if element is None:
        return nic.build(requested)
    current = nic.read(element)
    if not has_model:
        requested = replace(requested, model=current.model)
    new_interface = devicematch.merge_nic(current, requested)
    return devicematch.amend_nic_copy(
        element, replace(new_interface, mac=current.mac or requested.mac)
    )


def displays(root: ET.Element, options: Options, *, is_3006: bool = False) -> None:
    """
    Replace a definition's displays by the one display of a call, or by none.

    is_3006
        Give a new display Salt 3006's defaults.
    """
    elements = amend.devices(root, "graphics")
    kind = str(options.get("type"))
    element = next(
        (candidate for candidate in elements if graphics.read(candidate).type == kind), None
    )
    if element is None and is_3006:
        options = defaults3006.display(options) or {}
    new_display = graphics.apply_changes(
        None if element is None else graphics.read(element), options
    )
    if new_display is None:
        amend.put_devices(root, "graphics", [])
    elif element is None:
        amend.put_devices(root, "graphics", [graphics.build(new_display)])
    else:
        graphics.amend_element(element, new_display)
        amend.put_devices(root, "graphics", [element])


def ports(
    root: ET.Element, serials: Sequence[Options] | None, consoles: Sequence[Options] | None
) -> None:
    """
    Replace a definition's serial ports and consoles; None leaves them.

    On a PC, libvirt adds a console for the first serial port, and a serial port for a console of
    type serial, in any case.
    """
    old_serials = [chardev.read(element) for element in amend.devices(root, "serial")]
    new_consoles = _build_ports("console", consoles, None)
    new_serials = _build_ports("serial", serials, _first_log_path(old_serials))
    has_serials = new_serials if serials is not None else old_serials
    if new_consoles and chardev.is_shadow(new_consoles[0]) and not has_serials:
        first_port = replace(new_consoles[0], element="serial", target={"port": "0"})
        new_serials, serials = [first_port], list(consoles or ())[:1]
    if serials is not None and _put_ports(root, "serial", new_serials, serials):
        _drop_shadows(root)
    if consoles is not None:
        _put_consoles(root, new_consoles, consoles)


def _first_log_path(serials: Sequence[Chardev]) -> str | None:
    """Return the log file of the first logged serial port."""
    return next((serial.log.get("file") for serial in serials if serial.log), None)


def _drop_shadows(root: ET.Element) -> None:
    """Remove the console that mirrors the first serial port; libvirt makes it anew."""
    consoles = amend.devices(root, "console")
    kept_consoles = [
        console for console in consoles if not chardev.is_shadow(chardev.read(console))
    ]
    amend.put_devices(root, "console", kept_consoles)


def _build_ports(
    element: str, port_options: Sequence[Options] | None, log: str | None
) -> list[Chardev]:
    serials, consoles = (port_options, ()) if element == "serial" else ((), port_options)
    return list(chardev.from_call(serials or (), consoles or (), log))


def _put_consoles(
    root: ET.Element, new_consoles: list[Chardev], console_options: Sequence[Options]
) -> None:
    """Replace the consoles, except a first one that mirrors the first serial port."""
    elements = amend.devices(root, "console")
    has_serials = bool(amend.devices(root, "serial"))
    shadows = [element for element in elements if chardev.is_shadow(chardev.read(element))]
    if has_serials and new_consoles and chardev.is_shadow(new_consoles[0]):
        new_consoles, console_options = new_consoles[1:], console_options[1:]
    if not has_serials:
        shadows = []
    _put_ports(root, "console", new_consoles, console_options, shadows)


def _put_ports(
    root: ET.Element,
    name: str,
    new_ports: Sequence[Chardev],
    port_options: Sequence[Options],
    shadows: Sequence[ET.Element] = (),
) -> bool:
    """Replace the devices of a name, except ``shadows``; return whether any changed."""
    elements = [element for element in amend.devices(root, name) if element not in shadows]
    out = []
    for number, port in enumerate(new_ports):
        old_element = elements[number] if number < len(elements) else None
        has_port = "target_port" in port_options[number] or name == "serial"
        if old_element is None:
            out.append(chardev.build(_with_port(port, number, has_port)))
        else:
            # libvirt numbers consoles itself, and ignores the call's port.
            is_kept = "target_port" in port_options[number] and name == "serial"
            out.append(_change_port(old_element, port, port_options[number], is_kept))
    is_changed = out != elements
    if is_changed:
        amend.put_devices(root, name, [*shadows, *out])
    return is_changed


def _change_port(
    old_element: ET.Element, new_port: Chardev, options: Options, is_kept: bool
) -> ET.Element:
    """Return the changed device, or the same element if the call changes nothing."""
    old_port = chardev.read(old_element)
    new_port = chardev.complete(old_port, new_port, options)
    if chardev.is_like(old_port, new_port, is_kept):
        return old_element
    if old_port.type != new_port.type:
        return chardev.build(new_port)
    element = copy.deepcopy(old_element)
    amend.change_element(element, chardev.build(old_port), chardev.build(new_port))
    return element


def _with_port(port: Chardev, number: int, has_port: bool) -> Chardev:
    """Return a device at the port of its number, unless the call gives a port."""
    return port if has_port else replace(port, target={**(port.target or {}), "port": str(number)})


def host_devices(root: ET.Element, requested: Sequence[hostdev.Hostdev]) -> None:
    """Replace a definition's host devices; devices that calls cannot name stay."""
    elements = amend.devices(root, "hostdev")
    elements_by_key = {listed.host_device_key(element): element for element in elements}
    unnamed_elements = [element for element in elements if listed.host_device_key(element) is None]
    out = []
    for device in requested:
        element = elements_by_key.get(devicematch.host_device_key(device))
        out.append(hostdev.build(device) if element is None else element)
    amend.put_devices(root, "hostdev", [*out, *unnamed_elements])
