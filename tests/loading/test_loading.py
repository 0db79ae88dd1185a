"""The bundle loads in every way it is installed, on both lines of Salt."""

import ast
import json
from itertools import product
from pathlib import Path

import pytest
from labkit import pythons
from labkit.settings import CHECKOUT
from loadkit import SALT_LINES, run

WAYS = ("synced", "wheel", "editable")
# Each line and each way that a site installs by, once each time; the others are nightly.
EACH_TIME = [("3008", "synced"), ("3006", "wheel")]
# What is the same on both.
NEWER_EACH_TIME = ["3008", pytest.param("3006", marks=pytest.mark.nightly)]
SOME = ["virt.init", "virt.host_info", "virt.get_xml", "virt.setmem", "virt.define_xml_str"]
# What only Salt 3006's own module has: if it is there, ours has not replaced it.
CORES_OWN = ["virt.nesthash"]


# What says which engine and which driver Salt has loaded: ours are not of its own.
LOADED = """
import json, sys
import salt.config, salt.loader
opts = salt.config.minion_config(sys.argv[1])
url = {"driver": "libvirt", "url": "test:///default"}
opts.update(grains={}, providers={"here": {"libvirt": url}})
loaded = {
    "engine": salt.loader.engines(opts, {}, {}, salt.loader.utils(opts))["libvirt_events.start"],
    "driver": salt.loader.clouds(opts)["libvirt.create"],
}
print(json.dumps({name: one.__module__ for name, one in loaded.items()}))
"""

# What a process says that loads the driver first, where libvirt is missing.
LACKING = """
import json, sys
import salt.config, salt.loader
opts = salt.config.minion_config(sys.argv[1])
url = {"driver": "libvirt", "url": "test:///default"}
opts.update(grains={}, providers={"here": {"libvirt": url}})
clouds = salt.loader.clouds(opts)
driver = [name for name in clouds if name.startswith("libvirt.")]
functions = [name for name in salt.loader.minion_mods(opts) if name.startswith("virt.")]
taken = [name for name in sys.modules if name == "libvirt"]
print(json.dumps([str(clouds.missing_modules["libvirt"]), driver + functions, taken]))
"""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(pair, marks=() if pair in EACH_TIME else pytest.mark.nightly)
        for pair in product(SALT_LINES, WAYS)
    ],
    ids=lambda p: f"{p[0]}-{p[1]}",
)
def loaded(request, base, installed, place):
    """Salt with the bundle, by each way."""
    line, way = request.param
    if way == "synced":
        salt = place(base(line))
        synced = salt.answer("saltutil.sync_all")
        assert "utils.saltvirt.vm.spec" in synced["utils"]
        assert "engines.libvirt_events" in synced["engines"]
        assert "clouds.libvirt" in synced["clouds"]
        assert salt.runner("saltutil.sync_all").returncode == 0
        return salt
    return place(installed(line, way))


def test_a_test_run_does_not_fail_for_what_the_states_above_may_make(loaded):
    states = {"first": {"test": ["succeed_with_changes"]}, "web1": {"virt": ["stopped"]}}
    folders = {"images": f"{loaded.folder}/images", "state_dir": f"{loaded.folder}/state"}
    pillar = {"virt": {"connection": {"uri": "test:///default"}, **folders}}

    done = loaded.call(
        "state.high", json.dumps(states), "test=True", f"pillar={json.dumps(pillar)}"
    )

    row = json.loads(done.stdout)["local"]["virt_|-web1_|-web1_|-stopped"]
    assert row["result"] is None, row
    assert "now it would fail: no VM's name matches 'web1'" in row["comment"]


def test_the_commands_are_ours_and_all_there(loaded):
    functions = loaded.answer("sys.list_functions", "virt")

    assert set(SOME) <= set(functions)
    assert not set(CORES_OWN) & set(functions)
    # Both lines of Salt carry a module of this name.
    assert "identity" in loaded.answer("sys.doc", "seed.apply")["seed.apply"]


@pytest.fixture(scope="module")
def of_core():
    """Return a function that names all that a kind of module of Salt 3006.25 has under virt."""

    def names(kind):
        (path,) = pythons.rival().glob(f"lib/python3*/site-packages/salt/{kind}/virt.py")
        found = ast.parse(path.read_text()).body
        defined = [one.name for one in found if isinstance(one, ast.FunctionDef)]
        return {f"virt.{name}" for name in defined if not name.startswith("_")}

    return names


