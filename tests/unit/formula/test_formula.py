"""The formula, rendered by Salt itself for each supported family of systems."""

import os
import re
import socket

import pytest
from formulakit import rendered, shown, units
from saltvirt.seeding.offline import lending
from saltvirt.xml.domain import tlspriority

# Family, release, and the listening daemon: libvirtd alone, or virtproxyd before many daemons.
SYSTEMS = [
    ("Debian", "12", "libvirtd"),
    ("Debian", "13", "libvirtd"),
    ("Debian", "24.04", "libvirtd"),
    ("RedHat", "8.10", "libvirtd"),
    ("RedHat", "9.4", "virtproxyd"),
    ("RedHat", "10.0", "virtproxyd"),
    ("Suse", "15.5", "libvirtd"),
    ("Suse", "15.6", "virtproxyd"),
    ("Suse", "20241101", "virtproxyd"),
    ("Arch", "rolling", "libvirtd"),
]
PARTS = [
    "modules",
    "packages",
    "bridge",
    "keys",
    "libvirt",
    "storage",
    "nat",
    "appliance",
    "sysctl",
    "firewall",
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "release", "listener"), SYSTEMS)
def test_every_system_gets_a_listener_for_tls_after_its_keys(options, family, release, listener):
    states = rendered(options, "hypervisor", os_family=family, osrelease=release)

    assert f"{listener}-tls.socket" in units(states, "service.running")
    order = list(states)
    assert order.index("hypervisor_keys") < order.index("hypervisor_tls_socket")
    conf = states["hypervisor_daemon_settings"][1]
    assert conf["name"] == f"/etc/libvirt/{listener}.conf"
    assert conf["key_values"]["tls_allowed_dn_list"] == '["OU=salt-virt hypervisor,*"]'
    is_modular = listener == "virtproxyd"
    assert ("virtqemud.socket" in units(states, "service.running")) == is_modular
    assert ("libvirtd.socket" in units(states, "service.dead")) == is_modular


@pytest.mark.parametrize(("family", "release"), [system[:2] for system in SYSTEMS])
def test_the_appliance_has_a_user_of_its_own_without_a_login(options, family, release):
    states = rendered(options, "hypervisor", os_family=family, osrelease=release)

    for name in lending.USERS:
        function, arguments = states[f"hypervisor_appliance_user_{name}"]
        assert (function, arguments["name"]) == ("user.present", name)
        assert (arguments["system"], arguments["createhome"]) == (True, False)
        assert (arguments["shell"], arguments["gid"]) == ("/usr/sbin/nologin", name)
        assert "optional_groups" not in arguments and "groups" not in arguments


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("family", "release"), [system[:2] for system in SYSTEMS])
def test_every_part_stands_alone(options, part, family, release):
    bridges = {"br0": {"ports": ["eth0"]}}
    states = rendered(
        options,
        f"hypervisor.{part}",
        {"hypervisor": {"bridges": bridges}},
        os_family=family,
        osrelease=release,
    )

    defined_states = {(name.partition(".")[0], key) for key, (name, _arguments) in states.items()}
    required_states = {
        pair
        for _name, arguments in states.values()
        for kind in ("require", "watch", "onchanges", "require_in")
        for requisite in arguments.get(kind, ())
        for pair in requisite.items()
    }
    assert required_states <= defined_states


@pytest.mark.parametrize("family", ["Debian", "RedHat", "Suse", "Arch"])
def test_packages_are_those_of_the_family_and_of_salts_python(options, family):
    with_salts_python = rendered(
        options,
        "hypervisor.packages",
        os_family=family,
        osrelease="9",
        pythonexecutable="/nowhere/python3",
    )
    with_system_python = rendered(
        options,
        "hypervisor.packages",
        os_family=family,
        osrelease="9",
        pythonexecutable="/usr/bin/python3.99",
    )

    assert any("libvirt" in name for name in with_salts_python["hypervisor_packages"][1]["pkgs"])
    assert any("qemu" in name for name in with_salts_python["hypervisor_packages"][1]["pkgs"])
    assert with_salts_python["hypervisor_python_modules"][0] == "pip.installed"
    assert with_salts_python["hypervisor_python_modules"][1]["names"] == [
        "libvirt-python",
        "pycdlib",
        "pyroute2",
    ]
    assert with_system_python["hypervisor_python_modules"][0] == "pkg.installed"
    assert "hypervisor_compiler" not in with_system_python


