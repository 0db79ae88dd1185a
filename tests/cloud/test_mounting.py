"""A disk that is mounted for the operator is read by QEMU as a user of its own, until umount."""

import pytest
from cloudkit import wait

pytestmark = pytest.mark.second

HOST = "hyper1"
IMAGE = "/srv/salt-images/mounted.qcow2"
CLOSED = "/srv/closed/mounted.qcow2"
SANDBOX = (
    "pid=$(pgrep -f '[q]emu.*guestfs' | tail -n 1); stat -c %U /proc/$pid; "
    "sed -n 's/^\\(CapEff\\|NoNewPrivs\\|Seccomp\\):\\t//p' /proc/$pid/status; "
    "test $(readlink /proc/$pid/ns/net) = $(readlink /proc/1/ns/net) || echo elsewhere; "
    "cd /proc/$pid/root && ls run"
)


@pytest.fixture(params=[pytest.param(one, marks=pytest.mark.nightly) for one in (IMAGE, CLOSED)])
def disk(cloud, request):
    """A disk that only root reads, in a folder for all and in one that is root's alone."""
    path = request.param
    cloud.sh(HOST, "install -d -m 700 /srv/closed; mkdir -p /srv/salt-images/base /srv/guest")
    cloud.local(HOST, "cp.get_file", "salt://images/debian-minion.qcow2", path)
    cloud.sh(HOST, f"chmod 600 {path}")
    yield path
    cloud.call(HOST, "guestfs.umount", "/srv/guest")
    cloud.sh(HOST, f"rm -rf {path} /srv/closed; rmdir /srv/guest")


def left(cloud):
    """What of a mount is left on the host."""
    places = "appliances guests appliance-users"
    script = f"pgrep -f '[q]emu.*guestfs'; cd /var/lib/salt-virt; find {places} -mindepth 1"
    return cloud.sh(HOST, script).split()


def test_a_mounted_disk_is_read_by_an_unprivileged_user_who_has_it_until_umount(cloud, disk):
    mounted = cloud.call(HOST, "guestfs.mount", disk, "root=/srv/guest")

    assert mounted.code == 0, mounted.out + mounted.err
    user, *sandbox = cloud.sh(HOST, SANDBOX).split()
    assert user in ("salt-virt2", "salt-virt3", "salt-virt4")
    assert sandbox == ["0000000000000000", "1", "2", "elsewhere"]
    assert cloud.sh(HOST, f"stat -c %U {disk}").strip() == user
    options = cloud.sh(HOST, "findmnt -no OPTIONS /srv/guest").strip().split(",")
    assert {"nodev", "nosuid"} < set(options)
    cloud.sh(HOST, "echo written > /srv/guest/etc/by-the-host")
    again = cloud.call(HOST, "guestfs.mount", disk, "root=/srv/guest2")
    assert again.code != 0 and "is open in another program" in again.err

    cloud.call(HOST, "guestfs.umount", "/srv/guest")

    assert cloud.sh(HOST, f"stat -c %U:%a {disk}").strip() == "root:600"
    assert cloud.call(HOST, "guestfs.mount", disk, "ro", "root=/srv/guest").code == 0
    assert cloud.sh(HOST, "cat /srv/guest/etc/by-the-host").strip() == "written"
    cloud.call(HOST, "guestfs.umount", "/srv/guest")
    assert left(cloud) == []


@pytest.mark.nightly
def test_a_mount_whose_process_was_killed_is_settled_by_umount(cloud, disk):
    assert cloud.call(HOST, "guestfs.mount", disk, "root=/srv/guest").code == 0
    cloud.sh(HOST, "kill -9 $(pgrep -x guestmount) $(pgrep -f '[q]emu.*guestfs')")
    wait("its end", lambda: not cloud.sh(HOST, "pgrep -x guestmount || true").strip())

    assert cloud.call(HOST, "guestfs.umount", "/srv/guest").code == 0

    assert cloud.sh(HOST, f"stat -c %U:%a {disk}").strip() == "root:600"
    assert left(cloud) == [] and cloud.sh(HOST, "ls /srv/guest").split() == []


