"""What a VM is given is in its own seed and nowhere else: planted words are looked for."""

import json
import subprocess

import pytest
from labkit import node
from test_races import restart

IMAGE = "salt://images/debian-minion.qcow2"
MARKERS = ("XmarkerUserDataX", "XmarkerConfigX")
GIVEN = [
    "user_data=" + json.dumps({"write_files": [{"path": "/etc/told", "content": MARKERS[0]}]}),
    "config=" + json.dumps({"grains": {"told": MARKERS[1]}}),
]
DEBUG = "etc/salt/minion.d/markers.conf"
# Of all that a file has, that anybody may read, or that is of logs, caches or temporary files.
SEARCH = (
    "grep -rlaE 'Xmarker[A-Za-z]+X' /var/log /var/cache/salt /tmp /run/faults /etc 2>/dev/null; "
    "find /var /srv /root /home -xdev -type f -perm /044 -size -64M "
    "-exec grep -laE 'Xmarker[A-Za-z]+X' {} + 2>/dev/null; true"
)
PROCESSES = "while :; do ps -A -ww -o args; sleep 0.1; done"


HOOK = '#!/bin/sh\n[ "$1 $2" != "mark1 prepare" ]\n'


@pytest.fixture
def refuses(cloud, request):
    """Whether libvirt of hyper1 does not start the VM, when all else is made."""
    folder = cloud.folder("hyper1") / "etc/libvirt/hooks"
    if request.param:
        folder.mkdir(exist_ok=True)
        (folder / "qemu").write_text(HOOK)
        (folder / "qemu").chmod(0o755)
        restart(cloud)
    yield request.param
    if request.param:
        (folder / "qemu").unlink()
        restart(cloud)


@pytest.fixture
def watched(cloud, tmp_path):
    """Hyper1 that logs all it can; its processes and the master's events are noted meanwhile."""
    cloud.purge_all()
    (cloud.folder("hyper1") / DEBUG).write_text("log_level_logfile: debug\n")
    cloud.service("hyper1", "salt-minion", "restart")
    cloud.ready(["hyper1"])
    seen = []
    for name, argv in (
        ("hyper1", ["sh", "-c", PROCESSES]),
        ("master", ["salt-run", "state.event"]),
    ):
        entered = node.enter(node.pid_of(cloud.lab, name), argv)
        out = tmp_path / f"markers-{name}.txt"
        with out.open("w") as handle:
            seen.append((subprocess.Popen(entered, stdout=handle, stderr=handle), out))
    try:
        yield cloud, lambda: _ended(seen)
    finally:
        _ended(seen)
        for _process, out in seen:
            out.unlink()
        (cloud.folder("hyper1") / DEBUG).unlink()
        cloud.service("hyper1", "salt-minion", "restart")
        cloud.ready(["hyper1"])
        cloud.purge_all()


def _ended(seen):
    """Stop what was noted; return its texts."""
    for process, _out in seen:
        process.kill()
        process.wait()
    return [out.read_text(errors="replace") for _process, out in seen]


def _found(text):
    return [line[:300] for line in text.splitlines() if "Xmarker" in line]


@pytest.mark.nightly
@pytest.mark.parametrize("refuses", [False, True], ids=["made", "undone"], indirect=True)
def test_what_a_vm_is_given_is_in_its_seed_alone(watched, refuses):
    cloud, ended = watched
    more = ["seed_method=nocloud", "host=hyper1", "wait=False"]

    done = cloud.command("salt-run", "virt.init", "mark1", "1", "256", IMAGE, *more, *GIVEN)

    processes, events = ended()
    assert done.code == (1 if refuses else 0), done.out + done.err
    assert "Xmarker" not in done.out + done.err
    assert _found(processes) == []
    # What the operator has typed is in the event of that salt-run itself, on the master's own bus.
    assert [one for one in _found(events) if not one.startswith("salt/run/")] == []
    found = [path for path in cloud.sh("hyper1", SEARCH).split() if path]
    assert found == []
    # The job cache has the runner's own job, readable for the master's user alone.
    jobs = cloud.sh("master", "grep -rlaE 'Xmarker[A-Za-z]+X' /var/log /tmp /etc || true")
    assert jobs == ""
    kept = cloud.sh(
        "master",
        "for file in $(grep -rlaE 'Xmarker[A-Za-z]+X' /var/cache/salt); do "
        "runuser -u nobody -- cat $file >/dev/null 2>&1 && echo $file; done; true",
    )
    assert kept == ""
    for host in ("hyper2", "hyper3"):
        assert cloud.sh(host, SEARCH) == ""
