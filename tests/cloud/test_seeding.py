"""An image without cloud-init becomes a minion; its disk is read in an appliance alone."""

import json
import os
import subprocess

import pytest
from cloudkit import TINY, wait
from installkit import COMMANDS, PLAIN, onedir

pytestmark = pytest.mark.second
BARE = "/srv/salt-images/golden/bare.qcow2"
DEBIAN = "salt://images/debian-minion.qcow2"


@pytest.fixture(scope="module")
def built(cloud, tmp_path_factory):
    """What virt.image_build says of an image without cloud-init, its minion from a tarball."""
    cloud.purge_all()
    onedir(cloud, tmp_path_factory.mktemp("onedir"))
    files = {"/etc/systemd/network/50-any.network": "salt://50-any.network"}
    done = cloud.run(
        "virt.image_build",
        PLAIN,
        "bare",
        "hyper1",
        "install_from=salt://salt.tar.gz",
        f"files={json.dumps(files)}",
        f"commands={json.dumps(COMMANDS)}",
    )
    yield done
    for name in ("salt.tar.gz", "50-any.network"):
        (cloud.fileroot / name).unlink()
    cloud.sh("hyper1", "rm -rf /srv/salt-images/golden")
    cloud.forget_images("hyper1")
    cloud.purge_all()


@pytest.fixture(scope="module")
def bare(cloud, built):
    """The lab, with an image on hyper1 that has a minion and no cloud-init."""
    assert built.code == 0, built.out + built.err
    return cloud


@pytest.mark.nightly
def test_a_golden_image_says_what_it_has_and_is_in_the_cache(bare, built):
    said = built.data["hyper1"]

    assert (said["path"], said["os"]) == (BARE, "debian 12")
    assert (said["has_minion"], said["has_cloud_init"]) == (True, False)
    assert bare.sh("hyper1", f"stat -c %h {BARE}").strip() == "1"
    cached = bare.run("virt.images", "hyper1").data["hyper1"][said["digest"]]
    assert (cached["source"], cached["has_minion"], cached["users"]) == (BARE, True, [])
    assert left(bare) == ""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(
            ["commands=echo a reason; exit 3", "install=False"],
            "exit 3' failed: a reason",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            [],
            "nothing says what to install it from; run `salt-run virt_image.minion_packages`",
            marks=pytest.mark.nightly,
        ),
        (["packages=nginx"], "set virt:seed:install_network: True"),
        (["files={etc/x: salt://50-any.network}"], "not an absolute path in the guest"),
        (["nonsense=1"], "nonsense"),
    ],
)
def test_an_image_that_cannot_be_built_leaves_nothing(clean, words, why):
    before = clean.sh("hyper1", "ls -A /srv/salt-images/golden 2>/dev/null || true")

    done = clean.run("virt.image_build", PLAIN, "half", "hyper1", *words)

    assert done.code == 1 and why in done.error, done.out
    assert clean.sh("hyper1", "ls -A /srv/salt-images/golden 2>/dev/null || true") == before
    assert left(clean) == ""


def begun(cloud):
    """Begin a deployment by guestfs; return its salt-run once the appliance runs."""
    job = cloud.begin("virt.init", "t1", "1", "256", DEBIAN, "host=hyper1", "seed_method=guestfs")
    wait("the appliance", lambda: cloud.sh("hyper1", "pgrep -f '[q]emu.*guestfs' || true"))
    return job


def left(cloud):
    """Return what an appliance could leave on hyper1."""
    return cloud.sh(
        "hyper1",
        "pgrep -fa '[g]uestfs|[o]ffline/worker'; "
        "ls -d /var/lib/salt-virt/appliances/* 2>/dev/null || true",
    )


@pytest.mark.nightly
def test_an_image_without_cloud_init_becomes_a_minion(bare):
    done = bare.command(
        "salt-run", "virt.init", "bare1", "2", "1024", BARE, "host=hyper1", "seed_method=auto"
    )

    assert done.code == 0, done.out + done.err
    # The builder of the image knows what is in it.
    assert "bare1: Looking" not in done.out
    assert "bare1: Seeding (by guestfs)" in done.out
    assert bare.salt("bare1", "grains.item", "id", "host").data["bare1"] == {
        "id": "bare1",
        "host": "bare1",
    }
    script = (
        "stat -c '%a %n' /etc/salt/pki/minion /etc/salt/pki/minion/minion.pem; "
        "ls /etc/ssh; cat /etc/machine-id"
    )
    said = bare.salt("bare1", "cmd.run", script).data["bare1"].splitlines()
    assert "700 /etc/salt/pki/minion" in said and "400 /etc/salt/pki/minion/minion.pem" in said
    assert "ssh_host_rsa_key" not in said and "0123456789abcdef0123456789abcdef" not in said
    assert "bare1_seed.iso" not in bare.sh("hyper1", "ls /srv/salt-images")
    assert left(bare) == ""
    look = "grep -rlE -e '-BEGIN [A-Z ]*PRIVATE KEY' /var/cache/salt /var/log || true"
    assert bare.sh("hyper1", look) == ""
    assert bare.run("virt.purge", "bare1").code == 0


@pytest.mark.nightly
def test_an_image_without_a_minion_is_refused_if_none_may_be_installed(clean):
    before = clean.traces()
    words = ["virt.init", "t1", "1", "96", TINY, "host=hyper1", "seed_method=auto", "install=False"]

    first, second = clean.command("salt-run", *words), clean.command("salt-run", *words)

    assert "Looking" in first.out and "Looking" not in second.out
    for done in (first, second):
        said = " ".join(done.out.split())
        assert done.code == 1 and "has no salt-minion, and install=False" in said, said
    assert clean.traces() == before


