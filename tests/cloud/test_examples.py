"""Every CLI example of every docstring, and what only pages show, runs and succeeds."""

import ast
import json
import re
import shlex
import shutil

import agentkit
import answershapes
import pytest
import recordedanswers
from cloudkit import TINY, backup_folder, how_to, ticks, wait
from doctorkit import record
from labkit.settings import CHECKOUT

XML = """<domain type='qemu'><name>{}</name><memory>65536</memory>
<os><type>hvm</type></os></domain>"""
VOLUME = "<volume><name>d1</name><capacity>65536</capacity></volume>"
# The examples that make their VM themselves, or need none.
WITHOUT_VM = {"init", "init_many", "purge"}
# Those that boot an appliance, whose functions other tests look at: test_seeding.py, and umount's.
SLOW = {"image_build", "mount", "umount", "apply"}
PKI = {"renew", "revoke", "rotate_ca", "export", "import"}


def examples():
    """Yield the lines of each function's example."""
    for folder in ("_modules", "_runners"):
        for path in sorted((CHECKOUT / folder).glob("*.py")):
            if path.stem == "qemu_nbd":  # its examples run where the kernel has nbd: test_nbd.py
                continue
            for function in ast.parse(path.read_text()).body:
                if isinstance(function, ast.FunctionDef) and not function.name.startswith("_"):
                    block = ast.get_docstring(function).split("code-block:: bash", 1)[1]
                    lines = [
                        line.strip()
                        for line in block.replace("\\\n", "").splitlines()
                        if "salt" in line
                    ]
                    name = function.name.rstrip("_")
                    marks = [pytest.mark.nightly] if name in SLOW else []
                    yield pytest.param(name, lines, id=f"{folder}.{path.stem}.{name}", marks=marks)


def prepare_pki(cloud, name):
    """Give a host certificates; for an import, move the CA of the lab away behind its backup."""
    backup, passphrase = backup_folder(cloud)
    # Hosts with VMs are not revoked, and centos1 is on hyper1.
    host = "hyper3" if name == "revoke" else "hyper1"
    assert cloud.run("virt_pki.renew", host).code == 0
    if name == "import":
        assert cloud.run("virt_pki.export", backup, passphrase).code == 0
        cloud.sh("master", "rm -rf /srv/old-ca; mv /etc/salt/pki/master/libvirt /srv/old-ca")


# They need a drive, which their VM has no longer than for them.
DRIVES = ("eject", "insert")
# They ask who listens in the guest, one after the other; it is removed after the last.
AGENTS = ("guest_info", "guest_exec")
MIGRATION = {
    "migrate",
    "migrate_begin",
    "migrate_check",
    "migrate_push",
    "migrate_cancel",
    "migrate_prepare",
    "migrate_start_postcopy",
    "migrate_step",
}

MOVING = {"migrate_cancel": "quiet=True", "migrate_start_postcopy": "postcopy=True"}
USERFAULTS = "/proc/sys/vm/unprivileged_userfaultfd"


def begin_move(cloud, *words):
    """Begin a slow move, which an example then ends; its disks have travelled when it returns."""
    if "postcopy=True" in words and "1" not in cloud.sh("hyper1", f"cat {USERFAULTS}"):
        pytest.skip("post-copy needs vm.unprivileged_userfaultfd=1 of the machine itself")
    job = cloud.begin("virt.migrate", "centos1", "hyper2", "max_bandwidth=1", *words)
    asked = "virsh qemu-monitor-command centos1 --hmp 'info migrate' 2>&1 || true"
    wait(
        "the move", lambda: "status: active" in cloud.sh("hyper1", asked) or job.poll() is not None
    )
    assert job.poll() is None, job.communicate()
    return job


def filled(cloud, line):
    """Return a command with what the commands inside it print, as a shell would."""
    for inner in re.findall(r"\$\((salt [^)]*)\)", line):
        _salt, host, *words = shlex.split(inner.partition("|")[0])
        answer = cloud.salt(host, *[word for word in words if word != "--out=json"])
        line = line.replace(f'"$({inner})"', shlex.quote(json.dumps(answer.data[host])))
    return line


def is_there(cloud):
    """Return whether centos1 runs on hyper1, and nothing else anywhere."""
    # libvirt 9 writes the definition of a VM again that was undefined while it runs, when one of
    # its block jobs ends, as a move's do; and then does not know of that file.
    running = cloud.sh("hyper1", "virsh -q list --state-running --persistent --name").split()
    every = [cloud.sh(host, "virsh -q list --all --name").split() for host in cloud.hosts]
    return running == ["centos1"] and every == [["centos1"], [], []]


def prepare_doctor(cloud, name):
    """Mend what other tests have left on purpose, or leave a file, in the trash or for it."""
    if name == "trash_restore":
        plant_trash(cloud)
    if name == "undo":
        with cloud.pillar("hyper1", {"virt": {"trash_days": 7}}):
            words = ("centos2", "1", "64", TINY, "seed=False", "start=False", "host=hyper1")
            assert cloud.run("virt.init", *words).code == 0
            assert cloud.run("virt.purge", "centos2").code == 0
    if name == "trash_put":
        cloud.sh("hyper1", "echo kept >/srv/salt-images/left1_system.qcow2")
    if name == "doctor":
        cloud.run("virt.doctor", "fix=True")


