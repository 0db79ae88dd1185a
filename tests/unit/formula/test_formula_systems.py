"""What the formula asks for is there: judged by package and unit names on record, with sources."""

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
# Salt's own Python, for which modules are compiled, and the distribution's, which has packages.
PYTHONS = (ONEDIR, "/usr/bin/python3.11")


def made(options, system, python=ONEDIR, firewall=None, sls="hypervisor", **grains):
    """Return the states of an SLS on a system of the record."""
    chosen = {"firewall": {"backend": firewall}} if firewall else {}
    said = {"pythonexecutable": python, "pythonversion": [3, 11, 2, "final", 0], **grains}
    return rendered(options, sls, {"hypervisor": chosen}, **{**system["grains"], **said})


def by_firewall(options, system, python=ONEDIR):
    """Yield all states, and those of each firewall: nothing else of them differs by that."""
    yield made(options, system, python)
    for firewall in FIREWALLS:
        yield made(options, system, python, firewall, "hypervisor.firewall")


def whole(system, asked):
    """Return the packages that are there once these are: what they require comes with them."""
    found, ahead = set(), list(asked)
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += system["packages"].get(name, {}).get("requires", ())
    return found


@pytest.mark.parametrize("file", FILES)
def test_every_fact_has_a_source_or_says_why_not(file):
    sources = FILES[file]["sources"]

    for system in FILES[file]["systems"]:
        for name, fact in system["packages"].items():
            assert ("source" in fact) != ("unconfirmed" in fact), (system["name"], name)
            assert fact.get("source") in {None, *sources}, (system["name"], name)
            assert set(fact.get("requires", ())) <= set(system["packages"]), (system["name"], name)


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_package_is_there(options, system, python):
    asked = set()
    for states in by_firewall(options, system, python):
        asked |= packages(states)
    if system["grains"]["os_family"] == "RedHat":
        sls = "hypervisor.storage"
        asked |= packages(made(options, system, python, sls=sls, selinux={"enabled": True}))

    assert asked - set(system["packages"]) == set()


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_unit_comes_with_the_packages(options, system):
    for states in by_firewall(options, system):
        there = {
            unit
            for name in whole(system, packages(states))
            for unit in system["packages"].get(name, {}).get("units", ())
        }
        wanted = units(states, "service.running") | units(states, "service.enabled")

        assert {unit if "." in unit else f"{unit}.service" for unit in wanted} - there == set()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_repository_is_switched_on_before_its_packages_are_asked_for(options, system):
    states = made(options, system)
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
def test_a_subscription_is_told_what_to_switch_on(options, release):
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


def test_without_a_compiler_no_repository_is_switched_on(options):
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
def test_a_module_that_the_system_has_no_package_of_is_missed(options, family, is_said):
    states = rendered(
        options,
        "hypervisor.packages",
        os_family=family,
        osrelease="20.1",
        pythonexecutable="/usr/bin/python3.99",
    )

    found = states.get("hypervisor_python_pycdlib")
    assert (found is not None) is is_said
    if found:
        function, arguments = found
        assert function == "test.fail_without_changes"
        assert (
            "/usr/bin/python3.99, on which Salt runs, lacks the module pycdlib"
            in (arguments["name"])
        )
        assert arguments["unless"] == '/usr/bin/python3.99 -c "import pycdlib"'
