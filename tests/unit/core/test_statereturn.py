"""States report their changes; their results, errors and dry runs have one shape."""

import pytest
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.core.options import optionguard
from saltvirt.core.salt.statereturn import StateChange

CHANGE = StateChange({"a": 1}, "would be made", done="is made", unchanged="is there")


@pytest.fixture
def apply(monkeypatch):
    """Return a function that applies a state which returns or raises a value."""

    def call(outcome, test=False, running=None):
        def present(name):
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        present.__module__ = "states"
        namespace = {"__name__": "states", "__opts__": {"test": test}, "present": present}
        # Salt sets it in the globals of the function that it calls.
        monkeypatch.setitem(optionguard.__dict__, "__running__", running or {})
        optionguard.states(namespace)
        return namespace["present"](name="web1")

    return call


def result(value, comment, changes=None):
    """Return a state's return value."""
    return {"name": "web1", "changes": changes or {}, "result": value, "comment": comment}


def test_a_change_is_applied_or_only_announced(apply):
    assert apply(CHANGE) == result(True, "is made", {"a": 1})
    assert apply(CHANGE, test=True) == result(None, "would be made", {"a": 1})


def test_one_comment_may_stand_for_all(apply):
    for test in (True, False):
        assert apply(StateChange({}, "in order"), test=test) == result(True, "in order")
    assert apply(StateChange({"a": 1}, "Pool started")) == result(True, "Pool started", {"a": 1})


@pytest.mark.parametrize("error", [VirtError("no room"), BadArgument("no room")])
def test_an_error_is_a_failure(apply, error):
    assert apply(error) == result(False, "no room")


def test_a_failure_may_come_after_some_changes(apply):
    failed = StateChange({"a": 1}, "made", failure="no room", warnings=["slow"])

    assert apply(failed) == {**result(False, "no room", {"a": 1}), "warnings": ["slow"]}


def test_an_earlier_state_may_remove_the_cause_of_a_failure(apply):
    running = {"earlier": {"result": None}}

    assert apply(VirtError("no room"), test=True, running=running)["result"] is None
    assert apply(BadArgument("no room"), test=True, running=running)["result"] is False
    assert apply(VirtError("no room"), running=running)["result"] is False
