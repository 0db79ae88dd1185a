"""The library in a minion's memory: forked jobs have it at once, and never an older release."""

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import saltvirt
from saltvirt.core.salt import preload

LIBRARY = Path(saltvirt.__file__).resolve().parent
GRAIN = LIBRARY.parents[1] / "_grains/virt_hypervisor.py"

# A package of our kind in a process of its own; what jobs say is what a forked process sees.
HEAD = """
import importlib.util, json, os, sys
sys.path.insert(0, {folder!r})

def job(code):
    read, write = os.pipe()
    if os.fork() == 0:
        scope = dict()
        exec(code, scope)
        os.write(write, json.dumps(scope["said"]).encode())
        os._exit(0)
    os.close(write)
    os.wait()
    with os.fdopen(read) as pipe:
        return json.load(pipe)

def begin():
    spec = importlib.util.spec_from_file_location("salt_virt_preload", {preload!r})
    preload = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(preload)
    names = ("one", "zero")
    folder = os.path.join(sys.path[0], "saltvirt/storage")
    names = [name for name in names if os.path.exists(os.path.join(folder, name + ".py"))]
    return preload.begin([f"saltvirt.storage.{{name}}" for name in names])

SEEN = (
    "import saltvirt, sys; said = sorted(n for n in sys.modules if n[:17] == "
    "'saltvirt.storage.')"
)
VALUE = "from saltvirt.storage import one; said = one.VALUE"
"""