@pytest.mark.parametrize(
    ("family", "name"), [("Debian", "python3-guestfs"), ("RedHat", "python3-libguestfs")]
)
def test_a_host_gets_the_python_module_of_libguestfs(options, family, name):
    states = rendered(
        options,
        "hypervisor.packages",
        os_family=family,
        osrelease="9",
        pythonexecutable="/nowhere/python3",
    )

    assert name in states["hypervisor_packages"][1]["pkgs"]


def test_the_pillar_wins(options):
    pillar = {
        "hypervisor": {
            "qemu_conf": {"migration_port_max": 49160, "user": "root"},
            "firewall": {"backend": "iptables", "peers": ["192.0.2.0/24"]},
            "bridges": {"br7": {"ports": ["bond0"], "mtu": 9000}},
            "pool": {"path": "/vm"},
            "tls_allowed_dn_list": ["*CN=hyper1*"],
            "keys": {"vnc": True},
        },
        "virt": {"images": "/vm/images"},
    }
    states = rendered(options, "hypervisor", pillar, os_family="Debian", osrelease="12")

    assert states["hypervisor_qemu_settings"][1]["key_values"]["user"] == '"root"'
    assert states["hypervisor_firewall"][1]["ports"] == [16514, "49152-49160"]
    assert states["hypervisor_firewall"][1]["backend"] == "iptables"
    assert states["hypervisor_firewall"][1]["peers"] == ["192.0.2.0/24"]
    bridge = states["hypervisor_bridge_br7"][1]
    assert (bridge["name"], bridge["mtu"], bridge["ports"]) == ("br7", 9000, ["bond0"])
    assert states["hypervisor_pool"][1]["target"] == "/vm"
    assert states["hypervisor_images"][1]["name"] == "/vm/images"
    assert states["hypervisor_keys"][1]["vnc"] is True


@pytest.mark.parametrize(
    ("family", "package"),
    [
        ("Debian", "dnsmasq-base"),
        ("RedHat", "libvirt-daemon-config-network"),
        ("Suse", "libvirt-daemon-config-network"),
        ("Arch", "dnsmasq"),
    ],
)
def test_a_nat_network_is_defined_unless_switched_off(options, family, package):
    states = rendered(options, "hypervisor", os_family=family, osrelease="12")
    without = {"hypervisor": {"nat": False}}
    unwanted = rendered(options, "hypervisor", without, os_family=family, osrelease="12")

    assert states["hypervisor_nat_packages"][1]["pkgs"] == [package]
    assert states["hypervisor_nat"] == (
        "virt.nat_running",
        {**states["hypervisor_nat"][1], "name": "default"},
    )
    assert not [name for name in unwanted if "nat" in name.split("_")]


def test_without_a_firewall_option_there_is_no_firewall(options):
    states = rendered(
        options,
        "hypervisor",
        {"hypervisor": {"firewall": {"backend": "none"}}},
        os_family="Debian",
        osrelease="12",
    )

    assert not [name for name in states if "firewall" in name]


@pytest.mark.parametrize(
    ("family", "release", "package"),
    [
        ("Debian", "12", "iptables"),
        ("RedHat", "8.10", "iptables"),
        ("RedHat", "9.4", "iptables-nft"),
        ("Suse", "15.6", "iptables"),
    ],
)
def test_iptables_comes_without_a_service_that_saves_foreign_rules(
    options, family, release, package
):
    pillar = {"hypervisor": {"firewall": {"backend": "iptables"}}}
    states = rendered(options, "hypervisor.firewall", pillar, os_family=family, osrelease=release)

    assert states["hypervisor_firewall_package"][1]["pkgs"] == [package, "nftables"]
    assert "firewalld" not in units(states, "service.running")


