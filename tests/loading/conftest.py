"""Environments with either Salt, with or without libvirt, in which the bundle is installed."""

import os
import shutil
from pathlib import Path

import pytest
from labkit.settings import CHECKOUT
from loadkit import Place, move_script, overlay, run, site_packages
from saltfactories.manager import FactoriesManager


@pytest.fixture(scope="session")
def base():
    """Return a function: the environment with one line of Salt and libvirt."""
    return lambda line: Path(f"/opt/salt-{line}")


@pytest.fixture(scope="session")
def without_libvirt(base, tmp_path_factory):
    """Return a function: a copy of the environment that really lacks libvirt."""
    made = {}

    def get(line):
        if line not in made:
            target = tmp_path_factory.mktemp(f"bare-{line}") / "venv"
            overlay(target, None)
            source = site_packages(base(line))
            for entry in source.iterdir():
                if not entry.name.startswith(("libvirt", "pycdlib", "pip", "setuptools", "_dist")):
                    link = site_packages(target) / entry.name
                    if not link.exists():
                        os.symlink(entry, link)
            for script in ("salt-call", "salt-run"):
                move_script(base(line) / "bin" / script, target / "bin" / script, target)
            made[line] = target
        return made[line]

    return get


@pytest.fixture(scope="session")
def installed(base, tmp_path_factory):
    """Return a function: an environment with the bundle installed one of the two pip ways."""
    made = {}

    def get(line, how):
        if (line, how) not in made:
            folder = tmp_path_factory.mktemp(f"{how}-{line}")
            source = folder / "source"
            shutil.copytree(CHECKOUT, source, ignore=shutil.ignore_patterns(".git", "tests"))
            overlay(folder / "venv", base(line))
            argv = [
                folder / "venv/bin/pip",
                "install",
                "-q",
                "--no-deps",
                "--no-build-isolation",
                *(["-e"] if how == "editable" else []),
                source,
            ]
            done = run(argv)
            assert done.returncode == 0, done.stdout + done.stderr
            made[line, how] = folder / "venv"
        return made[line, how]

    return get


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a function: a Salt with its own configuration in an environment."""
    return lambda venv: Place(tmp_path_factory.mktemp("salt"), venv)


@pytest.fixture(scope="session")
def factories(request, base, event_listener, tmp_path_factory):
    """Return a function: what starts the daemons of one line of Salt (pytest-salt-factories)."""
    log_server = request.config.pluginmanager.get_plugin("saltfactories-log-server")
    return lambda line: FactoriesManager(
        root_dir=tmp_path_factory.mktemp("daemons"),
        scripts_dir=base(line) / "bin",
        log_server_host=log_server.log_host,
        log_server_port=log_server.log_port,
        log_server_level=log_server.log_level,
        event_listener=event_listener,
        start_timeout=90,
    )
