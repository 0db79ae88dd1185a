"""What a state must return."""


def failed(name, why):
    """Return the outcome of a state that could not do its work."""
    return {"name": name, "changes": {}, "result": False, "comment": str(why)}


def of(name, changes, *, is_test, would, done, idle):
    """
    Return the outcome of a state that did its work, or with ``test=True`` would do it.

    would, done, idle
        The comment for each of the three: changes to come, changes made, nothing to change.
    """
    if not changes:
        return {"name": name, "changes": {}, "result": True, "comment": idle}
    result, comment = (None, would) if is_test else (True, done)
    return {"name": name, "changes": changes, "result": result, "comment": comment}
