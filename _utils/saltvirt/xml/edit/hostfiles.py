"""
The files, folders and devices besides disks that a domain needs on its host to start.

A folder ends with a slash: QEMU, or virtlogd, makes a file in it.
Source: libvirt, formatdomain; QEMU, its command line.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from posixpath import dirname

from saltvirt.xml.domain import sysinfo
from saltvirt.xml.edit import copied

# Elements, each with the attribute that names a path; without one the element's text does.
_NAMED = (
    ("os/dtb", None),
    ("os/shim", None),
    ("os/acpi/table", None),
    ("devices/rng/backend[@model='random']", None),
    ("devices/smartcard/database", None),
    ("devices/filesystem/binary", "path"),
    ("devices/graphics/gl", "rendernode"),
    ("devices/graphics", "xauth"),
    ("devices/video/model/acceleration", "rendernode"),
    ("devices/video/acceleration", "rendernode"),
    ("devices/input[@type='evdev']/source", "dev"),
    ("devices/input[@type='passthrough']/source", "evdev"),
    ("devices/interface[@type='vdpa']/source", "dev"),
    ("devices/interface/backend", "tap"),
    ("devices/interface/backend", "vhost"),
    ("devices/interface/script", "path"),
    ("devices/interface/downscript", "path"),
    ("devices/interface[@type='vhostuser']/source[@mode='client']", "path"),
    ("devices/shmem/server", "path"),
    ("devices/disk/source/reservations/source[@mode='client']", "path"),
    ("devices/audio", "runtimeDir"),
    ("devices/audio/input", "dev"),
    ("devices/audio/output", "dev"),
    ("launchSecurity/quoteGenerationService", "path"),
)
# Files that QEMU, libvirt or virtlogd makes: only their folders must exist.
_MADE = (
    ("devices/audio[@type='file']", "path"),
    ("devices/interface[@type='vhostuser']/source[@mode='server']", "path"),
    ("devices/interface/backend", "logFile"),
    ("devices/*/log", "file"),
)
_CHARDEVS = ("serial", "parallel", "console", "channel", "smartcard", "redirdev", "rng/backend")
# Options of QEMU with a file as their value, and keys of other options for files to read.
_OPTION = re.compile(r"-?-(bios|dtb|kernel|initrd|option-rom|readconfig|L)")
_READ = re.compile(r"(?:^|,)(?:file|romfile|filename|evdev|sysfsdev|dir)=(/[^,]+)")
_READING = re.compile(r"-?-(fw_cfg|acpitable|smbios|device|object)")
_EVERYWHERE = ("/dev/random", "/dev/urandom")
# Where libvirt puts its own files of a running domain.
_OF_LIBVIRT = ("/var/lib/libvirt/", "/run/libvirt/", "/var/run/libvirt/")


def required_files(root: ET.Element) -> list[str]:
    """Return the paths that a domain needs on its host to start; see the module's docstring."""
    paths = [
        *_named_files(root),
        *_chardev_files(root),
        *_sysinfo_files(root),
        *_argument_files(root),
    ]
    host_paths = (path for path in paths if path.startswith("/") and path not in _EVERYWHERE)
    return list(dict.fromkeys(host_paths))


def template(root: ET.Element) -> str | None:
    """Return the template of the firmware's variables, if the domain names one."""
    nvram = root.find("os/nvram")
    return nvram.get("template") if nvram is not None else None


def _named_files(root: ET.Element) -> Iterator[str]:
    for path, attribute in _NAMED:
        for element in root.iterfind(path):
            yield (element.get(attribute, "") if attribute else element.text or "").strip()
    # The ROM of any device.
    for rom in root.iterfind("devices/*/rom"):
        yield rom.get("file", "")
    for path, attribute in _MADE:
        for element in root.iterfind(path):
            yield _folder(element.get(attribute or "", ""))


def _chardev_files(root: ET.Element) -> Iterator[str]:
    for name in _CHARDEVS:
        for device in root.iterfind(f"devices/{name}"):
            source = device.find("source")
            path = source.get("path", "") if source is not None else ""
            if device.get("type") in ("dev", "pipe"):
                yield path
            elif device.get("type") == "file":
                yield _folder(path)
            elif device.get("type") == "unix" and source is not None:
                yield path if source.get("mode") == "connect" else _folder(path)


def _folder(path: str) -> str:
    """Return the folder of a file that is made when the domain starts."""
    if not path.startswith("/") or path.startswith(_OF_LIBVIRT):
        return ""
    return f"{dirname(path).rstrip('/')}/"


def _sysinfo_files(root: ET.Element) -> Iterator[str]:
    """Yield the files that the guest's firmware gets."""
    for info in map(sysinfo.read, root.iterfind("sysinfo")):
        yield from (entry.file or "" for entry in info.entries if not sysinfo.is_credential(entry))


def _argument_files(root: ET.Element) -> Iterator[str]:
    """Yield files that QEMU reads by <qemu:commandline>; for disks see find_argument_files."""
    option = ""
    for argument in copied.arguments(root):
        if argument.startswith("-"):
            option = argument
        elif _OPTION.fullmatch(option):
            yield argument
        elif _READING.fullmatch(option):
            yield from _READ.findall(argument)
