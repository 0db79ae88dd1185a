"""The answer that a host would give with one VM more, or one less."""

from saltvirt.placement import fit, whatif
from tightclouds import host, moving


def test_one_more_vm_leaves_that_much_less():
    before = host(1000)
    required = whatif.needs_of_move(
        moving(
            "x", 100, vcpus=3, disks=[{"how": "copy", "virtual_bytes": 2**30}, {"how": "shared"}]
        )
    )
    after = whatif.with_vm(before, required)

    free_after, free_before = fit.free(after), fit.free(before)
    assert [free_before[key] - free_after[key] for key in ("vcpus", "memory_mib", "disk_mib")] == [
        3,
        100,
        1024,
    ]
    assert whatif.without_vm(after, required) == before
