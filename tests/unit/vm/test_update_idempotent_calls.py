"""What libvirt leaves out of a definition, or fills in, is no change by the next call."""

import pytest
from saltvirt.vm.update.host import apply, request
from saltvirt.xml import parse
from saltvirt.xml.domain import domain
from test_update_calls import DEFAULTS
from updatekit import DEFINED, GOOD, IDLE

VM = """<domain type='test'><name>web1</name><memory unit='MiB'>512</memory><vcpu>2</vcpu>
<os><type arch='i686'>hvm</type></os><on_reboot>restart</on_reboot></domain>"""
CELLS = {0: {"cpus": "0", "memory": "256m"}, 1: {"cpus": "1", "memory": "256m"}}
FAR = {"numa": {0: {"distances": {0: 10, 1: 21}}, 1: {"distances": {0: 21, 1: 10}}}}


@pytest.fixture
def update(hypervisor):
    """Return a function that updates a VM which says as little as can be."""
    with hypervisor.libvirt() as conn:
        conn.defineXML(VM)

        def call(**asked):
            wanted = request.from_call(hypervisor.settings, "web1", {**DEFAULTS, **asked})
            return apply.update(hypervisor.context, wanted)

        call.said = lambda: domain.read(parse(conn.lookupByName("web1").XMLDesc()))
        yield call


@pytest.mark.parametrize("part", ["numa", "topology", "model", "cache", "features", "vcpus"])
def test_an_empty_part_of_a_cpu_that_is_not_there_changes_nothing(update, part):
    assert update(cpu={part: {}}) == IDLE


@pytest.mark.parametrize("asked", GOOD, ids=str)
def test_what_libvirt_takes_is_taken_and_is_no_change_the_second_time(update, asked):
    update(**asked)

    assert update(**asked) == IDLE


def test_a_model_without_a_name_changes_nothing(update):
    assert update(cpu={"model": {"name": None}}) == IDLE


@pytest.mark.parametrize(
    ("part", "had"),
    [
        ("vcpupin", {0: "0"}),
        ("iothreadpin", {1: "0"}),
        ("vcpusched", [{"scheduler": "fifo", "priority": 1, "vcpus": "0"}]),
        ("memorytune", {"0-1": {0: 60}}),
    ],
)
def test_an_empty_part_of_a_tuning_is_gone_once(update, part, had):
    assert update(cpu={"tuning": {part: type(had)()}}) == IDLE
    update(cpu={"iothreads": 1, "tuning": {part: had}})

    assert update(cpu={"tuning": {part: type(had)()}}) == DEFINED
    assert update(cpu={"tuning": {part: type(had)()}}) == IDLE
    assert update.said().cputune is None


@pytest.mark.parametrize(
    "asked",
    [
        {"cpu": {"maximum": 4, "current": 4}},
        {"cpu": {"maximum": 4, "placement": "auto", "cpuset": "0-3"}},
        {"cpu": {"tuning": {"vcpupin": {0: "0", 1: "1", 2: "2"}}}},
        {"cpu": {"mode": "host-passthrough", "match": "minimum"}},
        {"cpu": {"topology": {"cores": 2}, "match": "minimum"}},
        {"mem": {"boot": "256m", "current": "512m"}},
        {"consoles": [{"type": "pty", "target_type": "virtio", "target_port": 1}]},
    ],
    ids=str,
)
def test_what_libvirt_leaves_out_is_no_change_again(update, asked):
    assert update(**asked, test=True)["definition"]
    assert update(**asked) == DEFINED
    assert update(**asked) == IDLE


def test_what_matches_no_model_changes_nothing(update):
    assert update(cpu={"match": "minimum"}) == IDLE


def distances(update):
    """Return ``{cell: {other: distance}}`` of the definition."""
    cells = update.said().cpu.cells
    return {one.id: {row["id"]: row["value"] for row in one.distances} for one in cells}


@pytest.mark.parametrize(
    ("given", "back"),
    [([{1: 21}, None], "21"), ([{1: 21}, {0: 21}], "21"), ([{1: 21}, {0: 31, 1: 10}], "31")],
)
def test_distances_that_libvirt_fills_in_are_no_change(update, given, back):
    asked = [{"distances": one} if one else {} for one in given]
    numa = {number: {**CELLS[number], **one} for number, one in enumerate(asked)}

    assert update(cpu={"numa": numa}) == DEFINED
    assert update(cpu={"numa": numa}) == IDLE
    assert distances(update) == {"0": {"0": "10", "1": "21"}, "1": {"0": back, "1": "10"}}


@pytest.mark.parametrize("nothing", [None, {}])
def test_distances_that_a_call_removes_of_one_cell_go_both_ways(update, nothing):
    update(cpu={"numa": CELLS})
    update(cpu=FAR)
    asked = {"numa": {0: {"distances": nothing}, 1: {}}}

    assert update(cpu=asked) == DEFINED
    assert update(cpu=asked) == IDLE
    assert distances(update) == {"0": {}, "1": {}}


def test_a_display_of_nothing_is_none_as_with_3006_and_with_virt_init(update):
    update(graphics={"type": "vnc"})

    assert update(graphics={}, test=True)["definition"]
    assert update(graphics={}) == DEFINED
    assert update.said().graphics == ()
    assert update(graphics={}) == update(graphics=None) == IDLE
