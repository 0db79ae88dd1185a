"""Disks that strangers made, in libguestfs' appliance: a line each, soon, and nothing left."""

import os
import time
from pathlib import Path

import applianceuser
import hostile
import pytest
from saltvirt.core.errors import SeedError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.seeding import write
from saltvirt.seeding.offline import appliance
from saltvirt.seeding.seedmodel import Identity, Installation

IDENTITY = Identity(
    id="evil1",
    config={"master": "m", "id": "evil1"},
    public_key="PUB",
    private_key="PRIV",
)
ALWAYS = {"pipes": "/etc/salt"}
WHY = {
    **ALWAYS,
    "superblock": "no operating system",
    "links-out": "a path element was not a directory",
    "link-farm": "/etc/salt",
    "circle": "libguestfs failed",
    "mutated": None,
    "lvm": "no operating system",
    "nothing": "no operating system",
    "overlapping": None,
}


@pytest.mark.parametrize(
    "name",
    [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.nightly) for name in WHY],
)
def test_a_hostile_disk_ends_well_or_with_a_line(tmp_path, name):
    disk = hostile.content(name, tmp_path / "work", tmp_path / "disk.qcow2")
    applianceuser.there()
    settings = HostSettings(state_dir=str(tmp_path / "state"), seed={"limit_s": 200})
    before = {path: os.stat(path).st_mtime_ns for path in ("/etc", "/etc/hostname")}
    began, said = time.monotonic(), None

    try:
        write.seed_disk(
            Context(settings=settings, opts={}),
            str(disk),
            "qcow2",
            IDENTITY,
            via="guestfs",
            install=Installation(kind="boot", script="true"),
        )
    except SeedError as exc:
        said = str(exc)

    why = WHY[name]
    # Of what is damaged by chance anything may be left; None: whatever it is, in one line.
    assert why is None or why in (said or ""), said
    assert "\n" not in (said or "")
    assert time.monotonic() - began < 200
    assert {path: os.stat(path).st_mtime_ns for path in before} == before
    assert list((tmp_path / "state/appliances").iterdir()) == []
    assert b"PRIV" not in Path("/etc/hostname").read_bytes()


def test_the_corpus_is_the_same_for_every_method():
    assert set(WHY) == set(hostile.CONTENTS)
    assert appliance.why_missing() is None, "tests/lab/lab images installs what is missing"
