"""Answers of hosts are read completely, or refused in one line with the host and the field."""

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
    # As plain data: lists, no tuples.
    ABOUT = json.loads(json.dumps(wire.plain(migrationinfo.gather(conn, TEST, "test")["test"])))
HOSTS = moveexecutor.MoveHosts(source="h1", target="h2")
# Parts that are only shown, and have no fixed names.
FREE = (("storage", "images"), ("storage", "pools"))
NO_TYPE = b"none of a host's fields is bytes"


def paths(value, path=()):
    """Return the paths of all values in an answer that its type names."""
    if path in FREE:
        return []
    inner = value.items() if isinstance(value, dict) else ()
    return [path] * bool(path) + [way for name, part in inner for way in paths(part, (*path, name))]


def with_damage(answer, path, change):
    """Return a copy of an answer with the value at a path changed."""
    out = copy.deepcopy(answer)
    *way, last = path
    inner = out
    for name in way:
        inner = inner[name]
    change(inner, last)
    return out


def set_value(value):
    return lambda inner, last: inner.update({last: value})


@pytest.mark.parametrize(("shape", "answer"), [(HostInfo, HOST), (MigrationInfo, ABOUT)])
def test_a_complete_answer_is_read_and_written_unchanged(shape, answer):
    answer_read = wire.read("h1", "virt.x", shape, answer)

    assert wire.plain(answer_read) == {**wire.plain(answer_read), **answer}
    # A newer host has more fields.
    assert wire.read("h1", "virt.x", shape, {**answer, "new": 1}) == answer_read


def test_an_answer_of_an_older_host_may_lack_fields():
    older = {name: value for name, value in HOST.items() if name != "maintenance"}

    assert wire.read("h1", "virt.host_info", HostInfo, older).maintenance is False


def test_facts_of_a_vm_are_passed_on_unchanged_from_older_and_newer_hosts():
    older = {name: value for name, value in ABOUT.items() if name != "machine"}

    for description in (
        older,
        {**ABOUT, "new": 1, "disks": [{**told.DISK, "how": "push", "new": 2}]},
    ):
        info_read = wire.read("h1", "virt.migration_info", MigrationInfo, description)
        assert wire.plain(info_read) == description and wire.plain({"m1": [info_read]}) == {
            "m1": [description]
        }
        info = wire.read("h1", "virt.host_info", HostInfo, {**HOST, "moving": description})
        assert wire.plain(info.moving) == description


def test_missing_and_unusable_sizes_are_left_out():
    disk = {**told.DISK, "how": "missing"}
    sizes = {"virtual_bytes": 1, "actual_bytes": 1, "backing": None, "size_bytes": 1}

    for disk_answer in (disk, {**disk, **sizes}):
        assert wire.plain(wire.read("h1", "virt.x", DiskFacts, disk_answer)) == disk_answer
    assert wire.plain(NicProfile(error="no")) == {"error": "no"}
    assert wire.plain(DiskProfile(size_mib=0, has_image=False)) == {
        "size_mib": 0,
        "has_image": False,
    }
    assert "moving" not in wire.plain(told.info(HOST))


def test_the_error_about_a_wrong_argument_names_argument_and_field():
    with pytest.raises(BadArgument, match=r"^about: disks\[1\].path is int, not text$"):
        disks = [{**told.DISK, "how": "push"}, {**told.DISK, "path": 1}]
        wire.argument("about", MigrationInfo, {**ABOUT, "disks": disks})
    with pytest.raises(BadArgument, match="^about: it is str, not a mapping$"):
        wire.argument("about", MigrationInfo, "m1")


def test_the_error_about_a_wrong_name_calls_it_a_name():
    with pytest.raises(wire.BadAnswer, match="cannot read: a name in vms is int, not text;"):
        wire.read("h1", "virt.host_info", HostInfo, with_damage(HOST, ("vms",), set_value({1: {}})))


@given(strategies.data())
def test_a_wrong_type_anywhere_is_one_line_with_host_and_field(data):
    shape, answer = data.draw(strategies.sampled_from([(HostInfo, HOST), (MigrationInfo, ABOUT)]))
    path = data.draw(strategies.sampled_from([p for p in paths(answer) if p[0] in fields(shape)]))
    broken_answer = with_damage(answer, path, set_value(NO_TYPE))

    with pytest.raises(wire.BadAnswer) as refused:
        wire.read("h7", "virt.x", shape, broken_answer)

    message = str(refused.value)
    assert "h7" in message and ".".join(path) in message and "\n" not in message


