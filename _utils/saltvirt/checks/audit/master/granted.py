"""Find granted Salt functions that may do more than look, by a list of those that only look."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from saltvirt.checks.audit.master import saltfunctions, saltlooks
from saltvirt.core.salt import lookonly

# Kinds of functions, as Salt's ACLs write them after an @.
MODULES, RUNNERS, WHEELS = "module", "runner", "wheel"
_UNKNOWN = "is not known only to look"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """The known functions of a kind: those that only look, and all others."""

    looking: frozenset[str]
    others: frozenset[str]

    def of_module(self, module: str) -> "_Names":
        """Return one module's functions, by their names after the dot."""
        prefix = f"{module}."
        return _Names(
            looking=frozenset(_strip_prefix(prefix, self.looking)),
            others=frozenset(_strip_prefix(prefix, self.others)),
        )

    def __or__(self, added_names: "_Names") -> "_Names":
        """Return the union."""
        return _Names(
            looking=self.looking | added_names.looking, others=self.others | added_names.others
        )


def _strip_prefix(prefix: str, names: Iterable[str]) -> Iterator[str]:
    return (name.removeprefix(prefix) for name in names if name.startswith(prefix))


@cache
def _names(kind: str) -> _Names:
    names_by_module, folder = {
        MODULES: (saltlooks.MODULES, "modules"),
        RUNNERS: (saltlooks.RUNNERS, "runners"),
        WHEELS: (saltlooks.WHEELS, "wheel"),
    }[kind]
    # This project's functions of one name are alike on minions and master: one list serves both.
    project_modules = (
        [] if kind == WHEELS else [*lookonly.MODULES.values(), *lookonly.RUNNERS.values()]
    )
    looking_names = {
        f"{module}.{name}" for module, names in names_by_module.items() for name in names.split()
    }
    looking_names = looking_names.union(*(functions.looking() for functions in project_modules))
    changing_names = frozenset().union(*(functions.changing() for functions in project_modules))
    # This project's modules replace Salt 3006's modules of the same names.
    replaced_modules = {functions.module for functions in project_modules}
    salt_names = (
        function_name
        for function_name in saltfunctions.read_functions(folder)
        if function_name.partition(".")[0] not in replaced_modules
    )
    return _Names(
        looking=frozenset(looking_names),
        others=(changing_names | frozenset(salt_names)) - looking_names,
    )


def find_grants(grants: object, kind: str = MODULES) -> Iterator[str]:
    """
    Yield the entries of a list of allowed functions that may do more than look.

    grants
        As in ``publisher_acl`` and ``external_auth``: expressions of function names, and mappings
        of a target, ``@runner``, ``@wheel`` or ``@MODULE`` to such expressions.
    kind
        What plain expressions name: minions' functions, or ``runner`` for ``peer_run``.
    """
    return (grant.text for grant in _find_grants(grants, kind))


def describe_grants(grants: object, kind: str = MODULES) -> list[str]:
    """Return these entries, each with what it permits: ``cmd.run (runs any program)``."""
    return sorted({f"{grant.text} ({grant.gives})" for grant in _find_grants(grants, kind)})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grant:
    """An expression for functions that may do more than look, and what it permits."""

    text: str
    gives: str


def _find_grants(grants: object, kind: str) -> Iterator[_Grant]:
    if isinstance(grants, str):
        yield from _find_text_grants(grants, kind)
    elif isinstance(grants, Mapping):
        for target, functions in grants.items():
            yield from _find_target_grants(str(target), functions, kind)
    elif isinstance(grants, list | tuple):
        for grant in grants:
            yield from _find_grants(grant, kind)


def _find_text_grants(text: str, kind: str) -> Iterator[_Grant]:
    if not text.startswith("@"):
        permission = _describe_expression(text, _names(kind))
    elif text.rstrip("s") in (f"@{RUNNERS}", f"@{WHEELS}"):
        permission = "calls any function of the master"
    else:
        permission = _describe_expression("", _names_of_module(text[1:]), text[1:])
    if permission:
        yield _Grant(text=text, gives=permission)


def _find_target_grants(target: str, functions: Any, kind: str) -> Iterator[_Grant]:
    # A mapping has conditions on a function's arguments: only the function's name counts.
    names = functions if isinstance(functions, list | tuple) else [functions]
    kind_names, module = _find_target_names(target, kind)
    for name in names:
        for text in list(name) if isinstance(name, Mapping) else [name]:
            permission = (
                _describe_expression(text, kind_names, module) if isinstance(text, str) else None
            )
            if permission:
                yield _Grant(text=f"{target}: {text}", gives=permission)


def _find_target_names(target: str, kind: str) -> tuple[_Names, str]:
    """Return the functions that a target covers, and their module if names omit it."""
    if not target.startswith("@"):
        return _names(kind), ""
    if target.rstrip("s") in (f"@{RUNNERS}", f"@{WHEELS}"):
        return _names(target.rstrip("s")[1:]), ""
    return _names_of_module(target[1:]), target[1:]


def _names_of_module(module: str) -> _Names:
    # Salt looks for the module among runners and among wheels.
    return _names(RUNNERS).of_module(module) | _names(WHEELS).of_module(module)


def _describe_expression(expression: str, kind_names: _Names, module: str = "") -> str | None:
    """
    Return what an expression permits, None if it only allows looking or is invalid.

    module
        The functions' module, if their names omit it.
    """
    try:
        # Salt, too, matches from the beginning of a name, and not to its end.
        match_start = re.compile(expression).match
    except re.error:
        return None
    changing_names = [name for name in kind_names.others if match_start(name)]
    if not changing_names:
        # An expression for an operator's own function matches no known name.
        return None if any(map(match_start, kind_names.looking)) else _UNKNOWN
    modules = {module} if module else {name.partition(".")[0] for name in changing_names}
    permissions = {saltlooks.GIVES.get(module_name, _UNKNOWN) for module_name in modules}
    return permissions.pop() if len(permissions) == 1 else "does whatever it is told"
