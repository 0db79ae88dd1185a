"""A flag that is no boolean and a name that is no text are refused before anything changes."""

import shlex

import asloaded
import pytest
import salt.utils.args
from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.options.config import HostSettings
from saltvirt.vm import profiles, spec

_ONE = ("", "_vm", "_update", "_define", "_snapshot", "_query", "_answers", "_pool")
_PARTS = (*_ONE, "_migrate", "_doctor", "_change")
MERGED = {
    name: value
    for part in _PARTS
    for name, value in vars(asloaded.module(f"_modules/virt{part}.py")).items()
    if callable(value)
}
POWER = asloaded.module("_states/virt_power.py")
RUNNERS = ("init", "clone", "migrate", "evacuate", "init_many")
NO_FLAG = "is neither True nor False"


@pytest.mark.parametrize("purge", ["no", "Flase", "", 1])
def test_a_value_that_is_no_flag_does_not_empty_a_pool(conn, virt, applied, purge):
    applied("pool_running", "p1", target="/srv/p1")
    virt.volume_define("p1", "v", 1)

    answers = applied("pool_deleted", "p1", purge=purge)

    assert {(answer["result"], answer["comment"]) for answer in answers} == {
        (False, f"Failed deleting pool: purge: {purge!r} {NO_FLAG}")
    }
    assert virt.pool_list_volumes("p1") == ["v"]


@pytest.mark.parametrize("flag", ["transient", "autostart"])
def test_a_flag_of_a_pool_is_true_or_false(conn, virt, applied, flag):
    answers = applied("pool_running", "p1", target="/srv/p1", **{flag: "no"})

    assert [answer["comment"] for answer in answers] == [f"{flag}: 'no' {NO_FLAG}"] * 3
    assert virt.list_pools() == ["default-pool"]


@pytest.mark.parametrize(
    ("function", "options"),
    [
        ("purge_", {"vm_": "test", "removables": "no"}),
        ("purge_", {"vm_": "test", "dirs": "Flase"}),
        ("setmem", {"vm_": "test", "memory": 64, "config": "no"}),
        ("setvcpus", {"vm_": "test", "vcpus": 1, "config": "no"}),
    ],
)
def test_a_flag_of_a_vm_is_true_or_false(conn, function, options):
    with pytest.raises(BadArgument, match=NO_FLAG):
        MERGED[function](**options)

    assert conn.lookupByName("test").info()[1:3] == [8388608, 2097152]


@pytest.mark.parametrize("dry_run", ["", None, 0, "no"])
@pytest.mark.parametrize("function", RUNNERS)
def test_a_dry_run_that_is_no_flag_is_refused(function, dry_run):
    functions = {}
    for part in ("virt", "virt_clone", "virt_migrate", "virt_many"):
        module = asloaded.module(f"_runners/{part}.py", user="root", max_event_size=1 << 20)
        module.__context__ = {}
        functions |= vars(module)
    args = {"init": ("web1", 1, 512), "clone": ("web1", "web2")}.get(function, ("web1",))

    answer = functions[function](*args, dry_run=dry_run)

    assert answer == {"error": f"dry_run: {dry_run!r} {NO_FLAG}", "retcode": 1}


@pytest.mark.parametrize(
    "function",
    ["get_xml", "start", "stop", "setvcpus", "undefine", "list_snapshots", "vm_state", "get_disks"],
)
def test_a_vm_whose_name_is_a_number_is_named_in_quotes(conn, function):
    with pytest.raises(BadArgument) as refused:
        MERGED[function](101, **({"vcpus": 1} if function == "setvcpus" else {}))

    assert str(refused.value) == (
        "name: 101 is not text; quote it, on a command line twice: \"'101'\""
    )


