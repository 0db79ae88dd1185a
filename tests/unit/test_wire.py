"""What hosts answer is read whole, or refused in one line that names the host and the field."""

import copy
import dataclasses
import json
from pathlib import Path

import pytest
import told
from hypothesis import given, strategies
from saltvirt import wire
from saltvirt.config import HostSettings, MasterSettings
from saltvirt.errors import BadArgument
from saltvirt.fleet import inventory, minions
from saltvirt.kvm import connect
from saltvirt.ops.migration import facts as gathering
from saltvirt.placement.facts import About, DiskFacts, DiskProfile, HostInfo, NicProfile

DATA = Path(__file__).parents[1] / "data"
TEST = HostSettings(uri="test:///default")
HOST = json.loads((DATA / "fleets/three.json").read_text())["hyper2"]
with connect.opened(TEST) as conn:
    # As it comes over the wire: lists, no tuples.
    ABOUT = json.loads(json.dumps(wire.plain(gathering.facts(conn, TEST, "test")["test"])))
# What is shown to nobody but people, and has no fixed names.
FREE = (("storage", "images"), ("storage", "pools"))
NO_TYPE = b"none of a host's fields is bytes"


def places(answer, path=()):
    """Return the ways to all that is in an answer and is named by its type."""
    if path in FREE:
        return []
    inner = answer.items() if isinstance(answer, dict) else ()
    return [path] * bool(path) + [way for name, one in inner for way in places(one, (*path, name))]


def damaged(answer, path, change):
    """Return a copy of an answer with one place of it changed."""
    out = copy.deepcopy(answer)
    *way, last = path
    inner = out
    for name in way:
        inner = inner[name]
    change(inner, last)
    return out


def put(value):
    return lambda inner, last: inner.update({last: value})


@pytest.mark.parametrize(("shape", "answer"), [(HostInfo, HOST), (About, ABOUT)])
def test_a_whole_answer_is_read_and_made_what_it_was(shape, answer):
    read = wire.read("h1", "virt.x", shape, answer)

    assert wire.plain(read) == {**wire.plain(read), **answer}
    # A newer host says more.
    assert wire.read("h1", "virt.x", shape, {**answer, "new": 1}) == read


def test_an_older_host_says_less():
    older = {name: one for name, one in HOST.items() if name != "maintenance"}

    assert wire.read("h1", "virt.host_info", HostInfo, older).maintenance is False


def test_another_host_is_told_of_a_vm_what_the_first_has_said_be_it_older_or_newer():
    older = {name: one for name, one in ABOUT.items() if name not in ("machine", "uuid")}

    for said in (older, {**ABOUT, "new": 1, "disks": [{**told.DISK, "how": "push", "new": 2}]}):
        read = wire.read("h1", "virt.migration_info", About, said)
        assert wire.plain(read) == said and wire.plain({"m1": [read]}) == {"m1": [said]}
        info = wire.read("h1", "virt.host_info", HostInfo, {**HOST, "moving": said})
        assert wire.plain(info.moving) == said


def test_what_was_not_measured_or_cannot_be_used_is_left_out():
    disk = {**told.DISK, "how": "missing"}
    sizes = {"virtual_bytes": 1, "actual_bytes": 1, "backing": None, "size_bytes": 1}

    for said in (disk, {**disk, **sizes}):
        assert wire.plain(wire.read("h1", "virt.x", DiskFacts, said)) == said
    assert wire.plain(NicProfile(error="no")) == {"error": "no"}
    assert wire.plain(DiskProfile(size_mib=0, has_image=False)) == {
        "size_mib": 0,
        "has_image": False,
    }
    assert "moving" not in wire.plain(told.info(HOST))


def test_an_argument_that_cannot_be_read_names_itself_and_the_field():
    with pytest.raises(BadArgument, match=r"^about: disks\[1\].path is int, not text$"):
        disks = [{**told.DISK, "how": "push"}, {**told.DISK, "path": 1}]
        wire.argument("about", About, {**ABOUT, "disks": disks})
    with pytest.raises(BadArgument, match="^about: it is str, not a mapping$"):
        wire.argument("about", About, "m1")


def test_a_name_that_is_no_text_is_said_to_be_a_name():
    with pytest.raises(wire.BadAnswer, match="cannot read: a name in vms is int, not text;"):
        wire.read("h1", "virt.host_info", HostInfo, damaged(HOST, ("vms",), put({1: {}})))


@given(strategies.data())
def test_a_wrong_type_anywhere_is_one_line_that_names_host_and_field(data):
    shape, answer = data.draw(strategies.sampled_from([(HostInfo, HOST), (About, ABOUT)]))
    path = data.draw(strategies.sampled_from([p for p in places(answer) if p[0] in fields(shape)]))
    broken = damaged(answer, path, put(NO_TYPE))

    with pytest.raises(wire.BadAnswer) as refused:
        wire.read("h7", "virt.x", shape, broken)

    said = str(refused.value)
    assert "h7" in said and ".".join(path) in said and "\n" not in said


@given(strategies.data())
def test_a_missing_field_is_one_line_that_names_host_and_field(data):
    shape, answer = data.draw(strategies.sampled_from([(HostInfo, HOST), (About, ABOUT)]))
    needed = [(one.name,) for one in dataclasses.fields(shape) if wire._is_required(one)]
    if shape is HostInfo:
        needed += [("cpu", "features"), ("memory", "limit_mib"), ("domain_types", "default")]
        needed += [("networks", "net0", "active"), ("versions", "qemu"), ("profiles", "disk")]
    path = data.draw(strategies.sampled_from(sorted(needed)))
    broken = damaged(answer, path, lambda inner, last: inner.pop(last))

    with pytest.raises(wire.BadAnswer, match=rf"^h7 .* {'.'.join(path)} is missing"):
        wire.read("h7", "virt.x", shape, broken)


@given(
    strategies.recursive(
        strategies.none() | strategies.booleans() | strategies.integers() | strategies.text(),
        lambda one: strategies.lists(one) | strategies.dictionaries(strategies.text(), one),
    )
)
def test_whatever_a_host_answers_is_no_traceback(nonsense):
    for shape in (HostInfo, About):
        with pytest.raises(wire.BadAnswer):
            wire.read("h7", "virt.x", shape, nonsense)


def test_true_is_not_a_number():
    broken = damaged(HOST, ("memory", "limit_mib"), put(True))

    with pytest.raises(wire.BadAnswer, match="memory.limit_mib is bool"):
        wire.read("h7", "virt.host_info", HostInfo, broken)


def test_a_host_whose_answer_is_broken_has_failed_and_the_others_count(monkeypatch, tmp_path):
    # No host answers nonsense when it is asked to, so what the hosts said is stood for.
    broken = damaged(HOST, ("cpu", "vcpus_limit"), put("many"))
    said = {"h1": HOST, "h2": broken, "h3": None}
    replies = {host: minions.Reply(minion=host, value=one) for host, one in said.items()}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)

    opts = {"cachedir": str(tmp_path)}
    found = inventory.survey(opts, MasterSettings(), replies, "virt.host_info")

    assert list(found.answers) == ["h1"] and sorted(found.failed) == ["h2", "h3"]
    assert "h2" in found.failed["h2"] and "cpu.vcpus_limit is str" in found.failed["h2"]
    assert found.unreachable == []


def fields(shape):
    """Return the names of a type's fields, required or not."""
    return {one.name for one in dataclasses.fields(shape)}
