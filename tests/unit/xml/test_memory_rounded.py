"""A size that QEMU rounded is no change; one that a user changes is, for a VM of any size."""

import pytest
from saltvirt.xml.domain import memory

GIB = 1024 * 1024


@pytest.mark.parametrize("size_kib", [512 * 1024, 512 * GIB])
@pytest.mark.parametrize("more_mib", [1, -1, 512 - 1])
def test_a_mib_more_or_less_is_a_change(size_kib, more_mib):
    old = memory.Memory(size_kib=size_kib, current_kib=size_kib)
    size_mib = size_kib // 1024 + more_mib

    new = memory.apply_changes(old, size_mib)

    assert (new.size_kib, new.current_kib) == (size_mib * 1024, size_mib * 1024)


@pytest.mark.parametrize("size", ["512MB", "1GB", "100.5MiB"])
def test_a_size_that_was_rounded_to_whole_mib_is_no_change(size):
    first = memory.from_call({"boot": size, "current": size})
    rounded = -(-first.size_kib // 1024) * 1024
    rounded_memory = memory.Memory(size_kib=rounded, current_kib=rounded)

    assert memory.apply_changes(rounded_memory, {"boot": size, "current": size}) == rounded_memory
