"""What hosts answer is read whole, or refused in one line that names the host and the field."""

import copy
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import onrecord
import pytest
import told
from hypothesis import given, strategies
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, presence
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose
from saltvirt.cluster.rpc import minions
from saltvirt.core import wire
from saltvirt.core.errors import BadArgument, MasterError, NoHostFits, NoSuchVm
from saltvirt.core.journal.movefacts import EvacuatedFacts, Noted
from saltvirt.core.model import Evaluation
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol.effects import Source, State, Target
from saltvirt.libvirt import connect
from saltvirt.migration.master import evacuationnotes, migrate, moveexecutor
from saltvirt.placement.answers import (
    DiskFacts,
    DiskProfile,
    Figures,
    HostInfo,
    MigrationInfo,
    NicProfile,
    StepDone,
)
from saltvirt.storage.master import images
from saltvirt.vm.show.host import inspect, migrationinfo

DATA = Path(__file__).parents[2] / "data"
TEST = HostSettings(uri="test:///default")
HOST = json.loads((DATA / "fleets/three.json").read_text())["hyper2"]
with connect.open_connection(TEST) as conn:
    # As it comes over the wire: lists, no tuples.
    ABOUT = json.loads(json.dumps(wire.plain(migrationinfo.gather(conn, TEST, "test")["test"])))
HOSTS = moveexecutor.MoveHosts(source="h1", target="h2")
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


@pytest.mark.parametrize(("shape", "answer"), [(HostInfo, HOST), (MigrationInfo, ABOUT)])
def test_a_whole_answer_is_read_and_made_what_it_was(shape, answer):
    read = wire.read("h1", "virt.x", shape, answer)

    assert wire.plain(read) == {**wire.plain(read), **answer}
    # A newer host says more.
    assert wire.read("h1", "virt.x", shape, {**answer, "new": 1}) == read


def test_an_older_host_says_less():
    older = {name: one for name, one in HOST.items() if name != "maintenance"}

    assert wire.read("h1", "virt.host_info", HostInfo, older).maintenance is False


def test_another_host_is_told_of_a_vm_what_the_first_has_said_be_it_older_or_newer():
    older = {name: one for name, one in ABOUT.items() if name != "machine"}

    for said in (older, {**ABOUT, "new": 1, "disks": [{**told.DISK, "how": "push", "new": 2}]}):
        read = wire.read("h1", "virt.migration_info", MigrationInfo, said)
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
        wire.argument("about", MigrationInfo, {**ABOUT, "disks": disks})
    with pytest.raises(BadArgument, match="^about: it is str, not a mapping$"):
        wire.argument("about", MigrationInfo, "m1")


def test_a_name_that_is_no_text_is_said_to_be_a_name():
    with pytest.raises(wire.BadAnswer, match="cannot read: a name in vms is int, not text;"):
        wire.read("h1", "virt.host_info", HostInfo, damaged(HOST, ("vms",), put({1: {}})))


@given(strategies.data())
def test_a_wrong_type_anywhere_is_one_line_that_names_host_and_field(data):
    shape, answer = data.draw(strategies.sampled_from([(HostInfo, HOST), (MigrationInfo, ABOUT)]))
    path = data.draw(strategies.sampled_from([p for p in places(answer) if p[0] in fields(shape)]))
    broken = damaged(answer, path, put(NO_TYPE))

    with pytest.raises(wire.BadAnswer) as refused:
        wire.read("h7", "virt.x", shape, broken)

    said = str(refused.value)
    assert "h7" in said and ".".join(path) in said and "\n" not in said


@given(strategies.data())
def test_a_missing_field_is_one_line_that_names_host_and_field(data):
    shape, answer = data.draw(strategies.sampled_from([(HostInfo, HOST), (MigrationInfo, ABOUT)]))
    needed = [(one.name,) for one in dataclasses.fields(shape) if wire._is_required(one)]
    if shape is HostInfo:
        needed += [("cpu", "features"), ("memory", "limit_mib"), ("domain_types", "default")]
        needed += [("networks", "net0", "active"), ("versions", "qemu"), ("profiles", "disk")]
    path = data.draw(strategies.sampled_from(sorted(needed)))
    broken = damaged(answer, path, lambda inner, last: inner.pop(last))

    with pytest.raises(wire.BadAnswer, match=rf"^h7 .* {'.'.join(path)} is missing"):
        wire.read("h7", "virt.x", shape, broken)


