"""Hosts of two generations, with the real answers of Debian 12's and 13's libvirt."""

import copy
import functools
import json
from pathlib import Path

import pytest
import told
from hypothesis import given
from hypothesis import strategies as st
from saltvirt.cluster.inventory import inventory
from saltvirt.core import wire
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Requirements
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import lifecycle
from saltvirt.migration.master import rebalance
from saltvirt.placement import choose, evacuation, generation, whatif
from saltvirt.vm import spec
from saltvirt.vm.show.host import migrationinfo
from saltvirt.xml import METADATA_NS, parse
from saltvirt.xml.edit import newerfeatures, readdomain
from saltvirt.xml.node import capabilities

DATA = Path(__file__).resolve().parents[2] / "data"
TEST = HostSettings(uri="test:///default")
VERSIONS = {
    12: {"libvirt": "9.0.0", "qemu": "7.2.22"},
    13: {"libvirt": "11.3.0", "qemu": "10.0.13"},
}


def said_of(release):
    """Return the answer of an empty host of a release of Debian, as its libvirt gives it."""
    return copy.deepcopy(_said_of(release))


@functools.cache
def _said_of(release):
    info = json.loads((DATA / "fleets" / "three.json").read_text())["hyper2"]
    host_capabilities = capabilities.read(
        (DATA / "generations" / f"debian{release}.xml").read_text()
    )
    return {
        **info,
        "vms": {},
        "building": [],
        "maintenance": False,
        "versions": VERSIONS[release],
        "machines": wire.plain(
            generation.summarize_machines(host_capabilities["guests"], host_capabilities["arch"])
        ),
    }


def host(release):
    """Return an empty host of a release of Debian."""
    return told.info(said_of(release))


HOSTS = {"hyper1": host(12), "hyper3": host(13)}


def reasons_against(release, **moving):
    """Return the reasons why a host of a release cannot take a VM."""
    return list(generation.reasons(generation.for_host(host(release)), required(**moving)))


def required(**moving):
    """Return the needs of a VM that moves."""
    return whatif.needs_of_move(told.moving(**moving))


def test_a_survey_summarizes_the_machine_types_in_few_bytes():
    machines = said_of(13)["machines"]

    assert (
        machines["x86_64"]
        == machines["i686"]
        == {
            "versions": {"pc-i440fx-": ["2.4", "10.0"], "pc-q35-": ["2.4", "10.0"]},
            "names": ["isapc", "microvm", "pc", "q35", "x-remote"],
        }
    )
    assert len(json.dumps(machines)) < 300


def test_every_machine_type_of_a_host_counts_as_present():
    for release, other_release in ((12, 13), (13, 12)):
        text = (DATA / "generations" / f"debian{release}.xml").read_text()
        machines = capabilities.read(text)["guests"][1]["machines"]
        assert len(machines) > 50
        assert [machine for machine in machines if reasons_against(release, machine=machine)] == []
        other_capabilities = capabilities.read(
            (DATA / "generations" / f"debian{other_release}.xml").read_text()
        )
        expected = set(machines) - set(other_capabilities["guests"][1]["machines"])
        assert {
            machine for machine in machines if reasons_against(other_release, machine=machine)
        } == expected


@pytest.mark.parametrize(
    ("release", "machine", "reason"),
    [
        (
            12,
            "pc-q35-10.0",
            "its machine type pc-q35-10.0 is newer than QEMU 7.2 there knows " "(up to pc-q35-7.2)",
        ),
        (
            13,
            "pc-i440fx-2.0",
            "its machine type pc-i440fx-2.0 is older than QEMU 10.0 there "
            "knows (from pc-i440fx-2.4 on)",
        ),
        (13, "pc-q35-rhel9.6.0", "QEMU 10.0 there does not know the machine type pc-q35-rhel9.6.0"),
        (13, "pc-q35-noble", "QEMU 10.0 there does not know the machine type pc-q35-noble"),
    ],
)
def test_a_missing_machine_type_is_one_line(release, machine, reason):
    assert reasons_against(release, machine=machine) == [reason]


