"""The release: an sdist and a wheel that install, and what replaces ``saltext-virt`` from PyPI."""

import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
from labkit import pythons
from labkit.settings import CHECKOUT
from loadkit import Place, overlay, run

PYTHON = f"{pythons.PACKAGING}/bin/python3"
# What a job of 3006's own runner and formulas calls most.
USUAL = (
    "init define_xml_str vm_info list_domains start stop shutdown purge migrate pool_info".split()
)


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Return the folder with the sdist, and the wheel that was built from the sdist."""
    folder = tmp_path_factory.mktemp("release")
    source = folder / "source"
    shutil.copytree(
        CHECKOUT, source, ignore=shutil.ignore_patterns(".git", ".venv", "_build", "__pycache__")
    )
    built = run([PYTHON, "-m", "build", "--no-isolation", "--outdir", folder / "dist", source])
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    return folder / "dist"


def only(folder, pattern):
    """Return the one file of a pattern."""
    (path,) = folder.glob(pattern)
    return path


def install(venv, *requirements):
    """Install requirements that need no network."""
    argv = [venv / "bin/pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = run([*argv, *requirements])
    assert done.returncode == 0, done.stdout + done.stderr


def test_twine_accepts_the_release(dist):
    done = run([PYTHON, "-m", "twine", "check", "--strict", *dist.iterdir()])

    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name.split("-")[0] for path in dist.iterdir()} == {"saltvirt"}


def test_the_release_has_each_file_of_the_bundle(dist):
    with zipfile.ZipFile(only(dist, "*.whl")) as wheel:
        packed = set(wheel.namelist())
    with tarfile.open(only(dist, "*.tar.gz")) as sdist:
        sources = {member.name.split("/", 1)[1] for member in sdist if member.isfile()}

    library = {
        str(path.relative_to(CHECKOUT / "_utils"))
        for path in (CHECKOUT / "_utils/saltvirt").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert library <= packed
    assert {f"_utils/{name}" for name in library} <= sources
    assert {"LICENSE", "README.md", "pyproject.toml"} <= sources
    assert {"saltvirt/modules/virt.py", "saltvirt/formula/hypervisor/init.sls"} <= packed


@pytest.mark.parametrize("pattern", ["*.tar.gz", "*.whl"], ids=["sdist", "wheel"])
@pytest.mark.parametrize("line", ["3008"])
def test_the_release_installs(line, pattern, dist, base, tmp_path):
    venv = tmp_path / "venv"
    overlay(venv, base(line))
    install(venv, only(dist, pattern))
    salt = Place(tmp_path / "salt", venv)

    assert "virt.init" in salt.answer("sys.list_functions", "virt")
    shown = run([venv / "bin/pip", "show", "saltvirt"])
    assert "Name: saltvirt" in shown.stdout


@pytest.mark.parametrize("line", ["3006", "3008"])
def test_who_comes_from_saltext_virt_keeps_the_calls(line, dist, base, tmp_path):
    venv = tmp_path / "venv"
    overlay(venv, base(line))
    install(venv, only(Path(pythons.PACKAGING, "wheels"), "*.whl"))
    salt = Place(tmp_path / "before", venv)
    before = salt.answer("sys.argspec", "virt.*")
    uninstalled = run([venv / "bin/pip", "uninstall", "-q", "-y", "saltext-virt"])
    assert uninstalled.returncode == 0, uninstalled.stderr
    install(venv, only(dist, "*.whl"))

    after = Place(tmp_path / "after", venv).answer("sys.argspec", "virt.*")

    assert set(USUAL) <= {name.split(".")[1] for name in before}
    assert not set(before) - set(after), "functions that are not there any more"
    lost = {
        name: [word for word in spec["args"] or () if word not in (after[name]["args"] or ())]
        for name, spec in before.items()
        if not after[name]["kwargs"]
    }
    assert not {name: words for name, words in lost.items() if words}
