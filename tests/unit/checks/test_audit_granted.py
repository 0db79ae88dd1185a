"""Grants of functions that only read are safe; all others amount to root on a hypervisor."""

import importlib
import inspect

import pytest
from salt.utils.minions import CkMinions
from saltvirt.checks.audit.master import granted
from saltvirt.checks.audit.master.granted import describe_grants
from saltvirt.core.salt import lookonly


def dangerous_grants(grants, *package):
    """Return the grants that permit more than reading, without their functions."""
    return [text.rpartition(" (")[0] for text in describe_grants(grants, *package)]


ROWS = [*lookonly.MODULES.values(), *lookonly.RUNNERS.values()]
LOOKING = frozenset().union(*(row.looking() for row in ROWS))
CHANGING = frozenset().union(*(row.changing() for row in ROWS))
# Salt matches a pattern with each name that begins so: this one matches virt.trash_empty, too.
BEGINS = ["virt.trash"]


@pytest.mark.parametrize("name", sorted(LOOKING | CHANGING))
def test_each_function_of_the_project_is_named_unless_it_only_looks(name):
    assert bool(dangerous_grants([f"{name}$"])) is (name in CHANGING)
    assert bool(dangerous_grants([{"@runner": [f"{name}$"]}])) is (name in CHANGING)
    assert bool(dangerous_grants([name])) is (name in CHANGING or name in BEGINS)


@pytest.mark.parametrize(
    "name",
    [
        *("virt.force_off", "cmd.exec_code_all", "cmd.powershell_all", "cmd.shell_info"),
        *("file.line", "file.blockreplace", "file.remove", "file.read", "pip.install"),
        *("archive.tar", "mount.mount", "pillar.items", "test.try", "test.get_opts"),
        *("sys.reload_modules", "status.ping_master", "ours.report", "virt.no_such_function"),
    ],
)
def test_a_function_that_is_not_known_only_to_look_is_named(name):
    assert dangerous_grants([name]) == [name]
    assert dangerous_grants([{"@runner": [name]}]) == [f"@runner: {name}"]
    assert dangerous_grants([name], "runner") == [name]


@pytest.mark.parametrize("pattern", ["test.*", "", ".*", "grains.set", "(ping|virt).*", "pkg."])
def test_a_pattern_that_takes_in_more_than_looks_is_named(pattern):
    assert dangerous_grants([{"web*": [pattern]}]) == [f"web*: {pattern}"]


@pytest.mark.parametrize(
    "pattern", ["test.version.*", "^virt.list_.*$", "virt.(query|list)$", "grains.item"]
)
def test_a_pattern_that_takes_in_looks_alone_is_not_named(pattern):
    assert dangerous_grants([pattern]) == []


def test_each_grant_is_named_with_what_it_gives():
    grants = ["virt.purge", "cmd.run", "file.line", "ours.report", ".*", {"@wheel": "key.accept"}]

    assert describe_grants([*grants, "test.ping"]) == [
        ".* (calls functions of several modules)",
        "@wheel: key.accept (accepts or deletes the keys of minions)",
        "cmd.run (runs any program)",
        "file.line (reads or writes any file)",
        "ours.report (is not known only to look)",
        "virt.purge (changes VMs, their disks, networks or keys, or hosts)",
    ]


def test_peer_run_means_runners():
    assert dangerous_grants(["jobs.active", "manage.status"], "runner") == []
    assert dangerous_grants(["jobs.active"]) == ["jobs.active"]


@pytest.mark.parametrize(
    "table", [granted.LOOKING_MODULES, granted.LOOKING_RUNNERS, granted.LOOKING_WHEELS]
)
def test_the_list_of_salts_functions_has_none_twice(table):
    for names in table.values():
        assert len(names.split()) == len(set(names.split()))


@pytest.mark.parametrize(
    "name",
    [
        *("state.highstate", "cmd.run_stdout", "saltutil.runner", "slsutil.renderer", "mine.send"),
        *("state.orchestrate_single", "saltutil.mmodule", "schedule.modify", "at.at"),
    ],
)
def test_functions_that_run_other_functions_are_named(name):
    assert dangerous_grants([{"hyper*": [name]}]) == [f"hyper*: {name}"]


@pytest.mark.parametrize(
    "name",
    [
        *("network.get_route", "sysctl.get", "group.members", "smbios.get", "smbios.records"),
        *("service.status", "service.available", "service.missing", "service.enabled"),
        "service.disabled",
    ],
)
def test_a_function_whose_argument_can_change_a_host_is_named(name):
    assert dangerous_grants([name]) == [name]


def test_the_runner_that_can_delete_the_keys_of_silent_minions_is_named():
    assert dangerous_grants([{"@runner": ["manage.down"]}]) == ["@runner: manage.down"]
    assert dangerous_grants(["manage.down"], "runner") == ["manage.down"]


@pytest.mark.parametrize(
    ("package", "table"),
    [
        ("modules", granted.LOOKING_MODULES),
        ("runners", granted.LOOKING_RUNNERS),
        ("wheel", granted.LOOKING_WHEELS),
    ],
)
def test_no_listed_function_gives_an_argument_to_a_shell_or_deletes_keys(package, table):
    files = {"sysctl": "linux_sysctl", "service": "systemd_service", "user": "useradd"}
    files |= {"group": "groupadd", "locale": "localemod", "pkg": "aptpkg", "sys": "sysmod"}
    looked_at = 0
    for module, names in table.items():
        salt_module = importlib.import_module(f"salt.{package}.{files.get(module, module)}")
        aliases = {
            alias: name for name, alias in getattr(salt_module, "__func_alias__", {}).items()
        }
        for name in names.split():
            function = getattr(salt_module, aliases.get(name, name), None)
            if inspect.isfunction(function) and inspect.signature(function).parameters:
                source = inspect.getsource(function)
                looked_at += 1
                assert "python_shell=True" not in source, f"{module}.{name}"
                assert "key.delete" not in source, f"{module}.{name}"
    assert looked_at


OF_MODULES = {
    "all of a runner": "@virt",
    "all of the CAs' runner": "@virt_pki",
    "all of a wheel": "@key",
    "one of a runner": {"@virt": ["purge"]},
    "a pattern": {"@virt_pki": ["re"]},
    "one with conditions": {"@key": [{"accept": {"args": ["web.*"]}}]},
}


@pytest.mark.parametrize("grant", OF_MODULES.values(), ids=OF_MODULES)
def test_a_whole_module_of_runners_or_wheels_is_named(grant):
    """Salt's own check accepts the first of a module's functions, and the audit names it."""
    target = grant if isinstance(grant, str) else next(iter(grant))
    module, names = target[1:], ("purge", "renew", "accept")
    checker = CkMinions.__new__(CkMinions)  # the called method needs no master
    call = {"arg": ["web1"], "kwarg": {}}

    assert any(
        checker.spec_check([grant], f"{module}.{name}", call, form) is True
        for name in names
        for form in ("runner", "wheel")
    )
    assert dangerous_grants([grant])


@pytest.mark.parametrize("grant", ["@jobs", {"@virt": ["list", "query"]}, {"@key": ["list"]}])
def test_a_module_of_reading_functions_is_not_named(grant):
    assert not dangerous_grants([grant])