def plant_trash(cloud):
    """Have an entry in the trash of hyper1, as a purge leaves one."""
    path, entry = "/srv/salt-images/trashed1_system.qcow2", "trashed1-00000001"
    said = {"vm": "trashed1", "files": [path], "days": 99999, "why": "virt.purge"}
    place = f"/srv/salt-images/.salt-virt-trash/{entry}"
    cloud.sh(
        "hyper1",
        f"rm -f {path}; mkdir -p {place}; echo kept >{place}/trashed1_system.qcow2; "
        + record("hyper1", "trash", entry, "kept", said),
    )


def prepare_vm(cloud, name):
    """Bring centos1 into the state that the example of a function needs."""
    if name in DRIVES:
        cloud.sh("hyper1", "truncate -s 1M /srv/debian.iso")
        cloud.local("hyper1", "virt.disk_add", "centos1", "cd", "device=cdrom")
    if name == "resume":
        cloud.local("hyper1", "virt.pause", "centos1")
    if name == "shutdown":
        # A guest that boots hears no request.
        wait("a ticking guest", lambda: ticks(cloud, "hyper1", "centos1") > 3)


def prepare(cloud, name):
    """Make what the example of a function is about; return a move that it will end, if any."""
    for domain in ("d8", "d9"):
        (cloud.folder("hyper1") / f"srv/{domain}.xml").write_text(XML.format(domain))
    (cloud.folder("hyper1") / "srv/volume.xml").write_text(VOLUME)
    if name in PKI:
        prepare_pki(cloud, name)
    if name in AGENTS:
        if not (is_there(cloud) and agentkit.listens(cloud, "hyper1", "centos1")):
            cloud.purge_all()
            agentkit.boot(cloud, "hyper1", "centos1")
    elif (name not in WITHOUT_VM or name == "purge") and not is_there(cloud):
        cloud.purge_all()
        cloud.local("hyper1", "virt.init", "centos1", "1", "96", TINY, "seed=False")
    prepare_doctor(cloud, name)
    prepare_vm(cloud, name)
    return begin_move(cloud, MOVING[name]) if name in MOVING else None


@pytest.fixture
def ground(cloud, request):
    """A running VM called centos1 on hyper1, and the files that examples name."""
    if request.param in WITHOUT_VM:
        cloud.purge_all()
    job = prepare(cloud, request.param)
    yield cloud
    if job:
        cloud.end(job)
    # An example that changed nothing leaves it to the next.
    if request.param in (AGENTS[-1], *DRIVES) or not is_there(cloud):
        cloud.purge_all()
    cloud.sh("hyper2", "rm -f /srv/d7.qcow2")
    cloud.sh("hyper1", "rm -f /srv/d[89].xml /srv/volume.xml /srv/data.qcow2 /srv/*.iso")


@pytest.fixture(scope="module", autouse=True)
def debian(cloud):
    """An image on hyper1 with a whole system, which some examples name."""
    image = cloud.lab.images / "debian-minion.qcow2"
    shutil.copy(image, cloud.folder("hyper1") / "srv/debian.qcow2")
    cloud.sh("hyper1", "echo '#!/bin/sh' > /srv/bootstrap.sh")
    yield
    cloud.sh("hyper1", "rm -f /srv/debian.qcow2 /srv/bootstrap.sh")
    agentkit.forget(cloud, "hyper1")
    cloud.purge_all()


def wrong_in_answer(program, words, done):
    """Yield where the answer of a runner, as data, does not have the shape of its function."""
    if program == "salt-run" and "--out=json" in words:
        function, answer = recordedanswers.read(words, done.out)
        if answer is not None:
            yield from answershapes.mismatches(answershapes.RUNNERS[function], answer)


@pytest.mark.parametrize(("ground", "lines"), list(examples()), indirect=["ground"])
def test_an_example_does_what_it_says(ground, lines):
    for line in lines:
        program, *words = shlex.split(filled(ground, line), comments=True)
        if recordedanswers.IS_RECORDING and program == "salt-run" and "--out=json" not in words:
            words.append("--out=json")
        done = ground.command(program, *words)
        # The libvirt of the lab's hosts has known holes, for which the runner's audit fails.
        fails = (program, words[0]) == ("salt-run", "virt.audit")
        assert done.code == fails, f"{line}: {done.out}{done.err}"
        assert done.traceback == []
        assert list(wrong_in_answer(program, words, done)) == [], line


# What pages have their readers type and no other test does; each is on its page word for word.
ON_PAGES = [
    ("changing-vms.md", ["salt-run", "virt.update", "centos1", "cpu=4", "mem=2048"]),
    ("upgrading.md", ["salt", "hyper*", "saltutil.refresh_modules"]),
    ("upgrading.md", ["salt", "hyper*", "state.apply", "hypervisor.packages"]),
    (
        "upgrading.md",
        ["salt", "hyper*", "file.find", "/var/lib/salt-virt/records", "name=*.json"],
    ),
    (
        "networking.md",
        ["salt", "HOST", "state.single", "virt.nat_running", "name=default", "subnet=10.99.0.0/24"],
    ),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("page", "words"), ON_PAGES, ids=[words[2] for _page, words in ON_PAGES])
@pytest.mark.parametrize("ground", ["update"], indirect=True)
def test_a_command_that_only_a_page_shows_succeeds(ground, page, words):
    assert words in how_to(page, web1="centos1")

    done = ground.command(*[word.replace("HOST", "hyper1") for word in words])

    assert done.code == 0, done.out + done.err
    assert done.traceback == []
