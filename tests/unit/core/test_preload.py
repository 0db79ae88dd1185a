"""A minion preloads the library: forked jobs have it at once, and never an older release."""

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

# A package like the library in a process of its own; a job answers from a forked process.
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
def run_script(tmp_path):
    """Return a function that runs a script beside a small library and returns its output."""
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
        process = subprocess.run(
            [sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, process.stderr
        return [json.loads(line) for line in process.stdout.splitlines()]

    return run


SAY = "print(json.dumps({}))\n"


def write(name, text):
    """Return a line of script that replaces a file of the package, as a sync does."""
    return (
        f"path = os.path.join(sys.path[0], 'saltvirt', {name!r}); new = path + '.new'\n"
        f"open(new, 'w').write({text!r}); os.replace(new, path)\n"
    )


def imported(path):
    """Yield the modules of the library that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("saltvirt"):
            for alias in node.names:
                path = LIBRARY.parent.joinpath(*node.module.split("."), f"{alias.name}.py")
                yield f"{node.module}.{alias.name}" if path.exists() else node.module


def test_the_modules_for_answers_and_moves_are_preloaded():
    files = [
        GRAIN.parents[1] / f"_modules/{name}.py" for name in ("virt_answers", "virt_answers_moves")
    ]

    assert sorted(preload.MODULES) == sorted({name for path in files for name in imported(path)})


def test_a_job_has_the_modules_that_the_minion_imported(run_script):
    answers = run_script(
        SAY.format("job(SEEN)")
        + SAY.format("begin()")
        + SAY.format("job(SEEN)")
        + SAY.format("job(VALUE)")
    )

    assert answers == [[], True, ["saltvirt.storage.one"], 11]


def test_the_minion_itself_has_no_module_of_the_library(run_script):
    answers = run_script(
        "begin()\n" + SAY.format("[name for name in sys.modules if name[:8] == 'saltvirt']")
    )

    assert answers == [[]]


def test_a_job_after_an_update_has_only_the_new_release(run_script):
    answers = run_script(
        "begin()\n"
        + write("storage/one.py", "from saltvirt import shared\nVALUE = 2 + shared.MORE\n")
        + SAY.format("job(SEEN)")
        + SAY.format("job(VALUE)")
        + write("shared.py", "MORE = 20\n")
        + SAY.format("job(VALUE)")
    )

    assert answers == [[], 12, 22]


def test_a_job_that_brings_an_update_has_it_at_once(run_script):
    update = "import os, sys\n" + write("shared.py", "MORE = 20\n")
    use = "from saltvirt.storage import one; said = one.VALUE"

    assert run_script("begin()\n" + SAY.format(f"job({update + use!r})")) == [21]


@pytest.mark.parametrize("change", ["open(path, 'w').close()", "os.remove(path)"])
def test_an_added_or_removed_file_is_an_update_too(run_script, change):
    path = "path = os.path.join(sys.path[0], 'saltvirt', 'rare.py')\n"
    begin = "open(path, 'w').close(); begin()\n" if "remove" in change else "begin()\n"

    assert run_script(path + begin + change + "\n" + SAY.format("job(SEEN)")) == [[]]


def test_a_removed_or_moved_library_is_not_used(run_script):
    elsewhere = (
        "first = sys.path[0] + '/first'; os.makedirs(first + '/saltvirt/storage')\n"
        "for name, text in (('__init__', ''), ('storage/__init__', ''), ('storage/one', 'VALUE = "
        "7')):\n"
        "    open(f'{first}/saltvirt/{name}.py', 'w').write(text)\n"
        "sys.path.insert(0, first)\n"
    )
    remove_library = "import shutil; shutil.rmtree(sys.path[0] + '/saltvirt')\n"
    missing = "try:\n    import saltvirt\nexcept ImportError as exc:\n    said = exc.name"

    assert run_script("begin()\n" + elsewhere + SAY.format("job(VALUE)")) == [7]
    assert run_script("begin()\n" + remove_library + SAY.format(f"job({missing!r})")) == [
        "saltvirt"
    ]


def test_the_minion_imports_an_update_on_request(run_script):
    answers = run_script(
        "begin()\n"
        + write("shared.py", "MORE = 20\n")
        + SAY.format("begin()")
        + SAY.format("job(SEEN)")
        + SAY.format("job(VALUE)")
        + SAY.format("sum(type(one).__name__ == 'Aside' for one in sys.meta_path)")
    )

    assert answers == [True, ["saltvirt.storage.one"], 21, 1]


def test_a_process_that_imported_the_library_itself_is_left_alone(run_script):
    answers = run_script(
        "from saltvirt.storage import one\n"
        + SAY.format("begin()")
        + SAY.format("sys.modules['saltvirt.storage.one'] is one")
    )

    assert answers == [False, True]


def test_a_failed_import_leaves_no_modules(run_script):
    answers = run_script(
        write("storage/zero.py", "import nosuchmodule\n")
        + "try:\n    begin()\nexcept ImportError as exc:\n"
        + "    print(json.dumps(str(exc)))\n"
        + SAY.format("job('import sys; said = [n for n in sys.modules if n[:8] == \"saltvirt\"]')")
    )

    assert answers == ["No module named 'nosuchmodule'", []]


def test_files_that_change_during_the_import_are_not_kept(run_script):
    answers = run_script(
        write(
            "storage/zero.py",
            "import pathlib\npathlib.Path(__file__).with_name('later.py').write_text('')\n",
        )
        + SAY.format("begin()")
        + SAY.format("job(SEEN)")
    )

    assert answers == [False, []]


def test_packages_of_the_system_are_not_kept_in_memory(run_script):
    answers = run_script(
        write(
            "storage/zero.py", "try:\n    import libvirt\nexcept ImportError:\n    libvirt = None\n"
        )
        + SAY.format("begin()")
        + SAY.format("'libvirt' in sys.modules")
        + SAY.format("job('from saltvirt.storage import zero; said = zero.libvirt')")
    )

    assert answers == [True, False, None]


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
def test_the_grain_starts_the_import_in_a_minion_only(tmp_path, options, is_there):
    (tmp_path / "utils").symlink_to(LIBRARY.parent)
    minion_opts = {
        **{"__cli": "salt-minion", "multiprocessing": True, "extension_modules": str(tmp_path)},
        **options,
    }
    code = (
        "import importlib.util, json, shutil, sys\n"
        "sys.path[:] = [one for one in sys.path if not one.endswith('_utils')]\n"
        "shutil.which = lambda *_args, **_more: '/usr/sbin/libvirtd'\n"
        f"spec = importlib.util.spec_from_file_location('grain', {str(GRAIN)!r})\n"
        "grain = importlib.util.module_from_spec(spec)\n"
        f"grain.__opts__ = {minion_opts!r}\n"
        "spec.loader.exec_module(grain)\n"
        "before = list(sys.path)\n"
        "said = grain.virt_hypervisor()\n"
        "assert sys.path == before\n"
        "sys.path.append(grain.__opts__['extension_modules'] + '/utils')\n"
        "import_ = importlib.util.find_spec('saltvirt')\n"
        "print(json.dumps([said, 'saltvirt.vm.show.host.inspect' in sys.modules]))\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/"
    )

    assert process.returncode == 0, process.stderr
    has_libvirt = importlib.util.find_spec("libvirt") is not None
    assert json.loads(process.stdout) == [
        {"virt_hypervisor": has_libvirt},
        is_there and has_libvirt,
    ]
