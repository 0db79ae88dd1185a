"""When things go wrong: one line that names the cause, exit code 1, and nothing left behind."""

import subprocess
import time

import faultkit as kit
import pytest
from cloudkit import TINY, wait
from faultkit import FAULTS

pytestmark = pytest.mark.second

DEBIAN = "salt://images/debian-minion.qcow2"


def refused(done, *words):
    """Check that a command failed with one line that has these words."""
    assert done.code != 0, done.out
    error = done.error if "{" in done.out else done.out + done.err
    assert done.traceback == []
    assert "\n" not in error.strip()
    for word in words:
        assert word in error, error


def module_error(done):
    """Return the line of a failed salt-call."""
    return "\n".join(line for line in (done.err + done.out).splitlines() if "unclosed" not in line)


BAD_CALLS = {
    "name with a path": (["../x", "1", "64", TINY], "name: '../x'"),
    "empty name": (["", "1", "64", TINY], "name: ''"),
    "name with a space": (["a b", "1", "64", TINY], "name: 'a b'"),
    "long name": (["x" * 300, "1", "64", TINY], "300 characters"),
    "no CPUs": (["t1", "0", "64", TINY], "cpu: 0 is out of range"),
    "negative CPUs": (["t1", "cpu=-1", "mem=64", f"image={TINY}"], "cpu: -1 is out of range"),
    "CPUs that are not a number": (["t1", "two", "64", TINY], "cpu: 'two' is not a whole number"),
    "no memory": (["t1", "1", "0", TINY], "mem: 0 is out of range"),
    "negative memory": (["t1", "1", "mem=-5", f"image={TINY}"], "mem: -5 is out of range"),
    "memory that is not a number": (["t1", "1", "lots", TINY], "mem: 'lots' is not a size"),
    "unknown keyword": (["t1", "1", "64", TINY, "imgae=x"], "no argument 'imgae'"),
    "image missing": (["t1", "1", "64", "salt://none.img"], "not on the Salt file server"),
    "image path missing": (["t1", "1", "64", "/none.img"], "/none.img"),
    "image that is not a source": (["t1", "1", "64", "none"], "image: 'none' is not an image"),
    "disk too small": (["t1", "1", "64", TINY, "disks=[{name: system, size: 1}]"], "never shrunk"),
    "bridge missing": (
        ["t1", "1", "64", TINY, "interfaces=[{name: eth1, bridge: br7}]"],
        "no bridge br7 there",
    ),
    "no host big enough": (["t1", "1", "9999999", TINY], "no host fits 't1'"),
    "no such host": (["t1", "1", "64", TINY, "host=hyper9"], "host: 'hyper9' is not a hypervisor"),
    "where matches none": (["t1", "1", "64", TINY, "where=nothing*"], "matches none"),
    "no such profile": (["t1", "1", "64", TINY, "nic=dmz"], "no nic profile 'dmz'"),
    "KVM where there is none": (["t1", "1", "64", TINY, "hypervisor=kvm"], "no kvm guests there"),
    "no arguments": ([], "missing a required argument"),
    "seed command missing": (["t1", "1", "64", TINY, "seed_cmd=no.such"], "no function 'no.such'"),
}


