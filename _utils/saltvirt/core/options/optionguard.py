"""
The guard of all functions that change something: they are refused while host options are missing.

The table :mod:`saltvirt.core.salt.lookonly` has the functions of ``_modules`` that only look; all
others, and all states, are guarded.
"""

import functools
import inspect
import logging
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from types import FunctionType
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import OptionsMissing, ReservationRefused, VirtError
from saltvirt.core.options import config, optionmemory
from saltvirt.core.salt import lookonly, statereturn

log = logging.getLogger(__name__)

# Whether to let a call in, by its arguments: it only looks, or only finishes what was begun.
LetIn = Callable[[Mapping[str, Any]], bool]
# Parameters with which our functions change nothing.
_FLAGS = ("test", "dry_run")


def flag_rule(flag: str) -> LetIn:
    """Return the rule that lets calls in with a flag, such as ``dry_run=True``."""

    def let_in(keywords: Mapping[str, Any]) -> bool:
        return arguments.boolean(flag, keywords.get(flag, False))

    return let_in


def modules(
    namespace: MutableMapping[str, Any],
    harmless: str = "",
    finishes: str = "",
    itself: str = "",
    looks_if: Mapping[str, LetIn] | None = None,
    finishes_if: Mapping[str, LetIn] | None = None,
) -> None:
    """
    Guard the public functions of an execution module.

    namespace
        The module's ``globals()``.
    harmless
        The names, separated by blanks, of functions to let in beside those that only look: they
        change nothing of VMs, disks, networks and records. Defaults to none.
    finishes
        Functions that only finish, or undo, what was begun: they are let in where the host
        remembers its options. Defaults to none.
    itself
        Functions that call :func:`refuse_change` themselves. Defaults to none.
    looks_if, finishes_if
        Rules for the calls of other functions that only look, or only finish. Default to none; with
        a parameter ``test`` or ``dry_run`` a call always counts as a look.
    """
    look_names = lookonly.MODULES[Path(str(namespace["__file__"])).stem].looks
    unguarded_names = {*look_names.split(), *harmless.split(), *itself.split()}
    finish_rules = {**dict.fromkeys(finishes.split(), _always), **(finishes_if or {})}
    for name, function in _public(namespace):
        if name not in unguarded_names:
            lets_look = (looks_if or {}).get(name, _never)
            namespace[name] = _guarded(
                namespace, function, lets_look, finish_rules.get(name, _never)
            )


def states(namespace: MutableMapping[str, Any]) -> None:
    """
    Guard all states of a file: with ``test=True`` they run, and warn.

    A state returns its :class:`~saltvirt.core.salt.statereturn.StateChange`, or a result as Salt
    has it; a VirtError that it raises is its failure.
    """
    for name, function in _public(namespace):
        namespace[name] = _guarded_state(namespace, function)


def refuse_change(namespace: Mapping[str, Any], *, is_look: bool) -> None:
    """Raise OptionsMissing if this host refuses changes now, unless the call only looks."""
    reason = _log_notices(namespace).refusal
    if reason and not is_look:
        raise OptionsMissing(reason)


def refusal(namespace: Mapping[str, Any]) -> str | None:
    """Return why this host refuses changes now, or None."""
    return _options_in_force(namespace, is_change=False).refusal


def _public(namespace: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [
        (name, value)
        for name, value in namespace.items()
        if isinstance(value, FunctionType)
        and not name.startswith("_")
        and value.__module__ == namespace["__name__"]
    ]


def _options_in_force(
    namespace: Mapping[str, Any], *, is_change: bool
) -> optionmemory.OptionsInForce:
    """Return the options in force for a call, from the names that Salt's loader sets."""
    opts, pillar, grains = (namespace.get(f"__{name}__") for name in ("opts", "pillar", "grains"))
    return config.effective_sources(opts or {}, pillar, grains, is_change)


def _log_notices(namespace: Mapping[str, Any]) -> optionmemory.OptionsInForce:
    """Return the options in force for a change, and log the notices about them."""
    options_in_force = _options_in_force(namespace, is_change=True)
    for line in options_in_force.notices:
        log.warning("%s", line)
    return options_in_force


def _always(_keywords: Mapping[str, Any]) -> bool:
    return True


def _never(_keywords: Mapping[str, Any]) -> bool:
    return False


def _guarded(
    namespace: MutableMapping[str, Any], function: Any, lets_look: LetIn, lets_finish: LetIn
) -> Any:
    signature = inspect.signature(function)
    flags = [flag_rule(flag) for flag in _FLAGS if flag in signature.parameters]

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        options_in_force = _log_notices(namespace)
        if options_in_force.refusal is None:
            return function(*args, **kwargs)
        keywords = _arguments_by_name(signature, args, kwargs)
        rules = [*flags, lets_look, *([lets_finish] if options_in_force.is_remembered else [])]
        if any(_lets_in(rule, keywords) for rule in rules):
            return function(*args, **kwargs)
        return _refuse(namespace, function, keywords, options_in_force.refusal)

    return guarded


def _arguments_by_name(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by their names."""
    try:
        bound_arguments = signature.bind_partial(*args, **kwargs)
    except TypeError:
        return dict(kwargs)  # the function itself raises the error
    out = dict(bound_arguments.arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            out |= out.pop(name, {})
    return out


def _lets_in(let_in: LetIn, keywords: Mapping[str, Any]) -> bool:
    try:
        return let_in(keywords)
    except VirtError:
        return False


def _refuse(
    namespace: Mapping[str, Any], function: Any, keywords: Mapping[str, Any], reason: str
) -> Any:
    """Raise the refusal, or return it to a runner with ``report``, which may try another host."""
    if function.__name__ not in ("init", "clone") or not keywords.get("report"):
        raise OptionsMissing(reason)
    namespace["__context__"]["retcode"] = 1
    return ReservationRefused(str(keywords.get("name")), [reason]).to_dict()


def _guarded_state(namespace: MutableMapping[str, Any], function: Any) -> Any:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        name = _arguments_by_name(signature, args, kwargs).get("name", args[0] if args else "")
        is_test = bool(namespace["__opts__"].get("test"))
        try:
            options_in_force = _options_in_force(namespace, is_change=not is_test)
        except VirtError as error:
            return statereturn.make_failure(name, error)
        if options_in_force.refusal and not is_test:
            return statereturn.make_failure(name, options_in_force.refusal)
        refusals = [options_in_force.refusal] if options_in_force.refusal else []
        try:
            out = function(*args, **kwargs)
        except VirtError as error:
            out = statereturn.StateChange({}, "", failure=error)
        if isinstance(out, statereturn.StateChange):
            # Salt puts the results into the globals of the function that it calls: this file's.
            running = globals().get("__running__")
            out = statereturn.make_return(name, out, {**namespace, "__running__": running})
        warnings = [*out.get("warnings", ()), *refusals, *options_in_force.notices]
        return {**out, "warnings": warnings} if warnings else out

    return guarded
