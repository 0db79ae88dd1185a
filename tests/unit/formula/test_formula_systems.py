"""All packages and units of the formula exist, according to recorded names with sources."""

from pathlib import Path

import pytest
import yaml
from formulakit import ONEDIR, packages, rendered, units

RECORDS = Path(__file__).resolve().parents[2] / "data" / "systems"
FILES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(RECORDS.glob("*.yaml"))}
SYSTEMS = [
    pytest.param(system, id=system["name"]) for file in FILES.values() for system in file["systems"]
]
FIREWALLS = ("nftables", "iptables", "firewalld")
# Salt's own Python, which compiles its modules, and the distribution's, which has packages.
PYTHONS = (ONEDIR, "/usr/bin/python3.11")


def states_of(options, system, python=ONEDIR, firewall=None, sls="hypervisor", **grains):
    """Return the states of an SLS on a recorded system."""
    chosen = {"firewall": {"backend": firewall}} if firewall else {}
    python_grains = {"pythonexecutable": python, "pythonversion": [3, 11, 2, "final", 0], **grains}
    return rendered(options, sls, {"hypervisor": chosen}, **{**system["grains"], **python_grains})


def by_firewall(options, system, python=ONEDIR):
    """Yield all states, and the firewall's states for each firewall, as only these differ."""
    yield states_of(options, system, python)
    for firewall in FIREWALLS:
        yield states_of(options, system, python, firewall, "hypervisor.firewall")


def with_requirements(system, names):
    """Return these packages with all that they require."""
    required, queue = set(), list(names)
    while queue:
        name = queue.pop()
        if name not in required:
            required.add(name)
            queue += system["packages"].get(name, {}).get("requires", ())
    return required


@pytest.mark.parametrize("file", FILES)
def test_each_fact_has_a_source_or_a_reason_for_its_lack(file):
    sources = FILES[file]["sources"]

    for system in FILES[file]["systems"]:
        for name, fact in system["packages"].items():
            assert ("source" in fact) != ("unconfirmed" in fact), (system["name"], name)
            assert fact.get("source") in {None, *sources}, (system["name"], name)
            assert set(fact.get("requires", ())) <= set(system["packages"]), (system["name"], name)


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_each_package_exists(options, system, python):
    names = set()
    for states in by_firewall(options, system, python):
        names |= packages(states)
    if system["grains"]["os_family"] == "RedHat":
        sls = "hypervisor.storage"
        names |= packages(states_of(options, system, python, sls=sls, selinux={"enabled": True}))

    assert names - set(system["packages"]) == set()


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_each_unit_is_in_a_package(options, system):
    for states in by_firewall(options, system):
        packaged_units = {
            unit
            for name in with_requirements(system, packages(states))
            for unit in system["packages"].get(name, {}).get("units", ())
        }
        used_units = units(states, "service.running") | units(states, "service.enabled")

        assert {
            unit if "." in unit else f"{unit}.service" for unit in used_units
        } - packaged_units == set()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_repository_is_enabled_before_its_packages_are_installed(options, system):
    states = states_of(options, system)
    needed = {
        system["packages"][name]["repository"]
        for name in packages(states)
        if "repository" in system["packages"].get(name, {})
    }

    assert units(states, "pkgrepo.managed") == needed
    for _repository in needed:
        required = states["hypervisor_compiler"][1]["require"]
        assert {"pkgrepo": "hypervisor_builder_repository"} in required


@pytest.mark.parametrize("release", ["9.4", "10.0"])
def test_the_error_without_a_repository_names_the_subscription_to_enable(options, release):
    states = rendered(
        options,
        "hypervisor.packages",
        os_family="RedHat",
        os="RedHat",
        osrelease=release,
        cpuarch="x86_64",
    )

    function, state = states["hypervisor_builder_repository"]
    assert function == "test.fail_without_changes"
    major = release.partition(".")[0]
    assert state["name"] == (
        "libvirt-devel is in CodeReady Linux Builder; run: subscription-manager repos "
        f"--enable codeready-builder-for-rhel-{major}-x86_64-rpms"
    )
    assert "codeready-builder" in state["unless"]
    required = states["hypervisor_compiler"][1]["require"]
    assert {"test": "hypervisor_builder_repository"} in required


def test_without_a_compiler_no_repository_is_enabled(options):
    states = rendered(
        options,
        "hypervisor.packages",
        os_family="RedHat",
        os="Rocky",
        osrelease="9.4",
        pythonexecutable="/usr/bin/python3.11",
    )

    assert not [name for name in states if "repository" in name]


@pytest.mark.parametrize(("family", "is_said"), [("Arch", True), ("RedHat", True), ("Suse", False)])
def test_a_module_without_a_package_of_the_system_is_reported(options, family, is_said):
    states = rendered(
        options,
        "hypervisor.packages",
        os_family=family,
        osrelease="20.1",
        pythonexecutable="/usr/bin/python3.99",
    )

    state = states.get("hypervisor_python_pycdlib")
    assert (state is not None) is is_said
    if state:
        function, arguments = state
        assert function == "test.fail_without_changes"
        assert (
            "/usr/bin/python3.99, on which Salt runs, lacks the module pycdlib"
            in (arguments["name"])
        )
        assert arguments["unless"] == '/usr/bin/python3.99 -c "import pycdlib"'
