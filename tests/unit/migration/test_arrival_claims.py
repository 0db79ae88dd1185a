"""A file that an arrival has on record belongs to it only if the arrival has made it."""

import errno
import os
from pathlib import Path

import pytest
from saltvirt.storage import claims
from test_arrival import moving, prepare

__all__ = ["moving"]


class Killed(BaseException):
    """A job is killed: it cannot undo anything."""


def _die(*_args):
    raise Killed


def _cut_off(end, moving, monkeypatch, step):
    """Kill a job on the target before a step for the first disk."""
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(claims, step, _die)
        prepare(end, moving)
    assert end.phase("arrival") == "preparing"
    return Path(moving.disks[0].path)


def test_a_file_that_another_host_makes_after_a_crash_stays(end, conn, moving, monkeypatch):
    """Killed when the path was on record and its file was not made; the folder is shared."""
    path = _cut_off(end, moving, monkeypatch, "take")
    assert end.record("arrival").facts["paths"] == [str(path)]
    path.write_bytes(b"another's")

    end.step("drop")

    assert path.read_bytes() == b"another's" and end.record("arrival") is None
    assert end.hypervisor.files() == [path.name]


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_was_made_is_removed(end, conn, moving, monkeypatch, links):
    def refuse(*_args):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    path = _cut_off(end, moving, monkeypatch, "complete")
    assert path.exists()

    end.step("drop")

    assert end.hypervisor.files() == [] and end.record("arrival") is None


def test_no_mark_is_left_of_what_is_made(end, conn, moving):
    prepare(end, moving)

    assert end.hypervisor.files() == ["web1_0.raw", "web1_1.raw"]
