"""libvirt's XML: each element has one file, which declares its content as a frozen dataclass."""

# The fields (`fields.py`) name the places of the values in the XML, and `element.py` reads and
# writes each such dataclass: ``read(build(x)) == x``. ``from_call`` returns the dataclass for a
# call. What a dataclass has no field for is ignored, so XML from elsewhere is never rebuilt, but
# changed in place. `domain/domain.py` combines the elements of a domain, and `edit/readdomain.py`
# has the project's questions about a whole domain.

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

from saltvirt.core import arguments, units
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.xml.edit import namespaceprefixes

METADATA_NS = "urn:saltvirt:1"
namespaceprefixes.keep("saltvirt", METADATA_NS)
# Characters that XML 1.0 cannot hold, not even as references.
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SWITCH = {"yes": True, "on": True, "no": False, "off": False}


def tag(
    name: str,
    attributes: Mapping[str, object] | None = None,
    *children: ET.Element | None,
    text: object = None,
) -> ET.Element:
    """Return an element; attributes and children that are ``None`` are left out."""
    element = ET.Element(name, texts(attributes))
    if text is not None:
        element.text = _text(name, text)
    element.extend(child for child in children if child is not None)
    return element


def set_first(root: ET.Element, name: str, text: str) -> None:
    """Set the text of an element's child; insert the child as the first if it is missing."""
    child = root.find(name)
    if child is None:
        child = tag(name)
        root.insert(0, child)
    child.text = text


def leaf(name: str, text: object) -> ET.Element | None:
    """Return an element with a text, None for None."""
    return None if text is None else tag(name, text=text)


def texts(attributes: Mapping[str, object] | None) -> dict[str, str]:
    """Return attributes as texts, without those that are ``None``."""
    pairs = (attributes or {}).items()
    return {str(key): _text(str(key), value) for key, value in pairs if value is not None}


def yes_no(value: object) -> str | None:
    """Return libvirt's ``yes`` or ``no``, or None for None."""
    return None if value is None else ("yes" if value else "no")


def on_off(value: object) -> str | None:
    """Return libvirt's ``on`` or ``off``, or None for None."""
    return None if value is None else ("on" if value else "off")


def flag(value: object) -> bool | None:
    """Return a call's switch as a boolean; a quoted one is a text in YAML: ``'no'``."""
    if isinstance(value, str) and value.lower() in _SWITCH:
        return _SWITCH[value.lower()]
    return None if value is None else bool(value)


def is_silent(value: object) -> bool:
    """Return whether a value means not given: null, an empty text, or False if it is no switch."""
    return value is None or value is False or value == ""


def switch(text: str | None) -> bool | None:
    """Return True for ``yes`` and ``on``, False for ``no`` and ``off``, None for all else."""
    return _SWITCH.get(text or "")


def kib(amount: str | None, unit: str | None) -> int | None:
    """Return an amount of memory in KiB, libvirt's own unit; None if there is none."""
    try:
        return units.size_kib(f"{(amount or '').strip()}{unit or 'KiB'}")
    except BadArgument:
        return None


def _text(name: str, value: object) -> str:
    text = arguments.plain_text(name, yes_no(value) if isinstance(value, bool) else value)
    if _UNWRITABLE.search(text):
        raise BadArgument(name, f"{text!r} has a control character, which XML cannot hold")
    return text


def to_text(element: ET.Element) -> str:
    """Return an element as indented text, with the namespace prefixes that :func:`parse` saw."""
    ET.indent(element)
    return namespaceprefixes.tostring(element) + "\n"


def parse(text: str) -> ET.Element:
    """Return the root element of a document; refuse a DOCTYPE (entities) and broken XML."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise VirtError("the XML has a DOCTYPE or an entity, which is never needed; remove it")
    namespaceprefixes.learn(text)
    try:
        return ET.fromstring(text)
    except ET.ParseError as exc:
        raise VirtError(f"the XML cannot be read: {exc}") from exc
