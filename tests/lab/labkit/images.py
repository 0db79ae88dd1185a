"""The images the lab's master serves, rebuilt only when their recipe changes."""

import hashlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

from labkit.deps import locked
from labkit.run import run
from labkit.say import say
from labkit.settings import CACHE, LabError

SCRIPTS = Path(__file__).resolve().parents[1] / "images"
RECIPES = {
    "tiny": ["tiny.sh", "disk.sh"],
    "debian-minion": ["debian-root.sh", "debian.sh", "disk.sh"],
    "debian-plain": ["debian-root.sh", "debian.sh", "disk.sh"],
}


def _recipe(lab, name):
    text = "".join((SCRIPTS / script).read_text() for script in RECIPES[name])
    if name == "tiny":
        text += str(sorted(Path("/boot").glob("vmlinuz-*-cloud-amd64")))
    if name == "debian-minion":
        text += (lab.venv / "saltvirt-requirements").read_text()
    return hashlib.sha256(text.encode()).hexdigest()


def _site_packages(lab):
    found = list((lab.venv / "lib").glob("python3*/site-packages"))
    if not found:
        raise LabError(f"no site-packages in {lab.venv}: remove that folder and run again")
    return found[0]


def _in_own_mounts(argv):
    environment = dict(os.environ, PATH="/usr/sbin:/usr/bin:/sbin:/bin", LANG="C.UTF-8")
    unshare = ["unshare", "--mount", "--propagation", "private", "--"]
    run([*unshare, *argv], env=environment, log=CACHE / "images.log")


def _debian_root():
    script = SCRIPTS / "debian-root.sh"
    digest = hashlib.sha256(script.read_bytes()).hexdigest()[:16]
    tar = CACHE / f"debian-root-{digest}.tar"
    with locked("debian-root"):
        if not tar.exists():
            say("bootstrapping Debian 12 (about a minute)")
            part = tar.with_suffix(".part.tar")
            _in_own_mounts([script, part])
            part.rename(tar)
    return tar


def _build(lab, name, out):
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=CACHE) as work:
        part = Path(work) / "disk.qcow2"
        if name == "tiny":
            argv = [SCRIPTS / "tiny.sh", work, part]
        else:
            argv = [SCRIPTS / "debian.sh", work, part, _debian_root()]
            argv += [_site_packages(lab)] if name == "debian-minion" else []
        _in_own_mounts(argv)
        shutil.move(part, out)


def ensure(lab, names):
    """Build those of the named images that are missing or whose recipe changed."""
    folder = lab.fileroot / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name not in RECIPES:
            raise LabError(f"unknown image {name!r}: use {', '.join(RECIPES)}")
        out, stamp = folder / f"{name}.qcow2", CACHE / f"{name}-{lab.salt}.json"
        recipe = _recipe(lab, name)
        with locked(f"images-{lab.salt}"):
            known = json.loads(stamp.read_text())["recipe"] if stamp.exists() else None
            if out.exists() and known == recipe:
                continue
            say(f"building the image {name}")
            started = time.monotonic()
            _build(lab, name, out)
            stamp.write_text(json.dumps({"recipe": recipe}))
            size_mib = out.stat().st_size >> 20
            say(f"built {name}: {size_mib} MiB in {time.monotonic() - started:.0f} s")
