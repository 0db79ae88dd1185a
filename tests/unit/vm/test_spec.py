"""A call of virt.init means one VM, and every keyword of it is looked at."""

import re
from dataclasses import fields, replace

import pytest
from saltvirt.core.errors import BadArgument, BadConfig
from saltvirt.core.model import Policy
from saltvirt.core.options import config
from saltvirt.core.options.config import MasterSettings
from saltvirt.vm import spec
from saltvirt.xml.domain import graphics

HOST = config.HostSettings()


def meant(*args, **kwargs):
    """Return what a call means."""
    name, cpu, mem, *rest = args or ("vm", 1, 128)
    return spec.deployment(HOST, name, cpu, mem, spec.options_by_name(rest, kwargs))


def test_the_seeds_positional_image_is_an_image():
    deployment = meant("centos1", 2, 512, "salt://centos.img")

    assert deployment.vm.disks[0].image == "salt://centos.img"
    assert deployment.vm.nics[0].source == "br0"
    assert deployment.is_seeded


def test_the_old_positional_nic_profile_is_still_one():
    with pytest.raises(BadArgument, match="no profile 'dmz'"):
        meant("centos1", 2, 512, "dmz")


def test_the_positional_image_leaves_the_profile_to_its_keyword_or_the_next_value():
    profiles = config.HostSettings(nic={"dmz": {"eth0": {"bridge": "br9"}}})

    for given in (
        spec.options_by_name(["salt://a"], {"nic": "dmz"}),
        spec.options_by_name(["salt://a", "dmz"], {}),
    ):
        vm = spec.deployment(profiles, "vm", 1, 128, given).vm
        assert (vm.disks[0].image, vm.nics[0].source) == ("salt://a", "br9")


def test_the_old_positions_keep_their_meaning():
    values = ["default", None, "qemu", False, "default", None, "dev"]

    deployment = meant("vm", 1, 128, *values)

    assert (deployment.vm.domain_type, deployment.start, deployment.saltenv) == (
        "qemu",
        False,
        "dev",
    )
    with pytest.raises(BadArgument, match="values too many"):
        meant("vm", 1, 128, *[None] * 40)
    with pytest.raises(BadArgument, match="^hypervisor: given twice"):
        meant("vm", 1, 128, "default", None, "qemu", hypervisor="kvm")


def test_an_image_given_twice_is_refused():
    with pytest.raises(BadArgument, match="given twice"):
        meant("vm", 1, 128, "salt://a", image="salt://b")


@pytest.mark.parametrize("image", ["centos.img", 7, ""])
def test_an_image_that_is_no_source_is_refused(image):
    with pytest.raises(BadArgument, match="^image"):
        meant(image=image)


@pytest.mark.parametrize("keyword", ["imaeg", "enable_qcow2", "ram", "vnc"])
def test_an_unknown_keyword_is_never_swallowed(keyword):
    with pytest.raises(BadArgument, match=f"no argument '{keyword}'"):
        meant(**{keyword: True})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"start": "yes"}, "start"),
        ({"seed": 1}, "seed"),
        ({"boot": "efi"}, "boot"),
        ({"boot": {"cmdline": "quiet"}}, "needs 'kernel'"),
        ({"boot": {"loader": "/x"}}, "go together"),
        ({"boot": {"efi": "no"}}, "boot:efi: 'no' is neither True nor False"),
        ({"boot": {"efi": True, "loader": "/x", "nvram": "/y"}}, "finds its own"),
        ({"boot_dev": "floppynet"}, "boot_dev"),
        ({"graphics": "vnc"}, "graphics"),
        ({"hypervisor": "xen"}, "hypervisor"),
        ({"serials": "pty"}, "serials"),
        ({"numatune": []}, "numatune"),
        ({"enable_qcow": "maybe"}, "enable_qcow"),
        ({"config": "master"}, "config"),
        *(({key: value}, f"^{key}: is not text$") for key in spec._TEXTS for value in (5, ["x"])),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_keyword(given, why):
    with pytest.raises(BadArgument, match=why):
        meant(**given)


