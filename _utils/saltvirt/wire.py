"""Answers as they come over the wire, checked against their types before anybody relies on them."""

import functools
import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from saltvirt.errors import VirtError


class BadAnswer(VirtError):
    """A host's answer lacks something, or has another type in its place; it says what."""


def read(host: str, fun: str, shape: object, answer: object) -> Any:
    """
    Return a host's answer as it is, if it has a shape; raise :class:`BadAnswer` if it has not.

    fun
        What the host was asked, such as ``virt.host_info``.
    shape
        A type; of a ``TypedDict`` all required fields must be there. Those that it does not name
        are passed over, as a newer host may say more.
    """
    for path, why in _wrong(shape, answer, ""):
        raise BadAnswer(
            f"{host} answers {fun} with something that this master cannot read: "
            f"{path or 'the answer'} {why}; bring both to the same version of Salt Virt "
            f"(salt {host} saltutil.sync_all)"
        )
    return answer


def _wrong(shape: Any, value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a value: where, and why."""
    if is_typeddict(shape):
        yield from _wrong_fields(shape, value, path)
    elif get_origin(shape) in (Union, types.UnionType):
        yield from _wrong_choice(get_args(shape), value, path)
    elif get_origin(shape) is dict:
        yield from _wrong_mapping(get_args(shape), value, path)
    elif get_origin(shape) is list:
        yield from _wrong_list(get_args(shape)[0], value, path)
    elif shape is not Any and not _is_of(shape, value):
        yield path, _not_a(shape, value)


def _is_of(kind: type, value: object) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)


@functools.cache
def _fields(shape: type) -> dict[str, Any]:
    return get_type_hints(shape)


def _wrong_fields(shape: Any, value: Any, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield path, _not_a(dict, value)
        return
    for name, kind in _fields(shape).items():
        if name in value:
            yield from _wrong(kind, value[name], _below(path, name))
        elif name in shape.__required_keys__:
            yield _below(path, name), "is missing"


def _wrong_choice(kinds: tuple[Any, ...], value: Any, path: str) -> Iterator[tuple[str, str]]:
    if value is None and type(None) in kinds:
        return
    # There is no choice but between something and nothing.
    yield from _wrong(next(kind for kind in kinds if kind is not type(None)), value, path)


def _wrong_mapping(kinds: tuple[Any, ...], value: Any, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield path, _not_a(dict, value)
        return
    for name, one in value.items():
        yield from _wrong(kinds[0], name, f"a name in {path}")
        yield from _wrong(kinds[1], one, _below(path, name))


def _wrong_list(kind: Any, value: Any, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, list | tuple):
        yield path, _not_a(list, value)
        return
    for number, one in enumerate(value):
        yield from _wrong(kind, one, f"{path}[{number}]")


def _below(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


_KINDS = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    bool: "True or False",
    int: "a whole number",
}


def _not_a(kind: type, value: object) -> str:
    return f"is {type(value).__name__}, not {_KINDS.get(kind, 'a number')}"