@pytest.mark.parametrize(("words", "why"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_call_that_cannot_work_is_refused(clean, words, why):
    refused(clean.run("virt.init", *words), why)


MODULE_CALLS = {
    "name with a path": (["../x", "1", "64"], "cannot name a VM"),
    "no CPUs": (["t1", "0", "64"], "cpu: 0 is out of range"),
    "unknown keyword": (["t1", "1", "64", "enable_qcw=True"], "did you mean 'enable_qcow'"),
    "too much memory": (["t1", "1", "9999999", TINY], "this host cannot take 't1'"),
    "bad connection": (
        ["t1", "1", "64", "connection=qemu:///system?socket=/run/libvirt/virtproxyd-sock"],
        "libvirt does not answer",
    ),
    "another host's connection": (
        ["t1", "1", "64", "connection=qemu+tls://hyper2/system"],
        "virt:connections of this host does not list the whole URI",
    ),
    "device missing": (["t1", "1", "64", "host_devices=[pci_0_0]"], "is not a device of this host"),
    "kernel missing": (["t1", "1", "64", "boot={kernel: /none}"], "there is no file /none"),
    "pool missing": (["t1", "1", "64", "disks=[{name: d, size: 1, pool: none}]"], "no pool 'none'"),
    "keys that do not match": (["t1", "1", "64", TINY, "pub_key=a", "priv_key=b"], "not a PEM key"),
}


@pytest.mark.parametrize(("words", "why"), MODULE_CALLS.values(), ids=MODULE_CALLS)
def test_the_module_refuses_in_one_line_too(clean, words, why):
    done = clean.call("hyper1", "virt.init", *words)

    assert done.code != 0
    assert why in module_error(done)
    assert done.traceback == []


def make_images(folder):
    """Make images that no host may use."""

    def qemu_img(*words):
        subprocess.run(["qemu-img", *words], check=True, capture_output=True, cwd=folder)

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.img").write_text("this is not an image\n" * 100)
    qemu_img("create", "-f", "qcow2", "-u", "-b", "/etc/shadow", "-F", "raw", "backing.qcow2", "1M")
    qemu_img("create", "-f", "qcow2", "-o", f"data_file={folder}/d.raw", "data.qcow2", "1M")
    qemu_img("create", "-f", "qcow2", "-o", "preallocation=full", "cut.qcow2", "1M")
    with (folder / "cut.qcow2").open("r+b") as handle:
        handle.truncate(400_000)


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("text.img", "is not a disk image"),
        ("backing.qcow2", "never followed"),
        ("data.qcow2", "never followed"),
        ("cut.qcow2", "truncated"),
    ],
)
def test_an_image_that_cannot_be_trusted_is_never_used(clean, image, why):
    make_images(clean.folder("master") / "srv/salt/bad")

    refused(clean.run("virt.init", "t1", "1", "64", f"salt://bad/{image}"), why, f"bad/{image}")

    for host in clean.hosts:
        base = clean.folder(host) / "srv/salt-images/base"
        assert not list(base.glob(".*part")) if base.exists() else True


def test_a_name_is_taken_once_in_the_whole_cloud(clean):
    assert clean.run("virt.init", "t1", "1", "64", TINY, "host=hyper3", "seed=False").code == 0

    refused(clean.run("virt.init", "t1", "1", "64", TINY, "seed=False"), "is on hyper3 already")
    done = clean.call("hyper3", "virt.init", "t1", "1", "64", TINY, "seed=False")
    assert "exists on this host (running)" in module_error(done)
    assert clean.run("virt.purge", "t1").code == 0
    refused(clean.run("virt.purge", "t1"), "no VM called 't1' on any of 3 hypervisors")


def test_a_full_disk_leaves_no_half_disk(clean):
    clean.sh("hyper1", "mkdir -p /srv/full && mount -t tmpfs -o size=4m tmpfs /srv/full")
    try:
        disks = "disks=[{name: system, pool: /srv/full}]"
        words = ["virt.init", "t1", "1", "64", TINY, "host=hyper1", "enable_qcow=False", disks]
        refused(clean.run(*words), "hyper1", "no room for image", "/srv/full")
        assert clean.sh("hyper1", "ls -A /srv/full") == ""
    finally:
        clean.sh("hyper1", "umount /srv/full; rmdir /srv/full")


def test_a_full_image_folder_leaves_no_half_image(clean):
    clean.forget_images("hyper1")
    clean.sh("hyper1", "mount -t tmpfs -o size=4m tmpfs /srv/salt-images")
    try:
        refused(clean.run("virt.init", "t1", "1", "64", TINY, "host=hyper1"), "hyper1")
        assert clean.sh("hyper1", "find /srv/salt-images -name '*.part'") == ""
    finally:
        clean.sh("hyper1", "umount /srv/salt-images")


def test_a_host_whose_libvirtd_is_down_is_left_out_and_said(clean):
    clean.service("hyper2", "libvirtd", "stop")
    try:
        refused(
            clean.run("virt.init", "t1", "1", "64", TINY, "host=hyper2"),
            "hyper2: ",
            "libvirt does not answer",
        )
        done = clean.call("hyper2", "virt.list_domains")
        assert "is libvirtd running on this host?" in module_error(done)
        assert clean.local("hyper2", "virt.is_hyper") is False
        info = clean.run("virt.host_info")
        assert "libvirt does not answer" in info.data["failed"]["hyper2"]
        made = clean.run("virt.init", "t1", "1", "64", TINY, "seed=False")
        assert made.data["host"] in ("hyper1", "hyper3")
        assert clean.run("virt.purge", "t1").code == 0
    finally:
        clean.service("hyper2", "libvirtd", "start")


