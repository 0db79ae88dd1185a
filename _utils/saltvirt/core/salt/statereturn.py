"""The return values of states."""

from collections.abc import Collection, Iterable, Mapping
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


def make_return(
    name: str,
    changes: dict[str, Any],
    *,
    is_test: bool,
    test_comment: str,
    done_comment: str,
    unchanged_comment: str,
) -> dict[str, Any]:
    """
    Return the result of a state that did its work, or with ``test=True`` would do it.

    test_comment, done_comment, unchanged_comment
        The comments for changes to come, changes made, and nothing to change.
    """
    if not changes:
        return {"name": name, "changes": {}, "result": True, "comment": unchanged_comment}
    result, comment = (None, test_comment) if is_test else (True, done_comment)
    return {"name": name, "changes": changes, "result": result, "comment": comment}


def make_return_for_all(
    name: str,
    matched: Collection[str],
    ignored: Iterable[Mapping[str, str]],
    changes: dict[str, Any],
    *,
    is_test: bool,
    done_comment: str,
    namespace: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """
    Return the result of a state that acts on all VMs with names that match its own.

    It is False without such a VM, or after any failure, even if others succeeded.

    namespace
        As for :func:`make_failure`.
    """
    if not matched:
        return make_failure(name, f"no VM's name matches {name!r}", namespace)
    issues = "; ".join(f"{entry['domain']}: {entry['issue']}" for entry in ignored)
    if issues:
        return {**make_failure(name, issues, namespace), "changes": changes}
    unchanged_comment = "No changes had happened"
    return make_return(
        name,
        changes,
        is_test=is_test,
        test_comment=done_comment,
        done_comment=done_comment,
        unchanged_comment=unchanged_comment,
    )
