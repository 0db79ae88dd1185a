"""A wrong value in the formula's pillar is refused in one line before any change."""

import pytest
import yaml
from formulakit import ONEDIR, ROOT, rendered, shown

DEBIAN = {"os_family": "Debian", "osrelease": "12"}


def _refused(options, sls, value):
    grains = {"osarch": "amd64", "init": "systemd", "pythonexecutable": ONEDIR, **DEBIAN}
    (error,) = shown(options, sls, {"hypervisor": value}, grains)
    return error.splitlines()[0]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("yes", 'hypervisor: expected a mapping, found "yes"'),
        ({"bridge": {"br0": {}}}, 'hypervisor: the formula has no option "bridge"; known: bridges'),
        ({"bridges": [{"br0": {}}]}, "hypervisor:bridges: expected a mapping, found a list"),
        ({"bridges": {"br0": ["eth0"]}}, "hypervisor:bridges:br0: expected a mapping, found a li"),
        ({"daemons": "moduler"}, "hypervisor:daemons: expected monolithic or modular, found"),
        ({"firewall": "iptables"}, 'hypervisor:firewall: expected a mapping, found "iptables"'),
        ({"firewall": {"backend": "ufw"}}, "hypervisor:firewall:backend: expected nftables or"),
        ({"firewall": {"backend": False}}, "hypervisor:firewall:backend: expected nftables or"),
        ({"firewall": {"peer": []}}, 'hypervisor:firewall: the formula has no option "peer"'),
        ({"firewall": {"peers": {"a": 1}}}, "hypervisor:firewall:peers: expected a list, found a"),
        ({"extra_packages": "guestmount"}, "hypervisor:extra_packages: expected a list, found"),
        # With a text libvirtd would not start.
        ({"tls_allowed_dn_list": "OU=x,*"}, "hypervisor:tls_allowed_dn_list: expected a list, f"),
        ({"nat": "no"}, 'hypervisor:nat: expected True or False, found "no"'),
        ({"pool": {"path": 7}}, "hypervisor:pool:path: expected text, found 7"),
    ],
    ids=str,
)
@pytest.mark.parametrize("sls", ["hypervisor", "hypervisor.sysctl"])
def test_each_part_names_a_wrong_value(options, sls, value, reason):
    assert f"pillar {reason}" in _refused(options, sls, value)


def test_errors_do_not_show_libvirts_settings(options):
    value = {"qemu_conf": [{"vnc_password": "hushhush"}]}

    error = _refused(options, "hypervisor.libvirt", value)

    assert "hypervisor:qemu_conf: expected a mapping, found a list" in error
    assert "hushhush" not in error


@pytest.mark.parametrize(
    "value",
    [
        None,
        dict.fromkeys(("bridges", "firewall", "pool", "keys", "extra_packages", "sysctl", "nat")),
        {"firewall": {"backend": None}, "pool": {"path": None}, "qemu_conf": {"max_core": None}},
    ],
    ids=["all", "each", "within"],
)
def test_empty_values_count_as_left_out(options, value):
    expected = rendered(options, "hypervisor", {"hypervisor": {}}, **DEBIAN)

    assert rendered(options, "hypervisor", {"hypervisor": value}, **DEBIAN) == expected


def test_a_bridge_may_have_nothing_but_its_name(options):
    states = rendered(options, "hypervisor.bridge", {"hypervisor": {"bridges": {"br1": None}}})

    assert states["hypervisor_bridge_br1"][1]["name"] == "br1"


def test_an_empty_repository_of_the_compiler_counts_as_none(options):
    states = rendered(
        options,
        "hypervisor.packages",
        {"hypervisor": {"builder_repository": None}},
        os_family="RedHat",
        osrelease="9.4",
    )

    assert "hypervisor_builder_repository" not in states


def test_a_single_peer_may_be_text(options):
    states = rendered(
        options, "hypervisor.firewall", {"hypervisor": {"firewall": {"peers": "::1"}}}
    )

    assert states["hypervisor_firewall"][1]["peers"] == "::1"


def test_the_example_is_valid(options):
    example = yaml.safe_load((ROOT / "hypervisor/pillar.example").read_text())

    states = rendered(options, "hypervisor", example, **DEBIAN)

    assert "hypervisor_bridge_br0" in states
