"""What QEMU has rounded is no change, and what somebody changes is one, however large the VM is."""

import pytest
from saltvirt.xml.domain import memory

GIB = 1024 * 1024


@pytest.mark.parametrize("size_kib", [512 * 1024, 512 * GIB])
@pytest.mark.parametrize("more_mib", [1, -1, 512 - 1])
def test_a_mib_more_or_less_is_a_change(size_kib, more_mib):
    now = memory.Memory(size_kib=size_kib, current_kib=size_kib)
    wanted = size_kib // 1024 + more_mib

    found = memory.apply_changes(now, wanted)

    assert (found.size_kib, found.current_kib) == (wanted * 1024, wanted * 1024)


@pytest.mark.parametrize("asked", ["512MB", "1GB", "100.5MiB"])
def test_what_was_rounded_to_whole_mib_is_no_change(asked):
    first = memory.from_call({"boot": asked, "current": asked})
    rounded = -(-first.size_kib // 1024) * 1024
    now = memory.Memory(size_kib=rounded, current_kib=rounded)

    assert memory.apply_changes(now, {"boot": asked, "current": asked}) == now
