"""Hosts of two generations: what Debian 12's and 13's libvirt said, and what is made of it."""

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
    """Return what an empty host of a release of Debian says, with what its libvirt really said."""
    return copy.deepcopy(_said_of(release))


@functools.cache
def _said_of(release):
    info = json.loads((DATA / "fleets" / "three.json").read_text())["hyper2"]
    found = capabilities.read((DATA / "generations" / f"debian{release}.xml").read_text())
    return {
        **info,
        "vms": {},
        "building": [],
        "maintenance": False,
        "versions": VERSIONS[release],
        "machines": wire.plain(generation.summarize_machines(found["guests"], found["arch"])),
    }


def host(release):
    """Return an empty host of a release of Debian."""
    return told.info(said_of(release))


HOSTS = {"hyper1": host(12), "hyper3": host(13)}


def why_not(release, **moving):
    """Return why a host of a release cannot take a VM."""
    return list(generation.reasons(generation.for_host(host(release)), required(**moving)))


def required(**moving):
    """Return what a VM needs that moves."""
    return whatif.needs_of_move(told.moving(**moving))


def test_a_survey_says_in_few_bytes_which_machine_types_there_are():
    said = said_of(13)["machines"]

    assert (
        said["x86_64"]
        == said["i686"]
        == {
            "versions": {"pc-i440fx-": ["2.4", "10.0"], "pc-q35-": ["2.4", "10.0"]},
            "names": ["isapc", "microvm", "pc", "q35", "x-remote"],
        }
    )
    assert len(json.dumps(said)) < 300


def test_every_machine_type_that_a_host_has_is_known_to_be_there():
    for release, other in ((12, 13), (13, 12)):
        text = (DATA / "generations" / f"debian{release}.xml").read_text()
        machines = capabilities.read(text)["guests"][1]["machines"]
        assert len(machines) > 50
        assert [one for one in machines if why_not(release, machine=one)] == []
        theirs = capabilities.read((DATA / "generations" / f"debian{other}.xml").read_text())
        lacking = set(machines) - set(theirs["guests"][1]["machines"])
        assert {one for one in machines if why_not(other, machine=one)} == lacking