def test_a_host_without_machine_types_in_its_answer_is_left_to_check_itself():
    answer_without_machines = {
        key: value for key, value in said_of(12).items() if key != "machines"
    }
    host_generation = generation.for_host(told.info(answer_without_machines))

    assert list(generation.reasons(host_generation, required(machine="pc-q35-10.0"))) == []
    assert reasons_against(12, machine="virt-9.0", arch="aarch64") == []


def test_facts_of_an_older_host_leave_the_check_to_the_target():
    needs = required()

    assert (needs.machine, needs.cpu_qemu, needs.newer, needs.bridge_vlans) == (
        None,
        None,
        (),
        False,
    )


def test_without_an_architecture_the_hosts_own_is_meant():
    new = Requirements(name="new", vcpus=1, memory_mib=1, machine="pc-q35-10.0")

    assert [v.host for v in choose.evaluate(HOSTS, new) if v.fits] == ["hyper3"]


@given(
    st.tuples(st.integers(0, 12), st.integers(0, 12)),
    st.sampled_from(["pc-q35-", "pc-i440fx-"]),
    st.sampled_from([12, 13]),
)
def test_a_version_is_a_number_and_no_text(version, family, release):
    machine = f"{family}{version[0]}.{version[1]}"
    ends = host(release).machines["x86_64"].versions[family]
    oldest, newest = (tuple(map(int, end.split("."))) for end in ends)

    assert (not reasons_against(release, machine=machine)) == (oldest <= version <= newest)


@given(st.text(max_size=20))
def test_no_name_of_a_machine_type_is_a_surprise(name):
    kind, version = generation.family(name)

    assert name.startswith(kind) and (version is None) == (kind == name)
    assert len(reasons_against(13, machine=name)) <= 1


def test_a_cpu_that_shrinks_under_the_guest_is_refused():
    assert reasons_against(12, cpu_qemu="7.2.22") == reasons_against(13, cpu_qemu="7.2.22") == []
    assert reasons_against(13, cpu_qemu="10.0.13") == []
    (reason,) = reasons_against(12, cpu_qemu="10.0.13")
    assert reason.startswith(
        "it was started with all that QEMU 10.0 has for a CPU (mode maximum or"
    )


def domain(inside="", cpu="<cpu mode='maximum'/>", note="", kind="qemu"):
    """Return a parsed domain."""
    metadata = f"<metadata><v:vm xmlns:v='{METADATA_NS}' {note}/></metadata>"
    return parse(f"<domain type='{kind}'>{metadata}{cpu}{inside}</domain>")


UNCHECKED = '<cpu mode="custom" check="none">\n  <model>EPYC</model>\n</cpu>'
CHECKED = UNCHECKED.replace("none", "partial")


@pytest.mark.parametrize(
    ("root", "is_running", "expected"),
    [
        (domain(), True, {"cpu_qemu": "10.0.13"}),
        (domain(note="cpu_qemu='7.2.22'"), True, {"cpu_qemu": "7.2.22"}),
        (domain(), False, {}),
        (domain(kind="kvm"), True, {"host_cpu": "<cpu/>", "cpu_qemu": "10.0.13"}),
        (
            domain(cpu="<cpu mode='host-passthrough'/>", kind="kvm"),
            True,
            {"host_cpu": "<cpu/>", "cpu_qemu": "10.0.13"},
        ),
        (domain(cpu="<cpu mode='host-passthrough'/>", kind="kvm"), False, {}),
        (domain(kind="kvm"), False, {}),
        (domain(cpu=UNCHECKED, kind="kvm"), False, {}),
        (domain(cpu=UNCHECKED, kind="kvm"), True, {"cpu": f"{UNCHECKED}\n"}),
        (domain(cpu=CHECKED, kind="kvm"), False, {"cpu": f"{CHECKED}\n"}),
        (domain(cpu="<cpu mode='host-model'/>"), False, {}),
    ],
)
def test_the_cpu_that_a_guest_needs_depends_on_its_host(root, is_running, expected):
    tags = {"qemu": "10.0.13", "host_cpu": "<cpu/>"}

    facts = migrationinfo._cpu(root, tags, is_running)

    assert {key: value for key, value in facts.items() if value} == expected