def firewalld_states(options, port, **more):
    """Return the states of a host with firewalld and a master that publishes on this port."""
    minion_options = {**options, "publish_port": port, **more}
    return rendered(minion_options, "hypervisor.firewall", os_family="RedHat", osrelease="9.4")


def test_firewalld_is_started_before_its_rules_and_accepts_the_masters_packets(options):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            states = firewalld_states(options, port)

    assert states["hypervisor_firewalld"][0] == "service.running"
    assert states["hypervisor_firewalld"][1]["enable"] is True
    assert {"service": "hypervisor_firewalld"} in states["hypervisor_firewall"][1]["require"]
    function, arguments = states["hypervisor_firewalld_hears_127.0.0.1"]
    assert function == "cmd.run" and arguments["onchanges"] == [
        {"pkg": "hypervisor_firewall_package"},
        {"service": "hypervisor_firewalld"},
    ]
    assert arguments["name"] == (
        'firewall-cmd --timeout=10m --add-rich-rule=\'rule family="ipv4" source '
        f'address="127.0.0.1" source-port port="{port}" protocol="tcp" accept\''
    )
    assert list(states).index("hypervisor_firewalld_hears_127.0.0.1") < list(states).index(
        "hypervisor_firewall"
    )


def test_a_host_without_a_connection_to_a_master_gets_no_rule_for_it(options):
    with socket.create_server(("127.0.0.1", 0)) as server:
        states = firewalld_states(options, server.getsockname()[1])

    assert not [name for name in states if "hears" in name]