@given(strategies.data())
def test_a_missing_field_is_one_line_with_host_and_field(data):
    shape, answer = data.draw(strategies.sampled_from([(HostInfo, HOST), (MigrationInfo, ABOUT)]))
    needed = [(field.name,) for field in dataclasses.fields(shape) if wire._is_required(field)]
    if shape is HostInfo:
        needed += [("cpu", "features"), ("memory", "limit_mib"), ("domain_types", "default")]
        needed += [("networks", "net0", "active"), ("versions", "qemu"), ("profiles", "disk")]
    path = data.draw(strategies.sampled_from(sorted(needed)))
    broken_answer = with_damage(answer, path, lambda inner, last: inner.pop(last))

    with pytest.raises(wire.BadAnswer, match=rf"^h7 .* {'.'.join(path)} is missing"):
        wire.read("h7", "virt.x", shape, broken_answer)


@pytest.mark.slow
@given(
    strategies.recursive(
        strategies.none() | strategies.booleans() | strategies.integers() | strategies.text(),
        lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
    )
)
def test_no_answer_of_a_host_is_a_traceback(nonsense):
    for shape in (HostInfo, MigrationInfo):
        with pytest.raises(wire.BadAnswer):
            wire.read("h7", "virt.x", shape, nonsense)


@pytest.mark.parametrize(("shape", "name"), [(Figures, "warnings"), (StepDone, "warnings")])
def test_texts_to_show_are_one_line_and_limited(shape, name):
    texts = [" a\n\tb\x1b[2J\rc ", "x" * 5000]

    shown_texts = getattr(wire.read("h1", "virt.x", shape, {name: texts}), name)

    assert shown_texts == [r"a b\x1b[2J c", f"{'x' * 1000} …"]


def test_names_in_an_error_are_not_too_long():
    with pytest.raises(wire.BadAnswer) as error:
        wire.read("h1", "virt.x", dict[str, int], {"x" * 10**6: "a"})

    assert len(str(error.value)) < 500


def test_true_is_not_a_number():
    broken_answer = with_damage(HOST, ("memory", "limit_mib"), set_value(True))

    with pytest.raises(wire.BadAnswer, match="memory.limit_mib is bool"):
        wire.read("h7", "virt.host_info", HostInfo, broken_answer)


def test_a_host_with_a_broken_answer_has_failed_and_the_others_count(monkeypatch, opts):
    # The answers are fakes: no real host answers nonsense at will.
    broken_answer = with_damage(HOST, ("cpu", "vcpus_limit"), set_value("many"))
    answers = {"h1": HOST, "h2": broken_answer, "h3": None}
    replies = {host: minions.Reply(minion=host, value=answer) for host, answer in answers.items()}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)

    cloud = Cloud.of(opts)
    survey = inventory.survey(cloud, replies, "virt.host_info")

    assert list(survey.answers) == ["h1"] and sorted(survey.failed) == ["h2", "h3"]
    assert "h2" in survey.failed["h2"] and "cpu.vcpus_limit is str" in survey.failed["h2"]
    assert survey.unreachable == []


PRESENCE = {"state": None, "building": False, "unfinished": False}
RECORD = {"purpose": "departure", "token": "t1", "phase": "handing", "since": 1.5}
RECORD |= {"uuid": None, "source": None, "target": "h2"}
MOVES = {"web1": [RECORD]}
with connect.open_connection(TEST) as conn:
    # The test driver does not report its memory.
    NODE = {"freecpu": 1, "freemem": 96.5, "node_info": {"cpus": 2, "phymemory": 3072}}
    FULL = {**NODE, "vm_info": json.loads(json.dumps(inspect.vm_info(conn)))}
IMAGES = {"d1": {"users": ["web1"], "source": "salt://a.img"}}
STATE = wire.plain(State(source=Source(), target=Target(), noted=Noted()))


