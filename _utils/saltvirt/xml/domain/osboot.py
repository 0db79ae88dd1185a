"""<os>."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saltvirt.core.arguments import boolean, refuse_unknown_keys
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Vm
from saltvirt.xml import element, fields, switch, tag
from saltvirt.xml.domain import source
from saltvirt.xml.edit import amend

_KEYS = {"kernel", "initrd", "cmdline", "loader", "nvram", "efi"}
_DEVICES = {"hd", "fd", "cdrom", "network"}
# libvirt's own place for the variables; up to 9.1 only the running domain's XML has it.
_VARIABLES = "/var/lib/libvirt/qemu/nvram/{}_VARS.fd"


@element.declare("loader")
class Loader:
    """A <loader>: the firmware's file and the element's attributes."""

    path: str | None = fields.text(default=None)
    attributes: dict[str, str] = fields.bag(default_factory=dict)


@element.declare("nvram")
class Nvram:
    """An <nvram>: a file, or the attributes of a <source>, and the element's own."""

    path: str | None = fields.text(default=None)
    attributes: dict[str, str] = fields.bag(default_factory=dict)
    source: dict[str, str] | None = fields.bag("source", default=None)


@element.declare("os")
class Os:
    """The content of an <os>."""

    type: str | None = fields.text("type", default="hvm")
    arch: str | None = fields.attribute("type/@arch", default=None)
    machine: str | None = fields.attribute("type/@machine", default=None)
    firmware: str | None = fields.attribute("@firmware", default=None)
    loader: Loader | None = fields.child(default=None)
    nvram: Nvram | None = fields.child(default=None)
    kernel: str | None = fields.text("kernel", default=None)
    initrd: str | None = fields.text("initrd", default=None)
    cmdline: str | None = fields.text("cmdline", default=None)
    boot: tuple[str, ...] = fields.values("boot", fields.in_attribute("dev"), default=())


build = element.build


def parse_boot_devices(boot_dev: object) -> tuple[str, ...]:
    """Return the boot devices of ``"network hd"`` as a tuple; refuse one that libvirt lacks."""
    names = tuple(str(boot_dev or "hd").split())
    for device in names:
        if device not in _DEVICES:
            device_names = ", ".join(sorted(_DEVICES))
            raise BadArgument("boot_dev", f"{device!r}; any of {device_names}, separated by spaces")
    return names


def check(boot: Mapping[str, Any] | None) -> None:
    """Refuse a ``boot`` mapping that cannot work."""
    if not boot:
        return
    refuse_unknown_keys("boot", boot, _KEYS)
    _check_efi(boot)
    _check_direct(boot)
    if bool(boot.get("loader")) != bool(boot.get("nvram")):
        raise _incomplete_firmware()


def _check_direct(direct: Mapping[str, Any]) -> None:
    for part in ("initrd", "cmdline"):
        if direct.get(part) and not direct.get("kernel"):
            raise BadArgument("boot", f"{part!r} needs 'kernel'")


def _incomplete_firmware() -> BadArgument:
    return BadArgument("boot", "'loader' and 'nvram' go together; or use 'efi: True'")


def _check_efi(boot: Mapping[str, Any]) -> None:
    # A text such as 'no' would count as true.
    if boot.get("efi") is not None and boolean("boot:efi", boot["efi"]) and boot.get("loader"):
        raise BadArgument("boot", "'efi: True' finds its own loader; leave 'loader' out")


def from_call(vm: Vm) -> Os:
    """Return the <os> of a VM; its ``boot`` names local files only."""
    boot = vm.boot or {}
    loader = nvram = None
    if boot.get("loader"):
        loader = Loader(path=str(boot["loader"]), attributes={"readonly": "yes", "type": "pflash"})
        nvram = Nvram(attributes=_template(boot["nvram"]))
    direct = {key: str(boot[key]) for key in ("kernel", "initrd", "cmdline") if boot.get(key)}
    return Os(
        type=vm.os_type or "hvm",
        arch=vm.arch,
        machine=vm.machine,
        firmware="efi" if boot.get("efi") else None,
        loader=loader,
        nvram=nvram,
        **direct,
        boot=vm.boot_dev,
    )


