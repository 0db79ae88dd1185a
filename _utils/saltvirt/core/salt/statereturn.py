"""The return values of states."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saltvirt.core.errors import BadArgument, BadConfig, NotThereYet


def make_failure(
    name: str, reason: object, namespace: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """
    Return the result of a state that could not do its work.

    With ``test=True``, states before this one may remove the cause: if they would change anything,
    a failure that is due to the host, and not to the state's own arguments, is reported as not
    known yet.

    namespace
        The globals of the state's module, where Salt puts the results of the states before it.
        Defaults to None, which is a failure in any case.
    """
    if namespace is not None and _is_open(reason, namespace):
        comment = f"not known before the states above are done; now it would fail: {reason}"
        return {"name": name, "changes": {}, "result": None, "comment": comment}
    return {"name": name, "changes": {}, "result": False, "comment": str(reason)}


def _is_open(reason: object, namespace: Mapping[str, Any]) -> bool:
    """Return whether states that were only tested may remove the cause of a failure."""
    results = (namespace.get("__running__") or {}).values()
    has_changes = any(
        result.get("result") is None for result in results if isinstance(result, Mapping)
    )
    is_own = isinstance(reason, BadArgument | BadConfig) and not isinstance(reason, NotThereYet)
    return bool(namespace["__opts__"]["test"]) and has_changes and not is_own


@dataclass(frozen=True, slots=True)
class StateChange:
    """
    What a state has changed, or with ``test=True`` would change.

    changes
        Salt's ``changes``; empty if there is nothing to change.
    comment
        The comment for changes to come, and for all cases without a comment of their own.
    done, unchanged
        The comments for changes made, and for nothing to change. Default to ``comment``.
    failure, warnings
        Why not all was changed, and Salt's ``warnings``. Default to none.
    """

    changes: dict[str, Any]
    comment: str
    done: str | None = None
    unchanged: str | None = None
    failure: object = None
    warnings: Sequence[str] = ()


def make_return(name: str, change: StateChange, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the result of a state that did its work, or with ``test=True`` would do it.

    namespace
        As for :func:`make_failure`.
    """
    warnings = {"warnings": list(change.warnings)} if change.warnings else {}
    if change.failure is not None:
        failure = make_failure(name, change.failure, namespace)
        return {**failure, "changes": change.changes, **warnings}
    result: bool | None = True
    comment = change.done if change.changes else change.unchanged
    if change.changes and namespace["__opts__"]["test"]:
        result, comment = None, change.comment
    comment = change.comment if comment is None else comment
    return {
        "name": name,
        "changes": change.changes,
        "result": result,
        "comment": comment,
        **warnings,
    }
