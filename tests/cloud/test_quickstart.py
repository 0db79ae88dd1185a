"""The quick start on a plain lab: a newcomer types its commands, word by word, in its order."""

import os
import re
import shlex
import shutil
import subprocess

import pagekit
import pageoutputs
import pytest
from cloudkit import LAB, wait
from labkit import node, plain, saltd
from labkit.settings import CHECKOUT, LABS, Lab

pytestmark = pytest.mark.nightly
PAGE = "quickstart.md"
# What is different on a plain lab: it has no internet, and its hosts' card is called eth0.
INSTEAD = {
    "git clone THIS-REPOSITORY": f"cp -r {plain.PROJECT}",
    "ports: [eno1]": "ports: [eth0]",
    "https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-genericcloud-amd64.qcow2": (
        "salt://debian-plain.qcow2"
    ),
    "virt_image.minion_packages": f"virt_image.minion_packages source={plain.SALT} arch=x86_64",
}
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGN2b2lkdm9pZHZvaWR2b2lkdm9pZHZvaWR2b2lkdm9p me"
TABLE = "| What | How | Undo |"


@pytest.fixture(scope="module")
def newcomer():
    """Whoever follows the page on a plain lab, which is taken down unless it was up before."""
    root = LABS / "plain"
    lab = Lab(root=root, salt="3008")
    environment = dict(os.environ, SALTVIRT_LAB_ROOT=str(root))
    was_up = bool(node.alive(lab))
    words = ["up", "--plain", "--hosts", "2", "--images", "debian-plain,debian-minion"]
    up = subprocess.run([LAB, *words], env=environment, capture_output=True, text=True, check=False)
    assert up.returncode == 0, up.stderr
    reader = pagekit.Reader(lab, PAGE, INSTEAD)
    yield reader
    for line, seconds in reader.seconds.items():
        print(f"{seconds:6.1f} s  {line}")
    if not was_up:
        subprocess.run([LAB, "down"], env=environment, check=True)


def steps(first, last):
    """Return the blocks between two headings of the page, of the first and before the last."""
    text = (CHECKOUT / "docs" / PAGE).read_text()
    part = text[text.index(f"\n## {first}") : text.index(f"\n## {last}")]
    return pageoutputs.blocks_of(part)


def as_shown(printed):
    """Return an output as of a first VM on hyper1, and of an image with an SSH server."""
    if re.search(r"(?m)would go to hyper2$|is on hyper2;|^web1 +hyper2 ", printed):
        # Two equal hosts: which of them gets the VM is a matter of a thousandth.
        printed = re.sub(r"hyper([12])", lambda named: f"hyper{3 - int(named[1])}", printed)
    return re.sub(r"(?ms)^warning: ssh_authorized_keys .*?\]\)$\n?", "", printed)


def follow(newcomer, blocks, is_regenerated):
    """Type what these blocks have, and compare what they show as output."""
    for block in blocks:
        if block.mark == "output":
            printed = as_shown(newcomer.printed[block.words])
            pageoutputs.compare(PAGE, block.words, printed, is_regenerated)
        else:
            newcomer.follow(block)


def test_bare_hosts_become_hypervisors(newcomer, request):
    is_regenerated = request.config.getoption("--regenerate")

    follow(newcomer, steps("1.", "2."), is_regenerated)
    # "If a later command says that one did not return, repeat it."
    saltd.wait_until_ready(newcomer.lab, ["hyper1", "hyper2"])
    follow(newcomer, steps("2.", "4."), is_regenerated)

    applied = next(text for line, text in newcomer.printed.items() if "state.apply" in line)
    assert re.findall(r"^Failed: +(\d+)$", applied, re.MULTILINE) == ["0", "0"]
    follow(newcomer, steps("4.", "5."), is_regenerated)
    checked = newcomer.printed["salt-run virt.setup_check"]
    assert "minion-packages (for images without a minion)" in checked
    assert "nothing that VMs need is missing" in checked


def test_the_first_vm_answers(newcomer, request):
    files = newcomer.folder()
    key = files / "root/.ssh/id_ed25519.pub"
    key.parent.mkdir(mode=0o700, exist_ok=True)
    key.write_text(f"{PUBLIC_KEY}\n")
    # As virt.setup_check has said.
    newcomer.type(
        f"install -D -m 644 {plain.IMAGES}/debian-plain.qcow2 /srv/salt/debian-plain.qcow2"
    )
    image = newcomer.lab.images / "debian-minion.qcow2"
    folder = node.root(newcomer.lab, "hyper1") / "var/lib/libvirt/images"
    shutil.copy(image, folder / "centos.qcow2")

    follow(newcomer, steps("5.", "7."), request.config.getoption("--regenerate"))

    assert newcomer.printed["salt web1 test.ping"].split() == ["web1:", "True"]
    newcomer.type("salt-run virt.purge centos1")


def test_every_day_is_as_the_table_says(newcomer, request):
    text = (CHECKOUT / "docs" / PAGE).read_text()
    rows = text[text.index(TABLE) :].partition("\n\n")[0].splitlines()[2:]
    lines = [line for row in rows for line in re.findall(r"`(salt[^`]*)`", row)]
    # A guest that has just been started does not hear it yet, so this comes first.
    shutdown = "salt-run virt.shutdown web1"
    lines.remove(shutdown)

    newcomer.type(shutdown)
    host = newcomer.host_of("web1")
    wait("the guest's end", lambda: newcomer.state_of(host, "web1") == "shut off", timeout_s=300)
    newcomer.type("salt-run virt.start web1")
    for line in lines:
        newcomer.type(line)

    follow(newcomer, steps("7.", "How long"), request.config.getoption("--regenerate"))
    functions = {shlex.split(line)[1] for line in lines}
    assert functions >= {"virt.list", "virt.migrate", "virt.evacuate", "virt.purge"}
