"""The bundle loads in every way it is installed, on both lines of Salt."""

import pytest
from loadkit import SALT_LINES

WAYS = {"synced": (), "wheel": (), "editable": pytest.mark.nightly}
SOME = ["virt.init", "virt.host_info", "virt.get_xml", "virt.setmem", "virt.define_xml_str"]
# What only Salt 3006's own module has: if these are there, ours has not replaced it.
CORES_OWN = ["virt.nesthash", "virt.pool_capabilities", "virt.cpu_baseline"]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((line, way), marks=marks) for line in SALT_LINES for way, marks in WAYS.items()
    ],
    ids=lambda p: f"{p[0]}-{p[1]}",
)
def loaded(request, base, installed, place):
    """Salt with the bundle, by each way."""
    line, way = request.param
    if way == "synced":
        salt = place(base(line))
        assert "utils.saltvirt.spec" in salt.answer("saltutil.sync_all")["utils"]
        assert salt.runner("saltutil.sync_all").returncode == 0
        return salt
    return place(installed(line, way))


def test_the_commands_are_ours_and_all_there(loaded):
    functions = loaded.answer("sys.list_functions", "virt")

    assert set(SOME) <= set(functions)
    assert not set(CORES_OWN) & set(functions)
    # Both lines of Salt carry a module of this name.
    assert "identity" in loaded.answer("sys.doc", "seed.apply")["seed.apply"]


def test_the_help_of_a_command_is_shown(loaded):
    assert "Create a VM on this host" in loaded.answer("sys.doc", "virt.init")["virt.init"]


def test_a_command_runs_and_fails_in_one_line(loaded):
    done = loaded.call("virt.init", "../x", "1", "1")

    assert done.returncode == 1
    assert "cannot name a VM" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout


def test_the_runner_is_ours_and_fails_in_one_line(loaded):
    done = loaded.runner("virt.init", "x", "1", "1", "imgae=y", "--out=json")

    assert done.returncode == 1
    assert "no argument 'imgae'" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_the_grain_is_there(loaded):
    assert loaded.answer("grains.get", "virt_hypervisor") in (True, False)


def test_the_states_and_the_authority_are_there(loaded):
    assert "virt.keys" in loaded.answer("sys.list_state_functions", "virt")
    done = loaded.runner("virt_pki.export", "/nowhere", "/none", "--out=json")

    assert done.returncode == 1
    assert "this master has no CA yet" in done.stdout


def test_the_outputters_are_there(loaded):
    done = loaded.runner("virt.init", "../x", "1", "1", "--out=virt_plan")

    assert done.stdout.startswith("error: name: '../x' cannot name a VM")


@pytest.mark.parametrize("line", SALT_LINES)
def test_a_minion_without_libvirt_says_why_and_has_no_virt(line, without_libvirt, place):
    salt = place(without_libvirt(line))
    salt.answer("saltutil.sync_all")

    done = salt.call("virt.list_domains")

    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert "the Python module 'libvirt' is missing on this minion" in text
    assert "Traceback" not in text
    assert salt.answer("grains.get", "virt_hypervisor") is False
    assert salt.answer("test.ping") is True


@pytest.mark.parametrize("line", SALT_LINES)
def test_a_master_needs_no_libvirt(line, without_libvirt, place):
    salt = place(without_libvirt(line))
    assert salt.runner("saltutil.sync_all").returncode == 0

    done = salt.runner("virt.vm_info", "--out=json")

    assert done.returncode == 1
    assert "missing a required argument" in done.stdout
