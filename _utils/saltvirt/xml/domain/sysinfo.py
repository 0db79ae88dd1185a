"""<sysinfo>: the host's data for the guest's firmware."""

import xml.etree.ElementTree as ET

from saltvirt.xml import element, fields

# The name of the credential that gives a guest its identity, and the end of its file's name.
CREDENTIAL = "opt/io.systemd.credentials/tmpfiles.extra"
CREDENTIAL_FILE = "_seed.credentials"


@element.declare("entry")
class Entry:
    """An <entry>: a text, or a file of the host that QEMU reads when it starts."""

    name: str | None = fields.attribute("@name")
    file: str | None = fields.attribute("@file", default=None)
    text: str | None = fields.text(default=None)


@element.declare("sysinfo")
class Sysinfo:
    """The content of a <sysinfo>; of SMBIOS, with entries in tables, only the type is read."""

    type: str | None = fields.attribute("@type")
    entries: tuple[Entry, ...] = fields.children(default=())


read = element.reader(Sysinfo)


def is_credential(entry: Entry) -> bool:
    """Return whether an entry is a seed's credential; its file is gone once QEMU has read it."""
    return entry.name == CREDENTIAL and (entry.file or "").endswith(".credentials")


def for_file(name: str, path: object) -> Sysinfo:
    """Return the sysinfo that passes a file to the guest through QEMU's fw_cfg."""
    return Sysinfo(type="fwcfg", entries=(Entry(name=name, file=str(path)),))


def add(root: ET.Element, info: Sysinfo) -> None:
    """Add the sysinfo to a domain of any origin, at its place in libvirt's schema."""
    place = next(index for index, part in enumerate(root) if part.tag == "os")
    root.insert(place, element.build(info))
