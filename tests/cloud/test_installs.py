"""A minion where there is none: by package, by script, from a repository; now or at first boot."""

import json
import subprocess

import pytest
from cloudkit import wait
from installkit import COMMANDS, CONTROL, OUTSIDE, PLAIN, PROGRAM, networked, onedir, served
from labkit.settings import MASTER_IP

pytestmark = [pytest.mark.nightly, pytest.mark.second]
GOLDEN = "/srv/salt-images/golden"


@pytest.fixture(scope="module")
def host(cloud, tmp_path_factory):
    """The lab, with a repository of packages and two images that know of it."""
    cloud.purge_all()
    onedir(cloud, tmp_path_factory.mktemp("onedir"))
    with served(cloud, tmp_path_factory.mktemp("repository")), networked(cloud):
        build(cloud, "plain", commands=COMMANDS)
        build(cloud, "cloudy", commands=[])
        yield cloud
    for name in ("salt.tar.gz", "50-any.network"):
        (cloud.fileroot / name).unlink()
    cloud.sh("hyper1", f"rm -rf {GOLDEN}")
    cloud.forget_images("hyper1")
    cloud.purge_all()


def build(cloud, name, commands):
    """Build an image without a minion whose package manager finds one."""
    files = {
        "/etc/systemd/network/50-any.network": "salt://50-any.network",
        "/etc/apt/sources.list": "salt://sources.list",
    }
    done = cloud.run(
        "virt.image_build",
        PLAIN,
        name,
        "hyper1",
        "install=False",
        f"files={json.dumps(files)}",
        f"commands={json.dumps(commands)}",
    )
    assert done.code == 0, done.out
    assert done.data["hyper1"]["has_minion"] is False
    assert done.data["hyper1"]["has_cloud_init"] is (commands == [])


@pytest.mark.parametrize("kind", ["deb", "sh"])
def test_a_package_or_a_script_installs_a_minion(host, tmp_path, kind):
    top = tmp_path / "package"
    (top / "DEBIAN").mkdir(parents=True)
    (top / "DEBIAN/control").write_text(CONTROL)
    (top / "usr/bin").mkdir(parents=True)
    (top / "usr/bin/salt-minion").write_text(PROGRAM.format("minion"))
    (top / "usr/bin/salt-minion").chmod(0o755)
    given = host.fileroot / f"minion.{kind}"
    if kind == "deb":
        subprocess.run(["dpkg-deb", "--build", top, given], check=True, capture_output=True)
    else:
        given.write_text("#!/bin/sh\necho '#!/bin/sh' > /usr/bin/salt-minion\n")
    try:
        done = host.run(
            "virt.image_build",
            PLAIN,
            f"packed-{kind}",
            "hyper1",
            f"install_from=salt://minion.{kind}",
        )
    finally:
        given.unlink()

    assert done.code == 0, done.out
    assert done.data["hyper1"]["has_minion"] is True


@pytest.mark.parametrize(
    ("image", "method", "words"),
    [
        ("plain", "guestfs", []),
        ("cloudy", "nocloud", ["user_data={apt: {preserve_sources_list: true}}"]),
    ],
)
def test_the_guests_own_package_manager_installs_a_minion_that_answers(host, image, method, words):
    done = host.run(
        "virt.init",
        "apt1",
        "2",
        "1024",
        f"{GOLDEN}/{image}.qcow2",
        "host=hyper1",
        f"seed_method={method}",
        *words,
    )

    assert done.code == 0, done.out + host.console("hyper1", "apt1")[-1500:]
    assert host.salt("apt1", "grains.item", "id").data["apt1"] == {"id": "apt1"}
    assert host.run("virt.purge", "apt1").code == 0


CONNECT = """
import os, pwd, socket, sys
if sys.argv[1] != "root":
    who = pwd.getpwnam(sys.argv[1])
    os.setgroups([]); os.setgid(who.pw_gid); os.setuid(who.pw_uid)
for place in sys.argv[2:]:
    host, port = place.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
        print("reached")
    except OSError as exc:
        print(type(exc).__name__)
"""


def test_the_appliances_user_reaches_repositories_and_no_host_of_the_cloud(host):
    build(host, "again", commands=["true", *COMMANDS])  # an appliance with a network
    (host.folder("hyper1") / "srv/connect.py").write_text(CONNECT)
    places = f"{OUTSIDE}:8099 {MASTER_IP}:4506 127.0.0.1:16514 {host.lab.host_ip('hyper2')}:16514"

    said = {
        user: host.sh("hyper1", f"python3 /srv/connect.py {user} {places}").split()
        for user in ("root", "salt-virt")
    }

    host.sh("hyper1", "rm /srv/connect.py")
    assert said["root"] == ["reached"] * 4, said
    assert said["salt-virt"][0] == "reached" and "reached" not in said["salt-virt"][1:], said


def test_a_guest_that_was_prepared_installs_its_minion_when_it_boots(host):
    image = f"{GOLDEN}/plain.qcow2"
    host.local("hyper1", "virt.init", "apt2", "2", "1024", image, "seed=False", "start=False")
    assert host.run("virt.authorize", "apt2", "hyper1").code == 0

    host.local(
        "hyper1",
        "seed.apply",
        "/srv/salt-images/apt2_system.qcow2",
        "id_=apt2",
        "prep_install=True",
    )
    host.local("hyper1", "virt.start", "apt2")

    wait("its minion", lambda: host.answers("apt2"), timeout_s=600)
    assert host.run("virt.purge", "apt2").code == 0