@pytest.mark.slow
@given(
    strategies.recursive(
        strategies.none() | strategies.booleans() | strategies.integers() | strategies.text(),
        lambda one: strategies.lists(one) | strategies.dictionaries(strategies.text(), one),
    )
)
def test_whatever_a_host_answers_is_no_traceback(nonsense):
    for shape in (HostInfo, MigrationInfo):
        with pytest.raises(wire.BadAnswer):
            wire.read("h7", "virt.x", shape, nonsense)


@pytest.mark.parametrize(("shape", "name"), [(Figures, "warnings"), (StepDone, "warnings")])
def test_what_is_only_shown_is_one_line_and_not_too_long(shape, name):
    said = [" a\n\tb\x1b[2J\rc ", "x" * 5000]

    found = getattr(wire.read("h1", "virt.x", shape, {name: said}), name)

    assert found == [r"a b\x1b[2J c", f"{'x' * 1000} …"]


def test_names_in_an_error_are_not_too_long():
    with pytest.raises(wire.BadAnswer) as error:
        wire.read("h1", "virt.x", dict[str, int], {"x" * 10**6: "a"})

    assert len(str(error.value)) < 500


def test_true_is_not_a_number():
    broken = damaged(HOST, ("memory", "limit_mib"), put(True))

    with pytest.raises(wire.BadAnswer, match="memory.limit_mib is bool"):
        wire.read("h7", "virt.host_info", HostInfo, broken)


def test_a_host_whose_answer_is_broken_has_failed_and_the_others_count(monkeypatch, opts):
    # No host answers nonsense when it is asked to, so what the hosts said is stood for.
    broken = damaged(HOST, ("cpu", "vcpus_limit"), put("many"))
    said = {"h1": HOST, "h2": broken, "h3": None}
    replies = {host: minions.Reply(minion=host, value=one) for host, one in said.items()}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)

    cloud = Cloud.of(opts)
    found = inventory.survey(cloud, replies, "virt.host_info")

    assert list(found.answers) == ["h1"] and sorted(found.failed) == ["h2", "h3"]
    assert "h2" in found.failed["h2"] and "cpu.vcpus_limit is str" in found.failed["h2"]
    assert found.unreachable == []


PRESENCE = {"state": None, "building": False, "unfinished": False}
RECORD = {"purpose": "departure", "token": "t1", "phase": "handing", "since": 1.5}
RECORD |= {"uuid": None, "source": None, "target": "h2"}
MOVES = {"web1": [RECORD]}
with connect.open_connection(TEST) as conn:
    # The test driver does not tell of its memory.
    NODE = {"freecpu": 1, "freemem": 96.5, "node_info": {"cpus": 2, "phymemory": 3072}}
    FULL = {**NODE, "vm_info": json.loads(json.dumps(inspect.vm_info(conn)))}
IMAGES = {"d1": {"users": ["web1"], "source": "salt://a.img"}}
STATE = wire.plain(State(source=Source(), target=Target(), noted=Noted()))


