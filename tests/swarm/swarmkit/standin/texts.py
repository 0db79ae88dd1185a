"""Domain XML as the stand-in keeps it: of one that is defined, and of one that runs."""

import hashlib
import uuid
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from functools import lru_cache

import libvirt
from saltvirt.xml import METADATA_NS

from swarmkit.standin.refusals import refusal

_KIB = {"b": 1 / 1024, "KiB": 1, "MiB": 1024, "GiB": 1024**2, "TiB": 1024**3, "KB": 1000 / 1024}
_SECRETS = ("passwd", "passwdValidTo")


def parsed(text):
    """Return a domain's element; raise libvirt's error if it is none."""
    try:
        root = ET.fromstring(text)
    except ET.ParseError as wrong:
        raise refusal("XML_DETAIL", f"(domain_definition):1: {wrong}") from wrong
    if root.tag != "domain":
        raise refusal("XML_ERROR", f"XML error: unexpected root element <{root.tag}>")
    if not root.findtext("name"):
        raise refusal("NO_NAME", "XML error: missing name")
    if root.find("os/type") is None:
        raise refusal("OS_TYPE", "XML error: an os <type> must be specified")
    return root


def memory_kib(root, name):
    """Return the memory that an element of a domain names, in KiB; 0 without it."""
    element = root.find(name)
    if element is None or not (element.text or "").strip():
        return 0
    unit = element.get("unit", "KiB")
    return int(float(element.text) * _KIB.get({"K": "KiB", "M": "MiB", "G": "GiB"}.get(unit, unit)))


def vcpus(root):
    """Return ``(current, maximum)``."""
    element = root.find("vcpu")
    most = int(element.text) if element is not None and element.text else 1
    return int(element.get("current", most)) if element is not None else most, most


@dataclass(frozen=True)
class Disk:
    """What of a disk libvirt's statistics name."""

    target: str
    path: str | None
    format: str


@dataclass(frozen=True)
class Figures:
    """What of a domain's XML its statistics are made of; memory in KiB."""

    memory: int
    most_memory: int
    vcpus: int
    most_vcpus: int
    disks: tuple[Disk, ...]


@lru_cache(maxsize=1 << 16)
def figures(text):
    """Return the figures in a domain's XML, which is read once: libvirtd has them at hand."""
    root = ET.fromstring(text)
    now, most = vcpus(root)
    return Figures(
        memory=memory_kib(root, "currentMemory"),
        most_memory=memory_kib(root, "memory"),
        vcpus=now,
        most_vcpus=most,
        disks=tuple(map(_disk, root.iterfind("devices/disk"))),
    )


def _disk(element):
    source, driver = element.find("source"), element.find("driver")
    return Disk(
        target=element.find("target").get("dev"),
        path=None if source is None else source.get("file"),
        format="raw" if driver is None else driver.get("type", "raw"),
    )


def _set_text(root, name, text, after):
    element = root.find(name)
    if element is None:
        element = ET.Element(name)
        root.insert(list(root).index(root.find(after)) + 1, element)
    element.text = text
    return element


def defined(text):
    """Return ``(name, uuid, xml)`` of what is to be defined, completed as libvirt completes it."""
    root = parsed(text)
    root.attrib.pop("id", None)
    name = root.findtext("name")
    own = root.findtext("uuid")
    try:
        own = str(uuid.UUID(own)) if own else str(uuid.uuid4())
    except ValueError as wrong:
        raise refusal("INTERNAL_ERROR", "internal error: malformed uuid element") from wrong
    _set_text(root, "uuid", own, "name")
    most = memory_kib(root, "memory")
    now = memory_kib(root, "currentMemory") or most
    _set_text(root, "memory", str(most), "uuid").set("unit", "KiB")
    _set_text(root, "currentMemory", str(min(now, most)), "memory").set("unit", "KiB")
    for number, nic in enumerate(root.iterfind("devices/interface")):
        if nic.find("mac") is None:
            digest = hashlib.sha256(f"{own}{number}".encode()).hexdigest()
            pairs = ":".join(digest[at : at + 2] for at in (0, 2, 4))
            nic.insert(0, ET.Element("mac", address=f"52:54:00:{pairs}"))
    return name, own, written(root)


def running(text, number):
    """Return the XML that a domain runs as, once it is started with a definition."""
    root = ET.fromstring(text)
    root.set("id", str(number))
    for at, nic in enumerate(root.iterfind("devices/interface")):
        if nic.find("target") is None:
            nic.append(ET.Element("target", dev=f"vnet{number * 8 + at}"))
    for at, display in enumerate(root.iterfind("devices/graphics")):
        if display.get("autoport") == "yes":
            display.set("port", str(5900 + number * 2 + at))
    return written(root)


def stopped(text):
    """Return what a domain runs as without the number of that run."""
    root = ET.fromstring(text)
    root.attrib.pop("id", None)
    return written(root)


def shown(text, flags):
    """Return XML as virDomainGetXMLDesc says it: without secrets, unless they are asked for."""
    if flags & libvirt.VIR_DOMAIN_XML_SECURE or "passwd" not in text:
        return text
    root = ET.fromstring(text)
    for display in root.iterfind("devices/graphics"):
        for secret in _SECRETS:
            display.attrib.pop(secret, None)
    return written(root)


def written(root):
    """Return an element as text."""
    ET.register_namespace("saltvirt", METADATA_NS)
    return ET.tostring(root, encoding="unicode")


def with_metadata(text, content, key, namespace):
    """Return XML with one namespace's element of its metadata set anew, or without it."""
    root = ET.fromstring(text)
    data = root.find("metadata")
    if data is None:
        data = ET.Element("metadata")
        root.insert(2, data)
    for old in [one for one in data if one.tag.startswith(f"{{{namespace}}}")]:
        data.remove(old)
    if content is not None:
        new = ET.fromstring(content)
        for one in new.iter():
            if not one.tag.startswith("{"):
                one.tag = f"{{{namespace}}}{one.tag}"
        ET.register_namespace(key, namespace)
        data.append(new)
    return written(root)


def with_size(text, *, memory=None, most_memory=None, count=None, most_count=None):
    """Return XML with other memory, in KiB, or another number of CPUs."""
    root = ET.fromstring(text)
    for name, value in (("memory", most_memory), ("currentMemory", memory)):
        if value is not None:
            root.find(name).text = str(value)
    if count is not None or most_count is not None:
        element = root.find("vcpu")
        now, most = vcpus(root)
        most = most_count or most
        now = min(count or now, most)
        element.text = str(most)
        element.attrib.pop("current", None)
        if now < most:
            element.set("current", str(now))
    return written(root)