def test_a_worker_that_is_killed_leaves_nothing(clean):
    before = clean.traces()
    job = begun(clean)
    clean.sh("hyper1", "kill -9 $(pgrep -f '[o]ffline/worker')")

    done = clean.end(job)

    assert done.code == 1 and "libguestfs failed on" in done.error, done.out
    wait("its end", lambda: left(clean) == "")
    assert clean.traces() == before


def test_the_appliance_is_a_user_of_its_own_in_a_sandbox_without_a_network(clean):
    before = clean.traces()
    job = begun(clean)
    script = (
        "pid=$(pgrep -f '[q]emu.*guestfs' | tail -n 1); stat -c %U /proc/$pid; "
        "sed -n 's/^\\(CapEff\\|NoNewPrivs\\|Seccomp\\):\\t//p' /proc/$pid/status; "
        "test $(readlink /proc/$pid/ns/net) = $(readlink /proc/1/ns/net) || echo elsewhere"
    )
    wanted = ["salt-virt", "0000000000000000", "1", "2", "elsewhere"]

    wait("its sandbox", lambda: clean.sh("hyper1", script).split() == wanted)

    clean.sh("hyper1", "kill -9 $(pgrep -f '[o]ffline/worker')")
    assert clean.end(job).code == 1
    wait("its end", lambda: left(clean) == "")
    assert clean.traces() == before


def test_an_appliance_that_takes_too_long_is_ended(clean):
    before = clean.traces()
    clean.sh("hyper1", "rm -f /srv/salt-images/base/*.look")
    conf = clean.folder("hyper1") / "etc/salt/minion.d/limit.conf"
    conf.write_text(json.dumps({"virt": {"seed": {"limit_s": 2}}}))
    try:
        done = clean.call("hyper1", "virt.init", "t1", "1", "96", DEBIAN, "seed_method=guestfs")
    finally:
        conf.unlink()

    assert done.code != 0 and "longer than 2 s" in " ".join((done.out + done.err).split()), done.out
    wait("its end", lambda: left(clean) == "")
    assert clean.traces() == before


@pytest.mark.nightly
def test_an_appliance_that_is_killed_leaves_nothing(clean):
    before = clean.traces()
    job = begun(clean)
    clean.sh("hyper1", "kill -9 $(pgrep -f '[q]emu.*guestfs')")

    done = clean.end(job)

    assert done.code == 1 and "libguestfs failed on" in done.error, done.out
    assert left(clean) == "" and clean.traces() == before


@pytest.mark.nightly
def test_a_minion_that_is_killed_takes_its_appliance_along(clean):
    before = clean.traces()
    job = begun(clean)
    clean.kill("hyper1", "salt-minion")

    wait("its end", lambda: left(clean) == "")

    clean.service("hyper1", "salt-minion", "start")
    clean.ready()
    assert clean.end(job).code == 1
    assert clean.call("hyper1", "virt.purge", "t1").code in (0, 1)  # what was begun is taken back
    # The next job would take the file of a lock that nobody holds any more.
    clean.sh("hyper1", "rm -f /var/lib/salt-virt/appliance-users/*.lock")
    wait("nothing is left", lambda: clean.traces() == before)


def test_a_disk_that_a_vm_runs_from_is_not_seeded(clean):
    clean.local("hyper1", "virt.init", "t1", "1", "96", TINY, "seed=False")
    try:
        done = clean.call("hyper1", "seed.apply", "/srv/salt-images/t1_system.qcow2", "id_=t1")
    finally:
        clean.local("hyper1", "virt.purge", "t1")

    assert done.code != 0 and "stop it first" in " ".join((done.out + done.err).split())


@pytest.mark.nightly
def test_a_block_device_is_seeded_unless_its_host_uses_it(clean):
    disk, image = "/srv/device.img", clean.lab.images / "debian-minion.qcow2"
    raw = clean.folder("hyper1") / disk.lstrip("/")
    subprocess.run(["qemu-img", "convert", "-O", "raw", image, raw], check=True)
    argv = ["losetup", "--find", "--show", "--partscan", raw]
    device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        number = device.removeprefix("/dev/loop")
        clean.sh("hyper1", f"mknod {device} b 7 {number}")

        done = clean.call("hyper1", "seed.apply", device, "id_=web9", "install=False")

        assert done.code == 0 and done.data["local"] is True, done.out + done.err
        assert clean.sh("hyper1", f"stat -c '%U %a' {device}").split()[0] == "root"
        conf = "/etc/salt/minion.d/zz-salt-virt.conf"
        clean.local("hyper1", "guestfs.mount", device, "ro", "root=/srv/look")
        said = clean.sh("hyper1", f"cat /srv/look{conf}")
        clean.local("hyper1", "guestfs.umount", "/srv/look")
        assert "id: web9" in said, said
        # As mkfs, mount, LVM and RAID claim a device of theirs.
        with open(device, "rb", opener=claiming):
            refused = clean.call("hyper1", "seed.apply", device, "id_=web9")
        assert refused.code != 0 and "is in use by this host" in refused.out + refused.err
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
        clean.sh("hyper1", f"rm -rf {disk} {device} /srv/look")


def claiming(path, flags):
    """Open a device as whoever uses it alone does."""
    return os.open(path, flags | os.O_EXCL)