def test_a_host_that_is_down_is_listed_and_not_waited_for_longer_than_agreed(clean):
    clean.kill("hyper3", "salt-minion")
    try:
        info = clean.run("virt.host_info")
        assert (info.code, info.data["unreachable"]) == (0, ["hyper3"])
        refused(clean.run("virt.vm_info", "t1"), "not asked: hyper3")
    finally:
        clean.service("hyper3", "salt-minion", "start")
        clean.ready()


@pytest.mark.nightly
def test_a_host_that_is_down_and_is_asked_alone_is_an_error(clean):
    clean.kill("hyper3", "salt-minion")
    try:
        alone = clean.run("virt.host_info", "hyper3")
        assert (alone.code, alone.data["unreachable"]) == (1, ["hyper3"])
        assert alone.error == "no hypervisor answers: hyper3: does not answer"
        refused(clean.run("virt.init", "t1", "1", "64", TINY, "host=hyper3"), "does not answer")
    finally:
        clean.service("hyper3", "salt-minion", "start")
        clean.ready()


def begin_slow(clean):
    """Begin a deployment on hyper1 that has to fetch, and wait until it does."""
    clean.forget_images("hyper1")
    running = clean.begin("virt.init", "t1", "1", "256", DEBIAN, "host=hyper1", "wait=False")
    base = clean.folder("hyper1") / "srv/salt-images/base"
    wait("a fetch", lambda: [p for p in base.glob(".*.part") if p.stat().st_size > 2**20])
    return running


@pytest.mark.nightly
def test_a_minion_killed_in_the_middle_does_not_block_the_name(clean):
    running = begin_slow(clean)
    clean.kill("hyper1", "salt-minion")
    done = clean.end(running)
    clean.service("hyper1", "salt-minion", "start")
    clean.ready()

    refused(done, "hyper1 does not answer", "while it built 't1'", "virt.purge t1")
    # The VM may be made there all the same: its key goes when the host says that it is not.
    assert clean.accepted() == ["t1"]
    again = clean.run("virt.init", "t1", "1", "256", TINY, "host=hyper1", "start=False")
    assert again.code == 0, again.out
    assert clean.run("virt.purge", "t1").code == 0


@pytest.mark.nightly
def test_a_minion_that_is_silent_for_a_while_is_waited_for(clean):
    running = begin_slow(clean)
    assert clean.signal("hyper1", "salt-minion", "STOP")
    time.sleep(31)  # the first question whether it is still at it comes after 20 s, for 10 s
    assert clean.signal("hyper1", "salt-minion", "CONT")

    assert clean.end(running).code == 0
    assert clean.run("virt.purge", "t1").code == 0


@pytest.mark.nightly
def test_a_purge_cleans_up_after_a_killed_minion_as_well(clean):
    running = begin_slow(clean)
    record = clean.folder("hyper1") / "var/lib/salt-virt/records/build/t1.json"
    wait("a record", record.exists)
    clean.kill("hyper1", "salt-minion")
    clean.end(running)
    clean.service("hyper1", "salt-minion", "start")
    clean.ready()

    assert record.exists()
    assert clean.local("hyper1", "virt.host_info")["unfinished"] == ["t1"]
    assert clean.run("virt.purge", "t1").data["hyper1"] == {"t1": "purged"}


@pytest.mark.nightly
def test_a_master_killed_in_the_middle_ends_the_command_and_leaves_an_order(clean):
    running = begin_slow(clean)
    clean.kill("master", "salt-master")
    done = clean.end(running)
    clean.service("master", "salt-master", "start")
    clean.ready()

    refused(done, "master", "virt.purge t1")
    assert clean.accepted() == ["t1"]
    builds = clean.folder("hyper1") / "var/lib/salt-virt/records/build"
    wait("the end of the host's job", lambda: not list(builds.glob("*")), timeout_s=240)
    if "t1" in clean.local("hyper1", "virt.list_domains"):
        assert clean.run("virt.purge", "t1").code == 0
    again = clean.run("virt.init", "t1", "1", "64", TINY, "host=hyper1", "wait=False")
    assert again.code == 0, again.out
    assert clean.run("virt.purge", "t1").code == 0


def test_an_interrupted_command_takes_everything_back(clean):
    running = begin_slow(clean)
    clean.interrupt("virt.init t1")
    done = clean.end(running)

    refused(done, "interrupted; unfinished steps were undone")
    builds = clean.folder("hyper1") / "var/lib/salt-virt/records/build"
    wait("the end of the host's job", lambda: not list(builds.glob("*")), timeout_s=120)
    assert clean.accepted() == []
    assert "t1" not in clean.local("hyper1", "virt.list_domains")


