"""The lab itself: idempotent, and gone without a trace, also after a crash half-way."""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from cloudkit import LAB
from labkit import node
from labkit.settings import Lab


@pytest.fixture
def other():
    """A second lab beside the session's, with a folder of its own and a short name."""
    folder = Path(tempfile.mkdtemp(prefix="sv-"))
    root = folder / "lab"
    environment = dict(os.environ, SALTVIRT_LAB_ROOT=str(root))

    def run(*words):
        argv = [LAB, *words]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    run.root, run.environment = root, environment
    run.lab = Lab(root=root, salt="3008")
    yield run
    assert run("down").returncode == 0
    folder.rmdir()


def traces(root):
    """Return what a lab could leave on the machine itself."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines()
              if str(root) in line]  # fmt: skip
    names = sorted(line.split(": ")[1] for line in links.splitlines())
    return {"links": names, "mounts": mounts, "folder": root.exists(),
            "processes": node.leftovers(Lab(root=root, salt="3008"))}  # fmt: skip


def test_up_twice_is_up_once_and_down_leaves_nothing(other):
    before = traces(other.root)

    assert other("up", "--hosts", "1", "--images", "").returncode == 0
    pids = node.alive(other.lab)
    assert other("up", "--hosts", "1", "--images", "").returncode == 0
    assert node.alive(other.lab) == pids
    status = other("status")
    assert status.returncode == 0 and "hyper1" in status.stdout
    env = json.loads(other("env").stdout)
    uri = env["hosts"]["hyper1"]["uri"]
    asked = subprocess.run(["virsh", "-q", "-c", uri, "uri"], capture_output=True, check=False)
    assert asked.returncode == 0
    assert other("exec", "hyper1", "hostname").stdout.strip() == "hyper1"
    assert "True" in other("salt", "hyper1", "test.ping").stdout
    assert "True" in other("salt-call", "hyper1", "test.ping").stdout

    assert other("down").returncode == 0
    assert traces(other.root) == before
    assert other("status").returncode == 1


@pytest.mark.parametrize("after_s", [0.3, 0.6, 1.5])
def test_a_lab_that_was_killed_half_way_up_can_be_taken_down(other, after_s):
    before = traces(other.root)
    argv = [LAB, "up", "--hosts", "2", "--images", ""]
    with subprocess.Popen(argv, env=other.environment, stderr=subprocess.DEVNULL) as going_up:
        time.sleep(after_s)
        going_up.kill()

    assert other("down").returncode == 0

    assert traces(other.root) == before


@pytest.mark.parametrize(
    ("words", "why"),
    [(["up", "--hosts", "0"], "between 1 and 32"), (["exec", "hyper9", "true"], "is not up"),
     (["--salt", "2019", "status"], "unknown Salt line")],
)  # fmt: skip
def test_a_mistake_is_one_line(other, words, why):
    done = other(*words)

    assert done.returncode == 1
    assert why in done.stderr and done.stderr.count("\n") == 1
