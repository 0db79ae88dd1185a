"""The lab itself: idempotent, and gone without a trace, also after a crash half-way."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from cloudkit import LAB, wait
from labkit import boot, layers, node
from labkit.settings import Lab, LabError

AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


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
    mounts = [
        line for line in Path("/proc/self/mounts").read_text().splitlines() if str(root) in line
    ]
    names = sorted(line.split(": ")[1] for line in links.splitlines())
    loops = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "BACK-FILE"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    lab = Lab(root=root, salt="3008")
    groups = [
        path
        for name in ("switch", "master", "hyper1", "hyper2")
        for path in boot.cgroups(node.group(lab, name))
        if path.exists()
    ]
    return {
        "links": names,
        "mounts": mounts,
        "folder": root.exists(),
        "groups": groups,
        "loops": loops.count(str(root)),
        "processes": node.leftovers(lab),
    }


@pytest.mark.nightly
def test_up_twice_is_up_once_and_down_leaves_nothing(other):
    before = traces(other.root)

    assert other("up", "--hosts", "1", "--images", "").returncode == 0
    pids = node.alive(other.lab)
    assert other("up", "--hosts", "1", "--images", "").returncode == 0
    assert node.alive(other.lab) == pids
    status = other("status")
    assert status.returncode == 0 and "hyper1" in status.stdout
    env = json.loads(other("env").stdout)
    uri = env["nodes"]["hyper1"]["uri"]
    asked = subprocess.run(["virsh", "-q", "-c", uri, "uri"], capture_output=True, check=False)
    assert asked.returncode == 0
    assert other("exec", "hyper1", "hostname").stdout.strip() == "hyper1"
    assert "True" in other("salt", "hyper1", "test.ping").stdout
    assert "True" in other("salt-call", "hyper1", "test.ping").stdout

    assert other("down").returncode == 0
    assert traces(other.root) == before
    assert other("status").returncode == 1


def test_a_power_cut_loses_what_was_not_written_and_a_cable_can_be_pulled(cloud):
    script = (
        "import os; h = os.open('/srv/kept', os.O_WRONLY | os.O_CREAT); os.write(h, b'x'); "
        "os.fsync(h); os.fsync(os.open('/srv', os.O_RDONLY)); "
        "open('/srv/lost', 'w').write('x')"
    )
    boot_id = cloud.sh("hyper3", "cat /proc/sys/kernel/random/boot_id")
    cloud.sh("hyper3", f'python3 -c "{script}"')

    cloud.crash("hyper3")

    assert cloud.sh("hyper3", "cd /srv; ls kept lost 2>/dev/null || true").split() == ["kept"]
    assert cloud.sh("hyper3", "cat /proc/sys/kernel/random/boot_id") != boot_id
    cloud.sh("hyper3", "rm /srv/kept")
    reach = "ping -c 1 -W 2 hyper3 >/dev/null && echo reached || echo not"
    assert cloud.sh("hyper1", reach).strip() == "reached"
    cloud.lab_command("cut", "hyper3")
    assert cloud.sh("hyper1", reach).strip() == "not"
    cloud.lab_command("join", "hyper3")
    assert cloud.sh("hyper1", reach).strip() == "reached"


@pytest.mark.parametrize(
    "script",
    [
        "cat /proc/sys/vm/swappiness > /proc/sys/vm/swappiness",
        "echo h > /proc/sysrq-trigger",
        "date --set=now",
        "echo > /sys/kernel/mm/transparent_hugepage/enabled",
        "mkdir /sys/fs/cgroup/../x",
    ],
)
def test_a_node_cannot_touch_what_is_the_whole_machines(cloud, script):
    assert "DONE" not in cloud.sh("hyper1", f"({script}) 2>&1 && echo DONE || true")


def test_the_mark_of_a_node_on_another_users_process_makes_it_no_node(other):
    marks = [f"SALTVIRT_LAB={other.root}", "SALTVIRT_NODE=hyper1"]
    argv = [
        *AS_NOBODY,
        "env",
        *marks,
        "unshare",
        "-Urmpf",
        "sh",
        "-c",
        "echo up; exec sleep 60",
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as impostor:
        said = impostor.stdout.readline()
        alive, left = node.alive(other.lab), node.leftovers(other.lab)
        children = Path(f"/proc/{impostor.pid}/task/{impostor.pid}/children").read_text().split()
        node.kill([*map(int, children), impostor.pid])

    assert (said, alive, left) == ("up\n", {}, [])


@pytest.mark.nightly
def test_a_host_that_is_off_is_neither_made_anew_nor_said_to_answer(other):
    assert other("up", "--hosts", "1", "--images", "").returncode == 0
    shut = other("off", "hyper1")
    disk = (other.root / "hyper1/disk.img").stat().st_mtime_ns

    bare = other("bare", "hyper1")

    assert shut.returncode == 0 and bare.returncode == 1
    assert "hyper1 is there, and off: lab on hyper1, or lab remove hyper1" in bare.stderr
    assert (other.root / "hyper1/disk.img").stat().st_mtime_ns == disk
    again = other("up", "--hosts", "1", "--images", "")
    assert again.returncode == 0 and set(node.alive(other.lab)) == {"switch", "master", "hyper1"}
    for name in ("hyper1", "master", "switch"):
        assert other("off", name).returncode == 0
    dead = other("up", "--hosts", "1", "--images", "")
    assert dead.returncode == 1 and "of a lab that is off: lab on switch" in dead.stderr


def test_a_verb_takes_a_node_and_no_folder(other, tmp_path):
    other.root.mkdir(mode=0o700)
    (tmp_path / "kept").touch()

    for words in (
        ["remove", str(tmp_path)],
        ["remove", ""],
        ["remove", "shared"],
        ["cut", "hyper9"],
        ["console", "../x"],
        ["off", "hyper9"],
    ):
        done = other(*words)
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert (tmp_path / "kept").exists() and other.root.exists()


@pytest.mark.nightly
def test_what_a_killed_run_left_is_in_nobodys_way(other):
    up = f"{LAB} up --hosts 1 --images '' --temporary"
    shell = ["sh", "-c", f"{up}; exit"]  # it ends, as a run that is killed does
    subprocess.run(shell, env=other.environment, check=True, capture_output=True)
    first = node.alive(other.lab)["hyper1"]

    second = other("up", "--hosts", "1", "--images", "", "--temporary")
    pids = node.alive(other.lab)
    again = other("up", "--hosts", "1", "--images", "")

    assert second.returncode == 0 and "whoever brought this lab up was killed" in second.stderr
    assert pids["hyper1"] != first
    assert again.returncode == 0 and node.alive(other.lab) == pids
    node.kill(node.leftovers(other.lab))  # as the end of a session does
    assert other("up", "--hosts", "1", "--images", "").returncode == 1
    (other.root / "temporary").write_text("")
    assert other("up", "--hosts", "1", "--images", "").returncode == 0
    assert not (other.root / "temporary").exists()


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
    [
        (["up", "--hosts", "0"], "between 1 and 32"),
        (["exec", "hyper9", "true"], "was never made"),
        (["--salt", "2019", "status"], "unknown Salt line"),
    ],
)
def test_a_mistake_is_one_line(other, words, why):
    done = other(*words)

    assert done.returncode == 1
    assert why in done.stderr and done.stderr.count("\n") == 1


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, in this process's mount namespace."""
    (folder := tmp_path / "disk").mkdir()
    image = tmp_path / "image"
    with image.open("wb") as handle:
        handle.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_power_cut_between_two_boots_leaves_this_machine_its_disk(small_disk):
    about = {"name": "n", "lower": "", "group": "n", "shares": [], "link": None}
    (folder := small_disk / "n").mkdir()
    (folder / "node.json").write_text(json.dumps(about))
    (folder / "disk").mkdir()

    boot.Node(folder).cut_power()

    (folder / "written").write_text("after")  # fails on a file system that was shut down


