"""What others may be given without being as good as root on a hypervisor: functions that look."""

import ast
from pathlib import Path

import pytest
from salt.utils.minions import CkMinions
from saltvirt.fleet.audit.granted import granted

ROOT = Path(__file__).resolve().parents[3]
# Those that change nothing, be it of a host or of the cloud.
LOOK = """
all_capabilities audit capabilities cell_job console_log cpu_baseline doctor_facts
domain_capabilities find freecpu freemem full_info get_disks get_graphics get_hypervisor get_loader
get_macs get_nics get_profiles get_xml guest_info host_info images is_hyper list list_active_vms
list_domains list_inactive_vms list_networks list_pools list_snapshots load migrate_check
migrate_status migration_info migration_state network_get_xml network_info next_host node_devices
node_info placement_facts pool_capabilities pool_get_xml pool_info pool_list_volumes presence query
setup_check setup_facts virt_type vm_cputime vm_diskstats vm_info vm_netstats vm_state vms
volume_infos
""".split()
# Salt takes a pattern for whatever begins so: this one's is that of what empties the trash, too.
BEGINS = ["trash"]


def functions():
    """Return the names by which this project's functions are called."""
    for folder in ("_modules", "_runners"):
        for path in sorted((ROOT / folder).glob("*.py")):
            tree = ast.parse(path.read_text())
            named = {
                target.id: ast.literal_eval(one.value)
                for one in tree.body
                if isinstance(one, ast.Assign)
                for target in one.targets
                if isinstance(target, ast.Name) and target.id.startswith("__")
            }
            module = named.get("__virtualname__", path.stem)
            for one in tree.body:
                if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
                    yield f"{module}.{named.get('__func_alias__', {}).get(one.name, one.name)}"


@pytest.mark.parametrize("name", sorted(set(functions())))
def test_every_function_only_looks_or_is_named_to_who_may_call_it(name):
    module, _, function = name.partition(".")
    looks = (module == "virt" and function in LOOK) or name == "virt_pki.list"

    assert bool(list(granted([name]))) is not looks
    assert bool(list(granted([{"@runner": [f"{name}$"]}]))) is not (looks or function in BEGINS)


@pytest.mark.parametrize(
    "name",
    [
        *("state.highstate", "cmd.run_stdout", "saltutil.runner", "slsutil.renderer", "mine.send"),
        *("state.orchestrate_single", "saltutil.mmodule", "schedule.modify", "at.at"),
    ],
)
def test_what_runs_whatever_it_is_given_is_named(name):
    assert list(granted([{"hyper*": [name]}])) == [f"hyper*: {name}"]


OF_MODULES = {
    "all of a runner": "@virt",
    "all of the CAs' runner": "@virt_pki",
    "all of a wheel": "@key",
    "one of a runner": {"@virt": ["purge"]},
    "a pattern": {"@virt_pki": ["re"]},
    "one with conditions": {"@key": [{"accept": {"args": ["web.*"]}}]},
}


@pytest.mark.parametrize("grant", OF_MODULES.values(), ids=OF_MODULES)
def test_what_salt_takes_for_a_module_of_runners_or_wheels_is_named(grant):
    """Salt's own check lets the first of a module's functions through, and the audit names it."""
    target = grant if isinstance(grant, str) else next(iter(grant))
    module, names = target[1:], ("purge", "renew", "accept")
    asked = CkMinions.__new__(CkMinions)  # what is asked of it needs no master
    given = {"arg": ["web1"], "kwarg": {}}

    assert any(
        asked.spec_check([grant], f"{module}.{name}", given, form) is True
        for name in names
        for form in ("runner", "wheel")
    )
    assert list(granted([grant]))


@pytest.mark.parametrize("grant", ["@jobs", {"@virt": ["list", "query"]}, {"@key": ["list"]}])
def test_what_only_looks_in_such_a_module_is_not_named(grant):
    assert not list(granted([grant]))
