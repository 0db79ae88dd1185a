"""What the unit tests share: libvirt's own schemas, which all XML that we make is checked by."""

import copy
import os
import subprocess
from pathlib import Path

import keypairs
import pytest
import salt.config
import saltonce
from saltvirt.ca import store
from saltvirt.core.crypto import keypair
from saltvirt.core.options.config import HostSettings
from saltvirt.seeding.offline import lending

SCHEMAS = Path("/usr/share/libvirt/schemas")

saltonce.folders_are_listed()
saltonce.options_are_there()
saltonce.code_is_read()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests that validate XML: they need libvirt's schemas."""
    for item in items:
        if "validate" in getattr(item, "fixturenames", ()):
            item.add_marker("libvirt")


@pytest.fixture(scope="session")
def validate(tmp_path_factory):
    """Return a function that validates many XML texts of a schema as virt-xml-validate does."""

    def check(texts, schema="domain"):
        folder = tmp_path_factory.mktemp("xml")
        paths = []
        for number, text in enumerate(texts):
            path = folder / f"{number}.xml"
            path.write_text(text)
            paths.append(path)
        # virt-xml-validate is this command for one file; it reads the schema each time.
        argv = ["xmllint", "--noout", "--relaxng", SCHEMAS / f"{schema}.rng", *paths]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        wrong = [line for line in done.stderr.splitlines() if not line.endswith(" validates")]
        assert done.returncode == 0, "\n".join(wrong[:20])

    return check


@pytest.fixture(autouse=True)
def row_of_keys(monkeypatch):
    """Have each test take key pairs that were made before; each of them is another one."""
    keypairs.begin()
    monkeypatch.setattr(keypair, "generate", keypairs.another)


@pytest.fixture(autouse=True)
def other_tests_of_the_same_user_go_on(monkeypatch):
    """Mocked: tests run at once as one user, whose processes a host ends between two jobs."""
    monkeypatch.setattr(lending, "end_all", lambda _who: None)


@pytest.fixture(scope="session")
def usual_opts():
    """Options of a master that nobody configured; nobody changes them."""
    # A dictionary of Salt 3008's own kind takes each call longer than what the call does.
    return dict(salt.config.master_config(None))


@pytest.fixture
def opts(tmp_path, usual_opts):
    """Options of a master whose folders are the test's."""
    opts = copy.deepcopy(usual_opts)
    opts.update(
        pki_dir=str(tmp_path / "pki"),
        cachedir=str(tmp_path / "cache"),
        sock_dir=str(tmp_path / "run"),
        root_dir=str(tmp_path),
    )
    for folder in ("minions", "minions_pre", "minions_rejected", "minions_denied"):
        (tmp_path / "pki" / folder).mkdir(parents=True)
    (tmp_path / "cache").mkdir()
    return opts


@pytest.fixture
def host(tmp_path):
    """Settings of a host whose folders are the test's."""
    return HostSettings(images=str(tmp_path / "images"), state_dir=str(tmp_path / "state"))


@pytest.fixture
def small_disk(tmp_path):
    """A folder whose file system has 40 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", folder]
    subprocess.run(argv, check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def synced(monkeypatch):
    """Return a list of what is brought to the disk, and what each folder held at that moment."""
    out = []

    def recorded(handle, fsync=os.fsync):
        path = Path(f"/proc/self/fd/{handle}").readlink()
        out.append((path.name, sorted(os.listdir(path)) if path.is_dir() else path.read_bytes()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", recorded)
    return out


@pytest.fixture
def place(tmp_path):
    """An empty CA."""
    return store.Store(tmp_path / "libvirt")
