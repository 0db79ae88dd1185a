"""
Elements that are declared once, for reading and for writing.

:func:`declare` makes a frozen dataclass of a class with the fields of `fields.py`. :func:`build`
writes them in their order, which is libvirt's order of attributes and elements. :func:`read`
ignores what the class has no field for.
"""

import typing
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, overload

from saltvirt.core.errors import VirtError
from saltvirt.xml import fields as xml_fields
from saltvirt.xml.fields import ATTRIBUTES, Form, Part

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options: object) -> Callable[[Any], Any]:
        """Return a decorator that changes nothing: only type checkers use the original."""
        return lambda decorated: decorated


class _Declared(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


_Content = TypeVar("_Content", bound=_Declared)
_Reader = Callable[[ET.Element], Any]
# The names of the element of each declared class.
DECLARED: dict[type[Any], tuple[str, ...]] = {}


@dataclass_transform(
    frozen_default=True,
    kw_only_default=True,
    field_specifiers=(
        xml_fields.attribute,
        xml_fields.bag,
        xml_fields.child,
        xml_fields.children,
        xml_fields.presence,
        xml_fields.tagged,
        xml_fields.text,
        xml_fields.value,
        xml_fields.values,
    ),
)
def declare(*tags: str) -> Callable[[type[Any]], type[Any]]:
    """
    Return the decorator of a class that is the content of an element.

    tags
        The element's name; several for a class whose first field is that name; none for a class
        whose fields lie in the element of the class that has it as a child.
    """

    def decorate(cls: type[Any]) -> type[Any]:
        declared = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        DECLARED[declared] = tags
        return declared

    return decorate


@dataclass(slots=True)
class _Node:
    """
    What is read of the first element at a path, and of those in it.

    single
        Fields with what reads them from this element.
    leaves
        Fields of an element in this one that has no other fields, with its name.
    several
        Fields of all elements of some names in this one.
    nodes
        The other elements in this one, by their names.
    """

    single: list[tuple[str, _Reader]] = field(default_factory=list)
    leaves: list[tuple[str, str, _Reader]] = field(default_factory=list)
    several: list[tuple[str, _Reader]] = field(default_factory=list)
    nodes: dict[str, "_Node"] = field(default_factory=dict)

    def at(self, path: tuple[str, ...]) -> "_Node":
        """Return the node of a path below this one."""
        node = self
        for step in path:
            node = node.nodes.setdefault(step, _Node())
        return node

    def separate_leaves(self) -> None:
        """Turn the nodes below this one that have one field into leaves."""
        for name, node in tuple(self.nodes.items()):
            node.separate_leaves()
            if len(node.single) == 1 and not (node.leaves or node.several or node.nodes):
                self.leaves.append((node.single[0][0], name, node.single[0][1]))
                del self.nodes[name]


@dataclass(slots=True)
class _Plan:
    """
    How a class is read and written.

    missing
        The fields' values before anything is read.
    replaced
        Fields with functions of what was read that give their values if these are None.
    needed
        The fields without which an element counts as missing.
    parts
        The fields in their order, with the functions that write them.
    """

    root: _Node = field(default_factory=_Node)
    missing: dict[str, Any] = field(default_factory=dict)
    replaced: list[tuple[str, Callable[[dict[str, Any]], Any]]] = field(default_factory=list)
    needed: list[str] = field(default_factory=list)
    parts: list[tuple[str, Part, Callable[[ET.Element, Any], None]]] = field(default_factory=list)


# The plans of the classes that were read or written before.
_PLANS: dict[type[Any], _Plan] = {}


def _plan(cls: type[Any]) -> _Plan:
    return _PLANS.get(cls) or _make_plan(cls)


def _make_plan(cls: type[Any]) -> _Plan:
    plan = _Plan()
    hints = typing.get_type_hints(cls)
    for declared in fields(cls):
        part = declared.metadata.get("part")
        if part is None:
            plan.root.single.append((declared.name, lambda element: element.tag))
        elif part.is_several:
            _add_several(plan, declared, part, hints[declared.name])
        else:
            _add_single(plan, declared, part, hints[declared.name])
    plan.root.separate_leaves()
    _PLANS[cls] = plan
    return plan


def _add_single(plan: _Plan, declared: Field[Any], part: Part, hint: Any) -> None:
    name, form, is_optional = declared.name, part.form, declared.default is None
    if form is None:
        cls = _find_class(hint)
        form = Form(partial(_load, cls), _write)
        omitted = None if declared.default_factory is MISSING else read(cls, None)
        part = replace(part, path=(*part.path, *DECLARED[cls]), omitted=omitted)
        if not is_optional:
            plan.replaced.append((name, lambda _content: read(cls, None)))
    elif form is ATTRIBUTES and not is_optional:
        plan.replaced.append((name, lambda _content: {}))
    if part.missing_as is not None:
        plan.replaced.append((name, itemgetter(part.missing_as)))
    elif part.missing is not None:
        plan.replaced.append((name, lambda _content: part.missing))
    plan.missing[name] = part.missing
    plan.root.at(part.path).single.append((name, form.load))
    plan.parts.append((name, part, form.dump))
    if part.is_needed:
        plan.needed.append(name)


def _add_several(plan: _Plan, declared: Field[Any], part: Part, hint: Any) -> None:
    name, form, tags, collect = declared.name, part.form, part.tags, _find_collection(hint)
    if form is None:
        cls = _find_class(hint)
        tags = DECLARED[cls]
        form = Form(partial(_load, cls), lambda parent, content: parent.append(build(content)))
    empty: Any = None if declared.default is None else collect()
    plan.missing[name] = empty
    plan.root.at(part.path).several.append((name, _reader_of_several(tags, form.load, collect)))
    plan.parts.append((name, replace(part, omitted=empty), form.dump))


def _reader_of_several(tags: tuple[str, ...], load: _Reader, collect: type[Any]) -> _Reader:
    """Return the function that reads the elements of some names in an element, in their order."""

    def load_all(element: ET.Element) -> Any:
        elements = (
            element.findall(tags[0])
            if len(tags) == 1
            else [child for child in element if child.tag in tags]
        )
        return collect([item for item in map(load, elements) if item is not None])

    return load_all


def _find_collection(hint: Any) -> type[Any]:
    """Return tuple or dict, by the annotation of a field of several values."""
    origins: list[Any] = [typing.get_origin(part) for part in (hint, *typing.get_args(hint))]
    collection: type[Any] = next(origin for origin in origins if origin in (tuple, dict))
    return collection


def _find_class(hint: Any) -> type[Any]:
    """Return the declared class in ``X``, ``X | None``, ``tuple[X, ...]`` or that ``| None``."""
    alternatives = (hint, *typing.get_args(hint))
    items = (item for alternative in alternatives for item in typing.get_args(alternative))
    cls: type[Any] = next(cls for cls in (*alternatives, *items) if cls in DECLARED)
    return cls


@overload
def build(content: None) -> None: ...
@overload
def build(content: _Declared) -> ET.Element: ...
def build(content: _Declared | None) -> ET.Element | None:
    """Return the element of a declared content, None for None."""
    if content is None:
        return None
    tags = DECLARED[type(content)]
    name = tags[0] if len(tags) == 1 else getattr(content, fields(type(content))[0].name)
    element = ET.Element(name)
    _write(element, content)
    return element


def build_parts(content: _Declared) -> list[ET.Element]:
    """Return the elements of a declared class that has none of its own, in their order."""
    parent = ET.Element("parts")
    _write(parent, content)
    return list(parent)


def _write(element: ET.Element, content: Any) -> None:
    for name, part, dump in _plan(type(content)).parts:
        value = getattr(content, name)
        if value is None or value == part.omitted:
            continue
        place = element
        for step in part.path:
            below = place.find(step)
            place = ET.SubElement(place, step) if below is None else below
        if part.is_several:
            for item in value.items() if isinstance(value, dict) else value:
                dump(place, item)
        else:
            dump(place, value)


def read(cls: type[_Content], element: ET.Element | None) -> _Content:
    """
    Return the content of an element; a missing one is read as an empty one.

    Raises VirtError for an element without a part that its class needs.
    """
    content: _Content | None = _load(cls, element)
    if content is None:
        raise VirtError(f"the XML is incomplete: <{element.tag if element is not None else '?'}>")
    return content


def reader(cls: type[_Content]) -> Callable[[ET.Element | None], _Content]:
    """Return :func:`read` for a class."""
    return partial(read, cls)


def _load(cls: type[Any], element: ET.Element | None) -> Any:
    """Return the content of an element, None if the element lacks a part that it needs."""
    plan = _plan(cls)
    content = plan.missing.copy()
    if element is not None:
        _collect(plan.root, element, content)
    for name in plan.needed:
        if content[name] is None:
            return None
    for name, get_content in plan.replaced:
        if content[name] is None:
            content[name] = get_content(content)
    return cls(**content)


def _collect(node: _Node, element: ET.Element, content: dict[str, Any]) -> None:
    """Add what a node and those below it read of an element."""
    for name, load in node.single:
        content[name] = load(element)
    find = element.find
    for name, tag, load in node.leaves:
        child = find(tag)
        if child is not None:
            content[name] = load(child)
    for name, load in node.several:
        content[name] = load(element)
    for tag, below in node.nodes.items():
        child = find(tag)
        if child is not None:
            _collect(below, child, content)