def test_no_command_and_no_state_of_salt_3006_is_missing(loaded, of_core):
    functions, states = of_core("modules"), of_core("states")

    assert (len(functions), len(states)) == (83, 16)
    missing = functions - set(loaded.answer("sys.list_functions", "virt"))
    assert missing == set(CORES_OWN), "and that is no command"
    assert states - set(loaded.answer("sys.list_state_functions", "virt")) == set()


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


def test_a_runner_of_ours_may_be_called_as_another_file_is(loaded):
    done = loaded.runner("virt_image.minion_packages", "kind=exe", "--out=json")

    assert done.returncode == 1
    assert "kind: 'exe'; one of onedir, deb, rpm" in done.stdout


def test_the_grain_is_there(loaded):
    assert loaded.answer("grains.get", "virt_hypervisor") in (True, False)


def test_the_states_and_the_authority_are_there(loaded):
    assert "virt.keys" in loaded.answer("sys.list_state_functions", "virt")
    done = loaded.runner("virt_pki.export", "/nowhere", "/none", "--out=json")

    assert done.returncode == 1
    assert "this master has no CA yet" in done.stdout


def test_the_engine_and_the_driver_of_salt_cloud_are_ours(loaded):
    done = run(
        [loaded.venv / "bin/python3", "-c", LOADED, loaded.etc / "minion"], cwd=loaded.folder
    )

    assert json.loads(done.stdout or "{}") == {
        "engine": "salt.loaded.ext.engines.libvirt_events",
        "driver": "salt.loaded.ext.clouds.libvirt",
    }, done.stderr


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
def test_the_driver_of_salt_cloud_is_not_taken_for_the_libvirt_that_is_missing(
    line, without_libvirt, place
):
    salt = place(without_libvirt(line))
    salt.answer("saltutil.sync_all")

    done = run([salt.venv / "bin/python3", "-c", LACKING, salt.etc / "minion"], cwd=salt.folder)

    why, functions, modules = json.loads(done.stdout or "[]") or [done.stderr, [], []]
    assert "the Python module 'libvirt' is missing" in why
    assert functions == [] and modules == []


@pytest.mark.parametrize("line", NEWER_EACH_TIME)
def test_a_master_needs_no_libvirt(line, without_libvirt, place):
    salt = place(without_libvirt(line))
    assert salt.runner("saltutil.sync_all").returncode == 0

    done = salt.runner("virt.vm_info", "--out=json")

    assert done.returncode == 1
    assert "missing a required argument" in done.stdout


@pytest.mark.parametrize("how", ["wheel", pytest.param("editable", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("line", SALT_LINES)
def test_the_formula_comes_with_pip(line, how, installed, place):
    salt = place(installed(line, how))
    ask = "from saltvirt.core.salt import loader; print(loader.formula())"
    root = run([salt.venv / "bin/python3", "-c", ask], cwd=salt.folder).stdout.strip()

    states = salt.answer(f"--file-root={root}", "state.show_sls", "hypervisor")

    assert states["hypervisor_images"]["file"][0]["name"] == "/srv/salt-images"
    there = {path.name for path in (CHECKOUT / "hypervisor").iterdir()}
    assert {path.name for path in (Path(root) / "hypervisor").iterdir()} >= there


@pytest.mark.parametrize("line", NEWER_EACH_TIME)
def test_an_old_python_is_told_what_is_needed(line, base, place):
    salt = place(base(line))
    salt.answer("saltutil.sync_all")
    assert salt.runner("saltutil.sync_all").returncode == 0
    # No Salt of ours runs on an older Python: it is this one that is made too old.
    for minimums in salt.folder.rglob("extmods/utils/saltvirt/core/salt/minimums.py"):
        text = minimums.read_text()
        assert "PYTHON = (3, 10)" in text
        minimums.write_text(text.replace("PYTHON = (3, 10)", "PYTHON = (3, 99)"))

    called = salt.call("virt.list_domains")
    # salt-run says 0 for whatever is not there.
    assert called.returncode != 0
    for done in (called, salt.runner("virt.host_info")):
        told = done.stdout + done.stderr
        assert "Salt Virt needs Python 3.99 or newer, and the Salt here runs on 3." in told
        assert "Traceback" not in told
    assert salt.answer("test.ping") is True