def files(os: Os) -> list[str]:
    """Return the files of the host that a VM boots from: kernel, initial RAM disk, firmware."""
    loader = os.loader.path if os.loader else None
    return [path for path in (os.kernel, os.initrd, loader) if path]


def variables(os: Os, name: str | None) -> str | None:
    """
    Return the file of a VM's firmware variables; None if there is none on this host.

    name
        The VM's, for libvirt's own name of the file.
    """
    nvram = os.nvram
    if nvram is not None and nvram.source is not None:
        return None if nvram.source.get("protocol") else source.path(nvram.source)
    if nvram is not None and nvram.path:
        return nvram.path
    is_stateless = os.loader is not None and switch(os.loader.attributes.get("stateless")) is True
    return _VARIABLES.format(name) if os.firmware == "efi" and not is_stateless else None


def has_flash(os: Os) -> bool:
    """Return whether a VM's firmware is in flash memory, as UEFI mostly is."""
    kind = os.loader.attributes.get("type") if os.loader is not None else None
    return os.firmware == "efi" or kind == "pflash"


def variables_format(os: Os) -> str | None:
    """Return the format of the file of the firmware's variables; None without one."""
    return os.nvram.attributes.get("format", "raw") if os.nvram is not None else None


def apply_changes(
    current: Os, boot: Mapping[str, Any], boot_devices: tuple[str, ...] | None = None
) -> Os:
    """
    Return the boot configuration of a domain with the changes of a call.

    boot
        A call's ``boot``, with local files only: null removes a value, and what is not given stays.
        ``efi: False`` removes the firmware, and its variables.
    boot_devices
        The boot devices, None to leave them.
    """
    refuse_unknown_keys("boot", boot, _KEYS)
    _check_efi(boot)
    direct: dict[str, Any] = {
        key: str(boot[key]) if boot[key] else None
        for key in ("kernel", "initrd", "cmdline")
        if key in boot
    }
    out = _with_firmware(replace(current, **direct), boot)
    out = out if boot_devices is None else replace(out, boot=boot_devices)
    _check_direct({"kernel": out.kernel, "initrd": out.initrd, "cmdline": out.cmdline})
    return out


def _with_firmware(current: Os, boot: Mapping[str, Any]) -> Os:
    if boot.get("efi") is False or _is_cleared(boot):
        return replace(current, firmware=None, loader=None, nvram=None)
    if boot.get("efi"):
        # libvirt replaces the request for a firmware with the loader that it has found.
        return replace(current, firmware="efi") if current.loader is None else current
    return _with_loader(current, boot)


def _with_loader(current: Os, boot: Mapping[str, Any]) -> Os:
    loader, nvram = current.loader, current.nvram
    if boot.get("loader"):
        old = loader.attributes if loader is not None else {}
        attributes = {**old, "readonly": "yes", "type": "pflash"}
        loader = Loader(path=str(boot["loader"]), attributes=attributes)
        current = replace(current, firmware=None)
    if boot.get("nvram"):
        nvram = nvram or Nvram()
        nvram = replace(nvram, attributes={**nvram.attributes, **_template(boot["nvram"])})
    if {"loader", "nvram"} & set(boot) and (loader is None) != (nvram is None):
        raise _incomplete_firmware()
    return replace(current, loader=loader, nvram=nvram)


def _template(path: object) -> dict[str, str]:
    """Return the attributes of an <nvram> made from a template, in the template's format."""
    text = str(path)
    formats = {"templateFormat": "qcow2", "format": "qcow2"} if text.endswith(".qcow2") else {}
    return {"template": text, **formats}


def _is_cleared(boot: Mapping[str, Any]) -> bool:
    return all(key in boot and boot[key] is None for key in ("loader", "nvram"))


def amend_domain(root: ET.Element, requested: Os) -> None:
    """Change the <os> of a domain in place."""
    os_element = root.find("os")
    current = element.read(Os, os_element)
    amend.change_children(root, [build(current)], [build(requested)])
    if os_element is None:
        return
    if requested.firmware is None and current.firmware is not None:
        # The features for the choice of a firmware.
        amend.remove_children(os_element, "firmware")
    if requested.boot != current.boot:
        # Their order is the boot order.
        amend.put_children(
            os_element, "boot", [tag("boot", {"dev": device}) for device in requested.boot]
        )