@pytest.mark.parametrize(
    ("fun", "whole", "path", "where", "how"),
    [
        ("virt.presence", PRESENCE, ("state",), "state", "is missing"),
        ("virt.presence", PRESENCE, ("state",), "state", "is bytes"),
        ("virt.presence", PRESENCE, ("building",), "building", "is missing"),
        ("virt.migration_state", MOVES, ("web1", 0, "token"), "web1[0].token", "is missing"),
        ("virt.migration_state", MOVES, ("web1", 0, "target"), "web1[0].target", "is bytes"),
        ("virt.migrate_check", {"web1": ["full"]}, ("web1",), "web1", "is bytes"),
        ("virt.full_info", FULL, ("freemem",), "freemem", "is missing"),
        ("virt.full_info", FULL, ("node_info", "cpus"), "node_info.cpus", "is bytes"),
        ("virt.full_info", FULL, ("vm_info", "test", "disks"), "vm_info.test.disks", "is missing"),
        ("virt.vm_state", {"web1": "running"}, ("web1",), "web1", "is bytes"),
        ("virt.images", IMAGES, ("d1", "users"), "d1.users", "is missing"),
    ],
)
def test_a_host_that_cannot_be_read_could_not_be_asked(
    monkeypatch, opts, fun, whole, path, where, how
):
    lacking = damaged(whole, path, put(NO_TYPE) if how == "is bytes" else lambda i, n: i.pop(n))
    said = {"h1": whole, "h2": lacking}
    replies = {host: minions.Reply(minion=host, value=one) for host, one in said.items()}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)

    cloud = Cloud.of(opts)
    found = inventory.survey(cloud, replies, fun, ["web1"])

    assert list(found.answers) == ["h1"] and list(found.failed) == ["h2"]
    assert found.raw_answers == {"h1": whole}
    assert f"h2 answers {fun} with something" in found.failed["h2"]
    assert f"{where} {how}" in found.failed["h2"] and "\n" not in found.failed["h2"]


@pytest.mark.parametrize(
    "said",
    [{"web1": 7}, {"web1": ["h1"]}, {"web1": {"hosts": ["h1"], "proof": 7}}, ["web1"], None],
)
def test_notes_of_a_host_that_cannot_be_read_are_not_known(monkeypatch, opts, said):
    answers = {"h1": {"web1": {"hosts": ["h2"]}}, "h2": said}
    replies = {host: minions.Reply(minion=host, value=one) for host, one in answers.items()}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)

    found = evacuationnotes.survey_notes(Cloud.of(opts), replies)

    assert found.answers == {"h1": {"web1": EvacuatedFacts(hosts=["h2"])}}
    assert list(found.failed) == ["h2"]
    assert "h2 answers virt.evacuated with something" in found.failed["h2"]


@pytest.mark.parametrize(
    ("effect", "said", "why"),
    [
        ("prepare", {"images": {}}, "virt.migrate_prepare with .* present is missing"),
        ("prepare", {"images": [], "present": []}, "images is list"),
        ("send", ["total_ms"], "virt.migrate with .* is list"),
        ("send", {"noted": {"digests": []}}, "virt.migrate with .* digests is list"),
        ("arrive", {"warnings": "none"}, "virt.migrate_step with .* warnings is str"),
        ("finish", {"removed": [7]}, r"removed\[0\] is int"),
    ],
)
def test_an_effect_whose_answer_cannot_be_read_says_so(monkeypatch, opts, effect, said, why):
    monkeypatch.setattr(moveexecutor, "act", lambda *_args, **_options: said)
    held = SimpleNamespace(name="web1", record=None)
    hands = moveexecutor.MoveExecutor(Cloud.of(opts, quiet=True), held, "t1", HOSTS)
    hands.moving, hands.present = told.moving(), []

    with pytest.raises(wire.BadAnswer, match=f"h[12] answers .*{why}"):
        getattr(hands, effect)()


def test_a_host_whose_pruning_cannot_be_read_has_failed(monkeypatch, opts):
    asked = {"virt.images": {"d1": {"users": []}}, "virt.image_prune": {"removed": ["d1"]}}
    monkeypatch.setattr(inventory, "hosts", lambda *_args, **_options: ["h1"])
    monkeypatch.setattr(
        minions,
        "ask",
        lambda _o, hosts, fun, *_a, **_k: {
            h: minions.Reply(minion=h, value=asked[fun]) for h in hosts
        },
    )

    with pytest.raises(MasterError, match="h1 answers virt.image_prune with .* removed is list"):
        images.prune(Cloud.of(opts), is_dry=False)


def test_a_host_whose_presence_cannot_be_read_may_have_the_vm(monkeypatch, opts):
    said = {"h1": PRESENCE, "h2": {"state": "running"}}
    replies = {host: minions.Reply(minion=host, value=one) for host, one in said.items()}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)

    found = inventory.survey(Cloud.of(opts), replies, "virt.presence", ["web1"])

    assert presence.from_answers(found.answers, "web1").keys() == {"h1"}
    with pytest.raises(NoSuchVm, match=r"on any of 1 hypervisor .*\(not asked: h2"):
        locate(Cloud.of(opts), "web1", Purpose.ACT, survey=found)