@pytest.fixture
def two_peers():
    """Connections to one port on two addresses of this machine; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with (
            socket.create_server(("127.0.0.2", port)),
            socket.create_connection(("127.0.0.1", port)),
            socket.create_connection(("127.0.0.2", port)),
        ):
            yield port


@pytest.mark.parametrize(
    "master",
    [
        {"master_ip": "127.0.0.1", "master": "salt.example.org"},
        {"master_ip": "[127.0.0.1]"},
        {"master": ["127.0.0.1", "salt2.example.org"]},
    ],
)
def test_firewalld_accepts_the_minions_own_master_and_no_other_peer(options, two_peers, master):
    """Each user of the host can connect to this port on a machine of their own."""
    states = firewalld_states(options, two_peers, **master)

    hears = [name for name in states if "hears" in name]
    assert hears == ["hypervisor_firewalld_hears_127.0.0.1"]


def test_without_a_configured_master_no_peer_counts_as_one(options, two_peers):
    assert not [name for name in firewalld_states(options, two_peers) if "hears" in name]


def test_a_host_without_systemd_listens_by_an_argument(options):
    states = rendered(
        options, "hypervisor.libvirt", os_family="Debian", osrelease="12", init="sysvinit"
    )

    assert states["hypervisor_listen"][1]["key_values"] == {"LIBVIRTD_ARGS": '"--listen"'}
    assert units(states, "service.running") == {"libvirtd", "virtlogd"}


def test_an_unknown_system_is_refused_by_name(options):
    errors = shown(options, "hypervisor", {"hypervisor": {}}, {"os_family": "Solaris"})

    assert "the formula hypervisor knows Arch, Debian, RedHat, Suse, not Solaris" in str(errors)


def test_the_folder_of_images_is_the_one_that_vms_use(options):
    def folder(pillar, **grains):
        states = rendered(
            options, "hypervisor.storage", pillar, os_family="Debian", osrelease="12", **grains
        )
        return states["hypervisor_images"][1]["name"]

    assert folder({"hypervisor": {}}) == "/srv/salt-images"
    assert folder({"virt": {"images": "/vm"}}) == "/vm"
    assert folder({"virt.images": "/vm"}) == "/vm"
    assert folder({"virt": {"images": "/vm"}}, virt={"images": "/of-grains"}) == "/of-grains"
    assert folder({"hypervisor": {}}, virt={"images": "/of-grains"}) == "/of-grains"


def test_an_existing_pool_keeps_its_path_unless_one_is_configured(options, monkeypatch):
    def target(**pool):
        pillar = {"hypervisor": {"pool": pool}}
        states = rendered(options, "hypervisor.storage", pillar, os_family="Debian", osrelease="12")
        return states["hypervisor_pool"][1].get("target")

    is_file, old = os.path.isfile, "/etc/libvirt/storage/old.xml"
    monkeypatch.setattr(os.path, "isfile", lambda path: path == old or is_file(path))
    assert target() == target(name="new") == "/var/lib/libvirt/images"
    assert target(name="old") is None
    assert target(name="old", path="/vm") == "/vm"


def test_libguestfs_is_installed_unless_switched_off(options):
    def pkgs(**options_of_pillar):
        states = rendered(
            options,
            "hypervisor.packages",
            {"hypervisor": options_of_pillar},
            os_family="Debian",
            osrelease="12",
        )
        return states["hypervisor_packages"][1]["pkgs"]

    assert "python3-guestfs" in pkgs()
    assert "python3-guestfs" not in pkgs(guestfs=False)
    assert pkgs(extra_packages=["python3-guestfs", "guestmount"]).count("python3-guestfs") == 1
    assert "guestmount" in pkgs(extra_packages=["guestmount"])


@pytest.mark.parametrize("selinux", [{}, {"selinux": {"enabled": False}}])
def test_without_selinux_nothing_is_labelled(options, selinux):
    states = rendered(options, "hypervisor", os_family="RedHat", osrelease="9.4", **selinux)

    assert not [name for name, _arguments in states.values() if name.startswith("selinux")]


def test_with_selinux_the_folder_of_images_is_labelled_and_booleans_are_set(options):
    states = rendered(
        options,
        "hypervisor.storage",
        {
            "hypervisor": {"selinux_booleans": ["virt_use_nfs"]},
            "virt": {"images": "/srv/vm.images"},
        },
        os_family="RedHat",
        osrelease="9.4",
        selinux={"enabled": True, "enforced": "Enforcing"},
    )

    assert states["hypervisor_selinux_tools"][1]["pkgs"] == ["policycoreutils-python-utils"]
    function, policy = states["hypervisor_images_policy"]
    assert function == "selinux.fcontext_policy_present"
    assert (policy["name"], policy["sel_type"]) == (r"/srv/vm\.images(/.*)?", "virt_image_t")
    function, label = states["hypervisor_images_label"]
    assert (function, label["name"]) == ("selinux.fcontext_policy_applied", "/srv/vm.images")
    assert {"file": "hypervisor_images"} in label["require"]
    function, boolean = states["hypervisor_selinux_virt_use_nfs"]
    assert function == "selinux.boolean"
    assert (boolean["name"], boolean["value"], boolean["persist"]) == ("virt_use_nfs", True, True)


def test_qemus_tls_settings_disable_aes(options):
    states = rendered(options, "hypervisor.libvirt", os_family="Debian", osrelease="13")
    kind, arguments = states["hypervisor_qemu_gnutls"]

    assert kind == "file.managed" and arguments["name"] == tlspriority.FILE
    refused = set(re.findall(r"^tls-disabled-cipher = (\S+)$", arguments["contents"], re.M))
    assert refused == {f"aes-{bits}-{mode}" for bits in (128, 256) for mode in ("gcm", "ccm")}
    # Without ChaCha20, as in FIPS mode, no cipher would remain.
    (unless,) = arguments["unless"]
    assert unless["path"] == "/proc/sys/crypto/fips_enabled"


@pytest.mark.parametrize(
    ("family", "release", "begin"),
    [("Debian", "12", "NORMAL:"), ("RedHat", "9", "@QEMU,SYSTEM:"), ("Suse", "15.6", "NORMAL:")],
)
def test_libvirt_prefers_chacha20_for_moves(options, family, release, begin):
    states = rendered(options, "hypervisor.libvirt", os_family=family, osrelease=release)
    value = states["hypervisor_qemu_settings"][1]["key_values"]["migrate_tls_priority"]

    # A missing cipher is skipped: AES remains for a peer, or a policy, without ChaCha20.
    assert value.strip('"').startswith(f"{begin}-CIPHER-ALL:+CHACHA20-POLY1305:+AES-256-GCM")