def test_vnc_listens_on_loopback_unless_the_open_port_is_asked_for():
    asked = config.HostSettings(vnc={"listen": "0.0.0.0"})

    closed = meant(enable_vnc=True).vm.graphics
    opened = spec.deployment(asked, "vm", 1, 128, {"enable_vnc": True}).vm.graphics

    assert closed["listen"]["address"] == "127.0.0.1"
    assert opened["listen"]["address"] == "0.0.0.0"
    assert meant().vm.graphics is None


def test_a_vnc_password_that_the_protocol_would_cut_is_refused():
    with pytest.raises(BadArgument, match="8 characters"):
        graphics.from_call(graphics.vnc({"password": "correct horse"}))


def test_what_a_host_must_have_follows_from_the_vm():
    vm = meant(interfaces=[{"name": "eth1", "network": "n"}], anti_affinity="db,web").vm

    required = spec.requirements(vm)

    assert (required.bridges, required.networks) == (("br0",), ("n",))
    assert (required.vcpus, required.memory_mib, required.disk_mib) == (1, 128, 8192)
    assert required.anti_affinity == ("db", "web")


def test_the_master_names_profiles_and_leaves_their_meaning_to_the_hosts():
    given = {
        "nic": "dmz",
        "disk": "big",
        "image": "salt://x",
        "disks": [{"name": "data", "size": "1g"}],
    }

    features = {"avx": "require", "sgx": "force", "mpx": "disable"}
    required = spec.requirements_from_master(
        "vm", {"maximum": 2, "features": features}, "1g", given
    )

    assert (required.nic_profile, required.disk_profile, required.disk_mib) == ("dmz", "big", 1024)
    assert (required.vcpus, required.memory_mib, required.cpu_features) == (2, 1024, ("avx",))


def test_the_master_leaves_to_hosts_where_a_profile_has_a_nic_that_a_call_adds_to():
    given = {
        "interfaces": [{"name": "eth0", "mac": "52:54:00:aa:bb:01"}, {"name": "x", "source": "br7"}]
    }

    profiled, bare = (
        spec.requirements_from_master("vm", 1, 512, {**given, "nic": one}) for one in ("nat", None)
    )

    assert (profiled.bridges, bare.bridges) == (("br7",), ("br0", "br7"))


def test_configuration_wins_over_grains_and_grains_over_pillar():
    opts, grains, pillar = (
        {"virt": {"images": "/a"}},
        {"virt": {"images": "/b", "cpu_ratio": 2}},
        {"virt.cpu_ratio": 3, "virt": {"reserve_mib": 7}},
    )

    settings = config.host_settings(opts, pillar, grains)

    assert (settings.images, settings.cpu_ratio, settings.reserve_mib) == ("/a", 2.0, 7)


