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
def test_a_guest_that_writes_all_the_time_loses_nothing(writing):
    for target in ("hyper2", "hyper1"):
        said, seen = moved(writing, target)

        assert "!" not in seen and "warning" not in said


@pytest.mark.second
def test_who_asks_for_more_is_told_what_that_can_lose(writing):
    said, _seen = moved(writing, "hyper2", "live=True")

    assert "can lose what an emulated guest writes while it moves" in said["warning"]


@pytest.mark.nightly
def test_who_wants_one_of_an_upgraded_qemu_moved_live_is_told_what_that_can_lose(writing):
    qemu = "/usr/bin/qemu-system-x86_64"
    assert writing.run("virt.migrate", NAME, "hyper3").code == 0
    said = writing.run("virt.migrate", NAME, "hyper1", "live=True").data
    assert "warning" not in said
    assert writing.run("virt.migrate", NAME, "hyper3").code == 0
    # As packages do it: what runs goes on in a file that has no name any more.
    writing.sh("hyper3", f"cp -p {qemu} {qemu}.new && mv {qemu}.new {qemu}")

    said = writing.run("virt.migrate", NAME, "hyper1", "live=True").data

    assert "the QEMU that it runs in, which is not the installed one," in said["warning"]


@pytest.mark.nightly
def test_a_transient_vm_that_is_paused_while_it_leaves_is_not_taken_for_one_that_arrives(writing):
    # Memory that takes its time at 1 MiB/s.
    filling = "/mnt/shared/filling"
    writing.sh("hyper1", f"head -c 20M /dev/urandom >{filling} && chmod 644 {filling}")
    xml = f"""<domain type="qemu" xmlns:qemu="http://libvirt.org/schemas/domain/qemu/1.0">
<name>passing</name><memory unit="MiB">64</memory><os><type machine="pc-q35-7.2">hvm</type></os>
<qemu:commandline><qemu:arg value="-device"/>
<qemu:arg value="loader,file={filling},addr=0x1000000,force-raw=on"/></qemu:commandline></domain>"""
    writing.sh("hyper1", f"cat >/tmp/passing.xml <<'X'\n{xml}\nX\nvirsh -q create /tmp/passing.xml")
    uuid = writing.sh("hyper1", "virsh domuuid passing").strip()
    ask = ["virt.migration_state", "passing", "token=none", f"uuid={uuid}"]
    to = "qemu+tls://hyper2/system tcp://hyper2"
    begin = f"virsh migrate --p2p --tls --bandwidth 1 passing {to} >/dev/null 2>&1 &"
    try:
        writing.sh("hyper1", begin)
        wait("its pause", lambda: "paused" in writing.sh("hyper1", "virsh domstate passing"))

        source, target = (writing.local(host, *ask) for host in ("hyper1", "hyper2"))

        assert source["source"]["is_moving"] and not source["target"]["is_arriving"]
        assert target["target"]["is_arriving"] and not target["source"]["is_moving"]
    finally:
        for host in ("hyper1", "hyper2"):
            writing.sh(host, "virsh destroy passing || true")
        writing.sh("hyper1", f"rm -f {filling} /tmp/passing.xml")
