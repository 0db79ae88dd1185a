"""What the unit tests share: libvirt's own schema as the judge of every domain XML."""

import subprocess
from pathlib import Path

import pytest

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
