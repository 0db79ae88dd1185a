"""The space that an image may take: figures first, then a disk that is really small."""

import pytest
from saltvirt.core import writelimit
from saltvirt.core.options.config import HostSettings
from saltvirt.core.units import MIB
from saltvirt.core.writelimit import OverLimit, Room


def room_of_8_mib(**change):
    """Return a ``Room`` of 8 MiB on a host without a reserve."""
    return Room(**{"max_bytes": 8 * MIB, "reserve_bytes": 0, "limit_s": 60, **change})


def test_a_too_large_file_is_refused_before_and_during_the_write(tmp_path):
    meter = room_of_8_mib().meter("x.img", tmp_path)

    meter.expect(8 * MIB)
    with pytest.raises(OverLimit, match=r"x.img takes 10.0M or more; the most is 8.0M \(virt:ima"):
        meter.expect(10 * MIB)
    with pytest.raises(OverLimit, match="x.img takes 10.0M or more"):
        meter.check(10 * MIB)


def test_the_reserve_for_vms_is_not_used(tmp_path):
    _total, free = writelimit.read_space(tmp_path)
    full = room_of_8_mib(reserve_bytes=2 * free).meter("x.img", tmp_path)

    for refused in (lambda: full.expect(1), lambda: full.check(0)):
        with pytest.raises(OverLimit, match=rf"no room for image x.img in {tmp_path}: .* free, "):
            refused()
    assert full.most_bytes() == 0


def test_a_step_has_a_time_limit(tmp_path):
    meter = room_of_8_mib(limit_s=0).meter("x.img", tmp_path)

    with pytest.raises(OverLimit, match="x.img took longer than 0 s; raise virt:image_limit_s"):
        meter.check(0)


def test_progress_checks_the_remaining_bytes(small_disk):
    progress = []
    report_progress = (
        room_of_8_mib(max_bytes=64 * MIB)
        .meter("x.img", small_disk)
        .counting(lambda *figures: progress.append(figures))
    )

    report_progress(40 * MIB, 50 * MIB)
    report_progress(1, 0)
    with pytest.raises(OverLimit, match="no room for image x.img"):
        report_progress(4 * MIB, 50 * MIB)

    assert progress == [(40 * MIB, 50 * MIB), (1, 0)]


def test_holes_take_no_space(tmp_path):
    with (tmp_path / "holes").open("wb") as out:
        out.truncate(8 * MIB)

    assert (
        writelimit.allocated_bytes(tmp_path / "holes"),
        writelimit.allocated_bytes(tmp_path / "none"),
    ) == (
        0,
        0,
    )


def test_the_room_of_a_host_comes_from_its_options():
    room = writelimit.from_settings(
        HostSettings(image_max_gib=3, disk_reserve_mib=5, image_limit_s=7)
    )

    assert room == Room(max_bytes=3 << 30, reserve_bytes=5 * MIB, limit_s=7)
