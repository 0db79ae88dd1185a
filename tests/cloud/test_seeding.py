"""An image without cloud-init becomes a minion; its disk is read in an appliance alone."""

import hashlib
import json
import subprocess

import pytest
from cloudkit import TINY, wait
from labkit import node

pytestmark = pytest.mark.second
# What the lab's Debian has of cloud-init, in the guest's own words; a network of its own instead.
COMMANDS = [
    "rm -rf /usr/bin/cloud-init /etc/systemd/system/*/cloud-* /lib/systemd/system/cloud-*",
    "rm -f /lib/systemd/system-generators/cloud-init-generator",
    "echo 0123456789abcdef0123456789abcdef > /etc/machine-id",
    "mkdir -p /etc/ssh && echo 'of the image' > /etc/ssh/ssh_host_rsa_key",
]
NETWORK = "[Match]\nName=e*\n[Network]\nDHCP=yes\n"
PROGRAM = """#!/usr/bin/python3
import sys
sys.path.insert(0, "/opt/saltstack/salt/lib")
from salt.scripts import salt_{0}
salt_{0}()
"""
CONTROL = """Package: salt-minion
Version: 3008
Architecture: all
Maintainer: none
Description: a minion
"""
UNIT = """[Service]
Type=notify
NotifyAccess=all
ExecStart=/opt/saltstack/salt/salt-minion
[Install]
WantedBy=multi-user.target
"""
PLAIN = "salt://images/debian-plain.qcow2"
BARE = "/srv/salt-images/golden/bare.qcow2"


def onedir(cloud, work):
    """Put a tarball on the file server that is laid out as Salt's, with the lab's own Salt."""
    packages = next((cloud.lab.venv / "lib").glob("python3*/site-packages"))
    top = work / "salt"
    top.mkdir()
    (top / "lib").symlink_to(packages)
    for name in ("minion", "call"):
        (top / f"salt-{name}").write_text(PROGRAM.format(name))
        (top / f"salt-{name}").chmod(0o755)
    left_out = [f"--exclude={name}*" for name in ("pip", "libvirt", "setuptools", "__pycache__")]
    argv = ["tar", "-C", work, "-chf", work / "salt.tar", *left_out, "salt"]
    subprocess.run(argv, check=True)
    subprocess.run(["gzip", "-1", work / "salt.tar"], check=True)
    (work / "salt.tar.gz").rename(cloud.lab.fileroot / "salt.tar.gz")
    (cloud.lab.fileroot / "50-any.network").write_text(NETWORK)


@pytest.fixture(scope="module")
def built(cloud, tmp_path_factory):
    """What virt.image_build says of an image without cloud-init, its minion from a tarball."""
    cloud.purge_all()
    onedir(cloud, tmp_path_factory.mktemp("onedir"))
    files = {"/etc/systemd/network/50-any.network": "salt://50-any.network"}
    done = cloud.run(
        "virt.image_build", PLAIN, "bare", "hyper1",
        "install_from=salt://salt.tar.gz", f"files={json.dumps(files)}",
        f"commands={json.dumps(COMMANDS)}",
    )  # fmt: skip
    yield done
    for name in ("salt.tar.gz", "50-any.network"):
        (cloud.lab.fileroot / name).unlink()
    cloud.sh("hyper1", "rm -rf /srv/salt-images/golden")
    cloud.forget_images("hyper1")
    cloud.purge_all()


@pytest.fixture(scope="module")
def bare(cloud, built):
    """The lab, with an image on hyper1 that has a minion and no cloud-init."""
    assert built.code == 0, built.out + built.err
    return cloud


def test_a_golden_image_says_what_it_has_and_is_in_the_cache(bare, built):
    said = built.data["hyper1"]

    assert (said["path"], said["os"]) == (BARE, "debian 12")
    assert (said["has_minion"], said["has_cloud_init"]) == (True, False)
    assert bare.sh("hyper1", f"stat -c %h {BARE}").strip() == "2"
    cached = bare.run("virt.images", "hyper1").data["hyper1"][said["digest"]]
    assert (cached["source"], cached["has_minion"], cached["users"]) == (BARE, True, [])
    assert left(bare) == ""


@pytest.mark.parametrize(("words", "why"), [
    pytest.param(["commands=echo a reason; exit 3", "install=False"], "exit 3' failed: a reason",
                 marks=pytest.mark.nightly),
    (["files={etc/x: salt://50-any.network}"], "no absolute path in the guest"),
    (["nonsense=1"], "nonsense"),
])  # fmt: skip
def test_an_image_that_cannot_be_built_leaves_nothing(bare, words, why):
    before = bare.sh("hyper1", "ls -A /srv/salt-images/golden")

    done = bare.run("virt.image_build", PLAIN, "half", "hyper1", *words)

    assert done.code == 1 and why in done.error, done.out
    assert bare.sh("hyper1", "ls -A /srv/salt-images/golden") == before
    assert left(bare) == ""


def begun(cloud):
    """Begin a deployment by guestfs; return its salt-run once the appliance runs."""
    job = cloud.begin("virt.init", "t1", "1", "96", BARE, "host=hyper1", "seed_method=guestfs")
    wait("the appliance", lambda: cloud.sh("hyper1", "pgrep -f '[q]emu.*guestfs' || true"))
    return job


def left(cloud):
    """Return what an appliance could leave on hyper1."""
    return cloud.sh("hyper1", "pgrep -fa '[g]uestfs|[s]eed/worker'; "
                    "ls -d /var/lib/salt-virt/appliances/* 2>/dev/null || true")  # fmt: skip