def moved_by(monkeypatch, said):
    """Return the hands of a move whose hosts say something of it."""
    monkeypatch.setattr(
        minions,
        "ask",
        lambda _o, hosts, *_a, **_k: {h: minions.Reply(minion=h, value=said) for h in hosts},
    )
    held = SimpleNamespace(name="web1", record=None)
    return moveexecutor.MoveExecutor(Cloud.of({}), held, "t1", HOSTS)


@pytest.mark.parametrize("side", ["source", "target"])
@given(data=strategies.data())
def test_a_move_is_not_settled_by_what_cannot_be_read(side, data):
    name = data.draw(strategies.sampled_from(sorted(STATE[side].keys() - {"is_cut"})))
    change, why = data.draw(
        strategies.sampled_from([(put(NO_TYPE), "is bytes"), (lambda i, n: i.pop(n), "is missing")])
    )
    with pytest.MonkeyPatch.context() as patch:
        hands = moved_by(patch, damaged(STATE, (side, name), change))
        patch.setattr(moveexecutor.time, "sleep", lambda _s: pytest.fail("it is asked again"))
        assert getattr(hands, f"look_at_{side}")() is None

    (host, line), *_more = hands.answers.items()
    assert f"{host} answers virt.migration_state with" in line and f"{side}.{name} {why}" in line
    # It answers, so nobody may say that it is lost.
    assert hands.silent == set()


def test_a_move_is_settled_by_what_newer_hosts_say_too(monkeypatch):
    newer = {**STATE, "source": {**STATE["source"], "new": 1}, "more": 2}
    hands = moved_by(monkeypatch, newer)
    assert hands.look_at_source() == Source() and hands.look_at_target() == Target()


@pytest.mark.parametrize(
    "noted", [{}, {"autostart": True}, {"digests": None, "was_running": True, "new": [1]}]
)
def test_what_a_source_has_noted_is_told_its_target_as_it_came(monkeypatch, noted):
    hands = moved_by(monkeypatch, {**STATE, "noted": noted})
    told = []

    def act(_cloud, host, _fun, *_args, kwarg, **_options):
        told.append((host, kwarg))
        return {"warnings": []}

    monkeypatch.setattr(moveexecutor, "act", act)
    hands.look_at_source()
    hands.arrive()

    assert told == [("h2", {"is_handed": True, "noted": noted})]


def test_a_source_that_has_nothing_on_record_has_noted_nothing():
    assert STATE["noted"] == {}
    # Without files to send there are no digests.
    noted = onrecord.noted(was_running=True, leaves=True)
    assert noted == {"digests": None, "autostart": False, "leaves": True, "was_running": True}


def test_a_check_that_cannot_be_read_is_a_refusal_that_says_so(monkeypatch):
    monkeypatch.setattr(migrate, "act", lambda *_args, **_options: "no room")
    evaluations = [Evaluation(host="h2", score=1.0)]

    with pytest.raises(NoHostFits) as refused:
        migrate.choose_host(Cloud.of({}), "h1", told.moving(), evaluations)

    assert "h2 answers virt.migrate_check with" in refused.value.reasons["h2"]
    assert "the answer is str, not a list" in refused.value.reasons["h2"]


def fields(shape):
    """Return the names of a type's fields, required or not."""
    return {one.name for one in dataclasses.fields(shape)}


@pytest.mark.parametrize(("side", "known"), [("source", "planned"), ("target", "preparing")])
def test_a_phase_is_one_that_there_is(side, known):
    said = wire.plain(State(source=Source(), target=Target(), noted=Noted()))
    assert getattr(wire.read("h1", "virt.migration_state", State, said), side).phase is None

    said[side]["phase"] = ""
    with pytest.raises(wire.BadAnswer, match=rf"{side}\.phase is not one of {known}, .*sync_all"):
        wire.read("h1", "virt.migration_state", State, said)


def test_what_is_by_its_name_has_that_name():
    said = {"test": {**ABOUT, "name": "another"}}
    with pytest.raises(wire.BadAnswer, match=r"test\.name is another name"):
        wire.read("h1", "virt.migration_info", dict[str, MigrationInfo], said)
