"""<sysinfo>: what the host tells the guest's firmware."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

from saltvirt.xml import tag

# What this project hands a guest its identity as, and how the file of it ends.
CREDENTIAL = "opt/io.systemd.credentials/tmpfiles.extra"
CREDENTIAL_FILE = "_seed.credentials"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An <entry>: a text, or a file of the host that QEMU reads when it starts."""

    name: str | None
    text: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sysinfo:
    """What a <sysinfo> says; of SMBIOS, whose entries are in tables, only the type is read."""

    type: str | None
    entries: tuple[Entry, ...] = ()


def is_credential(entry: Entry) -> bool:
    """Return whether an entry is the credential of a seed, whose file is gone once it is read."""
    return entry.name == CREDENTIAL and (entry.file or "").endswith(".credentials")


def for_file(name: str, path: object) -> Sysinfo:
    """Return the one that hands a file to the guest through QEMU's fw_cfg."""
    return Sysinfo(type="fwcfg", entries=(Entry(name=name, file=str(path)),))


def build(info: Sysinfo) -> ET.Element:
    """Return the <sysinfo>."""
    entries = [
        tag("entry", {"name": entry.name, "file": entry.file}, text=entry.text)
        for entry in info.entries
    ]
    return tag("sysinfo", {"type": info.type}, *entries)


def add(root: ET.Element, info: Sysinfo) -> None:
    """Put it into a domain that others may have written, where libvirt's schema has it."""
    place = next(index for index, element in enumerate(root) if element.tag == "os")
    root.insert(place, build(info))


def read(element: ET.Element) -> Sysinfo:
    """Return what a <sysinfo> says."""
    entries = [
        Entry(name=child.get("name"), text=child.text or None, file=child.get("file"))
        for child in element.iterfind("entry")
    ]
    return Sysinfo(type=element.get("type"), entries=tuple(entries))
