"""Domain XML: pure functions from our nouns to libvirt's elements and back."""

import xml.etree.ElementTree as ET

from saltvirt.errors import VirtError

METADATA_NS = "urn:saltext-virt:1"
ET.register_namespace("saltvirt", METADATA_NS)


def tag(name, attributes=None, *children, text=None):
    """Return an element; attributes and children that are ``None`` are left out."""
    given = {key: _text(value) for key, value in (attributes or {}).items() if value is not None}
    element = ET.Element(name, given)
    if text is not None:
        element.text = _text(text)
    element.extend(child for child in children if child is not None)
    return element


def yes_no(value):
    """Return libvirt's ``yes`` or ``no``, or None for None."""
    return None if value is None else ("yes" if value else "no")


def on_off(value):
    """Return libvirt's ``on`` or ``off``, or None for None."""
    return None if value is None else ("on" if value else "off")


def _text(value):
    if isinstance(value, bool):
        return yes_no(value)
    return str(value)


def to_text(element):
    """Return an element as indented text."""
    ET.indent(element)
    return ET.tostring(element, encoding="unicode") + "\n"


def parse(text):
    """Return the root element of a document; refuse a DOCTYPE (entities) and broken XML."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise VirtError("the XML has a DOCTYPE or an entity, which is never needed; remove it")
    try:
        return ET.fromstring(text)
    except ET.ParseError as exc:
        raise VirtError(f"the XML cannot be read: {exc}") from exc
