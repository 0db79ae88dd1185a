"""The kinds of option values: each has a text for what it accepts, and reads a value."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of option value: ``read`` returns the checked value, or raises ValueError."""

    accepts: str
    read: Callable[..., Any]


def kind(accepts: str, is_good: Callable[[Any], bool]) -> Kind:
    def read(value: Any) -> Any:
        if not is_good(value):
            raise ValueError
        return value

    return Kind(accepts, read)


def number(convert: Callable[[Any], float], accepts: str, least: int) -> Kind:
    def read(value: Any) -> float:
        number = convert(value)
        # 2.5 is not a whole number, and True is not a number.
        if isinstance(value, bool) or number != float(value) or not least <= number < math.inf:
            raise ValueError
        return number

    return Kind(f"{accepts} of at least {least}", read)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_text, value))


def is_path(value: Any) -> bool:
    return _is_text(value) and value.startswith("/")


def is_tags(value: object) -> bool:
    return isinstance(value, Mapping) and _is_texts([*value, *value.values()])


def one_of(*names: str) -> Kind:
    return kind(" or ".join(names), lambda value: value in ("", *names))


def _refused() -> Any:
    raise ValueError


TEXT = kind("text", _is_text)
TEXTS = kind("text or a list of texts", lambda value: _is_text(value) or _is_texts(value))
PATH = kind("an absolute path", is_path)
PATHS = kind(
    "a list of absolute paths", lambda value: _is_texts(value) and all(map(is_path, value))
)
FLAG = kind("True or False", lambda value: isinstance(value, bool))
MAPPING = kind("a mapping", lambda value: isinstance(value, Mapping))
CLOUD_CONFIG = kind("a mapping or text", lambda value: isinstance(value, Mapping | str))
COMPAT = Kind("3006", lambda value: {"3006": "3006"}.get(str(value)) or _refused())
COUNT, AT_LEAST_1 = (number(int, "a whole number", least) for least in (0, 1))
RATIO = number(float, "a number", 0)

ANY = Kind("anything", lambda value: value)
