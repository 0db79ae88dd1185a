"""An answer is read as it would be if each of its texts were looked at."""

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
def test_what_is_read_is_clean(value, is_ascii, depth):
    text = json.dumps(value, ensure_ascii=is_ascii)

    assert terminal.read(text, depth) == terminal.clean(value, depth)


@pytest.mark.parametrize("one", ["[%s]", '{"a": %s}', '["x", [%s]]'])
@pytest.mark.parametrize("more", [0, 1, 2])
def test_what_is_nested_too_deep_is_refused_alike(one, more):
    times = 64 // (one.count("[") or 1) + more
    text = "1"
    for _time in range(times):
        text = one % text

    refused = []
    for way in (terminal.read, lambda said: terminal.clean(json.loads(said))):
        try:
            way(text)
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) in (0, 2) and len(set(refused)) < 2
    assert bool(refused) == (more > 0)