@pytest.fixture
def small(tmp_path):
    """A small library; runs a script beside it, and returns what it prints."""
    files = {
        "__init__.py": "",
        "storage/__init__.py": "",
        "storage/one.py": "from saltvirt import shared\nVALUE = 1 + shared.MORE\n",
        "storage/rare.py": "raise RuntimeError('rarely needed')\n",
        "shared.py": "MORE = 10\n",
    }
    for name, text in files.items():
        path = tmp_path / "saltvirt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(script):
        code = (
            HEAD.format(folder=str(tmp_path), preload=str(LIBRARY / "core/salt/preload.py"))
            + script
        )
        done = subprocess.run(
            [sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


SAY = "print(json.dumps({}))\n"


def write(name, text):
    """Return a line of script that replaces a file of the package, as a sync does."""
    return (
        f"path = os.path.join(sys.path[0], 'saltvirt', {name!r}); new = path + '.new'\n"
        f"open(new, 'w').write({text!r}); os.replace(new, path)\n"
    )


def imported(path):
    """Yield the modules that a file imports of the library."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("saltvirt"):
            for alias in node.names:
                path = LIBRARY.parent.joinpath(*node.module.split("."), f"{alias.name}.py")
                yield f"{node.module}.{alias.name}" if path.exists() else node.module


def test_the_modules_of_questions_and_moves_are_preloaded():
    files = [
        GRAIN.parents[1] / f"_modules/{name}.py" for name in ("virt_answers", "virt_answers_moves")
    ]

    assert sorted(preload.MODULES) == sorted({name for path in files for name in imported(path)})


def test_a_job_has_what_the_minion_imported(small):
    said = small(
        SAY.format("job(SEEN)")
        + SAY.format("begin()")
        + SAY.format("job(SEEN)")
        + SAY.format("job(VALUE)")
    )

    assert said == [[], True, ["saltvirt.storage.one"], 11]


def test_the_minion_itself_has_none_of_it_imported(small):
    said = small(
        "begin()\n" + SAY.format("[name for name in sys.modules if name[:8] == 'saltvirt']")
    )

    assert said == [[]]


def test_a_job_after_an_update_has_the_new_release_alone(small):
    said = small(
        "begin()\n"
        + write("storage/one.py", "from saltvirt import shared\nVALUE = 2 + shared.MORE\n")
        + SAY.format("job(SEEN)")
        + SAY.format("job(VALUE)")
        + write("shared.py", "MORE = 20\n")
        + SAY.format("job(VALUE)")
    )

    assert said == [[], 12, 22]


def test_a_job_that_brings_an_update_has_it_at_once(small):
    update = "import os, sys\n" + write("shared.py", "MORE = 20\n")
    use = "from saltvirt.storage import one; said = one.VALUE"

    assert small("begin()\n" + SAY.format(f"job({update + use!r})")) == [21]


@pytest.mark.parametrize("change", ["open(path, 'w').close()", "os.remove(path)"])
def test_a_file_more_or_less_is_an_update_too(small, change):
    path = "path = os.path.join(sys.path[0], 'saltvirt', 'rare.py')\n"
    begin = "open(path, 'w').close(); begin()\n" if "remove" in change else "begin()\n"

    assert small(path + begin + change + "\n" + SAY.format("job(SEEN)")) == [[]]


def test_a_library_that_is_gone_or_elsewhere_is_not_given(small):
    elsewhere = (
        "first = sys.path[0] + '/first'; os.makedirs(first + '/saltvirt/storage')\n"
        "for name, text in (('__init__', ''), ('storage/__init__', ''), ('storage/one', 'VALUE = "
        "7')):\n"
        "    open(f'{first}/saltvirt/{name}.py', 'w').write(text)\n"
        "sys.path.insert(0, first)\n"
    )
    gone = "import shutil; shutil.rmtree(sys.path[0] + '/saltvirt')\n"
    missing = "try:\n    import saltvirt\nexcept ImportError as exc:\n    said = exc.name"

    assert small("begin()\n" + elsewhere + SAY.format("job(VALUE)")) == [7]
    assert small("begin()\n" + gone + SAY.format(f"job({missing!r})")) == ["saltvirt"]


def test_the_minion_takes_in_an_update_when_it_is_told(small):
    said = small(
        "begin()\n"
        + write("shared.py", "MORE = 20\n")
        + SAY.format("begin()")
        + SAY.format("job(SEEN)")
        + SAY.format("job(VALUE)")
        + SAY.format("sum(type(one).__name__ == 'Aside' for one in sys.meta_path)")
    )

    assert said == [True, ["saltvirt.storage.one"], 21, 1]


def test_who_has_imported_it_for_itself_is_left_alone(small):
    said = small(
        "from saltvirt.storage import one\n"
        + SAY.format("begin()")
        + SAY.format("sys.modules['saltvirt.storage.one'] is one")
    )

    assert said == [False, True]


def test_what_cannot_be_imported_is_not_left_half_there(small):
    said = small(
        write("storage/zero.py", "import nosuchmodule\n")
        + "try:\n    begin()\nexcept ImportError as exc:\n"
        + "    print(json.dumps(str(exc)))\n"
        + SAY.format("job('import sys; said = [n for n in sys.modules if n[:8] == \"saltvirt\"]')")
    )

    assert said == ["No module named 'nosuchmodule'", []]


def test_files_that_change_meanwhile_are_not_kept(small):
    said = small(
        write(
            "storage/zero.py",
            "import pathlib\npathlib.Path(__file__).with_name('later.py').write_text('')\n",
        )
        + SAY.format("begin()")
        + SAY.format("job(SEEN)")
    )

    assert said == [False, []]


def test_what_the_system_updates_is_not_in_memory(small):
    said = small(
        write(
            "storage/zero.py", "try:\n    import libvirt\nexcept ImportError:\n    libvirt = None\n"
        )
        + SAY.format("begin()")
        + SAY.format("'libvirt' in sys.modules")
        + SAY.format("job('from saltvirt.storage import zero; said = zero.libvirt')")
    )

    assert said == [True, False, None]


@pytest.mark.parametrize(
    ("options", "is_there"),
    [
        ({}, True),
        ({"__cli": "salt-call"}, False),
        ({"multiprocessing": False}, False),
        ({"extension_modules": "/nowhere"}, False),
    ],
)
@pytest.mark.slow
def test_the_grain_has_a_minion_import_it_and_nobody_else(tmp_path, options, is_there):
    (tmp_path / "utils").symlink_to(LIBRARY.parent)
    told = {
        **{"__cli": "salt-minion", "multiprocessing": True, "extension_modules": str(tmp_path)},
        **options,
    }
    code = (
        "import importlib.util, json, shutil, sys\n"
        "sys.path[:] = [one for one in sys.path if not one.endswith('_utils')]\n"
        "shutil.which = lambda *_args, **_more: '/usr/sbin/libvirtd'\n"
        f"spec = importlib.util.spec_from_file_location('grain', {str(GRAIN)!r})\n"
        "grain = importlib.util.module_from_spec(spec)\n"
        f"grain.__opts__ = {told!r}\n"
        "spec.loader.exec_module(grain)\n"
        "before = list(sys.path)\n"
        "said = grain.virt_hypervisor()\n"
        "assert sys.path == before\n"
        "sys.path.append(grain.__opts__['extension_modules'] + '/utils')\n"
        "import_ = importlib.util.find_spec('saltvirt')\n"
        "print(json.dumps([said, 'saltvirt.vm.show.host.inspect' in sys.modules]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/"
    )

    assert done.returncode == 0, done.stderr
    has_libvirt = importlib.util.find_spec("libvirt") is not None
    assert json.loads(done.stdout) == [{"virt_hypervisor": has_libvirt}, is_there and has_libvirt]
