"""What an emulated guest writes while it moves is there afterwards; some QEMU lose it by itself."""

import subprocess

import pytest
from cloudkit import wait
from movekit import where

NAME, IMAGE = "m1", "written.qcow2"
# A boot sector: 128 pages have the number of the round, and each round looks whether the one before
# has written all of them. It says "S" once, "." every 262,144 rounds, and "!" for a page that has
# an older number.
SECTOR = bytes.fromhex(
    "fa31c08ed0bc007066bb00000000"  # interrupts off, stack at 0x7000, round: ebx = 0
    "ba00108eda66c70600000000000081c2000181fa009072eb"  # 0x10000 to 0x90000: 0 in each page
    "b053e839006689d96643ba00108eda66390e0000751f"  # "S"; round: ecx = ebx++; is a page ecx?
    "66891e000081c2000181fa009072e8"  # yes: it is ebx from now on; the next page
    "66f7c3ffff030075d7b02ee80b00ebd0"  # "." now and then; the next round
    "52b021e803005aebd8"  # no: "!", and go on
    "52baf803ee5ac3"  # to the first serial port
)


@pytest.fixture
def writing(cloud3, tmp_path):
    """A guest that writes all the time, and looks."""
    cloud3.purge_all()
    image = cloud3.fileroot / IMAGE
    raw = tmp_path / "written.raw"
    raw.write_bytes(SECTOR.ljust(510, b"\0") + b"\x55\xaa" + bytes(2**20 - 512))
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", raw, image], check=True)
    how = ["host=hyper1", "seed=False", "wait=False", f"image=salt://{IMAGE}"]
    done = cloud3.run("virt.init", NAME, "1", "64", *how)
    assert done.code == 0, done.out + done.err
    wait("the guest", lambda: "." in cloud3.console("hyper1", NAME))
    yield cloud3
    image.unlink()
    cloud3.purge_all()
    for host in cloud3.hosts:
        cloud3.forget_images(host)


def moved(cloud, target, *more):
    """Move the guest with several passes over its memory; return the answer and what it saw."""
    done = cloud.run("virt.migrate", NAME, target, "max_bandwidth=1", *more)
    assert done.code == 0, done.out + done.err
    assert where(cloud) == {target: "running"}
    rounds = cloud.console(target, NAME).count(".")
    wait("a round", lambda: cloud.console(target, NAME).count(".") > rounds + 1)
    return done.data, cloud.console(target, NAME)


@pytest.mark.second
@pytest.mark.both_salts
def test_a_guest_that_writes_all_the_time_loses_nothing(writing):
    for target in ("hyper2", "hyper1"):
        said, seen = moved(writing, target)

        assert "!" not in seen and "warning" not in said


@pytest.mark.second
def test_who_asks_for_more_is_told_what_that_can_lose(writing):
    said, _seen = moved(writing, "hyper2", "live=True")

    assert "can lose what an emulated guest writes while it moves" in said["warning"]
