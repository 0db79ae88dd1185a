"""Find granted Salt functions that may do more than look, by a list of those that only look."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from saltvirt.checks.audit.master import saltfunctions, saltlooks
from saltvirt.core.salt import lookonly

# Kinds of functions, as Salt's ACLs write them after an @.
MODULES, RUNNERS, WHEELS = "module", "runner", "wheel"
_UNKNOWN = "is not known only to look"


# Known functions by name, and whether each only looks.
_Functions = frozenset[tuple[str, bool]]


@cache
def _functions(kind: str) -> _Functions:
    names_by_module, folder = {
        MODULES: (saltlooks.LOOKING_MODULES, "modules"),
        RUNNERS: (saltlooks.LOOKING_RUNNERS, "runners"),
        WHEELS: (saltlooks.LOOKING_WHEELS, "wheel"),
    }[kind]
    # This project's functions of one name are alike on minions and master: one list serves both.
    project_modules = (
        [] if kind == WHEELS else [*lookonly.MODULES.values(), *lookonly.RUNNERS.values()]
    )
    looking_names = {
        f"{module}.{name}" for module, names in names_by_module.items() for name in names.split()
    }.union(*(functions.looking() for functions in project_modules))
    # This project's modules replace Salt 3006's modules of the same names.
    replaced_modules = {functions.module for functions in project_modules}
    names = looking_names.union(
        *(functions.changing() for functions in project_modules),
        (
            name
            for name in saltfunctions.read_functions(folder)
            if name.partition(".")[0] not in replaced_modules
        ),
    )
    return frozenset((name, name in looking_names) for name in names)


def describe_grants(grants: object, kind: str = MODULES) -> list[str]:
    """
    Return the allowed functions that may do more than look, with what each permits.

    grants
        As in ``publisher_acl`` and ``external_auth``: expressions of function names, and mappings
        of a target, ``@runner``, ``@wheel`` or ``@MODULE`` to such expressions.
    kind
        What plain expressions name: minions' functions, or ``runner`` for ``peer_run``.

    Returns texts such as ``cmd.run (runs any program)``.
    """
    return sorted(set(_find_grants(grants, kind)))


def _find_grants(grants: object, kind: str) -> Iterator[str]:
    if isinstance(grants, str):
        yield from _find_text_grants(grants, kind)
    elif isinstance(grants, Mapping):
        for target, functions in grants.items():
            yield from _find_target_grants(str(target), functions, kind)
    elif isinstance(grants, list | tuple):
        for grant in grants:
            yield from _find_grants(grant, kind)


def _find_text_grants(text: str, kind: str) -> Iterator[str]:
    if not text.startswith("@"):
        permission = _describe_expression(text, _functions(kind))
    elif text.rstrip("s") in (f"@{RUNNERS}", f"@{WHEELS}"):
        permission = "calls any function of the master"
    else:
        permission = _describe_expression("", _module_functions(text[1:]), text[1:])
    if permission:
        yield f"{text} ({permission})"


def _find_target_grants(target: str, functions: Any, kind: str) -> Iterator[str]:
    # A mapping has conditions on a function's arguments: only the function's name counts.
    names = functions if isinstance(functions, list | tuple) else [functions]
    kind_names, module = _find_target_functions(target, kind)
    for name in names:
        for text in list(name) if isinstance(name, Mapping) else [name]:
            permission = (
                _describe_expression(text, kind_names, module) if isinstance(text, str) else None
            )
            if permission:
                yield f"{target}: {text} ({permission})"


def _find_target_functions(target: str, kind: str) -> tuple[_Functions, str]:
    """Return the functions that a target covers, and their module if names omit it."""
    if not target.startswith("@"):
        return _functions(kind), ""
    if target.rstrip("s") in (f"@{RUNNERS}", f"@{WHEELS}"):
        return _functions(target.rstrip("s")[1:]), ""
    return _module_functions(target[1:]), target[1:]


def _module_functions(module: str) -> _Functions:
    """Return one module's functions, by their names after the dot."""
    prefix = f"{module}."
    # Salt looks for the module among runners and among wheels.
    return frozenset(
        (name.removeprefix(prefix), only_looks)
        for name, only_looks in _functions(RUNNERS) | _functions(WHEELS)
        if name.startswith(prefix)
    )


def _describe_expression(expression: str, functions: _Functions, module: str = "") -> str | None:
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
    matches = [(name, only_looks) for name, only_looks in functions if match_start(name)]
    changing_names = [name for name, only_looks in matches if not only_looks]
    if not changing_names:
        # An expression for an operator's own function matches no known name.
        return None if matches else _UNKNOWN
    modules = {module} if module else {name.partition(".")[0] for name in changing_names}
    permissions = {saltlooks.GIVES.get(module_name, _UNKNOWN) for module_name in modules}
    return permissions.pop() if len(permissions) == 1 else "calls functions of several modules"
