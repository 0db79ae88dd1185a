"""The functions that docs/cells.md permits a top on a cell's master, as Salt checks them."""

import re
from pathlib import Path

import pytest
import salt.utils.minions
import yaml

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/cells.md").read_text()
LOOKS = "list query host_info find vm_info console_log".split()


def functions():
    """Return all runner functions of this project by the names that users call."""
    for path in sorted((ROOT / "_runners").glob("virt*.py")):
        text = path.read_text()
        module = re.search(r'^__virtualname__ = "(\w+)"', text, re.MULTILINE)[1]
        for name in re.findall(r"^def ([a-z]\w*)\(", text, re.MULTILINE):
            yield f"{module}.{name.rstrip('_')}"


@pytest.fixture
def functions_of_entry():
    """Return a function: the runner functions that an entry of external_auth permits."""
    master = object.__new__(salt.utils.minions.CkMinions)  # only its runner_check() is called

    def let(entry):
        call = {"arg": [], "kwarg": {}}
        return {name for name in functions() if master.runner_check(entry, name, call)}

    return let


def test_a_top_may_call_all_of_virt_and_nothing_of_the_authorities(functions_of_entry):
    (text,) = re.findall(r"^ *- ('@runner': .*)$", PAGE, re.MULTILINE)

    allowed_functions = functions_of_entry([yaml.safe_load(text)])

    assert allowed_functions == {name for name in functions() if name.startswith("virt.")}
    assert {"virt.init", "virt.cell_job"} <= allowed_functions and "virt_pki.export" in {
        *functions()
    }


def test_a_top_that_may_only_read_has_no_other_functions(functions_of_entry):
    (text,) = re.findall(r"gets less:\n`(\[.*\])`", PAGE)

    assert functions_of_entry([{"@runner": yaml.safe_load(text)}]) == {
        f"virt.{name}" for name in LOOKS
    }
