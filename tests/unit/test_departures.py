"""What a VM that is leaving noted is not lost before it was used."""

import json

import libvirt
import pytest
from saltvirt.config import HostSettings
from saltvirt.errors import NameTaken
from saltvirt.ops import departures


@pytest.fixture
def host(tmp_path):
    """A host's settings and connection, and the folder of its departures."""
    conn = libvirt.open("test:///default")
    yield HostSettings(state_dir=str(tmp_path)), conn, tmp_path / "departures"
    conn.close()


def test_a_note_lives_as_long_as_its_job(host):
    settings, conn, folder = host
    with departures.departing(conn, settings, "web1") as note:
        note("1-2-3", "qemu+tls://hyper2/system", {"/srv/b", "/srv/a"})
        assert json.loads((folder / "web1.json").read_text())["paths"] == ["/srv/a", "/srv/b"]
        with pytest.raises(NameTaken, match="another job at this moment"):
            departures.departing(conn, settings, "web1").__enter__()

    assert list(folder.iterdir()) == []


def test_what_a_killed_job_noted_outlives_a_second_try(host, tmp_path):
    settings, conn, folder = host
    folder.mkdir()
    disk = tmp_path / "disk"
    disk.touch()
    # Nobody listens there: whether the VM has arrived cannot be known.
    uri = "qemu+tls://127.0.0.1:1/system"
    left = {"name": "web1", "uuid": "1", "uri": uri, "paths": [str(disk)]}
    (folder / "web1.json").write_text(json.dumps(left))

    with pytest.raises(NameTaken, match="whose job was killed, is not settled"):
        departures.departing(conn, settings, "web1").__enter__()

    assert json.loads((folder / "web1.json").read_text()) == left
    assert disk.exists()
