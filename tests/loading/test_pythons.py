"""The code runs on every Python that Salt's packages carry: 3.10 to 3.13."""

import shutil
from pathlib import Path

import pytest
from labkit import pythons
from labkit.settings import CHECKOUT, SALTS
from loadkit import run

# The oldest and the newest. The suite itself runs on 3.11, the lab of Salt 3006 on 3.10, and mypy
# and ruff look at everything as 3.10 would: what these find beside that can wait for the night.
pytestmark = pytest.mark.nightly
PYTHONS = [("3.10", "3006"), ("3.13", "3008")]


def interpreter(version):
    """Return a Python of that version, wherever this machine keeps it."""
    found = [shutil.which(f"python{version}", path="/usr/bin:/usr/local/bin")]
    found += sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")))
    return next((path for path in found if path), None)


@pytest.mark.parametrize(("version", "line"), PYTHONS, ids=lambda v: str(v))
def test_the_unit_tests_pass_on(version, line, tmp_path):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")

    venv = tmp_path / "venv"
    run([python, "-m", "venv", venv])
    needs = [SALTS[line], *pythons.EXTRAS, "pytest>=8", "hypothesis"]
    made = run([venv / "bin/pip", "install", "-q", *needs])
    assert made.returncode == 0, made.stderr
    done = run(
        [
            venv / "bin/python3",
            "-m",
            "pytest",
            "-q",
            "-W",
            "ignore",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:warnings",
            "tests/unit",
        ],
        cwd=CHECKOUT,
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