@pytest.mark.parametrize(
    ("fun", "complete", "path", "place", "fault"),
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
def test_a_host_with_an_unreadable_answer_has_failed(
    monkeypatch, opts, fun, complete, path, place, fault
):
    lacking = with_damage(
        complete, path, set_value(NO_TYPE) if fault == "is bytes" else lambda i, n: i.pop(n)
    )
    answers = {"h1": complete, "h2": lacking}
    replies = {host: minions.Reply(minion=host, value=answer) for host, answer in answers.items()}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)

    cloud = Cloud.of(opts)
    survey = inventory.survey(cloud, replies, fun, ["web1"])

    assert list(survey.answers) == ["h1"] and list(survey.failed) == ["h2"]
    assert survey.raw_answers == {"h1": complete}
    assert f"h2 answers {fun} with something" in survey.failed["h2"]
    assert f"{place} {fault}" in survey.failed["h2"] and "\n" not in survey.failed["h2"]


@pytest.mark.parametrize(
    "answer_of_h2",
    [{"web1": 7}, {"web1": ["h1"]}, {"web1": {"hosts": ["h1"], "proof": 7}}, ["web1"], None],
)
def test_unreadable_evacuation_notes_count_as_a_failure(monkeypatch, opts, answer_of_h2):
    answers = {"h1": {"web1": {"hosts": ["h2"]}}, "h2": answer_of_h2}
    replies = {host: minions.Reply(minion=host, value=answer) for host, answer in answers.items()}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)

    survey = evacuationnotes.survey_notes(Cloud.of(opts), replies)

    assert survey.answers == {"h1": {"web1": EvacuatedFacts(hosts=["h2"])}}
    assert list(survey.failed) == ["h2"]
    assert "h2 answers virt.evacuated with something" in survey.failed["h2"]


@pytest.mark.parametrize(
    ("effect", "answer", "reason"),
    [
        ("prepare", {"images": {}}, "virt.migrate_prepare with .* present is missing"),
        ("prepare", {"images": [], "present": []}, "images is list"),
        ("send", ["total_ms"], "virt.migrate with .* is list"),
        ("send", {"noted": {"digests": []}}, "virt.migrate with .* digests is list"),
        ("arrive", {"warnings": "none"}, "virt.migrate_step with .* warnings is str"),
        ("finish", {"removed": [7]}, r"removed\[0\] is int"),
    ],
)
def test_an_effect_with_an_unreadable_answer_fails(monkeypatch, opts, effect, answer, reason):
    monkeypatch.setattr(moveexecutor, "act", lambda *_args, **_options: answer)
    record = SimpleNamespace(name="web1", record=None)
    executor = moveexecutor.MoveExecutor(Cloud.of(opts, quiet=True), record, "t1", HOSTS)
    executor.moving, executor.present = told.moving(), []

    with pytest.raises(wire.BadAnswer, match=f"h[12] answers .*{reason}"):
        getattr(executor, effect)()


def test_an_unreadable_answer_to_a_prune_is_a_failure(monkeypatch, opts):
    answers = {"virt.images": {"d1": {"users": []}}, "virt.image_prune": {"removed": ["d1"]}}
    monkeypatch.setattr(inventory, "hosts", lambda *_args, **_options: ["h1"])
    monkeypatch.setattr(
        minions,
        "ask",
        lambda _o, hosts, fun, *_a, **_k: {
            h: minions.Reply(minion=h, value=answers[fun]) for h in hosts
        },
    )

    with pytest.raises(MasterError, match="h1 answers virt.image_prune with .* removed is list"):
        images.prune(Cloud.of(opts), is_dry=False)


def test_a_host_with_an_unreadable_presence_may_have_the_vm(monkeypatch, opts):
    answers = {"h1": PRESENCE, "h2": {"state": "running"}}
    replies = {host: minions.Reply(minion=host, value=answer) for host, answer in answers.items()}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)

    survey = inventory.survey(Cloud.of(opts), replies, "virt.presence", ["web1"])

    assert presence.from_answers(survey.answers, "web1").keys() == {"h1"}
    with pytest.raises(NoSuchVm, match=r"on any of 1 hypervisor .*\(not asked: h2"):
        locate(Cloud.of(opts), "web1", Purpose.ACT, survey=survey)


