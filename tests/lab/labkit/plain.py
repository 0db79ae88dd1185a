"""Plain labs: nothing in them is the project's, so that docs/quickstart.md is followed in them.

The master and the hosts are as Debian and Salt's packages leave them, and the hosts' keys are
accepted. What a user downloads lies on media that are plugged into the master.
"""

import hashlib
import subprocess

from labkit import layers, node, onedir, saltd
from labkit.settings import CHECKOUT, LabError

# The mark of a plain lab in its folder.
NAME = "plain"
# On the master: a checkout of the project, images, and what Salt's site has for the VMs' minions.
PROJECT, IMAGES, SALT = "/media/salt-virt", "/media/images", "/media/salt"


def mark(lab):
    """Note that a lab is plain."""
    (lab.root / NAME).touch()


def is_plain(lab):
    """Return whether a lab is plain."""
    return (lab.root / NAME).exists()


def check_kind(lab, is_wanted_plain):
    """Raise LabError if a lab is up, and of the other kind."""
    if node.alive(lab) and is_plain(lab) != is_wanted_plain:
        kinds = {True: "plain", False: "not plain"}
        raise LabError(f"the lab that is up is {kinds[is_plain(lab)]}: lab down")


def refuse(lab, verb):
    """Raise LabError for a verb that would put the project into a plain lab."""
    if is_plain(lab):
        raise LabError(f"lab {verb}: this lab is plain: do what docs/quickstart.md says")


def create_master(lab, stack):
    """Make the master, which has not booted yet."""
    lab.images.mkdir(parents=True, exist_ok=True)
    media = [
        (str(CHECKOUT), PROJECT, "ro"),
        (str(lab.images), IMAGES, "ro"),
        (str(salt_media(lab.salt)), SALT, "ro"),
    ]
    saltd.create_plain_master(lab, stack, {**saltd.plugs(lab), "shares": media})


def salt_media(line):
    """Make sure of a folder with what Salt's site has of a line of Salt; return the folder."""
    below = [onedir.layer(line)]
    installed = below[0] / "opt/saltstack/salt"
    version = next(installed.rglob("salt-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    archive = f"salt-{version}-onedir-linux-x86_64.tar.xz"

    def build(part):
        # The lab's images have less room than those of distributions; Python makes these anew.
        argv = ["tar", "-C", installed.parent, "--exclude=__pycache__", "-c", "-I", "xz -1 -T2"]
        subprocess.run([*argv, "-f", part / archive, installed.name], check=True)
        digest = hashlib.sha256((part / archive).read_bytes()).hexdigest()
        (part / f"{archive}.sha256").write_text(f"{digest}  {archive}\n")

    recipe = ["a tarball of /opt/saltstack/salt without __pycache__", archive]
    return layers.ensure(f"media-{line}", recipe, build, below, f"Salt {line} for VMs")[0]
