"""What is in a file: the same wherever its holes are, and different by any byte."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from saltvirt.core import filecontent

BLOCK = 64 * 1024


def write(path, pieces, size):
    """Write a file of pieces at offsets, with holes between them."""
    with open(path, "wb") as handle:
        for offset, data in pieces:
            handle.seek(offset)
            handle.write(data)
        handle.truncate(size)
    return path


def test_a_hole_is_as_good_as_zeros(tmp_path):
    piece = (3 * BLOCK + 17, b"data" * 1000)
    sparse = write(tmp_path / "sparse", [piece], 20 * BLOCK)
    full = write(tmp_path / "full", [(0, bytes(20 * BLOCK)), piece], 20 * BLOCK)
    assert os.stat(sparse).st_blocks < os.stat(full).st_blocks

    assert filecontent.digest(sparse) == filecontent.digest(full)


@pytest.mark.parametrize(
    ("pieces", "size"),
    [
        ([(0, b"b")], BLOCK),
        ([(1, b"a")], BLOCK),
        ([(BLOCK, b"a")], 2 * BLOCK),
        ([(0, b"a")], 2 * BLOCK),
        ([], BLOCK),
    ],
)
def test_any_other_content_place_or_size_is_told(tmp_path, pieces, size):
    one = write(tmp_path / "one", [(0, b"a")], BLOCK)
    other = write(tmp_path / "other", pieces, size)

    assert filecontent.digest(one) != filecontent.digest(other)


@settings(max_examples=200)
@given(data=st.binary(max_size=5 * BLOCK), cuts=st.lists(st.integers(0, 5 * BLOCK), max_size=8))
def test_it_does_not_matter_in_which_pieces_it_comes(data, cuts):
    whole, cut = filecontent.Digest(), filecontent.Digest()
    whole.feed(0, data)
    ends = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    for start, stop in zip(ends, ends[1:], strict=False):
        cut.feed(start, data[start:stop])

    assert whole.end(len(data)) == cut.end(len(data))


def test_a_write_changes_the_signature(tmp_path):
    path = write(tmp_path / "disk", [(0, b"a")], BLOCK)
    before = filecontent.signature(path)
    with open(path, "r+b") as handle:
        handle.write(b"b")

    assert filecontent.signature(path) != before
