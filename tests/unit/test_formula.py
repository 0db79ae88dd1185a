"""The formula, rendered by Salt itself for every family of systems that it knows."""

import functools
import socket
from pathlib import Path

import pytest
import salt.config
import salt.loader
import salt.state
import saltonce
from saltvirt.seed import lending

ROOT = Path(__file__).resolve().parents[2]
ONEDIR = "/opt/saltstack/salt/bin/python3.10"
# Family, release, and the daemon that listens there: libvirtd alone or virtproxyd before many.
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
    "appliance",
    "sysctl",
    "firewall",
]


@pytest.fixture(scope="module", autouse=True)
def templates():
    """Have the formula's templates compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        saltonce.templates_are_compiled(patch)
        yield


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """Options of a masterless minion whose file server is this checkout."""
    folder = tmp_path_factory.mktemp("minion")
    # The formula alone: Salt walks through all that it serves, several times for each call.
    (folder / "states").mkdir()
    (folder / "states" / "hypervisor").symlink_to(ROOT / "hypervisor")
    opts = salt.config.minion_config(None)
    opts.update(
        id="bare",
        file_client="local",
        root_dir=str(folder),
        file_roots={"base": [str(folder / "states")]},
        **{key: str(folder / key) for key in ("cachedir", "pki_dir", "extension_modules")},
    )
    return dict(opts)


@functools.cache
def of_this_machine():
    """Return the grains that Salt finds itself, which takes it about a second."""
    return salt.loader.grains(salt.config.minion_config(None))


def shown(options, sls, pillar, grains):
    """Return what ``state.show_sls`` says on such a system: states, or what is wrong."""
    opts = {**options, "grains": {**of_this_machine(), **grains}}
    # As state.show_sls does it, whose minion takes on the grains of the one that is made after it.
    with salt.state.HighState(opts, initial_pillar=pillar) as highstate:
        highstate.push_active()
        try:
            states, errors = highstate.render_highstate({"base": [sls]})
        finally:
            highstate.pop_active()
        return errors + highstate.state.verify_high(states) or states


def rendered(options, sls, pillar=None, **grains):
    """Return ``{id: (state.function, {argument: value})}`` of an SLS on such a system."""
    usual = {"osarch": "amd64", "init": "systemd", "pythonexecutable": ONEDIR}
    states = shown(options, sls, pillar or {"hypervisor": {}}, {**usual, **grains})
    assert isinstance(states, dict), states
    out = {}
    for name, body in states.items():
        ((kind, items),) = ((k, v) for k, v in body.items() if not k.startswith("__"))
        function = next(item for item in items if isinstance(item, str))
        arguments = {k: v for item in items if isinstance(item, dict) for k, v in item.items()}
        out[name] = (f"{kind}.{function}", arguments)
    return out


def units(states, function):
    """Return the units that a state function is about."""
    return {arguments["name"] for name, arguments in states.values() if name == function}


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
def test_the_appliance_has_a_user_of_its_own_who_cannot_log_in(options, family, release):
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

    there = {(name.partition(".")[0], key) for key, (name, _arguments) in states.items()}
    wanted = {
        pair
        for _name, arguments in states.values()
        for kind in ("require", "watch", "onchanges", "require_in")
        for one in arguments.get(kind, ())
        for pair in one.items()
    }
    assert wanted <= there


@pytest.mark.parametrize("family", ["Debian", "RedHat", "Suse", "Arch"])
def test_packages_are_those_of_the_family_and_of_salts_python(options, family):
    own = rendered(
        options,
        "hypervisor.packages",
        os_family=family,
        osrelease="9",
        pythonexecutable="/nowhere/python3",
    )
    system = rendered(
        options,
        "hypervisor.packages",
        os_family=family,
        osrelease="9",
        pythonexecutable="/usr/bin/python3.99",
    )

    assert any("libvirt" in name for name in own["hypervisor_packages"][1]["pkgs"])
    assert any("qemu" in name for name in own["hypervisor_packages"][1]["pkgs"])
    assert own["hypervisor_python_modules"][0] == "pip.installed"
    assert own["hypervisor_python_modules"][1]["names"] == ["libvirt-python", "pycdlib", "pyroute2"]
    assert system["hypervisor_python_modules"][0] == "pkg.installed"
    assert "hypervisor_compiler" not in system


def test_the_pillar_wins(options):
    pillar = {
        "hypervisor": {
            "qemu_conf": {"migration_port_max": 49160, "user": "root"},
            "firewall": {"backend": "iptables", "peers": ["192.0.2.0/24"]},
            "bridges": {"br7": {"ports": ["bond0"], "mtu": 9000}},
            "pool": {"path": "/vm"},
            "images": "/vm/images",
            "tls_allowed_dn_list": ["*CN=hyper1*"],
            "keys": {"vnc": True},
        }
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


def test_no_firewall_means_none(options):
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
def test_iptables_comes_without_a_service_that_saves_the_rules_of_others(
    options, family, release, package
):
    pillar = {"hypervisor": {"firewall": {"backend": "iptables"}}}
    states = rendered(options, "hypervisor.firewall", pillar, os_family=family, osrelease=release)

    assert states["hypervisor_firewall_package"][1]["name"] == package
    assert "firewalld" not in units(states, "service.running")


def firewalld(options, port):
    """Return the states of a host with firewalld whose master publishes on that port."""
    heard = {**options, "publish_port": port}
    return rendered(heard, "hypervisor.firewall", os_family="RedHat", osrelease="9.4")


def test_firewalld_is_started_before_it_gets_rules_and_lets_the_master_be_heard(options):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            states = firewalld(options, port)

    assert states["hypervisor_firewalld"][0] == "service.running"
    assert states["hypervisor_firewalld"][1]["enable"] is True
    assert {"service": "hypervisor_firewalld"} in states["hypervisor_firewall"][1]["require"]
    function, heard = states["hypervisor_firewalld_hears_127.0.0.1"]
    assert function == "cmd.run" and heard["onchanges"] == [
        {"pkg": "hypervisor_firewall_package"},
        {"service": "hypervisor_firewalld"},
    ]
    assert heard["name"] == (
        'firewall-cmd --timeout=10m --add-rich-rule=\'rule family="ipv4" source '
        f'address="127.0.0.1" source-port port="{port}" protocol="tcp" accept\''
    )
    assert list(states).index("hypervisor_firewalld_hears_127.0.0.1") < list(states).index(
        "hypervisor_firewall"
    )


def test_a_host_that_hears_no_master_opens_nothing_for_one(options):
    with socket.create_server(("127.0.0.1", 0)) as server:
        states = firewalld(options, server.getsockname()[1])

    assert not [name for name in states if "hears" in name]


def test_a_host_without_systemd_listens_by_an_argument(options):
    states = rendered(
        options, "hypervisor.libvirt", os_family="Debian", osrelease="12", init="sysvinit"
    )

    assert states["hypervisor_listen"][1]["key_values"] == {"LIBVIRTD_ARGS": '"--listen"'}
    assert units(states, "service.running") == {"libvirtd", "virtlogd"}


def test_a_system_nobody_knows_is_refused_by_name(options):
    wrong = shown(options, "hypervisor", {"hypervisor": {}}, {"os_family": "Solaris"})

    assert "the formula hypervisor knows Arch, Debian, RedHat, Suse, not Solaris" in str(wrong)
