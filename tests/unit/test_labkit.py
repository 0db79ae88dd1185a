"""What of the lab is decided without a lab."""

import pytest
from labkit import roots

ONE_LINE = """\
# deb http://old.example/debian bookworm main
deb [arch=amd64 signed-by=/x] https://download.example/linux/debian bookworm stable
deb http://mirror.example/debian/ bookworm main contrib
"""
STANZAS = """\
Types: deb
# http://archive.example/debian
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: mirror+file:/etc/apt/mirrors/debian.list
Suites: bookworm
Components: main
"""


@pytest.mark.parametrize(
    ("name", "text", "address"),
    [
        ("sources.list", ONE_LINE, "http://mirror.example/debian"),
        ("sources.list.d/debian.sources", STANZAS, "http://mirror.example/debian"),
        (
            "sources.list.d/docker.list",
            ONE_LINE.rpartition("deb ")[0],
            "http://deb.debian.org/debian",
        ),
    ],
)
def test_the_machines_own_mirror_is_one_of_debian_itself(tmp_path, name, text, address):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / name).write_text(text)

    assert roots.mirror(tmp_path) == address
