"""
The fields of a declared element: the place of each value in the XML, and its form there.

A path leads from the declared element to the one with the value: ``.``, ``mac``, ``source/host``.
As in dataclasses, ``default`` is the value without an argument, and a field without a default must
be given. What the XML lacks is read as None, and None is not written. An element that several
fields share is written once, at the place of the first.
"""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple

from saltvirt.xml import kib, on_off, switch, texts, yes_no


class Codec(NamedTuple):
    """How an attribute is a value: from the text or None, and to a text or None."""

    load: Callable[[str | None], Any]
    dump: Callable[[Any], object]


class Form(NamedTuple):
    """How an element is a value: from the element, and into a new one."""

    load: Callable[[ET.Element], Any]
    dump: Callable[[ET.Element, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """
    A field's place and form.

    path
        The elements down to the value, or to the parent of the values.
    form
        The form of the value, or of each of several in their parent; None for a declared class,
        which the annotation names.
    tags
        The names of the elements of several values.
    missing
        The value of an element that the XML lacks.
    missing_as
        The field that has that value.
    omitted
        A value that is not written.
    is_needed
        Whether an element without this part counts as missing.
    """

    path: tuple[str, ...]
    form: Form | None = None
    is_several: bool = False
    tags: tuple[str, ...] = ()
    missing: Any = None
    missing_as: str | None = None
    omitted: Any = None
    is_needed: bool = False


YES_NO = Codec(switch, yes_no)
ON_OFF = Codec(switch, on_off)
# A boolean that is written only if it is true.
YES = Codec(lambda text: switch(text) is True, lambda value: yes_no(value or None))
INTEGER = Codec(lambda text: int(text) if text else None, str)


def _own_text(element: ET.Element) -> str | None:
    # Before the first of other elements there is only indentation.
    return (element.text or None) if not len(element) else None


def _set_text(element: ET.Element, value: object) -> None:
    element.text = texts({element.tag: value})[element.tag]


def _set_attributes(element: ET.Element, value: Any) -> None:
    element.attrib.update(texts(value))


def _set_attribute(name: str, element: ET.Element, value: Any) -> None:
    _set_attributes(element, {name: value})


def _set_kib(element: ET.Element, value: object) -> None:
    element.set("unit", "KiB")
    _set_text(element, value)


TEXT = Form(_own_text, _set_text)
ATTRIBUTES = Form(lambda element: dict(element.attrib), _set_attributes)
KIB = Form(lambda element: kib(element.text, element.get("unit")), _set_kib)


def kib_attribute(name: str) -> Form:
    """Return the form of an amount of memory in an attribute, with another one for the unit."""

    def dump(element: ET.Element, content: object) -> None:
        _set_attributes(element, {name: content, "unit": "KiB"})

    return Form(lambda element: kib(element.get(name), element.get("unit")), dump)


def in_attribute(name: str, codec: Codec | None = None, missing: Any = "") -> Form:
    """Return the form of an element whose value is an attribute, as text or by a codec."""
    if codec is None:
        return Form(methodcaller("get", name, missing), partial(_set_attribute, name))
    return Form(
        lambda element: codec.load(element.get(name)),
        lambda element, content: _set_attributes(element, {name: codec.dump(content)}),
    )


def tuple_of(*names: str) -> Form:
    """Return the form of an element whose value is a tuple of attributes."""

    def dump(element: ET.Element, value: Any) -> None:
        _set_attributes(element, dict(zip(names, value, strict=True)))

    return Form(lambda element: tuple(map(element.get, names)), dump)


def value(
    path: str,
    form: Form,
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    missing: Any = None,
    missing_as: str | None = None,
    omitted: Any = None,
    is_needed: bool = False,
    repr: bool = True,
) -> Any:
    """
    Return the field of an element's value in a form.

    missing
        The value that is read instead of None.
    missing_as
        The field whose value is read instead of None.
    omitted
        A value that is not written, beside None.
    is_needed
        Whether an element without this value counts as missing.
    """
    part = Part(
        path=_steps(path),
        form=form,
        missing=missing,
        missing_as=missing_as,
        omitted=omitted,
        is_needed=is_needed,
    )
    return _field(part, default, default_factory, repr=repr)


def text(path: str = ".", *, default: Any = MISSING, **options: Any) -> Any:
    """Return the field of an element's text; an empty text is none; options as of value."""
    return value(path, TEXT, default=default, **options)


def attribute(
    path: str, codec: Codec | None = None, *, default: Any = MISSING, **options: Any
) -> Any:
    """
    Return the field of an attribute.

    path
        Its name after those of the elements, such as ``@type`` or ``mac/@address``.
    codec
        For a value that is no text.
    options
        As of :func:`value`.
    """
    elements, _at, name = path.rpartition("@")
    return value(elements.rstrip("/"), in_attribute(name, codec, None), default=default, **options)


def presence(path: str, *, default: Any = MISSING) -> Any:
    """Return the field that tells whether there is an element."""
    form = Form(lambda element: True, lambda element, content: None)
    return value(path, form, default=default, missing=False, omitted=False)


def bag(
    path: str = ".",
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    is_needed: bool = False,
) -> Any:
    """Return the field of all attributes of an element; only with the default None it is None."""
    return value(
        path,
        ATTRIBUTES,
        default=default,
        default_factory=default_factory,
        is_needed=is_needed,
    )


def values(
    path: str, form: Form = ATTRIBUTES, *, default: Any = MISSING, default_factory: Any = MISSING
) -> Any:
    """
    Return the field of the values of all elements at a path, as a tuple or a dict of pairs.

    With the default None it is None without the element above them, and empty without any of them.
    """
    *above, name = path.split("/")
    each = Form(form.load, lambda parent, item: form.dump(ET.SubElement(parent, name), item))
    part = Part(path=tuple(above), form=each, is_several=True, tags=(name,))
    return _field(part, default, default_factory)


def tagged(
    path: str,
    *tags: str,
    form: Form = ATTRIBUTES,
    default: Any = MISSING,
    default_factory: Any = MISSING,
) -> Any:
    """
    Return the field of the elements of some names, as a tuple or a dict of (name, value).

    path
        The element above them.
    """

    def load(element: ET.Element) -> tuple[str, Any] | None:
        content = form.load(element)
        return None if content is None else (element.tag, content)

    each = Form(load, lambda parent, pair: form.dump(ET.SubElement(parent, pair[0]), pair[1]))
    part = Part(path=_steps(path), form=each, is_several=True, tags=tags)
    return _field(part, default, default_factory)


def child(path: str = ".", *, default: Any = MISSING, default_factory: Any = MISSING) -> Any:
    """
    Return the field of a declared element, whose class is the annotation's.

    Without the default None, a missing element is read as an empty one. A value that equals the
    default is not written.

    path
        The element above it.
    """
    return _field(Part(path=_steps(path)), default, default_factory)


def children(path: str = ".", *, default: Any = MISSING) -> Any:
    """Return the field of all declared elements of a class below a path, as a tuple."""
    return _field(Part(path=_steps(path), is_several=True), default)


def _steps(path: str) -> tuple[str, ...]:
    return () if path in (".", "") else tuple(path.split("/"))


def _field(part: Part, default: Any, default_factory: Any = MISSING, *, repr: bool = True) -> Any:
    metadata = {"part": part}
    if default_factory is not MISSING:
        return field(default_factory=default_factory, metadata=metadata, repr=repr)
    return field(default=default, metadata=metadata, repr=repr)
