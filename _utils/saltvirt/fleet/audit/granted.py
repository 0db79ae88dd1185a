"""Which of the granted functions do more than look: all that are not known only to look."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from saltvirt import lookonly
from saltvirt.fleet.audit import saltfunctions, saltlooks

# Kinds of functions, as Salt calls them behind an @.
MODULES, RUNNERS, WHEELS = "module", "runner", "wheel"
_UNKNOWN = "is not known only to look"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """The functions of a kind: those that only look, and all others that are known."""

    looking: frozenset[str]
    others: frozenset[str]

    def of_module(self, module: str) -> "_Names":
        """Return those of one module, by their names behind the dot."""
        start = f"{module}."
        return _Names(
            looking=frozenset(_without(start, self.looking)),
            others=frozenset(_without(start, self.others)),
        )

    def __or__(self, more: "_Names") -> "_Names":
        """Return these and more."""
        return _Names(looking=self.looking | more.looking, others=self.others | more.others)


def _without(start: str, names: Iterable[str]) -> Iterator[str]:
    return (name.removeprefix(start) for name in names if name.startswith(start))


@cache
def _names(kind: str) -> _Names:
    salts, folder = {
        MODULES: (saltlooks.MODULES, "modules"),
        RUNNERS: (saltlooks.RUNNERS, "runners"),
        WHEELS: (saltlooks.WHEELS, "wheel"),
    }[kind]
    # A name of this project's means the same on a minion and on the master.
    own = [] if kind == WHEELS else [*lookonly.MODULES.values(), *lookonly.RUNNERS.values()]
    looking = {f"{module}.{name}" for module, names in salts.items() for name in names.split()}
    looking = looking.union(*(one.looking() for one in own))
    others = frozenset().union(*(one.changing() for one in own))
    # Salt 3006 has modules of the same names, which those of this project replace.
    replaced = {one.module for one in own}
    salt = (one for one in saltfunctions.every(folder) if one.partition(".")[0] not in replaced)
    return _Names(looking=frozenset(looking), others=(others | frozenset(salt)) - looking)


def granted(grants: object, kind: str = MODULES) -> Iterator[str]:
    """
    Yield what of a list of allowed functions does more than look.

    grants
        As in ``publisher_acl`` and ``external_auth``: expressions of functions, and mappings of a
        target, ``@runner``, ``@wheel`` or ``@MODULE`` to such expressions.
    kind
        What plain expressions mean: functions of minions, or ``runner`` for ``peer_run``.
    """
    return (grant.text for grant in _granted(grants, kind))


def described(grants: object, kind: str = MODULES) -> list[str]:
    """Return the same, each with what it gives: ``cmd.run (runs any program)``."""
    return sorted({f"{grant.text} ({grant.gives})" for grant in _granted(grants, kind)})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grant:
    """An expression that does more than look, and what it gives."""

    text: str
    gives: str


def _granted(grants: object, kind: str) -> Iterator[_Grant]:
    if isinstance(grants, str):
        yield from _of_text(grants, kind)
    elif isinstance(grants, Mapping):
        for target, functions in grants.items():
            yield from _below(str(target), functions, kind)
    elif isinstance(grants, list | tuple):
        for grant in grants:
            yield from _granted(grant, kind)


def _of_text(text: str, kind: str) -> Iterator[_Grant]:
    if not text.startswith("@"):
        gives = _gives(text, _names(kind))
    elif text.rstrip("s") in (f"@{RUNNERS}", f"@{WHEELS}"):
        gives = "calls any function of the master"
    else:
        gives = _gives("", _of_module(text[1:]), text[1:])
    if gives:
        yield _Grant(text=text, gives=gives)


def _below(target: str, functions: Any, kind: str) -> Iterator[_Grant]:
    # A function with conditions on its arguments has them in a mapping; the name is what counts.
    names = functions if isinstance(functions, list | tuple) else [functions]
    known, module = _named(target, kind)
    for name in names:
        for text in list(name) if isinstance(name, Mapping) else [name]:
            gives = _gives(text, known, module) if isinstance(text, str) else None
            if gives:
                yield _Grant(text=f"{target}: {text}", gives=gives)


def _named(target: str, kind: str) -> tuple[_Names, str]:
    """Return the functions that a target means, and their module if names are without it."""
    if not target.startswith("@"):
        return _names(kind), ""
    if target.rstrip("s") in (f"@{RUNNERS}", f"@{WHEELS}"):
        return _names(target.rstrip("s")[1:]), ""
    return _of_module(target[1:]), target[1:]


def _of_module(module: str) -> _Names:
    # Salt takes the name for that of a module of runners and of one of wheels.
    return _names(RUNNERS).of_module(module) | _names(WHEELS).of_module(module)


def _gives(expression: str, known: _Names, module: str = "") -> str | None:
    """
    Return what an expression gives, None if it is known only to look, or means nothing.

    module
        The functions' module, where their names are without it.
    """
    try:
        # Salt too compares from the beginning of a name, not to its end.
        matches = re.compile(expression).match
    except re.error:
        return None
    others = [name for name in known.others if matches(name)]
    if not others:
        # A function of somebody's own is not known either.
        return None if any(map(matches, known.looking)) else _UNKNOWN
    modules = {module} if module else {name.partition(".")[0] for name in others}
    given = {saltlooks.GIVES.get(one, _UNKNOWN) for one in modules}
    return given.pop() if len(given) == 1 else "does whatever it is told"
