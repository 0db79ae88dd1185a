"""Where hosts have different QEMUs, a new VM gets the newest machine type that all of them have."""

from dataclasses import replace

import fleetkit
import pytest
from saltvirt.cluster.cloud import Cloud
from saltvirt.core.errors import BadArgument, NoHostFits
from saltvirt.core.options import config
from saltvirt.placement import generation
from saltvirt.placement.answers import Machines
from saltvirt.vm.create.master import deploy, vmrequest
from saltvirt.vm.create.master.many import run
from test_generation import host as host_of_release
from test_many_run import call

COMMON = "pc-i440fx-7.2"


@pytest.fixture
def mixed(cloud):
    """Three hosts: hyper2 has Debian 12, and QEMU 7.2; what the user reads is in ``told``."""
    cloud.hosts.releases, cloud.told = {"hyper2": 12}, []
    progress = lambda stage, **figures: cloud.told.append((stage, figures.get("detail", "")))  # noqa: E731
    cloud.master = Cloud(opts=cloud.opts, settings=cloud.master.settings, progress=progress)
    return cloud


def given_machine(cloud):
    """Return the machine types that hosts were told to give, one for each order."""
    return [kwarg.get("machine") for _host, fun, kwarg in cloud.hosts.sent if fun == "virt.init"]


def said_of_machines(cloud):
    """Return the lines about machine types."""
    return [detail for stage, detail in cloud.told if stage == "Machine"]


@pytest.mark.parametrize("host", [None, "hyper1", "hyper2"])
def test_a_vm_gets_the_newest_type_that_all_hosts_have(mixed, host):
    deploy.deploy(mixed.master, fleetkit.request(image="salt://a", host=host))

    assert given_machine(mixed) == [COMMON]
    (line,) = said_of_machines(mixed)
    assert COMMON in line and "virt:machine" in line


def test_where_all_hosts_are_alike_each_chooses_itself(mixed):
    mixed.hosts.releases = {}

    deploy.deploy(mixed.master, fleetkit.request(image="salt://a"))

    assert given_machine(mixed) == [None] and said_of_machines(mixed) == []


def test_a_dry_run_says_so(mixed):
    table = deploy.dry_run(mixed.master, fleetkit.request(image="salt://a"))

    assert any(COMMON in text for text in table["hyper1"]["warnings"])


@pytest.mark.parametrize("machine", ["q35", "pc-q35-10.0"])
def test_what_the_call_names_counts(mixed, machine):
    deploy.deploy(mixed.master, fleetkit.request(image="salt://a", machine=machine))

    assert given_machine(mixed) == [machine] and said_of_machines(mixed) == []


def test_many_vms_get_it_and_it_is_said_once(mixed):
    run.deploy_many(mixed.master, call(4))

    assert given_machine(mixed) == [COMMON] * 4 and len(said_of_machines(mixed)) == 1


def test_a_cloud_with_more_hosts_than_are_asked_knows_only_those(mixed):
    settings = replace(mixed.master.settings, sample_hosts=2)
    mixed.master = replace(mixed.master, settings=settings)

    deploy.deploy(mixed.master, fleetkit.request(image="salt://a", host="hyper1"))

    assert given_machine(mixed) == [None]


def parsed(option, **given):
    """Return the request of a call on a master with an option."""
    terms = vmrequest.parse_terms(config.master_settings({"virt": {"machine": option}}))
    return vmrequest.parse("web", 1, 1, given, terms)


def test_the_option_of_the_master_counts_for_calls_that_name_none():
    request = parsed("pc-q35-7.2")

    assert request.kwarg["machine"] == request.requirements.machine == "pc-q35-7.2"
    assert parsed("pc-q35-7.2", machine="q35").kwarg["machine"] == "q35"
    assert "machine" not in parsed("pc-q35-7.2", arch="aarch64").kwarg
    assert "machine" not in parsed(None).kwarg


def test_an_option_that_is_no_machine_type_is_refused():
    with pytest.raises(BadArgument, match="is not a machine type"):
        parsed("a b")


def test_hosts_that_lack_the_type_of_the_option_are_no_place(mixed):
    terms = replace(fleetkit.terms(host="hyper2"), machine="pc-q35-10.0")
    request = vmrequest.parse("web", 1, 1, {"image": "salt://a"}, terms)

    with pytest.raises(NoHostFits, match="machine type"):
        deploy.deploy(mixed.master, request)


def machines(**ends):
    """Return a host with these families of machine types."""
    versions = {f"{family.replace('_', '-')}-": end for family, end in ends.items()}
    info = host_of_release(13)
    return replace(info, machines={"x86_64": Machines(versions=versions, names=["pc"])})


@pytest.mark.parametrize(
    ("hosts", "common"),
    [
        ([{"pc_i440fx": ["2.4", "10.0"]}, {"pc_i440fx": ["1.0", "7.2"]}], "pc-i440fx-7.2"),
        ([{"pc_i440fx": ["2.4", "10.0"]}, {"pc_i440fx": ["1.0", "10.0"]}], None),
        ([{"pc_i440fx": ["8.0", "10.0"]}, {"pc_i440fx": ["1.0", "7.2"]}], None),
        ([{"pc_i440fx": ["2.4", "10.0"]}, {"pc_q35_rhel": ["8.0.0", "9.4.0"]}], None),
        ([{"pc_i440fx": ["2.4", "10.1"]}, {"pc_i440fx": ["2.4", "9.2"]}], "pc-i440fx-9.2"),
        ([{"pc_i440fx": ["2.4", "10.0"]}, {"pc_i440fx": ["2.4", "7.3"]}], None),
        ([{"pc_i440fx": ["2.4", "10.0"]}, {"pc_i440fx": ["2.4", "7.2.9"]}], None),
        ([{"pc_i440fx": ["2.4", "10.0"]}, {"pc_i440fx": ["2.4", "3.2"]}], None),
        ([{"pc_i440fx": ["2.4"]}, {"pc_i440fx": ["2.4", "9.2"]}], None),
        ([{}, {}], None),
    ],
)
def test_the_common_type_of_hosts(hosts, common):
    infos = {f"h{n}": machines(**ends) for n, ends in enumerate(hosts)}

    assert generation.find_common_machine(infos, "x86_64") == common


def test_of_an_unknown_architecture_nothing_is_said():
    assert generation.find_common_machine({"h1": machines()}, "m68k") is None
