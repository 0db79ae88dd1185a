"""The images the lab's master serves, built in the workshop when their recipe changed."""

import hashlib
import shutil
import tempfile
import time
from pathlib import Path

from labkit import layers, onedir, roots
from labkit.layers import locked
from labkit.say import say
from labkit.settings import CACHE, CHECKOUT, LabError

SCRIPTS = Path(__file__).resolve().parents[1] / "images"
RECIPES = {
    "tiny": ["tiny.sh", "counting.c", "disk.sh"],
    "debian-minion": ["debian-root.sh", "debian.sh", "disk.sh"],
    "debian-plain": ["debian-root.sh", "debian.sh", "disk.sh"],
}


def _recipe(lab, name):
    text = "".join((SCRIPTS / script).read_text() for script in RECIPES[name])
    text += roots.workshop()[0].name
    if name == "debian-minion":
        text += onedir.layer(lab.salt).name
    return hashlib.sha256(text.encode()).hexdigest()


def _in_workshop(argv, work):
    scratch = Path(work) / "scratch"
    layers.in_chroot(
        roots.workshop(),
        argv,
        scratch=scratch,
        log=CACHE / "images.log",
        WHOLE_DEV="1",
        BINDS=f"{CHECKOUT}\n{CACHE}",
    )
    shutil.rmtree(scratch)


def _debian_root(work):
    script = SCRIPTS / "debian-root.sh"
    digest = hashlib.sha256(script.read_bytes()).hexdigest()[:16]
    tar = CACHE / f"debian-root-{digest}.tar"
    with locked("debian-root"):
        if not tar.exists():
            say("building the guests' Debian 12")
            part = tar.with_suffix(".part.tar")
            _in_workshop([script, part, roots.mirror(), *roots.apt_options()], work)
            part.rename(tar)
    return tar


def _build(lab, name, out):
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=CACHE) as work:
        part = Path(work) / "disk.qcow2"
        if name == "tiny":
            argv = [SCRIPTS / "tiny.sh", work, part]
        else:
            argv = [SCRIPTS / "debian.sh", work, part, _debian_root(work)]
            argv += [onedir.packages(lab.salt)] if name == "debian-minion" else []
        _in_workshop(argv, work)
        shutil.move(part, out)


def known(names):
    """Raise LabError if one of these is not an image of the lab."""
    if strange := [name for name in names if name not in RECIPES]:
        raise LabError(f"unknown image {strange[0]!r}: use {', '.join(RECIPES)}")


def ensure(lab, names):
    """Build those of the named images that are missing or whose recipe changed."""
    folder = lab.images
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        out, stamp = folder / f"{name}.qcow2", CACHE / f"{name}-{lab.salt}.recipe"
        recipe = _recipe(lab, name)
        with locked(f"image-{name}-{lab.salt}"):
            if out.exists() and stamp.exists() and stamp.read_text() == recipe:
                continue
            say(f"building the image {name}")
            started = time.monotonic()
            _build(lab, name, out)
            stamp.write_text(recipe)
            size_mib = out.stat().st_size >> 20
            say(f"built {name}: {size_mib} MiB in {time.monotonic() - started:.0f} s")
