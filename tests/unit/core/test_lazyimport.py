"""In a block of lazy imports the library's modules are imported when they are first used."""

import builtins
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from saltvirt.core.salt.lazyimport import lazy_imports

UTILS = Path(__file__).resolve().parents[3] / "_utils"


def test_a_module_is_imported_when_it_is_used():
    code = (
        "import sys\n"
        "from saltvirt.core.salt.lazyimport import lazy_imports\n"
        "with lazy_imports():\n"
        "    from saltvirt.core import units as lazy\n"
        "print('saltvirt.core.units' in sys.modules, lazy.MIB)\n"
        "from saltvirt.core import units\n"
        "print(units is sys.modules['saltvirt.core.units'], lazy.size_mib is units.size_mib)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(UTILS)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.split() == ["False", "1048576", "True", "True"]


def test_a_missing_attribute_is_an_attribute_error():
    with lazy_imports():
        from saltvirt.core import units

    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = units.no_such_thing


def test_other_imports_and_other_threads_are_not_lazy():
    imported = []

    def import_units():
        from saltvirt.core import units

        imported.append(units)

    with lazy_imports():
        import json
        from pathlib import PurePath

        thread = threading.Thread(target=import_units)
        thread.start()
        thread.join()

    assert json is sys.modules["json"] and issubclass(Path, PurePath)
    assert imported == [sys.modules["saltvirt.core.units"]]


def test_after_the_block_imports_are_as_before():
    eager_import = builtins.__import__
    with pytest.raises(ZeroDivisionError), lazy_imports():
        assert builtins.__import__ is not eager_import
        _ = 1 / 0

    assert builtins.__import__ is eager_import
