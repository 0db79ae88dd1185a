"""
Read answers and recorded facts into dataclasses, and turn dataclasses into plain data.

Metadata of a dataclass's fields: ``is_required`` means that an answer must have the field, though
the dataclass has a default; ``default_with`` names the field without which it is left out of plain
data.

Numbers are checked as they are read: each is within 64 bits, and finite. Counts are annotated as
``not negative``, one of a few words with those words, and a text that is only shown as ``one
line``: it is escaped and cut.
"""

import dataclasses
import functools
import shlex
import types
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from saltvirt.core import terminal
from saltvirt.core.errors import BadArgument, VirtError

_Reader = Callable[[Any], Any]
# The field with the data that an answer was read from: it is passed on unchanged, with what only a
# newer host can read, and without what an older host left out.
_SAID = "said"
_NOT_NEGATIVE, _ONE_LINE = "not negative", "one line"
# The longest text that is only shown.
_LONGEST = 1000
# What 64 bits hold, with a sign or without: some file systems have inode numbers up to the last.
_LEAST, _MOST = -(2**63), 2**64 - 1


def default_with(name: str) -> Any:
    """Return a field with the default None, left out of plain data if the named field is None."""
    return dataclasses.field(default=None, metadata={"default_with": name})


class BadAnswer(VirtError):
    """A host's answer lacks a field, or has one of another type; the message names it."""


class _Wrong(Exception):
    """A value is not of its type; its path is put together while the exception propagates."""

    def __init__(self, reason: str, where: str = "", *, is_nonsense: bool = False) -> None:
        super().__init__(reason)
        self.why, self.before, self._path = reason, "", [where]
        # No version of the sender would mean this value.
        self.is_nonsense = is_nonsense

    def is_in(self, where: str) -> "_Wrong":
        """Add the container of the value to the path: ``.field`` or ``[number]``."""
        self._path.append(where)
        return self

    def said(self, root_name: str) -> str:
        """Return the reason with the path; ``root_name`` stands for an empty path."""
        # The path may have names of any length from other machines.
        path = terminal.one_line("".join(reversed(self._path)).removeprefix("."))
        return f"{self.before}{path or root_name} {self.why}"


def read(host: str, fun: str, shape: Any, answer: object) -> Any:
    """
    Return a host's answer as its type; raise :class:`BadAnswer` if it is of another.

    fun
        The function that the host was asked for, such as ``virt.host_info``.
    shape
        A type; a dataclass is made of a mapping that has all its fields without a default. Other
        names are ignored, as a newer host may have more.
    """
    try:
        out = _reader(shape)(answer)
        # Also numbers outside of fields: they are shown, and passed on.
        _check_numbers(answer)
        return out
    except _Wrong as wrong:
        if wrong.is_nonsense:
            raise BadAnswer(
                f"{host}'s answer is not understood: {wrong.said('it')} ({fun}); find out what "
                f"{host} says, and why: salt {shlex.quote(host)} {fun}"
            ) from None
        raise BadAnswer(
            f"{host} answers {fun} with something that this master cannot read: "
            f"{wrong.said('the answer')}; bring both to the same version of Salt Virt "
            f"(salt {shlex.quote(host)} saltutil.sync_all)"
        ) from None


def argument(name: str, shape: Any, value: object) -> Any:
    """Return a host's argument as its type; raise BadArgument if it is of another."""
    try:
        return _reader(shape)(value)
    except _Wrong as wrong:
        raise BadArgument(name, wrong.said("it")) from None


def read_recorded(shape: Any, value: object) -> Any:
    """Return recorded data as its type; raise ValueError if it is of another."""
    try:
        return _reader(shape)(value)
    except _Wrong as wrong:
        raise ValueError(wrong.said("it")) from None


