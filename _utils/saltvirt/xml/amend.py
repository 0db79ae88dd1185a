"""
Change a domain's XML where it is: what the project has no field for stays as it was written.

What an element said and what it is to say are both built by its own file; only where these differ
the element itself is touched.
"""

import copy
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from typing import Any

from saltvirt.xml import tag, to_text
from saltvirt.xml.merging import cpus

# Attributes that are sets of CPUs or nodes, which may be written in several ways.
_SETS = {"cpuset", "nodeset", "cpus", "vcpus", "iothreads"}
Elements = Iterable[ET.Element | None]


def changed(root: ET.Element, was: Elements, wanted: Elements) -> bool:
    """
    Change the children of an element from what they said to what they are to say.

    Returns whether anything was to be changed.
    """
    return _amend(root, tag("all", None, *was), tag("all", None, *wanted))


def element(actual: ET.Element, was: ET.Element, wanted: ET.Element) -> bool:
    """Change an element from what it said to what is wanted; return whether these differ."""
    return _amend(actual, was, wanted)


def _amend(actual: ET.Element, was: ET.Element, wanted: ET.Element) -> bool:
    """Change an element that said ``was``, so that it says what is wanted."""
    if _said(was) == _said(wanted):
        return False
    for key in {*was.attrib, *wanted.attrib}:
        if key not in wanted.attrib:
            actual.attrib.pop(key, None)
        elif _value(key, was.get(key)) != _value(key, wanted.get(key)):
            actual.set(key, wanted.attrib[key])
    if (was.text or "").strip() != (wanted.text or "").strip():
        actual.text = wanted.text
    for name in dict.fromkeys(child.tag for child in (*was, *wanted)):
        _amend_children(actual, _named(was, name), _named(wanted, name), name)
    return True


def _amend_children(
    actual: ET.Element, was: list[ET.Element], wanted: list[ET.Element], name: str
) -> None:
    if sorted(map(_said, was)) == sorted(map(_said, wanted)):
        return
    mine = _named(actual, name)
    if len(mine) == 1 and len(was) <= 1 and len(wanted) <= 1:
        empty = tag(name)
        _amend(mine[0], was[0] if was else empty, wanted[0] if wanted else empty)
        if not wanted and not (mine[0].attrib or len(mine[0]) or (mine[0].text or "").strip()):
            actual.remove(mine[0])
        return
    put(actual, name, wanted)


def put(parent: ET.Element, name: str, wanted: Sequence[ET.Element]) -> None:
    """Have these be all children of that name, where the first of them was, or at the end."""
    mine = _named(parent, name)
    at = list(parent).index(mine[0]) if mine else len(parent)
    for child in mine:
        parent.remove(child)
    for number, child in enumerate(wanted):
        parent.insert(at + number, child)


def alike(one: ET.Element | None, other: ET.Element | None) -> bool:
    """Return whether two elements say the same, in whatever order."""
    if one is None or other is None:
        return one is other
    return _said(one) == _said(other)


def _named(parent: ET.Element, name: str) -> list[ET.Element]:
    return [child for child in parent if child.tag == name]


def _value(key: str, value: str | None) -> str | None:
    return cpus(value) if value is not None and key in _SETS else value


def _said(element: ET.Element) -> tuple[Any, ...]:
    """Return what an element says in a form that can be compared and sorted."""
    attributes = sorted((key, str(_value(key, one))) for key, one in element.attrib.items())
    text = (element.text or "").strip()
    return element.tag, tuple(attributes), text, tuple(sorted(map(_said, element)))


def devices(root: ET.Element, *names: str) -> list[ET.Element]:
    """Return the devices of some names, in their order."""
    return [one for one in root.iterfind("devices/*") if one.tag in names]


def put_devices(root: ET.Element, name: str, wanted: Sequence[ET.Element]) -> None:
    """Have these be all devices of that name; if only their order differs, it stays."""
    if sorted(map(_said, devices(root, name))) == sorted(map(_said, wanted)):
        return
    parent = root.find("devices")
    if parent is None:
        parent = ET.SubElement(root, "devices")
    put(parent, name, wanted)


def text_of(element: ET.Element) -> str:
    """Return an element as text, as the functions of Salt return devices."""
    return to_text(copy.deepcopy(element)).strip()


def same(one: ET.Element, other: ET.Element) -> bool:
    """Return whether two domains are written alike, but for their indentation."""
    return (
        one.tag == other.tag
        and one.attrib == other.attrib
        and _words(one.text) == _words(other.text)
        and _words(one.tail) == _words(other.tail)
        and len(one) == len(other)
        and all(map(same, one, other))
    )


def _words(text: str | None) -> str:
    return (text or "").strip()
