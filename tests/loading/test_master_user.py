"""A master that runs as a user of its own, as Salt's packages have it; root types the commands."""

import json
import os
import pwd
import shlex
import shutil
import subprocess
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import pytest
from labkit.settings import CHECKOUT
from loadkit import SALT_LINES, run
from saltvirt.ca import store

# Debian has no user of the name salt before Salt's packages make it; this one is everywhere.
USER = pwd.getpwnam("nobody")


class Master:
    """The configuration of a master that runs as another user; root's salt-run becomes it."""

    def __init__(self, folder, venv):
        self.folder, self.venv = folder, venv
        self.pki = folder / "pki" / "libvirt"
        for name in ("etc", "private", "pki", "cache", "cache/proc", "run"):
            (folder / name).mkdir(mode=0o700)
            if name not in ("etc", "private"):
                os.chown(folder / name, USER.pw_uid, USER.pw_gid)
        (folder / "etc").chmod(0o755)
        bundle = shutil.ignore_patterns(".*", "tests", "__pycache__")
        shutil.copytree(CHECKOUT, folder / "files", ignore=bundle)
        config = {
            "user": USER.pw_name,
            "root_dir": str(folder),
            "pki_dir": str(folder / "pki"),
            "cachedir": str(folder / "cache"),
            "sock_dir": str(folder / "run"),
            "extension_modules": str(folder / "cache" / "extmods"),
            "log_file": str(folder / "cache" / "log"),
            "file_roots": {"base": [str(folder / "files")]},
        }
        (folder / "etc" / "master").write_text(json.dumps(config))
        assert self.runner("saltutil.sync_all")[0] == 0

    def runner(self, *words):
        """Run salt-run as root; return its exit code and its answer."""
        argv = [self.venv / "bin/salt-run", "-c", self.folder / "etc", "--out=json", *words]
        done = run(argv, cwd=self.folder)
        assert "Traceback" not in done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)

    def strangers(self):
        """Return what is not the master's user's alone below its folders."""
        found = [
            path
            for name in ("pki", "cache")
            for path in (self.folder / name).rglob("*")
            if "extmods" not in path.parts and "files" not in path.parts
        ]
        return [str(path) for path in found if path.lstat().st_uid != USER.pw_uid]


@pytest.fixture(params=SALT_LINES)
def master(request, base):
    """A master of each line of Salt."""
    # Not below pytest's own folder, which nobody else may enter.
    folder = Path(tempfile.mkdtemp(prefix="salt-virt-"))
    folder.chmod(0o755)
    try:
        yield Master(folder, base(request.param))
    finally:
        shutil.rmtree(folder)


def mended(error):
    """Type the command that an error names."""
    command = error.partition("; run: ")[2]
    assert command.startswith("chown -h")
    subprocess.run(shlex.split(command), check=True)


def test_a_ca_of_root_is_adopted_exported_and_imported_by_roots_salt_run(master):
    store.Store(master.pki).authority(datetime.now(timezone.utc))
    secret = master.folder / "private" / "passphrase"
    secret.write_text("a passphrase that is long")
    kept = master.folder / "kept"
    kept.mkdir(mode=0o700)
    os.chown(kept, USER.pw_uid, USER.pw_gid)

    # A folder of root's, as an older release has left it.
    code, answer = master.runner("virt_pki.list")
    assert code == 1
    why = answer["error"]
    assert why.startswith(f"{master.pki} belongs to root (0700), and user nobody, as which the")
    mended(why)
    assert master.runner("virt_pki.list") == (0, [])

    # What root alone can read, nobody's salt-run cannot either.
    code, answer = master.runner("virt_pki.export", kept / "backup", secret)
    assert code == 1
    assert f"cannot enter it on the way to {secret}; choose a place" in json.dumps(answer)
    shutil.copy(secret, kept)
    os.chown(kept / "passphrase", USER.pw_uid, -1)
    words = kept / "backup", kept / "passphrase"
    assert master.runner("virt_pki.export", *words) == (0, str(kept / "backup"))
    assert ((kept / "backup").stat().st_uid, (kept / "backup").stat().st_mode & 0o777) == (
        USER.pw_uid,
        0o600,
    )

    key = (master.pki / "cakey.pem").read_bytes()
    shutil.rmtree(master.pki)
    assert master.runner("virt_pki.import", *words) == (0, str(master.pki))
    assert (master.pki / "cakey.pem").read_bytes() == key
    assert master.strangers() == []
