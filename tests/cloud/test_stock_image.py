"""A stock cloud image, with cloud-init and no minion: a refusal, or a minion that answers."""

import hashlib
import re
import shutil
import subprocess

import pytest
from cloudkit import wait
from installkit import OUTSIDE, PLAIN, onedir
from labkit import node

pytestmark = [pytest.mark.nightly, pytest.mark.second]
COMMAND = "virt_image.minion_packages"
IMAGE = f"http://{OUTSIDE}:8098/debian-12-genericcloud-amd64.qcow2"
SOURCE = "/srv/minion"
# What "openssl passwd -6 -salt saltsalt" makes of a word.
HASH = (
    "$6$saltsalt$YTeBOLnmm3CoeJTzBuijUEtOEWCqrw/nQ8/AeMmON4LGp3k0"
    "ZiMjC1OdqzWFUAfDQBvYkOch9BWtQTBcZ1E/p0"
)
DATA = (
    "{write_files: [{path: /etc/told, content: by cloud-init}], "
    # The lab's image has few modules, for the time that each takes; a stock one has this too.
    "cloud_config_modules: [growpart, resizefs, users-groups, set-passwords, runcmd], "
    f"password: '{HASH}', chpasswd: {{expire: False}}}}"
)
# The lab's hosts do not look into images unless they are asked to.
WORDS = ["virt.init", "stock1", "2", "1024", IMAGE, "host=hyper1", "seed_method=auto"]


@pytest.fixture(scope="module")
def stock(cloud, tmp_path_factory):
    """The lab, with a web server outside it that has the image."""
    cloud.purge_all()
    folder = cloud.folder("switch") / "srv/images"
    folder.mkdir(exist_ok=True)
    image = cloud.lab.images / PLAIN.rpartition("/")[2]
    shutil.copy(image, folder / IMAGE.rpartition("/")[2])
    cloud.sh("switch", f"ip address replace {OUTSIDE}/32 dev lo")
    argv = ["python3", "-m", "http.server", "--bind", OUTSIDE, "-d", "/srv/images", "8098"]
    server = subprocess.Popen(
        node.enter(cloud.pids["switch"], argv), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    # The master runs as user salt.
    cloud.sh("master", "install -d -o salt /srv/salt/salt-virt")
    offered(cloud, tmp_path_factory.mktemp("onedir"))
    yield cloud
    server.terminate()
    server.wait()
    cloud.run(COMMAND, "remove=True")
    cloud.sh("master", f"rm -rf {SOURCE} /srv/salt/salt-virt")
    cloud.sh("switch", f"ip address del {OUTSIDE}/32 dev lo; rm -r /srv/images")
    cloud.forget_images("hyper1")
    cloud.purge_all()


def offered(cloud, work):
    """Have a folder on the master with what Salt's site would have for the lab's own Salt."""
    version = re.search(r"\d+\.\d+", cloud.command("salt-run", "--version").out)[0]
    onedir(cloud, work)
    packed = cloud.fileroot / "salt.tar.gz"
    target = cloud.folder("master") / SOURCE.strip("/")
    target.mkdir()
    name = f"salt-{version}-onedir-linux-x86_64.tar.xz"
    unpack = subprocess.Popen(["gzip", "-dc", packed], stdout=subprocess.PIPE)
    with open(target / name, "wb") as out, unpack as unpacked:
        subprocess.run(["xz", "-1"], stdin=unpacked.stdout, stdout=out, check=True)
        assert unpacked.wait() == 0
    digest = hashlib.sha256((target / name).read_bytes()).hexdigest()
    (target / f"{name}.sha256").write_text(f"{digest}  {name}\n")
    for left in ("salt.tar.gz", "50-any.network"):
        (cloud.fileroot / left).unlink()


def password(cloud):
    """Return what the VM's own user has for a password."""
    said = cloud.salt("stock1", "cmd.run", "grep ^debian: /etc/shadow").data
    return said.get("stock1", "").partition(":")[2].partition(":")[0]


def test_a_stock_image_is_refused_then_becomes_a_minion_that_answers(stock):
    before = stock.traces()

    refused = stock.run(*WORDS)

    assert refused.code == 1, refused.out
    assert f"`salt-run {COMMAND}`" in refused.error and "debian 12 has none" in refused.error
    assert stock.traces() == before  # no VM, no key, no file

    fetched = stock.run(COMMAND, f"source={SOURCE}", "arch=x86_64")
    assert fetched.code == 0, fetched.out + fetched.err
    again = stock.run(COMMAND, f"source={SOURCE}", "arch=x86_64")
    assert again.data["fetched"] == [] and again.data["kept"] == fetched.data["fetched"]

    done = stock.run(*WORDS, f"user_data={DATA}")
    assert done.code == 0, done.out + stock.console("hyper1", "stock1")[-1500:]
    said = stock.salt("stock1", "cmd.run", "readlink /usr/bin/salt-minion /usr/bin/salt-call")
    assert said.data["stock1"].split() == [
        "/opt/saltstack/salt/salt-minion",
        "/opt/saltstack/salt/salt-call",
    ]
    # Cloud-init keeps its own work, and the minion comes again after a reboot.
    assert stock.salt("stock1", "cmd.run", "cat /etc/told").data["stock1"] == "by cloud-init"
    # As the page on logging in says: whoever is at the console has a password. The minion answers
    # before cloud-init has come to its end.
    wait("the password", lambda: password(stock) == HASH, timeout_s=600)
    enabled = stock.salt("stock1", "cmd.run", "systemctl is-enabled salt-minion")
    assert enabled.data["stock1"] == "enabled"
    assert stock.salt("stock1", "cmd.retcode", "salt-call --version").data["stock1"] == 0
    assert stock.run("virt.purge", "stock1").code == 0


def test_a_golden_image_takes_what_was_fetched(stock):
    assert stock.run(COMMAND, f"source={SOURCE}", "arch=x86_64").code == 0
    try:
        done = stock.run("virt.image_build", PLAIN, "stocked", "hyper1")
    finally:
        stock.sh("hyper1", "rm -rf /srv/salt-images/golden")

    assert done.code == 0, done.out
    assert done.data["hyper1"]["has_minion"] is True