@pytest.mark.parametrize(
    ("virt", "why"),
    [
        ("kvm", ": expected a mapping, found 'kvm'"),
        ({"images": "relative"}, ":images: expected an absolute path, found 'relative'"),
        ({"images": 5}, ":images: expected an absolute path, found 5"),
        ({"cpu_ratio": "many"}, ":cpu_ratio: expected a number of at least 0, found 'many'"),
        ({"cpu_ratio": ".nan"}, ":cpu_ratio: expected a number of at least 0, found '.nan'"),
        ({"cpu_ratio": float("nan")}, ":cpu_ratio: expected a number of at least 0, found nan"),
        ({"reserve_mib": -1}, ":reserve_mib: expected a whole number of at least 0, found -1"),
        ({"reserve_mib": 2.5}, ":reserve_mib: expected a whole number of at least 0, found 2.5"),
        ({"reserve_mib": True}, ":reserve_mib: expected a whole number of at least 0, found True"),
        ({"nic": ["x"]}, ":nic: expected a mapping, found ['x']"),
        ({"console_log": 3}, ":console_log: expected True or False, found 3"),
        ({"hypervisor": "xen"}, ":hypervisor: expected kvm or qemu, found 'xen'"),
        ({"hypervisor": ["kvm"]}, ":hypervisor: expected kvm or qemu, found ['kvm']"),
        ({"shared_paths": "/a"}, ":shared_paths: expected a list of absolute paths, found '/a'"),
        (
            {"connection": "qemu:///system"},
            ":connection: expected a mapping with auth, uri, found 'qemu:///system'",
        ),
        ({"connection": {"uri": 5}}, ":connection:uri: expected text, found 5"),
        (
            {"connection": {"auth": {"password": 1234}}},
            ":connection:auth:password: expected text, found something else",
        ),
        (
            {"capacity": {"vcpus": "many"}},
            ":capacity:vcpus: expected a whole number of at least 0, found 'many'",
        ),
        (
            {"capacity": {"memory": 5}},
            ":capacity: unknown key 'memory'; known: disk_mib, memory_mib, vcpus",
        ),
        (
            {"seed": {"allow_host_mount": "yes"}},
            ":seed:allow_host_mount: expected True or False, found 'yes'",
        ),
        ({"seed": {"limit_s": 0}}, ":seed:limit_s: expected a whole number of at least 1, found 0"),
        ({"seed": "x"}, ":seed: expected a mapping with allow_host_mount, bootstrap, config"),
        ({"seed": {"mastr": "x"}}, ":seed: unknown key 'mastr'"),
        ({"vnc": {"adress": "x"}}, ":vnc: unknown key"),
        ({"compat": 3005}, ":compat: expected 3006, found 3005"),
        ({"compat": True}, ":compat: expected 3006, found True"),
    ],
)
def test_a_bad_option_is_named(virt, why):
    with pytest.raises(BadConfig, match=re.escape(f"option virt{why}")) as refused:
        all_of(config.host_settings({"virt": virt}))
    assert "\n" not in str(refused.value)


def test_a_bad_option_stops_only_what_needs_it(caplog):
    said = "option virt:cpu_ratio: expected a number of at least 0, found 'many'"

    settings = config.host_settings({"virt": {"cpu_ratio": "many", "images": "/a"}})

    assert settings.images == "/a" and config.find_errors(settings) == [said]
    assert [record.getMessage() for record in caplog.records] == [
        f"{said}; what needs it is refused"
    ]
    with pytest.raises(BadConfig, match="virt:cpu_ratio"):
        _ = settings.cpu_ratio
    with pytest.raises(BadConfig, match="virt:cpu_ratio"):
        replace(settings, images="/b")


def test_a_call_can_say_what_a_bad_option_of_the_connection_does_not():
    given = {"virt": {"connection": "qemu:///system"}}

    assert config.host_settings(given, connection="test:///default").uri == "test:///default"
    with pytest.raises(BadConfig, match="virt:connection"):
        _ = config.host_settings(given).uri


def all_of(settings):
    """Ask for every option."""
    return [getattr(settings, one.name) for one in fields(settings)]


def test_every_option_is_checked():
    def leaves(kinds, path=()):
        for name, kind in kinds.items():
            if isinstance(kind, dict):
                yield from leaves(kind, (*path, name))
            else:
                yield (*path, name)

    for path in leaves(config._HOST):
        value = object()
        for name in reversed(path):
            value = {name: value}
        with pytest.raises(BadConfig, match=f"option virt:{':'.join(path)}: expected"):
            all_of(config.host_settings({"virt": value}))
    assert {*config._HOST, "uri", "username", "password", "is_trash_set"} - {"connection"} == set(
        config.HostSettings.__dataclass_fields__
    )
    assert set(config._MASTER) == set(config.MasterSettings.__dataclass_fields__)


def test_an_option_of_the_master_is_checked():
    with pytest.raises(BadConfig, match="option virt:weights:cpu: expected a number of at least 0"):
        all_of(config.master_settings({"virt": {"weights": {"cpu": "much"}}}))


def test_numbers_may_be_texts_and_what_is_empty_is_the_default():
    settings = config.host_settings(
        {"virt": {"capacity": {"vcpus": "8", "memory_mib": None}, "connection": {"auth": None}}}
    )

    assert settings.capacity == {"vcpus": 8}
    assert settings.uri is None


def test_a_call_overrides_the_connection():
    given = {"uri": "qemu:///a", "auth": {"username": "a", "password": "b"}}
    own = config.host_settings({"virt": {"connection": given}})
    call = config.host_settings({"virt": {"connection": given}}, connection="qemu:///b")

    assert (own.uri, own.username, own.password) == ("qemu:///a", "a", "b")
    assert (call.uri, call.username) == ("qemu:///b", "a")


