"""
Change a domain's XML in place: what the project has no field for stays as it was written.

The file of an element builds its old and its new form; the element is touched only where these
differ.
"""

import copy
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from typing import Any

from saltvirt.xml import tag, to_text
from saltvirt.xml.edit.merging import format_cpus

# Attributes that are sets of CPUs or nodes, which have several spellings.
_SETS = {"cpuset", "nodeset", "cpus", "vcpus", "iothreads"}
Elements = Iterable[ET.Element | None]


def change_children(root: ET.Element, old: Elements, new: Elements) -> bool:
    """
    Change the children of an element from their old to their new form.

    Returns whether anything had to be changed.
    """
    return change_element(root, tag("all", None, *old), tag("all", None, *new))


def change_element(actual: ET.Element, old: ET.Element, new: ET.Element) -> bool:
    """Change an element of the form ``old`` to the form ``new``; return whether these differ."""
    if _to_comparable(old) == _to_comparable(new):
        return False
    for key in {*old.attrib, *new.attrib}:
        if key not in new.attrib:
            actual.attrib.pop(key, None)
        elif _normalize_value(key, old.get(key)) != _normalize_value(key, new.get(key)):
            actual.set(key, new.attrib[key])
    if (old.text or "").strip() != (new.text or "").strip():
        actual.text = new.text
    for name in dict.fromkeys(child.tag for child in (*old, *new)):
        _amend_children(actual, _find_children(old, name), _find_children(new, name), name)
    return True


def _amend_children(
    actual: ET.Element, old: list[ET.Element], new: list[ET.Element], name: str
) -> None:
    if sorted(map(_to_comparable, old)) == sorted(map(_to_comparable, new)):
        return
    children = _find_children(actual, name)
    if len(children) == 1 and len(old) <= 1 and len(new) <= 1:
        empty = tag(name)
        change_element(children[0], old[0] if old else empty, new[0] if new else empty)
        if not new and not (
            children[0].attrib or len(children[0]) or (children[0].text or "").strip()
        ):
            actual.remove(children[0])
        return
    put_children(actual, name, new)


def put_children(parent: ET.Element, name: str, elements: Sequence[ET.Element]) -> None:
    """Replace all children of a name, at the place of the first of them, or at the end."""
    first = parent.find(name)
    index = len(parent) if first is None else list(parent).index(first)
    remove_children(parent, name)
    for number, child in enumerate(elements):
        parent.insert(index + number, child)


def remove_children(parent: ET.Element, name: str) -> None:
    """Remove all children of a name."""
    for child in _find_children(parent, name):
        parent.remove(child)


def _find_children(parent: ET.Element, name: str) -> list[ET.Element]:
    return [child for child in parent if child.tag == name]


def _normalize_value(key: str, value: str | None) -> str | None:
    return format_cpus(value) if value is not None and key in _SETS else value


def _to_comparable(element: ET.Element) -> tuple[Any, ...]:
    """Return an element in a form that can be compared and sorted."""
    attributes = sorted(
        (key, str(_normalize_value(key, value))) for key, value in element.attrib.items()
    )
    text = (element.text or "").strip()
    return element.tag, tuple(attributes), text, tuple(sorted(map(_to_comparable, element)))


def devices(root: ET.Element, *names: str) -> list[ET.Element]:
    """Return the devices of some names, in their order."""
    return [device for device in root.iterfind("devices/*") if device.tag in names]


def put_devices(root: ET.Element, name: str, elements: Sequence[ET.Element]) -> None:
    """Replace all devices of a name, unless only their order differs."""
    if sorted(map(_to_comparable, devices(root, name))) == sorted(map(_to_comparable, elements)):
        return
    parent = root.find("devices")
    if parent is None:
        parent = ET.SubElement(root, "devices")
    put_children(parent, name, elements)


def text_of(element: ET.Element) -> str:
    """Return an element as text, as Salt's functions return devices."""
    return to_text(copy.deepcopy(element)).strip()


def is_identical(first: ET.Element, second: ET.Element) -> bool:
    """Return whether two domains are written alike, except for their indentation."""
    return (
        first.tag == second.tag
        and first.attrib == second.attrib
        and _strip(first.text) == _strip(second.text)
        and _strip(first.tail) == _strip(second.tail)
        and len(first) == len(second)
        and all(map(is_identical, first, second))
    )


def _strip(text: str | None) -> str:
    return (text or "").strip()