def test_an_image_without_cloud_init_becomes_a_minion(bare):
    done = bare.command("salt-run", "virt.init", "bare1", "2", "1024", BARE, "host=hyper1",
                        "seed_method=auto")  # fmt: skip

    assert done.code == 0, done.out + done.err
    # The builder of the image knows what is in it.
    assert "bare1: Looking" not in done.out
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
    job = begun(bare)
    bare.sh("hyper1", "kill -9 $(pgrep -f '[s]eed/worker')")

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


@pytest.mark.nightly
def test_an_appliance_that_is_killed_leaves_nothing(bare):
    before = bare.traces()
    job = begun(bare)
    bare.sh("hyper1", "kill -9 $(pgrep -f '[q]emu.*guestfs')")

    done = bare.end(job)

    assert done.code == 1 and "libguestfs failed on" in done.error, done.out
    assert left(bare) == "" and bare.traces() == before


@pytest.mark.nightly
def test_a_minion_that_is_killed_takes_its_appliance_along(bare):
    before = bare.traces()
    job = begun(bare)
    bare.kill("hyper1", "salt-minion")

    wait("its end", lambda: left(bare) == "")

    bare.service("hyper1", "salt-minion", "start")
    bare.ready()
    assert bare.end(job).code == 1
    assert bare.call("hyper1", "virt.purge", "t1").code in (0, 1)  # what was begun is taken back
    wait("nothing is left", lambda: bare.traces() == before)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["deb", "sh"])
def test_a_package_or_a_script_installs_a_minion_without_a_network(bare, tmp_path, kind):
    top = tmp_path / "package"
    (top / "DEBIAN").mkdir(parents=True)
    (top / "DEBIAN/control").write_text(CONTROL)
    (top / "usr/bin").mkdir(parents=True)
    (top / "usr/bin/salt-minion").write_text(PROGRAM.format("minion"))
    (top / "usr/bin/salt-minion").chmod(0o755)
    served = bare.lab.fileroot / f"minion.{kind}"
    if kind == "deb":
        subprocess.run(["dpkg-deb", "--build", top, served], check=True, capture_output=True)
    else:
        served.write_text("#!/bin/sh\necho '#!/bin/sh' > /usr/bin/salt-minion\n")
    try:
        done = bare.run("virt.image_build", PLAIN, f"packed-{kind}", "hyper1",
                        f"install_from=salt://minion.{kind}")  # fmt: skip
    finally:
        served.unlink()

    assert done.code == 0, done.out
    assert done.data["hyper1"]["has_minion"] is True


def repository(cloud, work):
    """Make a repository of packages with the lab's own Salt in it."""
    tree = work / "package"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(CONTROL)
    (tree / "opt/saltstack").mkdir(parents=True)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "lib/systemd/system").mkdir(parents=True)
    argv = ["tar", "-xzf", cloud.lab.fileroot / "salt.tar.gz", "-C", tree / "opt/saltstack"]
    subprocess.run(argv, check=True)
    for name in ("minion", "call"):
        (tree / f"usr/bin/salt-{name}").symlink_to(f"/opt/saltstack/salt/salt-{name}")
    (tree / "lib/systemd/system/salt-minion.service").write_text(UNIT)
    package = work / "salt-minion.deb"
    subprocess.run(["dpkg-deb", "-Zgzip", "-z1", "--build", tree, package], check=True,
                   capture_output=True)  # fmt: skip
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    (work / "Packages").write_text(f"{CONTROL}Filename: ./{package.name}\n"
                                   f"Size: {package.stat().st_size}\nSHA256: {digest}\n")


@pytest.mark.nightly
def test_the_guests_own_package_manager_installs_a_minion_that_answers(bare, tmp_path):
    repository(bare, tmp_path)
    served = subprocess.Popen(
        node.enter(bare.pids["hyper1"], ["python3", "-m", "http.server", "-b", "127.0.0.1",
                                         "-d", tmp_path, "8099"]),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    # libguestfs' appliance reaches the host it runs on by this address.
    source = "deb [trusted=yes] http://169.254.2.2:8099 ./\n"
    (bare.lab.fileroot / "sources.list").write_text(source)
    files = {"/etc/systemd/network/50-any.network": "salt://50-any.network",
             "/etc/apt/sources.list": "salt://sources.list"}  # fmt: skip
    try:
        done = bare.run("virt.image_build", PLAIN, "apt", "hyper1",
                        "install=False", f"files={json.dumps(files)}",
                        f"commands={json.dumps(COMMANDS)}")  # fmt: skip
        assert done.code == 0 and done.data["hyper1"]["has_minion"] is False, done.out
        done = bare.run("virt.init", "apt1", "2", "1024", "/srv/salt-images/golden/apt.qcow2",
                        "host=hyper1", "seed_method=auto")  # fmt: skip
    finally:
        served.terminate()
        served.wait()
        (bare.lab.fileroot / "sources.list").unlink()

    assert done.code == 0, done.out + bare.console("hyper1", "apt1")[-1500:]
    assert bare.salt("apt1", "grains.item", "id").data["apt1"] == {"id": "apt1"}
    assert bare.run("virt.purge", "apt1").code == 0


def test_a_disk_that_a_vm_runs_from_is_not_seeded(bare):
    bare.local("hyper1", "virt.init", "t1", "1", "96", TINY, "seed=False")
    try:
        done = bare.call("hyper1", "seed.apply", "/srv/salt-images/t1_system.qcow2", "id_=t1")
    finally:
        bare.local("hyper1", "virt.purge", "t1")

    assert done.code != 0 and "stop it first" in " ".join((done.out + done.err).split())