def plain(value: Any) -> Any:
    """Return a dataclass, with all that is in it, as plain data to send or record."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    original = getattr(value, _SAID, None)
    return dict(_present_fields(value)) if original is None else original


def _present_fields(value: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(value):
        condition = field.metadata.get("default_with")
        if field.name != _SAID and (condition is None or getattr(value, condition) is not None):
            yield field.name, plain(getattr(value, field.name))


@functools.cache
def _reader(shape: Any) -> _Reader:
    """Return the reader of a type, made once for each type."""
    if dataclasses.is_dataclass(shape):
        return _fields_reader(shape)
    origin, kinds = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return _annotated_reader(*kinds)
    if origin in (Union, types.UnionType):
        # All unions are of one type and None.
        return _or_none(_reader(next(kind for kind in kinds if kind is not type(None))))
    if origin is dict:
        return _mapping_reader(*map(_reader, kinds), is_named=_has_name(kinds[1]))
    if origin is list:
        return _list_reader(_reader(kinds[0]))
    return _identity if shape is Any else _kind_reader(shape)


def _annotated_reader(kind: Any, *notes: Any) -> _Reader:
    take_one = _reader(kind)
    for words in notes:
        if isinstance(words, tuple):
            take_one = _one_of(take_one, words)
    if _ONE_LINE in notes:
        return _one_line(take_one)
    return _not_negative(take_one) if _NOT_NEGATIVE in notes else take_one


def _identity(value: Any) -> Any:
    return value


def _kind_reader(kind: type) -> _Reader:
    """Return the reader of a plain type, for which True is not a number."""
    kinds = (int, float) if kind is float else kind
    is_number = kind in (int, float)

    def take(value: Any) -> Any:
        if type(value) is kind or (isinstance(value, kinds) and not isinstance(value, bool)):
            if is_number:
                _check_number(value)
            return value
        raise _not_a(kind, value)

    return take


def _check_number(value: Any, where: str = "") -> None:
    # NaN fails this, too. The number is not shown: it may have thousands of digits.
    if not _LEAST <= value <= _MOST:
        raise _Wrong("is not a number of 64 bits", where, is_nonsense=True)


def _not_negative(take_one: _Reader) -> _Reader:
    def take(value: Any) -> Any:
        if take_one(value) < 0:
            raise _Wrong("is less than 0", is_nonsense=True)
        return value

    return take


def _one_line(take_one: _Reader) -> _Reader:
    return lambda value: terminal.one_line(take_one(value), _LONGEST)


def _one_of(take_one: _Reader, words: tuple[str, ...]) -> _Reader:
    def take(value: Any) -> Any:
        if take_one(value) not in words:
            raise _Wrong(f"is not one of {', '.join(words)}")
        return value

    return take


def _check_numbers(value: Any) -> None:
    """Check all numbers in a value, at any depth."""
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += [v for v in item.values() if type(v) is not str]
        elif isinstance(item, list | tuple):
            pending += [v for v in item if type(v) is not str]
        elif isinstance(item, int | float) and not _LEAST <= item <= _MOST:
            # Tracking the path of each number takes longer than checking it.
            _name_number(value)


def _name_number(value: Any) -> None:
    """Raise for the number that is out of range, with its path."""
    pending: list[tuple[str, Any]] = [("", value)]
    while pending:
        where, item = pending.pop()
        if isinstance(item, dict):
            pending += [(f"{where}.{key}", v) for key, v in item.items() if type(v) is not str]
        elif isinstance(item, list | tuple):
            pending += [(f"{where}[{n}]", v) for n, v in enumerate(item) if type(v) is not str]
        elif isinstance(item, int | float):
            _check_number(item, where)


def _or_none(take_one: _Reader) -> _Reader:
    def take(value: Any) -> Any:
        return None if value is None else take_one(value)

    return take


def _list_reader(take_one: _Reader) -> _Reader:
    def take(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _not_a(list, value)
        out: list[Any] = []
        try:
            for item in value:
                out.append(take_one(item))
        except _Wrong as error:
            raise error.is_in(f"[{len(out)}]") from None
        return out

    return take


def _has_name(kind: Any) -> bool:
    """Return whether the values of a mapping have the mapping's key as their field ``name``."""
    has_fields = dataclasses.is_dataclass(kind)
    return has_fields and any(field.name == "name" for field in dataclasses.fields(kind))


def _mapping_reader(take_name: _Reader, take_one: _Reader, *, is_named: bool) -> _Reader:
    def take(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise _not_a(dict, value)
        out = {}
        for name, item in value.items():
            try:
                take_name(name)
            except _Wrong as error:
                error.before = "a name in "
                raise
            try:
                out[name] = take_one(item)
                if is_named and out[name].name != name:
                    raise _Wrong("is another name", ".name", is_nonsense=True)
            except _Wrong as error:
                raise error.is_in(f".{name}") from None
        return out

    return take


def _fields_reader(kind: Any) -> _Reader:
    """Return the reader of a dataclass from a mapping."""
    types_ = get_type_hints(kind, include_extras=True)
    fields = [
        (field.name, f".{field.name}", _reader(types_[field.name]), _is_required(field))
        for field in dataclasses.fields(kind)
        if field.name != _SAID
    ]
    keeps_original = _SAID in types_

    def take(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _not_a(dict, value)
        values: dict[str, Any] = {_SAID: value} if keeps_original else {}
        for name, where, take_one, is_required in fields:
            if name in value:
                try:
                    values[name] = take_one(value[name])
                except _Wrong as error:
                    raise error.is_in(where) from None
            elif is_required:
                raise _Wrong("is missing", where)
        return kind(**values)

    return take


def _is_required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    has_none = field.default is missing and field.default_factory is missing
    return has_none or bool(field.metadata.get("is_required"))


_KINDS = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    bool: "True or False",
    int: "a whole number",
}


def _not_a(kind: type, value: object) -> _Wrong:
    return _Wrong(f"is {type(value).__name__}, not {_KINDS.get(kind, 'a number')}")
