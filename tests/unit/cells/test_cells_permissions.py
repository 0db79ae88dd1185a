"""What docs/cells.md lets a top call on a cell's master, as Salt itself reads it."""

import re
from pathlib import Path

import pytest
import salt.utils.minions
import yaml

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/cells.md").read_text()
LOOKS = "list query host_info find vm_info console_log".split()


def functions():
    """Return all runner functions of this project, as users call them."""
    for path in sorted((ROOT / "_runners").glob("virt*.py")):
        text = path.read_text()
        module = re.search(r'^__virtualname__ = "(\w+)"', text, re.MULTILINE)[1]
        for name in re.findall(r"^def ([a-z]\w*)\(", text, re.MULTILINE):
            yield f"{module}.{name.rstrip('_')}"


@pytest.fixture
def lets():
    """Return which of our functions an entry of external_auth lets somebody call."""
    master = object.__new__(salt.utils.minions.CkMinions)  # of it nothing is asked but that

    def let(entry):
        asked = {"arg": [], "kwarg": {}}
        return {one for one in functions() if master.runner_check(entry, one, asked)}

    return let


def test_a_top_may_call_all_of_virt_and_nothing_of_the_authorities(lets):
    (text,) = re.findall(r"^ *- ('@runner': .*)$", PAGE, re.MULTILINE)

    let = lets([yaml.safe_load(text)])

    assert let == {one for one in functions() if one.startswith("virt.")}
    assert {"virt.init", "virt.cell_job"} <= let and "virt_pki.export" in {*functions()}


def test_a_top_that_may_only_look_does_no_more(lets):
    (text,) = re.findall(r"gets less:\n`(\[.*\])`", PAGE)

    assert lets([{"@runner": yaml.safe_load(text)}]) == {f"virt.{one}" for one in LOOKS}
