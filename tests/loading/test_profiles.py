"""The profiles for a master of many hosts: both lines of Salt know and take each option."""

import json

import pytest
import yaml
from labkit.settings import CHECKOUT
from loadkit import run

PROFILES = CHECKOUT / "docs/profiles"
# Where an option is of one line of Salt alone; "timeout" is the command line's own.
ONLY = {"worker_pools": "3008"}
UNCHECKED = {"timeout"}
LOADED = """
import json, sys
import salt.config
kind, path = sys.argv[1:]
opts = getattr(salt.config, f"{kind}_config")(path)
print(json.dumps({key: opts.get(key) for key in json.load(sys.stdin)}))
"""
CHECKED = """
import json, sys
import salt.config
print(json.dumps({key: bool(salt.config._validate_opts({key: value}))
                  for key, value in json.load(sys.stdin).items() if key in salt.config.VALID_OPTS}))
"""


@pytest.mark.parametrize("line", ["3006", "3008"])
@pytest.mark.parametrize("name", ["master-100", "master-1000", "minion"])
def test_a_profile_is_taken_as_it_is(base, tmp_path, line, name):
    path = PROFILES / f"{name}.conf"
    given = yaml.safe_load(path.read_text())
    given = {key: value for key, value in given.items() if ONLY.get(key, line) == line}
    config = tmp_path / name.partition("-")[0]
    config.write_text(f"root_dir: {tmp_path}\n{path.read_text()}")
    python, words = base(line) / "bin/python3", json.dumps(given)

    known = run([python, "-c", CHECKED], input=words)
    taken = run([python, "-c", LOADED, name.partition("-")[0], config], input=words)

    assert known.returncode == 0 and taken.returncode == 0, known.stderr + taken.stderr
    expected = dict.fromkeys(given.keys() - UNCHECKED, True)
    assert json.loads(known.stdout) == expected
    assert json.loads(taken.stdout) == given


def test_both_lines_have_as_many_workers():
    for name in ("master-100", "master-1000"):
        given = yaml.safe_load((PROFILES / f"{name}.conf").read_text())
        workers = [pool["worker_count"] for pool in given["worker_pools"].values()]
        assert sum(workers) == given["worker_threads"]


def shown(value):
    """Return how the page shows the value of an option."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {pool['worker_count']}" for name, pool in value.items())
    return "as before" if value is None else str(value)


def test_the_page_has_what_the_profiles_have():
    page = (CHECKOUT / "docs/scale.md").read_text().partition("| Salt's default |")[2]
    lines = [line.split(" | ") for line in page.partition("\n\n")[0].splitlines()[2:]]
    table = {row[0].strip("| ").split("`")[1]: row[2:4] for row in lines}
    few, many = (
        yaml.safe_load((PROFILES / f"master-{size}.conf").read_text()) for size in (100, 1000)
    )

    assert table == {key: [shown(few.get(key)), shown(many.get(key))] for key in {**few, **many}}
