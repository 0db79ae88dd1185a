"""Environments in which the bundle is installed, and a Salt of its own in each."""

import json
import subprocess
from pathlib import Path

from labkit.settings import CHECKOUT, SALTS

SALT_LINES = sorted(SALTS)


def run(argv, **options):
    """Run a command and return the process."""
    return subprocess.run(
        [str(word) for word in argv], capture_output=True, text=True, check=False, **options
    )


def site_packages(venv):
    """Return the folder of an environment's packages."""
    return next((Path(venv) / "lib").glob("python3*/site-packages"))


class Place:
    """A Salt of its own: an environment, and a configuration folder for it."""

    def __init__(self, folder, venv):
        self.folder, self.venv = folder, venv
        self.etc = folder / "etc"
        self.etc.mkdir(parents=True)
        (folder / "cache" / "proc").mkdir(parents=True)
        common = {
            "root_dir": str(folder),
            "pki_dir": str(folder / "pki"),
            "cachedir": str(folder / "cache"),
            "sock_dir": str(folder / "run"),
            "log_file": str(folder / "log"),
            "file_roots": {"base": [str(CHECKOUT), str(folder / "srv")]},
            "enable_fqdns_grains": False,
            "enable_gpu_grains": False,
        }
        minion = {**common, "id": "m1", "file_client": "local", "master": "10.0.0.1"}
        (self.etc / "minion").write_text(json.dumps(minion))
        (self.etc / "master").write_text(json.dumps({**common, "id": "master"}))

    def call(self, *words):
        """Run salt-call --local."""
        argv = [self.venv / "bin/salt-call", "-c", self.etc, "--local", "--out=json", *words]
        return run(argv, cwd=self.folder)

    def answer(self, *words):
        """Return the answer of salt-call --local; it must succeed."""
        done = self.call(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)["local"]

    def runner(self, *words):
        """Run salt-run."""
        return run([self.venv / "bin/salt-run", "-c", self.etc, *words], cwd=self.folder)


def move_script(source, target, venv):
    """Copy a console script so that it runs in another environment."""
    lines = source.read_text().split("\n", 1)
    target.write_text(f"#!{venv}/bin/python3\n{lines[1]}")
    target.chmod(0o755)


def overlay(target, under):
    """Make an environment that sees another one's packages below its own."""
    done = run(["/usr/bin/python3", "-m", "venv", target])
    assert done.returncode == 0, done.stderr
    if under:
        (site_packages(target) / "under.pth").write_text(f"{site_packages(under)}\n")
        for script in ("salt-call", "salt-run"):
            move_script(under / "bin" / script, target / "bin" / script, target)
