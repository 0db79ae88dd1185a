"""What a state must return."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any


def failed(name: str, why: object) -> dict[str, Any]:
    """Return what a state returns that could not do its work."""
    return {"name": name, "changes": {}, "result": False, "comment": str(why)}


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
) -> dict[str, Any]:
    """
    Return what a state returns that acts on all VMs whose names match its name.

    It is False if there is none, or if anything failed, whatever was done of the others.
    """
    if not matched:
        return failed(name, f"no VM's name matches {name!r}")
    issues = "; ".join(f"{one['domain']}: {one['issue']}" for one in ignored)
    if issues:
        return {**failed(name, issues), "changes": changes}
    idle = "No changes had happened"
    return of(name, changes, is_test=is_test, would=done, done=done, idle=idle)