def test_a_runner_that_is_killed_does_not_cost_its_vm_the_key(clean):
    running = clean.begin("virt.init", "t1", "1", "96", TINY, "host=hyper1")
    wait("a VM", lambda: "t1" in clean.sh("hyper1", "virsh -q list --name").split())
    clean.interrupt("virt.init t1", "KILL")
    clean.end(running)

    refused(clean.run("virt.init", "t1", "1", "96", TINY), "is on hyper1 already (running)")

    assert clean.accepted() == ["t1"]
    assert clean.run("virt.purge", "t1").data["hyper1"] == {"t1": "purged"}


@pytest.fixture(scope="module")
def told(cloud):
    """The lab, where hyper1's minion stops at a phase boundary that a test names."""
    with kit.told(cloud, ["hyper1"]):
        yield


def stop_at(clean, point, action, *words):
    """Have hyper1's job stop at a phase boundary, killed or waiting; return when it has."""
    kit.tell(clean, "hyper1", point, action)
    assert clean.command("salt", "--async", "hyper1", *words).code == 0
    wait(point, lambda: clean.sh("hyper1", f"ls {FAULTS}.reached 2>/dev/null || true"))
    if action == "kill":
        # It is renamed a moment before the end.
        time.sleep(0.5)


def disks(clean):
    """Return the disks and seeds on hyper1."""
    found = clean.sh("hyper1", "cd /srv/salt-images && ls -p | grep -v / || true")
    return found.split()


INIT = ("virt.init", "t1", "1", "64", TINY, "seed=False")
MADE = ["t1_system.qcow2"]
nightly = pytest.mark.nightly


@pytest.mark.parametrize(
    ("point", "state"),
    [
        pytest.param("build.before-making", None, marks=nightly),
        pytest.param("build.making", None, marks=nightly),
        pytest.param("build.before-defining", None, marks=nightly),
        pytest.param("build.defining", None, marks=nightly),
        pytest.param("build.before-complete", "shutdown", marks=nightly),
        ("build.complete", "shutdown"),
        pytest.param("build.end", "running", marks=nightly),
    ],
)
def test_what_a_builder_leaves_that_is_killed_is_settled_by_the_next(clean, told, point, state):
    stop_at(clean, point, "kill", *INIT)

    again = clean.run(*INIT, "host=hyper1", "wait=False")

    if state is None:
        assert again.code == 0, again.out
    else:
        refused(again, f"is on hyper1 already ({state})")
        assert clean.local("hyper1", "virt.init", "t2", "1", "64", "seed=False", "start=False")
        assert clean.run("virt.purge", "t2").code == 0
        assert clean.local("hyper1", "virt.vm_state", "t1") == {"t1": state}
    assert disks(clean) == MADE
    assert clean.local("hyper1", "virt.start", "t1") is True
    assert clean.run("virt.purge", "t1").code == 0


@nightly
@pytest.mark.parametrize(
    ("point", "is_there"),
    [("build.defining", False), ("build.complete", True), ("build.end", True)],
)
def test_a_builder_whose_host_loses_its_power_loses_no_vm(clean, told, point, is_there):
    stop_at(clean, point, "wait", *INIT)
    clean.crash("hyper1")

    names = clean.local("hyper1", "virt.list_domains")
    assert clean.local("hyper1", "virt.init", "t2", "1", "64", "seed=False", "start=False")
    assert clean.run("virt.purge", "t2").code == 0

    assert names == (["t1"] if is_there else [])
    assert disks(clean) == (MADE if is_there else [])
    if is_there:
        assert clean.local("hyper1", "virt.start", "t1") is True
        assert clean.run("virt.purge", "t1").code == 0


@nightly
@pytest.mark.parametrize("how", ["kill", "power"])
@pytest.mark.parametrize("point", ["purge.before-removing", "purge.removing", "purge.end"])
def test_a_purge_that_was_interrupted_can_be_finished(clean, told, point, how):
    assert clean.run(*INIT, "host=hyper1", "wait=False").code == 0
    stop_at(clean, point, "kill" if how == "kill" else "wait", "virt.purge", "t1")
    if how == "power":
        clean.crash("hyper1")

    again = clean.run("virt.purge", "t1")

    if point == "purge.end":
        refused(again, "no VM called 't1'")
        # Its lock is left, which the next command that builds removes.
        assert clean.local("hyper1", "virt.init", "t2", "1", "64", "seed=False", "start=False")
        assert clean.run("virt.purge", "t2").code == 0
    else:
        assert again.data["hyper1"] == {"t1": "purged"}
    assert disks(clean) == []
