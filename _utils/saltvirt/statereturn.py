"""What a state must return."""

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
