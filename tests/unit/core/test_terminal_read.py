"""An answer is cleaned as a whole with the same result as text by text."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from saltvirt.core import terminal

TEXTS = st.text(max_size=6) | st.sampled_from(["", "\\", '"', "/", "\\n", "a\nb", "\x1b[2J", "é"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(VALUES, st.booleans(), st.sampled_from([-1, 0]))
@example(["\\u001b", "a\\"], True, 0)
@example({"a": "b"}, False, -1)
def test_an_answer_that_was_read_is_clean(value, is_ascii, depth):
    text = json.dumps(value, ensure_ascii=is_ascii)

    assert terminal.read(text, depth) == terminal.clean(value, depth)


@pytest.mark.parametrize("pattern", ["[%s]", '{"a": %s}', '["x", [%s]]'])
@pytest.mark.parametrize("extra_levels", [0, 1, 2])
def test_too_deep_nesting_is_refused_by_both_ways(pattern, extra_levels):
    times = 64 // (pattern.count("[") or 1) + extra_levels
    text = "1"
    for _time in range(times):
        text = pattern % text

    refused = []
    for way in (terminal.read, lambda text: terminal.clean(json.loads(text))):
        try:
            way(text)
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) in (0, 2) and len(set(refused)) < 2
    assert bool(refused) == (extra_levels > 0)