@pytest.mark.nightly
def test_an_appliance_that_has_died_and_one_that_hangs_are_unmounted(cloud, disk):
    assert cloud.call(HOST, "guestfs.mount", disk, "ro", "root=/srv/guest").code == 0
    limit = cloud.sh(HOST, "grep 'Max file size' /proc/$(pgrep -f '[q]emu.*guestfs')/limits")
    assert limit.split()[3:5] == [str(1 << 30)] * 2
    cloud.sh(HOST, "kill -9 $(pgrep -f '[q]emu.*guestfs')")
    assert cloud.call(HOST, "guestfs.umount", "/srv/guest").code == 0
    assert left(cloud) == []

    assert cloud.call(HOST, "guestfs.mount", disk, "root=/srv/guest").code == 0
    # As where a damaged file system has the appliance's kernel go round in circles.
    cloud.sh(HOST, "kill -STOP $(pgrep -f '[q]emu.*guestfs'); ls /srv/guest >/dev/null 2>&1 &")
    refused = cloud.call(HOST, "guestfs.umount", "/srv/guest")
    assert refused.code != 0 and "force=True" in refused.err
    assert cloud.call(HOST, "guestfs.umount", "/srv/guest", "force=True").code == 0

    assert cloud.sh(HOST, f"stat -c %U:%a {disk}").strip() == "root:600"
    assert left(cloud) == [] and cloud.sh(HOST, "pgrep -x ls || true") == ""


@pytest.mark.nightly
def test_who_owns_the_folder_of_a_mounted_disk_is_given_nothing_else(cloud, disk):
    theirs = "/srv/theirs/disk.qcow2"
    cloud.sh(HOST, f"install -d -o 4711 /srv/theirs; mv {disk} {theirs}; chown 4711 {theirs}")
    cloud.sh(HOST, "touch /srv/secret")
    assert cloud.call(HOST, "guestfs.mount", theirs, "root=/srv/guest").code == 0
    swap = f"mv {theirs} {theirs}.was && ln -s /srv/secret {theirs}"
    cloud.sh(HOST, f"setpriv --reuid 4711 --clear-groups sh -c '{swap}'")

    done = cloud.call(HOST, "guestfs.umount", "/srv/guest")

    assert done.code == 0 and "is not the file any more that was lent" in done.out + done.err
    assert cloud.sh(HOST, "stat -c %U /srv/secret").strip() == "root"
    assert left(cloud) == []
    cloud.sh(HOST, "rm -rf /srv/theirs /srv/secret")


# Debian 13, whose libguestfs writes what is in a folder to files, and names them by a counter.
NEWER = "hyper3"
PLANT = """
mount=$(pgrep -x guestmount | head -n 1)
qemu=$(pgrep -u salt-virt2,salt-virt3,salt-virt4 -f '[q]emu-system' | tail -n 1)
export AT=$(tr '\\0' '\\n' </proc/$mount/environ | sed -n 's/^TMPDIR=//p')
nsenter -t $qemu -m -- setpriv --reuid $(stat -c %u /proc/$qemu) --clear-groups sh -c '
cd $AT/libguestfs* && for number in $(seq 500); do ln -s /srv/secret readdir$number; done; id -un'
"""


@pytest.mark.nightly
def test_who_has_taken_over_a_mounts_qemu_has_root_write_nothing(cloud):
    cloud.local(NEWER, "cp.get_file", "salt://images/debian-minion.qcow2", "/srv/newer.qcow2")
    cloud.sh(NEWER, "echo secret > /srv/secret")
    try:
        assert cloud.call(NEWER, "guestfs.mount", "/srv/newer.qcow2", "root=/srv/guest").code == 0
        assert cloud.sh(NEWER, PLANT).split()[-1].startswith("salt-virt")

        assert "passwd" in cloud.sh(NEWER, "ls /srv/guest/etc").split()

        assert cloud.sh(NEWER, "cat /srv/secret") == "secret\n"
    finally:
        cloud.call(NEWER, "guestfs.umount", "/srv/guest")
        cloud.sh(NEWER, "rm -f /srv/secret /srv/newer.qcow2; rmdir /srv/guest")


def test_what_cannot_be_mounted_leaves_nothing(cloud):
    cloud.sh(HOST, f"mkdir -p /srv/salt-images; truncate -s 8M {IMAGE}; mkfs.ext4 -q {IMAGE}")

    done = cloud.call(HOST, "guestfs.mount", IMAGE)

    assert done.code != 0 and "cannot be mounted" in done.out + done.err
    assert cloud.sh(HOST, f"stat -c %U {IMAGE}").strip() == "root"
    assert left(cloud) == []
    cloud.sh(HOST, f"rm {IMAGE}")