@pytest.mark.libvirt
def test_a_note_of_this_run_never_gets_into_the_definition():
    with connect.open_connection(TEST, readonly=False) as conn:
        vm = connect.domain(conn, "test")
        lifecycle.note_cpu(conn, "test", "7.2.22")
        lifecycle.set_stay(conn, "test", True)
        live, persistent = (
            readdomain.describe_notes(parse(vm.XMLDesc(flag)))
            for flag in (0, connect.libvirt.VIR_DOMAIN_XML_INACTIVE)
        )

        assert (live["cpu_qemu"], live["stay"]) == ("7.2.22", True)
        assert (persistent["cpu_qemu"], persistent["stay"]) == (None, True)


# Each comment tells what came of such a VM that was moved by hand from 11.3 to 9.0.
@pytest.mark.parametrize(
    ("inside", "words", "minimum_version"),
    [
        # left out, and the guest went on without
        ("<devices><disk><driver><iothreads/></driver></disk></devices>", "I/O threads", "10.0"),
        ("<devices><disk><driver discard_no_unref='on'/></disk></devices>", "no_unref", "9.5"),
        ("<devices><disk><blockio discard_granularity='4096'/></disk></devices>", "gran", "11.3"),
        ("<iothreadids><iothread id='1'><poll max='1'/></iothread></iothreadids>", "poll", "9.4"),
        # by libvirt's documentation; its 9.0 has no such attribute in its schema
        ("<devices><video><model type='virtio' blob='on'/></video></devices>", "blob", "9.2"),
        ("<cpu><maxphysaddr mode='passthrough' limit='39'/></cpu>", "address bits", "9.3"),
        (
            "<devices><memory model='virtio-mem'><target><address base='0x140000000'/></target>"
            "</memory></devices>",
            "address",
            "9.4",
        ),
        ("<os><nvram template='/v.qcow2' templateFormat='qcow2'/></os>", "template", "10.10"),
        # broken off in the middle
        ("<devices><pstore/></devices>", "pstore", "10.6"),
        # refused by the target's libvirt when everything was ready
        ("<devices><panic model='pvpanic'/></devices>", "panic", "9.1"),
        ("<cpu><topology clusters='2'/></cpu>", "clusters", "10.1"),
    ],
)
def test_a_feature_that_an_older_libvirt_would_drop_is_named(inside, words, minimum_version):
    root = domain(inside, cpu="")

    ((feature, version),) = newerfeatures.find_newer_features(root)

    assert words in feature and version == minimum_version
    (reason,) = reasons_against(12, newer=newerfeatures.find_newer_features(root))
    assert (
        reason
        == f"it has {feature}, which libvirt 9.0.0 there does not know ({minimum_version} does)"
    )
    assert reasons_against(13, newer=newerfeatures.find_newer_features(root)) == []


def test_every_path_of_the_list_can_be_looked_for_and_none_is_of_our_own_xml():
    texts = [path.read_text() for path in sorted((DATA / "domains").glob("*.xml"))]

    assert len(texts) > 10
    assert [text for text in texts if newerfeatures.find_newer_features(parse(text))] == []


def test_an_element_that_a_newer_libvirt_adds_by_itself_is_no_obstacle():
    # 11.3 shows a running guest with the watchdog of each q35, and with limits of this project.
    root = parse((DATA / "generations" / "running13.xml").read_text())
    implied = domain("<cpu><topology sockets='1' dies='1' clusters='1' cores='2'/></cpu>", cpu="")

    assert root.find("devices/watchdog[@model='itco']") is not None
    assert newerfeatures.find_newer_features(root) == [["polling limits of I/O threads", "9.4"]]
    assert newerfeatures.find_newer_features(implied) == []
    # 10.10 shows each VM with firmware variables like this.
    raw = "<os><nvram template='/v.fd' templateFormat='raw' format='raw'>/m1.fd</nvram></os>"
    assert newerfeatures.find_newer_features(domain(raw, cpu="")) == []


def test_a_template_in_the_variables_own_format_needs_the_same_libvirt():
    text = "<os><nvram template='/v.qcow2' templateFormat='qcow2' format='{}'>/m1</nvram></os>"

    same_format, raw_variables = (
        newerfeatures.find_newer_features(domain(text.format(kind), cpu=""))
        for kind in ("qcow2", "raw")
    )

    assert same_format == [["firmware variables in qcow2", "9.2"]]
    assert raw_variables == [["a template of firmware variables in qcow2", "10.10"]]


