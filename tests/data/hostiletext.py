"""Text of strangers that steers a terminal, and answers of hosts that have it in each field."""

import dataclasses
import types
import typing
import unicodedata
from collections.abc import Mapping
from dataclasses import fields

# What each does: clears the screen; the same in one byte; overwrites a line; adds lines; sets the
# title; reverses; hides; fills; breaks lines; is no Unicode; piles up marks.
TEXTS = (
    "hyper3\x1b[2A\r    hyper3",
    "a\x9b2Jb\x9b31m",
    "c\nhypervisors:\n    hyper2:\n        fingerprint: 00:11",
    "d\x1b]0;title\x07",
    "e\u202egnp.exe\u2066x\u2069",
    "f\u200b\u200d\ufeff\u00adg",
    "h\u3164\u2800\uffa0\u115fi",
    "j\u2028k\u2029l\x85m\x0bn\x0co",
    "p\ud800q\udc80",
    "r\x7f\x08\x00s",
    "t" + "\u0301" * 40,
    "u\U000e0041\U000e01ef\ue000v",
)
HOSTILE = "|".join(TEXTS)


def steering(text, lines=True):
    """Return the characters of a text that a terminal would obey, hide or reorder."""
    kept = "\n" if lines else ""
    blank = "\u3164\u2800\uffa0\u115f\u1160\u034f\ufffc"
    bad = {char for char in text if not (char.isprintable() or char in kept) or char in blank}
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char)[0] == "M" else 0
        if marks > 8:
            bad.add(char)
    return bad


def filled(shape, text=HOSTILE):
    """Return a value of a type whose every text, keys too, is a hostile one."""
    origin, inner = typing.get_origin(shape), typing.get_args(shape)
    if dataclasses.is_dataclass(shape):
        hints = typing.get_type_hints(shape)
        return shape(**{one.name: filled(hints[one.name], text) for one in fields(shape)})
    if origin in (typing.Union, types.UnionType, typing.Annotated):
        return filled(next(one for one in inner if one is not type(None)), text)
    if shape in (bool, int, float):
        return shape(1)
    return _filled_generic(origin or shape, inner, text)


def _filled_generic(origin, inner, text):
    if origin in (list, tuple, set, frozenset):
        return [filled(inner[0] if inner else str, text)]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {text: filled(inner[1] if inner else str, text)}
    return text
