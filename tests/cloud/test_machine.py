"""The user's machine: every make target on a clean Debian; a hypervisor keeps all that it has."""

import re
import subprocess

import machinekit
import pytest
from cloudkit import LAB, TINY, Cloud, ticks, wait
from labkit import node, pythons
from labkit.settings import LABS, Lab

pytestmark = pytest.mark.nightly
TOOLS = {"mmdebstrap", "iproute2"}  # what a clean Debian lacks of labkit/deps.py
# Whoever has nothing but Python sees this, and nothing has happened yet.
NAMED = "iproute2 (links between the nodes), mmdebstrap (Debian roots)"
WITHOUT_ROOT = (
    "setpriv --reuid 65534 --regid 65534 --clear-groups " "env PYTHONDONTWRITEBYTECODE=1 "
)


@pytest.fixture
def hypervisor():
    """A hypervisor made by the formula, with a running VM, as the machine that is typed on."""
    lab = Lab(root=LABS / "kept", salt="3008")
    with machinekit.taken_down(lab):
        subprocess.run([LAB, "up", "--hosts", "1"], env=machinekit.environment(lab), check=True)
        node.power_off(lab, "hyper1")
        machine = machinekit.Machine(lab, "hyper1").boot()
        cloud = Cloud(lab)
        cloud.ready(["hyper1"])
        assert cloud.run("virt.init", "t1", "1", "96", TINY, "wait=False", "seed=False").code == 0
        yield machine, cloud


def test_a_hypervisor_keeps_all_of_it_through_the_demo(hypervisor):
    machine, cloud = hypervisor
    wait("the guest's counter", lambda: ticks(cloud, "hyper1", "t1") > 2)
    qemu = machine.sh("pidof qemu-system-x86_64")
    packages, traces, count = machine.packages(), machine.traces(), ticks(cloud, "hyper1", "t1")

    done = machine.try_sh("tests/demo")

    assert done.returncode == 0, done.stdout
    assert machine.traces() == traces
    assert {**machine.packages(), **packages} == machine.packages()
    new = {name.partition(":")[0] for name in machine.packages().keys() - packages.keys()}
    assert new <= {"mmdebstrap"}
    assert machine.sh("pidof qemu-system-x86_64") == qemu
    assert machine.sh("virsh -q domstate t1").strip() == "running"
    assert ticks(cloud, "hyper1", "t1") > count + 10


@pytest.fixture(scope="module")
def machine():
    """A clean Debian that has just booted, and on which nobody has typed anything yet."""
    lab = Lab(root=LABS / "newcomer", salt="3008")
    pythons.both_salts()
    with machinekit.taken_down(lab):
        lab.root.mkdir(mode=0o700, parents=True)
        seed = node.create(lab, "machine", machinekit.clean_debian())
        files = node.identity("machine")
        node.write(seed, {**files, "etc/apt/sources.list": machinekit.SOURCES})
        yield machinekit.Machine(lab, "machine").boot()


@pytest.fixture(scope="module")
def before(machine):
    """What was on the machine before the lab's tools were installed: packages, and all else."""
    found = machine.packages(), machine.traces()
    for target in ("lab", "unit"):
        done = machine.try_sh(f"{WITHOUT_ROOT} make {target}")
        assert done.returncode == 2
        assert f"run it as root; it would install {NAMED}\n" in done.stdout
        assert "Traceback" not in done.stdout
    assert machine.packages() == found[0]
    return found


def test_the_tools_are_named_and_nothing_else_is_installed(machine, before):
    packages, traces = before

    done = machine.try_sh("make docs")

    assert done.returncode == 0, done.stdout
    assert done.stdout.index(f"nothing that runs: {NAMED}") < done.stdout.index("passed")
    new = {name.partition(":")[0] for name in machine.packages().keys() - packages.keys()}
    assert new >= TOOLS and {name for name in new - TOOLS if not name.startswith("lib")} == set()
    assert {**machine.packages(), **packages} == machine.packages()
    after = machine.traces()
    files = set(after.pop("files")) - set(traces.pop("files"))
    assert after == traces
    machine.sh(f"dpkg-query --search {' '.join(files)}")  # fails if one is of no package


@pytest.fixture(scope="module")
def equipped(machine, before):
    """What there is on the machine when the lab's tools are installed."""
    assert machine.try_sh("tests/env true").returncode == 0
    return machine.traces()


@pytest.mark.parametrize("target", ["lint", "unit"])
def test_a_target_without_a_lab(machine, equipped, target):
    done = machine.try_sh(f"make {target}")

    assert done.returncode == 0, done.stdout
    assert machine.traces() == equipped


def test_all_tests_are_found_on_both_lines_of_salt(machine, equipped):
    done = machine.try_sh("make test nightly", PYTEST_ADDOPTS="--collect-only --quiet")

    assert done.returncode == 0, done.stdout
    assert len(re.findall(r"^\d+(?:/\d+)? tests collected", done.stdout, re.MULTILINE)) == 5
    assert machine.traces() == equipped


def test_a_lab_is_up_and_gone(machine, equipped):
    done = machine.try_sh("make lab")
    assert done.returncode == 0, done.stdout
    assert set(node.alive(machine.lab)) == {"machine"}
    answers = machine.try_sh("tests/lab/lab status && tests/lab/lab salt-run virt.host_info")
    assert answers.returncode == 0 and answers.stdout.count("answers") == 3, answers.stdout
    inside = machine.try_sh("tests/env pytest -q tests/cloud/test_lab.py -k one_line")
    assert inside.returncode == 0, inside.stdout

    gone = machine.try_sh("tests/lab/lab down")

    assert gone.returncode == 0, gone.stdout
    assert machine.traces() == equipped


def test_the_demo(machine, equipped):
    done = machine.try_sh("make demo")

    assert done.returncode == 0, done.stdout
    assert "its minion answered after" in done.stdout
    assert machine.traces() == equipped


def test_the_bench(machine, equipped):
    done = machine.try_sh("make bench")

    assert done.returncode == 0, done.stdout
    assert "plans beside Ganeti's hbal" in done.stdout and "Traceback" not in done.stdout
    assert machine.traces() == equipped
