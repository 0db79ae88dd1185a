"""One disk, NIC or medium of a running guest comes, grows and goes; all its others stay."""

import pytest
from cloudkit import TINY, how_to, ticks, wait

VERBS = "disk_add disk_grow disk_remove nic_add nic_remove insert eject".split()
DRIVE = 'disks=[{"name": "cd", "device": "cdrom"}]'
DATA = "/srv/salt-images/web1_data.qcow2"
MIB = 1 << 20


@pytest.fixture
def web1(clean):
    """A tiny guest with a drive, which has booted."""
    clean.sh(
        "hyper1", f"truncate -s 1M /srv/debian.iso; rm -f {DATA}; virsh net-start default || :"
    )
    said = clean.local("hyper1", "virt.init", "web1", "1", "96", TINY, DRIVE, "seed=False")
    assert said is True
    wait("the guest", lambda: ticks(clean, "hyper1", "web1") > 0)
    yield clean
    clean.purge_all()
    clean.sh("hyper1", f"rm -f /srv/debian.iso {DATA}")
    clean.local("hyper1", "virt.trash_empty")


def xml(cloud, *words):
    """Return the XML of the VM as virsh has it."""
    return cloud.sh("hyper1", f"virsh dumpxml web1 {' '.join(words)}")


def both(cloud):
    """Return the running VM, and its definition."""
    return xml(cloud), xml(cloud, "--inactive")


def act(cloud, function, *words):
    """Call a command on the master; return its answer, which waits for nothing."""
    done = cloud.run(f"virt.{function}", "web1", *words)
    assert done.code == 0, done.out + done.err
    answer = done.data["hyper1"]["web1"]
    assert answer["restart"] is False, answer
    return answer


def test_the_first_screen_of_the_page_is_followed(web1):
    lines = []
    for program, *words in how_to("changing-vms.md"):
        if words[0].removeprefix("virt.") in VERBS:
            done = web1.command(program, *words)
            assert done.code == 0, done.out + done.err
            assert done.traceback == []
            lines.append(" ".join(done.out.split()))

    mac = lines[4].split()[4]
    assert lines == [
        f"web1 on hyper1: disk vdb would be added: {DATA}",
        f"web1 on hyper1: disk vdb added: {DATA}",
        "web1 on hyper1: disk vdb grown from 10.0G to 20.0G; the guest must then grow its "
        "partition and its file system",
        f"web1 on hyper1: disk vdb removed; {DATA} stays; to remove that: salt-run virt.trash_put "
        f"hyper1 {DATA}",
        f"web1 on hyper1: NIC {mac} (network default) added",
        f"web1 on hyper1: NIC {mac} (network default) removed",
        f"web1 on hyper1: drive {lines[6].split()[4]} /srv/debian.iso inserted",
        f"web1 on hyper1: drive {lines[6].split()[4]} /srv/debian.iso ejected",
    ]


def test_a_disk_comes_grows_and_goes_into_the_trash_while_the_guest_runs(web1):
    before = both(web1)
    added = act(web1, "disk_add", "data", "8M")
    assert (added["device"], added["file"], added["made"]) == ("vdb", DATA, True)
    assert all(DATA in text for text in both(web1))

    grown = act(web1, "disk_grow", "data", "+8M")
    assert (grown["bytes_before"], grown["bytes"]) == (8 * MIB, 16 * MIB)
    assert f"Capacity:       {16 * MIB}" in web1.sh("hyper1", "virsh domblkinfo web1 vdb")
    smaller = web1.run("virt.disk_grow", "web1", "vdb", "4M")
    assert smaller.code == 1 and "a disk is never made smaller" in smaller.error

    gone = act(web1, "disk_remove", "vdb", "file=True")
    assert gone["trash"] and DATA in gone["outcome"]
    assert not any(DATA in text for text in both(web1))
    assert "gone" in web1.sh("hyper1", f"test -e {DATA} || echo gone")
    assert [text.count("<disk ") for text in both(web1)] == [
        text.count("<disk ") for text in before
    ]

    assert web1.run("virt.trash_restore", "hyper1", gone["trash"]).code == 0
    assert act(web1, "disk_add", "data")["made"] is False
    assert f"Capacity:       {16 * MIB}" in web1.sh("hyper1", "virsh domblkinfo web1 vdb")
    before_ticks = ticks(web1, "hyper1", "web1")
    wait("the guest", lambda: ticks(web1, "hyper1", "web1") > before_ticks)


def test_nics_and_media_come_and_go_while_the_guest_runs(web1):
    mac = act(web1, "nic_add", "network=default")["device"]
    assert all(mac in text for text in both(web1))
    taken = web1.run("virt.nic_add", "web1", f"mac={mac}", "network=default")
    assert taken.code == 1 and "already" in taken.error
    assert act(web1, "nic_remove", mac)["device"] == mac
    assert not any(mac in text for text in both(web1))

    assert act(web1, "insert", "/srv/debian.iso")["file"] == "/srv/debian.iso"
    assert all("/srv/debian.iso" in text for text in both(web1))
    said = web1.local("hyper1", "virt.eject", "web1", "test=True")
    assert said["outcome"].endswith("/srv/debian.iso would be ejected") and said["diff"]
    assert act(web1, "eject")["file"] == "/srv/debian.iso"
    assert not any("/srv/debian.iso" in text for text in both(web1))
    assert act(web1, "eject")["outcome"].endswith("already; nothing was changed")
