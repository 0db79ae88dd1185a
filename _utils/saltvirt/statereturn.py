"""What a state must return."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from saltvirt.errors import BadArgument, BadConfig, NotThereYet


def failed(name: str, why: object, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """
    Return what a state returns that could not do its work.

    With ``test=True``, states before this one may be what makes it work: if they would change
    anything, what fails for the sake of the host, and not of the state's own arguments, is no
    failure, but not known yet.

    before
        The globals of the state's module, where Salt puts the results of the states before it.
        Defaults to None, which is a failure in any case.
    """
    if before is not None and _is_open(why, before):
        comment = f"not known before the states above are done; now it would fail: {why}"
        return {"name": name, "changes": {}, "result": None, "comment": comment}
    return {"name": name, "changes": {}, "result": False, "comment": str(why)}


def _is_open(why: object, before: Mapping[str, Any]) -> bool:
    """Return whether states that were only tested may mend what has failed."""
    results = (before.get("__running__") or {}).values()
    has_changes = any(one.get("result") is None for one in results if isinstance(one, Mapping))
    is_own = isinstance(why, BadArgument | BadConfig) and not isinstance(why, NotThereYet)
    return bool(before["__opts__"]["test"]) and has_changes and not is_own


def of(
    name: str, changes: dict[str, Any], *, is_test: bool, would: str, done: str, idle: str
) -> dict[str, Any]:
    """
    Return what a state returns that did its work, or with ``test=True`` would do it.

    would, done, idle
        The comment for each of the three: changes to come, changes made, nothing to change.
    """
    if not changes:
        return {"name": name, "changes": {}, "result": True, "comment": idle}
    result, comment = (None, would) if is_test else (True, done)
    return {"name": name, "changes": changes, "result": result, "comment": comment}


def of_all(
    name: str,
    matched: Collection[str],
    ignored: Iterable[Mapping[str, str]],
    changes: dict[str, Any],
    *,
    is_test: bool,
    done: str,
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """
    Return what a state returns that acts on all VMs whose names match its name.

    It is False if there is none, or if anything failed, whatever was done of the others.

    before
        As for :func:`failed`.
    """
    if not matched:
        return failed(name, f"no VM's name matches {name!r}", before)
    issues = "; ".join(f"{one['domain']}: {one['issue']}" for one in ignored)
    if issues:
        return {**failed(name, issues, before), "changes": changes}
    idle = "No changes had happened"
    return of(name, changes, is_test=is_test, would=done, done=done, idle=idle)
