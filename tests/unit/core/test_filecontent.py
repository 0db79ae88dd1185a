"""The digest of a file does not depend on its holes, and changes with each byte."""

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


def test_a_hole_counts_as_zeros(tmp_path):
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
def test_different_content_offset_or_size_changes_the_digest(tmp_path, pieces, size):
    first = write(tmp_path / "one", [(0, b"a")], BLOCK)
    second = write(tmp_path / "other", pieces, size)

    assert filecontent.digest(first) != filecontent.digest(second)


@settings(max_examples=200)
@given(data=st.binary(max_size=5 * BLOCK), cuts=st.lists(st.integers(0, 5 * BLOCK), max_size=8))
def test_the_digest_does_not_depend_on_the_pieces(data, cuts):
    whole_digest, pieces_digest = filecontent.Digest(), filecontent.Digest()
    whole_digest.feed(0, data)
    ends = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    for start, stop in zip(ends, ends[1:], strict=False):
        pieces_digest.feed(start, data[start:stop])

    assert whole_digest.end(len(data)) == pieces_digest.end(len(data))


def test_a_write_changes_the_signature(tmp_path):
    path = write(tmp_path / "disk", [(0, b"a")], BLOCK)
    signature_before = filecontent.signature(path)
    with open(path, "r+b") as handle:
        handle.write(b"b")

    assert filecontent.signature(path) != signature_before