def test_more_nodes_than_this_machine_has_room_for_are_refused(other):
    most = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    if most >= 34 * 9:
        pytest.skip(f"this machine has room for all 32 hosts ({most} inotify instances)")

    done = other("up", "--hosts", "32", "--images", "")

    assert done.returncode == 1
    assert "sysctl fs.inotify.max_user_instances=" in done.stderr
    assert done.stderr.count("\n") == 1 and not other.root.exists()


@pytest.mark.parametrize("verb", ["down", "purge"])
def test_a_folder_with_other_peoples_files_is_not_removed(tmp_path, verb):
    root, cache = tmp_path / "lab", tmp_path / "cache"
    for folder in (root, cache):
        (folder / "precious").mkdir(parents=True)
    environment = dict(os.environ, SALTVIRT_LAB_ROOT=str(root), SALTVIRT_LAB_CACHE=str(cache))

    done = subprocess.run([LAB, verb], env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "precious" in done.stderr and done.stderr.count("\n") == 1
    assert (root / "precious").exists() and (cache / "precious").exists()


def test_the_cache_is_not_emptied_below_a_lab_that_is_up(tmp_path):
    root, cache = tmp_path / "lab", tmp_path / "cache"
    (cache / "layers").mkdir(parents=True)
    environment = dict(os.environ, SALTVIRT_LAB_ROOT=str(root), SALTVIRT_LAB_CACHE=str(cache))
    other = {**os.environ, "SALTVIRT_LAB": "/another/lab"}
    with subprocess.Popen(["sleep", "60"], env=other) as standing_for_it:
        argv = [LAB, "purge"]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        standing_for_it.kill()

    assert done.returncode == 1
    assert "/another/lab" in done.stderr and done.stderr.count("\n") == 1
    assert (cache / "layers").exists()


@pytest.mark.parametrize("words", [["up"], ["down"], ["status"]])
def test_whoever_is_not_root_is_told_so_in_one_line(words):
    argv = [
        *AS_NOBODY,
        "/bin/sh",
        "-c",
        f"PATH=/usr/bin:/bin python3 -B {LAB} {words[0]}",
    ]

    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "run it as root" in done.stderr and done.stderr.count("\n") == 1


def test_what_builds_a_layer_ends_with_whoever_started_it(tmp_path):
    script = (
        "import sys; from pathlib import Path; from labkit import layers, roots\n"
        "layers.in_chroot(roots.base('bookworm'), ['sleep', '4711'], "
        "scratch=Path(sys.argv[1]))"
    )
    environment = dict(os.environ, PYTHONPATH=str(LAB.parent))
    with subprocess.Popen(
        [sys.executable, "-B", "-c", script, tmp_path / "s"], env=environment
    ) as building:
        wait("the build", lambda: _running("sleep\0004711"))
        building.kill()

    wait("its end", lambda: not _running("sleep\0004711"), timeout_s=10)


def _running(words):
    return [one for one in Path("/proc").glob("[0-9]*/cmdline") if _starts(one, words)]


def _starts(path, words):
    try:
        return path.read_bytes().startswith(words.encode())
    except OSError:
        return False


def test_a_layer_that_could_not_be_built_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(layers, "LAYERS", tmp_path)

    def build(part):
        (part / "half").touch()
        raise LabError("no network")

    with pytest.raises(LabError):
        layers.ensure("broken", ["recipe"], build)

    assert list(tmp_path.iterdir()) == []


def test_a_node_that_does_not_boot_says_why_in_one_line(other):
    other.root.mkdir(mode=0o700)
    node.create(other.lab, "hyper1", [Path("/there/is/no/layer-0")])

    done = other("on", "hyper1")

    assert done.returncode == 1
    assert "hyper1 does not boot: mount: " in done.stderr and done.stderr.count("\n") == 1
