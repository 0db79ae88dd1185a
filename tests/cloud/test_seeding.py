"""An image without cloud-init becomes a minion; its disk is read in an appliance alone."""

import json

import pytest
from cloudkit import TINY, wait

pytestmark = pytest.mark.second
# Debian's image of the lab without cloud-init, with a network of its own, and keys to be replaced.
STRIP = """
import guestfs
g = guestfs.GuestFS(python_return_dict=True)
g.add_drive_opts("/srv/bare.qcow2", format="qcow2")
g.launch()
g.mount("/dev/sda1", "/")
g.sh("rm -rf /usr/bin/cloud-init /etc/systemd/system/*/cloud-* /lib/systemd/system/cloud-*")
g.sh("rm -f /lib/systemd/system-generators/cloud-init-generator")
g.write("/etc/systemd/network/50-any.network", b"[Match]\\nName=e*\\n[Network]\\nDHCP=yes\\n")
g.write("/etc/machine-id", b"0123456789abcdef0123456789abcdef\\n")
g.mkdir_p("/etc/ssh")
g.write("/etc/ssh/ssh_host_rsa_key", b"of the image")
g.write("/etc/salt/minion_id", b"of-the-image\\n")
g.shutdown()
"""
ENV = "LIBGUESTFS_BACKEND=direct LIBGUESTFS_BACKEND_SETTINGS=force_tcg LIBGUESTFS_CACHEDIR=/var/tmp"
BARE = "file:///srv/bare.qcow2"


@pytest.fixture(scope="module")
def bare(cloud):
    """The lab, with an image on hyper1 that has a minion and no cloud-init."""
    cloud.purge_all()
    image = cloud.lab.fileroot / "images/debian-minion.qcow2"
    cloud.sh("hyper1", f"cp {image} /srv/bare.qcow2; {ENV} /usr/bin/python3 -c '{STRIP}'")
    yield cloud
    cloud.sh("hyper1", "rm -f /srv/bare.qcow2")
    cloud.forget_images("hyper1")
    cloud.purge_all()


def left(cloud):
    """Return what an appliance could leave on hyper1."""
    return cloud.sh("hyper1", "pgrep -fa '[g]uestfs|[w]orker.py'; "
                    "ls -d /var/lib/salt-virt/appliances/* 2>/dev/null || true")  # fmt: skip


def test_an_image_without_cloud_init_becomes_a_minion(bare):
    done = bare.command("salt-run", "virt.init", "bare1", "2", "1024", BARE, "host=hyper1",
                        "seed_method=auto")  # fmt: skip

    assert done.code == 0, done.out + done.err
    assert "bare1: Looking (into the image, once)" in done.out
    assert "bare1: Seeding (by guestfs)" in done.out
    assert bare.salt("bare1", "grains.item", "id", "host").data["bare1"] == {
        "id": "bare1", "host": "bare1"}  # fmt: skip
    script = ("stat -c '%a %n' /etc/salt/pki/minion /etc/salt/pki/minion/minion.pem; "
              "ls /etc/ssh; cat /etc/machine-id")  # fmt: skip
    said = bare.salt("bare1", "cmd.run", script).data["bare1"].splitlines()
    assert "700 /etc/salt/pki/minion" in said and "400 /etc/salt/pki/minion/minion.pem" in said
    assert "ssh_host_rsa_key" not in said and "0123456789abcdef0123456789abcdef" not in said
    assert "bare1_seed.iso" not in bare.sh("hyper1", "ls /srv/salt-images")
    assert left(bare) == ""
    folders = " ".join(str(bare.folder("hyper1") / part) for part in ("salt/cache", "log"))
    assert bare.sh("hyper1", f"grep -rl 'PRIVATE KEY' {folders} || true") == ""
    assert bare.run("virt.purge", "bare1").code == 0


def test_what_was_found_is_kept_beside_the_image(bare):
    kept = json.loads(bare.sh("hyper1", "cat /srv/salt-images/base/*.look"))

    assert (kept["has_minion"], kept["has_cloud_init"], kept["has_systemd"]) == (True, False, True)
    assert (kept["os"], kept["arch"]) == ("debian 12", "x86_64")


def test_an_image_without_a_minion_is_refused_if_none_may_be_installed(bare):
    before = bare.traces()
    words = ["virt.init", "t1", "1", "96", TINY, "host=hyper1", "seed_method=auto", "install=False"]

    first, second = bare.command("salt-run", *words), bare.command("salt-run", *words)

    assert "Looking" in first.out and "Looking" not in second.out
    for done in (first, second):
        said = " ".join(done.out.split())
        assert done.code == 1 and "has no salt-minion, and install=False" in said, said
    assert bare.traces() == before


def test_a_worker_that_is_killed_leaves_nothing(bare):
    before = bare.traces()
    job = bare.begin("virt.init", "t1", "1", "96", BARE, "host=hyper1", "seed_method=guestfs")
    wait("the appliance", lambda: bare.sh("hyper1", "pgrep -f '[q]emu.*guestfs' || true"))
    bare.sh("hyper1", "kill -9 $(pgrep -f '[w]orker.py')")

    done = bare.end(job)

    assert done.code == 1 and "libguestfs failed on" in done.error, done.out
    wait("its end", lambda: left(bare) == "")
    assert bare.traces() == before


def test_an_appliance_that_takes_too_long_is_ended(bare):
    before = bare.traces()
    bare.sh("hyper1", "rm -f /srv/salt-images/base/*.look")
    conf = bare.folder("hyper1") / "salt/etc/minion.d/limit.conf"
    conf.write_text(json.dumps({"virt": {"seed": {"limit_s": 2}}}))
    try:
        done = bare.call("hyper1", "virt.init", "t1", "1", "96", BARE, "seed_method=guestfs")
    finally:
        conf.unlink()

    assert done.code != 0 and "longer than 2 s" in " ".join((done.out + done.err).split()), done.out
    wait("its end", lambda: left(bare) == "")
    assert bare.traces() == before