def test_the_password_of_the_own_libvirt_goes_to_no_other_that_a_caller_names():
    auth = {"username": "a", "password": "b"}
    own = {"virt": {"connection": {"uri": "qemu+tls://here/system", "auth": auth}}}
    usual = {"virt": {"connection": {"auth": auth}}}

    for options, uri in (
        (own, "qemu+tcp://else/system"),
        (own, "qemu:///system"),
        (usual, "qemu+tls://else/system?no_verify=1"),
        (usual, "qemu+unix:///system?socket=/run/libvirt/virtqemud-sock"),
    ):
        options = {"virt": {**options["virt"], "connections": uri}}
        call = config.host_settings(options, connection=uri)
        assert (call.uri, call.username, call.password) == (uri, None, None)
    same = config.host_settings(own, connection="qemu+tls://here/system")
    listed = {"virt": {**own["virt"], "connections": ["qemu+tcp://else/system"]}}
    told = config.host_settings(listed, connection="qemu+tcp://else/system", username="c")
    assert (same.username, same.password) == ("a", "b")
    assert (told.username, told.password) == ("c", None)


@pytest.mark.parametrize(
    "option",
    [
        ["s3cret"],
        {"connection": [{"auth": {"password": "s3cret"}}]},
        {"connection": {"auth": "a:s3cret"}},
        {"vnc": "s3cret"},
        {"seed": [{"user_data": {"password": "s3cret"}}]},
        {"seed": {"user_data": [{"password": "s3cret"}]}},
        {"seed": {"vendor_data": ["s3cret"]}},
        {"seed": {"config": "s3cret"}},
        {"seed": {"install_from": {"https://a:s3cret@b/": 1}}},
    ],
)
def test_what_stands_in_the_wrong_shape_where_secrets_are_is_not_shown(option, caplog):
    with pytest.raises(BadConfig, match="expected") as refused:
        all_of(config.host_settings({"virt": option}))

    assert "s3cret" not in str(refused.value) + caplog.text


def test_a_password_is_never_shown():
    settings = config.host_settings({}, username="u", password="s3cret")

    assert settings.password == "s3cret"
    assert "s3cret" not in repr(settings)


def test_what_a_call_says_of_placement_overrules_the_masters_options():
    settings = MasterSettings(placement="pack", spread_over="rack", headroom=True)
    nothing = {"placement": None, "spread_over": None, "headroom": None}

    assert config.policy(MasterSettings(), nothing) == Policy()
    assert config.policy(settings, nothing) == Policy(
        placement="pack", spread_over="rack", headroom=True
    )
    said = {"placement": "spread", "spread_over": "", "headroom": False}
    assert config.policy(settings, said) == Policy()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"placement": "tight"}, "placement: 'tight'; one of spread, pack"),
        ({"spread_over": 7}, "spread_over: 7 is not the name of a tag, such as rack"),
        ({"headroom": "yes"}, "headroom: 'yes' is neither True nor False"),
    ],
)
def test_what_placement_cannot_be_is_refused(given, why):
    with pytest.raises(BadArgument, match=re.escape(why)):
        config.policy(MasterSettings(), given)


@pytest.mark.parametrize(("typed", "meant"), [("hots", "host"), ("wate", "wait"), ("nik", "nic")])
def test_a_mistyped_argument_of_the_runner_is_told_the_one_that_was_meant(typed, meant):
    with pytest.raises(BadArgument, match=f"no argument '{typed}': did you mean '{meant}'"):
        spec.requirements_from_master("vm1", 1, 512, {typed: "x"})


@pytest.mark.parametrize("seed", [None, True, False])
def test_a_minions_keys_are_passed_over_where_nothing_is_seeded(seed):
    said = {} if seed is None else {"seed": seed}
    keys = {"pub_key": "a", "priv_key": "b"}

    given = spec.options_by_name((), {**said, **keys, "image": "/x.img"})

    assert given == {**said, **({} if seed is False else keys), "image": "/x.img"}