@pytest.mark.parametrize(("typed", "quoted"), [("101", "101"), ("yes", "on"), ("1.5", "1.5")])
def test_a_name_that_salt_reads_as_something_else_is_quoted_twice(typed, quoted):
    """The shell and then Salt take the quotes off that the error tells to type."""
    ((parsed_name,), _named) = salt.utils.args.parse_input([typed], condition=False)
    for check in (arguments.vm_name, lambda name: arguments.names("host", name)):
        with pytest.raises(BadArgument, match="; quote it") as refused:
            check(parsed_name)
        (word,) = shlex.split(str(refused.value).rpartition("twice: ")[2])
        assert salt.utils.args.parse_input([word], condition=False)[0] == [quoted]


@pytest.mark.parametrize("name", [101, ["web1"], None])
def test_a_state_refuses_a_name_that_is_no_text(conn, name):
    POWER.__opts__["test"] = False

    answer = POWER.stopped(name)

    assert answer["result"] is False
    assert answer["comment"].startswith(f"name: {name!r} is not text")


def test_text_that_libvirt_refuses_is_no_traceback(conn):
    with pytest.raises(BadArgument, match=r"is of type int, where libvirt takes text; quote a"):
        MERGED["pool_start"](101)
    with pytest.raises(BadArgument, match="is not text"):
        MERGED["define_xml_str"](["<domain/>"])


@pytest.mark.parametrize("flag", ["no", "yes", 1])
def test_whether_a_disk_is_an_overlay_is_true_or_false(flag):
    with pytest.raises(BadArgument, match=f"disk 'a': overlay_image: {flag!r} {NO_FLAG}"):
        profiles.disks({}, None, [{"name": "a", "size": 1, "overlay_image": flag}], None)


@pytest.mark.parametrize("profile", ["nic", "disk"])
def test_a_profile_is_named_by_one_name(profile):
    options = spec.options_by_name((), {profile: ["default"]})

    with pytest.raises(BadArgument, match=rf"{profile}: \['default'\] is not the name of a prof"):
        spec.deployment(HostSettings(), "web1", 1, 64, options)


@pytest.mark.parametrize(
    ("function", "argument", "reason"),
    [
        ("seed_non_shared_migrate", "web1", "disks: 'web1' is not a mapping"),
        ("seed_non_shared_migrate", {"vda": 5}, "disks: vda: 5 is not a mapping, as of virt.get_"),
        ("trash_restore", 5, "entry: 5 is not text; quote it"),
    ],
)
def test_an_argument_of_another_type_is_refused(conn, function, argument, reason):
    with pytest.raises(BadArgument, match=reason):
        MERGED[function](argument)


def test_a_type_of_pools_that_is_a_list_is_refused(virt):
    with pytest.raises(BadArgument, match=r"ptype: \['dir'\]; one of dir"):
        virt.pool_define("p1", ["dir"], target="/srv/p1")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        # Graphics without a type are no display: an update removed the display.
        ({"graphics": {"typ": "vnc"}}, "graphics has no argument 'typ': did you mean 'type'"),
        ({"cpu": {"features": ["vmx"]}}, r"cpu:features: \['vmx'\] is not a mapping"),
        ({"cpu": {"topology": "1,2,3"}}, "cpu:topology: '1,2,3' is not a mapping"),
        ({"mem": {"hugepages": ["2m"]}}, r"mem:hugepages: \['2m'\] is not a list of mappings"),
        ({"mem": {"hugepages": [{"nodeset": 0}]}}, "mem:hugepages:size: None is not a size"),
        ({"clock": {"timers": ["rtc"]}}, r"clock:timers: \['rtc'\] is not a mapping"),
    ],
)
def test_a_wrong_key_below_an_argument_is_named(conn, options, reason):
    with pytest.raises(BadArgument, match=reason):
        MERGED["update"]("test", test=True, **options)


def test_an_argument_is_listed_once():
    with pytest.raises(BadArgument, match="f has no argument 'zz': known: arch, boot$"):
        arguments.refuse_unknown(["zz"], ["boot", "arch", "boot"], "f")