def test_tags_on_a_linux_bridge_move_only_to_where_they_can_be():
    vlan = "<vlan><tag id='42'/></vlan>"
    tagged = domain(
        f"<devices><interface type='bridge'><source bridge='br0'/>{vlan}</interface>" "</devices>"
    )
    on_switch = domain(
        "<devices><interface type='bridge'><source bridge='ovs0'/>"
        f"<virtualport type='openvswitch'/>{vlan}</interface></devices>"
    )
    needs = required(**{**readdomain.links(tagged), "bridges": []})

    assert readdomain.links(on_switch)["bridge_vlans"] is False and needs.bridge_vlans is True
    evaluations = {v.host: v for v in choose.evaluate(HOSTS, needs)}
    assert evaluations["hyper3"].fits
    assert "libvirt 9.0.0 there cannot tag VLANs" in evaluations["hyper1"].reasons[0]


def test_an_evacuation_sends_each_vm_only_where_its_generation_is():
    hosts = {**HOSTS, "hyper2": host(12)}
    vms = {
        "new": told.moving(name="new", machine="pc-q35-10.0"),
        "old": told.moving(name="old", machine="pc-q35-7.2"),
    }

    targets, stays = evacuation.evacuate({k: v for k, v in hosts.items() if k != "hyper3"}, vms)

    assert list(targets) == ["old"]
    assert stays["new"].count("is newer than QEMU 7.2 there knows") == 2
    targets, stays = evacuation.evacuate({k: v for k, v in hosts.items() if k != "hyper1"}, vms)
    assert targets["new"] == "hyper3" and not stays


def test_a_plan_is_made_again_when_a_host_refuses_it(monkeypatch):
    # A host's libvirt may refuse a CPU. A real refusal needs two kinds of processors.
    calls = []

    def survey(_cloud, hosts, fun, kwarg):
        calls.append((fun, hosts))
        reasons_by_host = {"hyper1": {"m1": ["its CPU does not suffice"]}, "hyper3": {}}
        return inventory.Survey(
            answers={host: reasons_by_host[host] for host in hosts if host in reasons_by_host},
            failed={"hyper2": "an older one: no such thing"},
        )

    monkeypatch.setattr(rebalance.inventory, "survey", survey)
    hosts = {name: host(13) for name in ("hyper1", "hyper2", "hyper3")}
    hosts["hyper1"] = told.but(hosts["hyper1"], memory={"committed_mib": 0})
    vms = {"m1": told.moving()}

    def plan(refused):
        targets, stays = evacuation.evacuate(hosts, vms, refused=refused)
        return (targets, stays, refused), targets

    targets, stays, refused = rebalance.find_agreed_plan(None, sorted(hosts), vms, plan)

    assert targets == {"m1": "hyper2"} and not stays
    assert refused == {"m1": {"hyper1": ["its CPU does not suffice"]}}
    assert calls == [("virt.migrate_check", ["hyper1"]), ("virt.migrate_check", sorted(hosts))]


def test_a_machine_type_can_be_asked_for():
    vm = spec.deployment(HostSettings(), "m1", 1, 64, {"machine": "pc-q35-7.2"}).vm
    from_master = spec.requirements_from_master("m1", 1, 64, {"machine": "pc-q35-7.2"})

    assert vm.machine == spec.requirements(vm).machine == from_master.machine == "pc-q35-7.2"
    with pytest.raises(BadArgument, match="machine: '../x' is not a machine type"):
        spec.requirements_from_master("m1", 1, 64, {"machine": "../x"})


def test_the_machine_type_of_the_next_start_is_checked_too():
    reason = "its machine type pc-q35-10.0 (of its next start) is newer than QEMU 7.2 there knows"

    assert reasons_against(13, machine="pc-q35-7.2", next_machine="pc-q35-10.0") == []
    (text,) = reasons_against(12, machine="pc-q35-7.2", next_machine="pc-q35-10.0")
    assert text == f"{reason} (up to pc-q35-7.2)"