def executor_with_answer(monkeypatch, answer):
    """Return the executor of a move with this answer of its hosts."""
    monkeypatch.setattr(
        minions,
        "ask",
        lambda _o, hosts, *_a, **_k: {h: minions.Reply(minion=h, value=answer) for h in hosts},
    )
    record = SimpleNamespace(name="web1", record=None)
    return moveexecutor.MoveExecutor(Cloud.of({}), record, "t1", HOSTS)


@pytest.mark.parametrize("side", ["source", "target"])
@given(data=strategies.data())
def test_an_unreadable_state_does_not_settle_a_move(side, data):
    name = data.draw(strategies.sampled_from(sorted(STATE[side].keys() - {"is_cut"})))
    change, reason = data.draw(
        strategies.sampled_from(
            [(set_value(NO_TYPE), "is bytes"), (lambda i, n: i.pop(n), "is missing")]
        )
    )
    with pytest.MonkeyPatch.context() as patch:
        hands = executor_with_answer(patch, with_damage(STATE, (side, name), change))
        patch.setattr(moveexecutor.time, "sleep", lambda _s: pytest.fail("it is asked again"))
        assert getattr(hands, f"look_at_{side}")() is None

    (host, line), *_more = hands.answers.items()
    assert f"{host} answers virt.migration_state with" in line and f"{side}.{name} {reason}" in line
    # The host answers, so the operator may not declare it lost.
    assert hands.silent == set()


def test_the_state_of_a_newer_host_settles_a_move_too(monkeypatch):
    newer = {**STATE, "source": {**STATE["source"], "new": 1}, "more": 2}
    hands = executor_with_answer(monkeypatch, newer)
    assert hands.look_at_source() == Source() and hands.look_at_target() == Target()


@pytest.mark.parametrize(
    "noted", [{}, {"autostart": True}, {"digests": None, "was_running": True, "new": [1]}]
)
def test_facts_that_a_source_recorded_reach_the_target_unchanged(monkeypatch, noted):
    executor = executor_with_answer(monkeypatch, {**STATE, "noted": noted})
    calls = []

    def act(_cloud, host, _fun, *_args, kwarg, **_options):
        calls.append((host, kwarg))
        return {"warnings": []}

    monkeypatch.setattr(moveexecutor, "act", act)
    executor.look_at_source()
    executor.arrive()

    assert calls == [("h2", {"is_handed": True, "noted": noted})]


def test_a_source_without_a_record_has_no_recorded_facts():
    assert STATE["noted"] == {}
    # Without files to send there are no digests.
    noted = onrecord.noted(was_running=True, leaves=True)
    assert noted == {"digests": None, "autostart": False, "leaves": True, "was_running": True}


def test_an_unreadable_answer_to_a_check_is_a_refusal(monkeypatch):
    monkeypatch.setattr(migrate, "act", lambda *_args, **_options: "no room")
    evaluations = [Evaluation(host="h2", score=1.0)]

    with pytest.raises(NoHostFits) as refused:
        migrate.choose_host(Cloud.of({}), "h1", told.moving(), evaluations)

    assert "h2 answers virt.migrate_check with" in refused.value.reasons["h2"]
    assert "the answer is str, not a list" in refused.value.reasons["h2"]


def fields(shape):
    """Return the names of a type's fields, required or not."""
    return {field.name for field in dataclasses.fields(shape)}


@pytest.mark.parametrize(("side", "expected"), [("source", "planned"), ("target", "preparing")])
def test_an_unknown_phase_is_refused(side, expected):
    state = wire.plain(State(source=Source(), target=Target(), noted=Noted()))
    assert getattr(wire.read("h1", "virt.migration_state", State, state), side).phase is None

    state[side]["phase"] = ""
    with pytest.raises(
        wire.BadAnswer, match=rf"{side}\.phase is not one of {expected}, .*sync_all"
    ):
        wire.read("h1", "virt.migration_state", State, state)


def test_an_entry_must_have_the_name_of_its_key():
    answer = {"test": {**ABOUT, "name": "another"}}
    with pytest.raises(wire.BadAnswer, match=r"test\.name is another name"):
        wire.read("h1", "virt.migration_info", dict[str, MigrationInfo], answer)
