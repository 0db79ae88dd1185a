"""What the unit tests share: libvirt's own schema as the judge of every domain XML."""

import subprocess
from pathlib import Path

import pytest
import salt.config
from saltvirt.config import HostSettings

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")


@pytest.fixture(scope="session")
def validate(tmp_path_factory):
    """Return a function that validates many domain XML texts as virt-xml-validate does."""

    def check(texts):
        folder = tmp_path_factory.mktemp("xml")
        paths = []
        for number, text in enumerate(texts):
            path = folder / f"{number}.xml"
            path.write_text(text)
            paths.append(path)
        # virt-xml-validate is this command for one file; it reads the schema each time.
        argv = ["xmllint", "--noout", "--relaxng", SCHEMA, *paths]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]

    return check


@pytest.fixture
def opts(tmp_path):
    """Options of a master whose folders are the test's."""
    opts = salt.config.master_config(None)
    opts.update(
        pki_dir=str(tmp_path / "pki"), cachedir=str(tmp_path / "cache"),
        sock_dir=str(tmp_path / "run"), root_dir=str(tmp_path),
    )  # fmt: skip
    for folder in ("minions", "minions_pre", "minions_rejected", "minions_denied"):
        (tmp_path / "pki" / folder).mkdir(parents=True)
    (tmp_path / "cache").mkdir()
    return opts


@pytest.fixture
def host(tmp_path):
    """Settings of a host whose folders are the test's."""
    return HostSettings(images=str(tmp_path / "images"), state_dir=str(tmp_path / "state"))
