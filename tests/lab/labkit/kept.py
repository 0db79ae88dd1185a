"""Nodes as the formula left them, kept as a layer each, so that the next lab is quick."""

import hashlib
import os
import shutil
import time
from pathlib import Path

from labkit import layers
from labkit.run import run
from labkit.saltd import SERVED
from labkit.settings import CHECKOUT

# Whatever the outcome of the formula and of these modules depends on.
_LAB = ("hypervisors.py", "saltd.py", "segment.py", "kept.py", "up.py")
_ROOMS = ("ca", "certificates", "libvirt", "network", "storage")
_CODE = ("hypervisor", "_states", "_pillar", *(f"_utils/saltvirt/{room}" for room in _ROOMS))
# What a machine writes while it runs, and nobody reads again.
_JUNK = ("var/log/journal", "var/cache/apt", "var/lib/apt/lists", "tmp", "run", "root/.cache")


def _files(folder):
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )


def digest_of(folders):
    """Return the digest of all files of these folders."""
    found = hashlib.sha256()
    for folder in folders:
        for path in _files(folder):
            found.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return found.hexdigest()


def served():
    """Return the digest of what the master serves of the checkout."""
    return digest_of(CHECKOUT / name for name in SERVED)


class Kept:
    """The kept layers of one set of nodes: all or none."""

    def __init__(self, lab, stacks):
        here = Path(__file__).parent
        recipe = [
            lab.salt,
            *(f"{name}: {layers.lower(stack)}" for name, stack in stacks.items()),
            *((here / name).read_text() for name in _LAB),
            digest_of(CHECKOUT / name for name in _CODE),
            time.strftime("%Y-%m"),
        ]  # certificates in them grow old
        self.lab, self.names = lab, list(stacks)
        self.folder = layers.path(f"kept-{lab.salt}", recipe)

    def is_there(self):
        """Return whether all of them are kept."""
        return (self.folder / "served").exists()

    def touch(self):
        """Note that they are in use, so that they are not forgotten."""
        os.utime(self.folder)

    def layer(self, name):
        """Return a node's layer."""
        return self.folder / name

    def served(self):
        """Return the digest of what the master served when they were kept."""
        return (self.folder / "served").read_text()

    def keep(self, digest):
        """Keep what these nodes, which are off, have on their disks."""
        with layers.locked(self.folder.name):
            part = self.folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            part.chmod(0o700)
            for name in self.names:
                _copy(self.lab.node_dir(name), part / name)
            (part / "served").write_text(digest)
            shutil.rmtree(self.folder, ignore_errors=True)
            part.rename(self.folder)
        layers.forget_old(f"kept-{self.lab.salt}")


def _copy(folder, target):
    disk = folder / "disk"
    junk = " ".join(f"{target}/{name}" for name in _JUNK)
    script = (
        f"mount -o loop {folder}/disk.img {disk}; cp -a {disk}/upper {target}; " f"rm -rf {junk}"
    )
    run(["unshare", "--mount", "--propagation", "private", "sh", "-euc", script])