@pytest.mark.parametrize(
    ("release", "machine", "why"),
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
def test_a_machine_type_that_is_not_there_is_said_in_one_line(release, machine, why):
    assert why_not(release, machine=machine) == [why]


def test_a_host_that_says_nothing_of_its_machine_types_is_left_to_check_itself():
    older = {key: value for key, value in said_of(12).items() if key != "machines"}
    here = generation.for_host(told.info(older))

    assert list(generation.reasons(here, required(machine="pc-q35-10.0"))) == []
    assert why_not(12, machine="virt-9.0", arch="aarch64") == []


def test_facts_of_an_older_host_leave_the_check_to_the_target():
    said = required()

    assert (said.machine, said.cpu_qemu, said.newer, said.bridge_vlans) == (None, None, (), False)


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

    assert (not why_not(release, machine=machine)) == (oldest <= version <= newest)


@given(st.text(max_size=20))
def test_no_name_of_a_machine_type_is_a_surprise(name):
    kind, version = generation.family(name)

    assert name.startswith(kind) and (version is None) == (kind == name)
    assert len(why_not(13, machine=name)) <= 1


def test_a_cpu_that_shrinks_under_the_guest_is_refused():
    assert why_not(12, cpu_qemu="7.2.22") == why_not(13, cpu_qemu="7.2.22") == []
    assert why_not(13, cpu_qemu="10.0.13") == []
    (why,) = why_not(12, cpu_qemu="10.0.13")
    assert why.startswith("it was started with all that QEMU 10.0 has for a CPU (mode maximum or")


def domain(inside="", cpu="<cpu mode='maximum'/>", note="", kind="qemu"):
    """Return a parsed domain."""
    ours = f"<metadata><v:vm xmlns:v='{METADATA_NS}' {note}/></metadata>"
    return parse(f"<domain type='{kind}'>{ours}{cpu}{inside}</domain>")


UNCHECKED = '<cpu mode="custom" check="none">\n  <model>EPYC</model>\n</cpu>'
CHECKED = UNCHECKED.replace("none", "partial")


@pytest.mark.parametrize(
    ("root", "is_running", "wanted"),
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
def test_what_a_guests_cpu_needs_depends_on_where_it_was_started(root, is_running, wanted):
    tags = {"qemu": "10.0.13", "host_cpu": "<cpu/>"}

    found = migrationinfo._cpu(root, tags, is_running)

    assert {key: value for key, value in found.items() if value} == wanted


@pytest.mark.libvirt
def test_a_note_of_this_run_never_gets_into_the_definition():
    with connect.open_connection(TEST, readonly=False) as conn:
        dom = connect.domain(conn, "test")
        lifecycle.note_cpu(conn, "test", "7.2.22")
        lifecycle.set_stay(conn, "test", True)
        live, kept = (
            readdomain.describe_notes(parse(dom.XMLDesc(flag)))
            for flag in (0, connect.libvirt.VIR_DOMAIN_XML_INACTIVE)
        )

        assert (live["cpu_qemu"], live["stay"]) == ("7.2.22", True)
        assert (kept["cpu_qemu"], kept["stay"]) == (None, True)


# Those with a comment were moved by hand from 11.3 to 9.0, which is what they say.
@pytest.mark.parametrize(
    ("inside", "what", "since"),
    [
        # left out, and the guest went on without
        ("<devices><disk><driver><iothreads/></driver></disk></devices>", "I/O threads", "10.0"),
        ("<devices><disk><driver discard_no_unref='on'/></disk></devices>", "no_unref", "9.5"),
        ("<devices><disk><blockio discard_granularity='4096'/></disk></devices>", "gran", "11.3"),
        ("<iothreadids><iothread id='1'><poll max='1'/></iothread></iothreadids>", "poll", "9.4"),
        # so says libvirt's documentation; its 9.0 has no such attribute in its schema
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
        # refused by the target's libvirt once all was made ready
        ("<devices><panic model='pvpanic'/></devices>", "panic", "9.1"),
        ("<cpu><topology clusters='2'/></cpu>", "clusters", "10.1"),
    ],
)
def test_what_an_older_libvirt_would_leave_out_is_named(inside, what, since):
    root = domain(inside, cpu="")

    ((said, version),) = newerfeatures.find_newer_features(root)

    assert what in said and version == since
    (why,) = why_not(12, newer=newerfeatures.find_newer_features(root))
    assert why == f"it has {said}, which libvirt 9.0.0 there does not know ({since} does)"
    assert why_not(13, newer=newerfeatures.find_newer_features(root)) == []


def test_every_path_of_the_list_can_be_looked_for_and_none_is_of_our_own_xml():
    texts = [path.read_text() for path in sorted((DATA / "domains").glob("*.xml"))]

    assert len(texts) > 10
    assert [text for text in texts if newerfeatures.find_newer_features(parse(text))] == []


def test_what_a_newer_libvirt_adds_by_itself_is_no_obstacle():
    # As 11.3 shows a running guest: with the watchdog that every q35 has, and limits of our own.
    root = parse((DATA / "generations" / "running13.xml").read_text())
    implied = domain("<cpu><topology sockets='1' dies='1' clusters='1' cores='2'/></cpu>", cpu="")

    assert root.find("devices/watchdog[@model='itco']") is not None
    assert newerfeatures.find_newer_features(root) == [["polling limits of I/O threads", "9.4"]]
    assert newerfeatures.find_newer_features(implied) == []
    # As 10.10 shows every VM with firmware variables.
    raw = "<os><nvram template='/v.fd' templateFormat='raw' format='raw'>/m1.fd</nvram></os>"
    assert newerfeatures.find_newer_features(domain(raw, cpu="")) == []


def test_a_template_of_the_variables_own_format_needs_what_the_variables_need():
    text = "<os><nvram template='/v.qcow2' templateFormat='qcow2' format='{}'>/m1</nvram></os>"

    both, other = (
        newerfeatures.find_newer_features(domain(text.format(kind), cpu=""))
        for kind in ("qcow2", "raw")
    )

    assert both == [["firmware variables in qcow2", "9.2"]]
    assert other == [["a template of firmware variables in qcow2", "10.10"]]


def test_tags_on_a_linux_bridge_move_only_to_where_they_can_be():
    vlan = "<vlan><tag id='42'/></vlan>"
    tagged = domain(
        f"<devices><interface type='bridge'><source bridge='br0'/>{vlan}</interface>" "</devices>"
    )
    switched = domain(
        "<devices><interface type='bridge'><source bridge='ovs0'/>"
        f"<virtualport type='openvswitch'/>{vlan}</interface></devices>"
    )
    wanted = required(**{**readdomain.links(tagged), "bridges": []})

    assert readdomain.links(switched)["bridge_vlans"] is False and wanted.bridge_vlans is True
    evaluations = {v.host: v for v in choose.evaluate(HOSTS, wanted)}
    assert evaluations["hyper3"].fits
    assert "libvirt 9.0.0 there cannot tag VLANs" in evaluations["hyper1"].reasons[0]


def test_an_evacuation_sends_each_vm_only_where_its_generation_is():
    hosts = {**HOSTS, "hyper2": host(12)}
    vms = {
        "new": told.moving(name="new", machine="pc-q35-10.0"),
        "old": told.moving(name="old", machine="pc-q35-7.2"),
    }

    there, stays = evacuation.evacuate({k: v for k, v in hosts.items() if k != "hyper3"}, vms)

    assert list(there) == ["old"]
    assert stays["new"].count("is newer than QEMU 7.2 there knows") == 2
    there, stays = evacuation.evacuate({k: v for k, v in hosts.items() if k != "hyper1"}, vms)
    assert there["new"] == "hyper3" and not stays


def test_a_plan_is_made_anew_when_a_host_refuses_it(monkeypatch):
    # What a host's own libvirt says of a CPU: a fault that needs two kinds of processors.
    asked = []

    def survey(_cloud, hosts, fun, kwarg):
        asked.append((fun, hosts))
        refusing = {"hyper1": {"m1": ["its CPU does not suffice"]}, "hyper3": {}}
        return inventory.Survey(
            answers={host: refusing[host] for host in hosts if host in refusing},
            failed={"hyper2": "an older one: no such thing"},
        )

    monkeypatch.setattr(rebalance.inventory, "survey", survey)
    hosts = {name: host(13) for name in ("hyper1", "hyper2", "hyper3")}
    hosts["hyper1"] = told.but(hosts["hyper1"], memory={"committed_mib": 0})
    vms = {"m1": told.moving()}

    def place(refused):
        there, stays = evacuation.evacuate(hosts, vms, refused=refused)
        return (there, stays, refused), there

    there, stays, refused = rebalance.find_agreed_plan(None, sorted(hosts), vms, place)

    assert there == {"m1": "hyper2"} and not stays
    assert refused == {"m1": {"hyper1": ["its CPU does not suffice"]}}
    assert asked == [("virt.migrate_check", ["hyper1"]), ("virt.migrate_check", sorted(hosts))]


def test_a_machine_type_can_be_asked_for():
    vm = spec.deployment(HostSettings(), "m1", 1, 64, {"machine": "pc-q35-7.2"}).vm
    from_master = spec.requirements_from_master("m1", 1, 64, {"machine": "pc-q35-7.2"})

    assert vm.machine == spec.requirements(vm).machine == from_master.machine == "pc-q35-7.2"
    with pytest.raises(BadArgument, match="machine: '../x' is not a machine type"):
        spec.requirements_from_master("m1", 1, 64, {"machine": "../x"})


def test_the_machine_type_of_the_next_start_is_looked_for_too():
    why = "its machine type pc-q35-10.0 (of its next start) is newer than QEMU 7.2 there knows"

    assert why_not(13, machine="pc-q35-7.2", next_machine="pc-q35-10.0") == []
    (said,) = why_not(12, machine="pc-q35-7.2", next_machine="pc-q35-10.0")
    assert said == f"{why} (up to pc-q35-7.2)"
