"""A VM is acted on where it is, and not where a stale definition of it is."""

import itertools
import json
import time
from dataclasses import replace

import pytest
from playedhosts import HOW
from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.inventory import inventory, lastseen, surveys, whereabouts
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.presence import VmPresence
from saltvirt.cluster.inventory.whereabouts import Purpose, Whereabouts
from saltvirt.cluster.rpc import minions, waits
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed
from saltvirt.cluster.rpc.replies import Reply
from saltvirt.core.errors import NameTaken, NoSuchVm
from saltvirt.core.journal.recordfacts import MoveOrderFacts
from saltvirt.core.salt import compat
from saltvirt.migration.master import evacuate, migrate, moveexecutor
from saltvirt.seeding.master import authorization

STATES = (None, "shutdown", "crashed", "paused", "running", "unknown")
SIGHTINGS = [
    VmPresence(state=state, building=building, unfinished=unfinished, moved_to=moved_to)
    for state, building, unfinished, moved_to in itertools.product(
        STATES, (False, True), (False, True), (None, "b")
    )
    if moved_to is None or state == "shutdown"
]


@pytest.fixture
def cloud_with_stale_definition(cloud):
    """hyper1 has a stale definition of web; hyper2 runs the VM, and is silent."""
    cloud.hosts.put("hyper1", "web", state="shutdown", uuid="u1")
    cloud.hosts.put("hyper2", "web", state="running", uuid="u1")
    inventory.overview(cloud.master, "virt.host_info")
    cloud.hosts.silence("hyper2")
    return cloud


# The decision.


def vm_with_presence(presence_by_host, out_of_reach):
    return Whereabouts(
        name="web", presence_by_host=presence_by_host, suspects=out_of_reach, unasked=out_of_reach
    )


@pytest.mark.parametrize("is_removed", [False, True])
@pytest.mark.parametrize("out_of_reach", [{}, {"c": "does not answer"}])
def test_a_host_is_named_only_if_no_other_host_can_have_the_vm(out_of_reach, is_removed):
    for a, b in itertools.product(SIGHTINGS, repeat=2):
        presence_by_host = {"a": a, "b": b}
        try:
            purpose = Purpose.REMOVE if is_removed else Purpose.ACT
            host = whereabouts.decide(vm_with_presence(presence_by_host, out_of_reach), purpose)
        except NameTaken:
            continue
        except NoSuchVm:
            assert not a.is_trace and not b.is_trace
            continue
        presence_on_other = presence_by_host["a" if host == "b" else "b"]
        assert presence_by_host[host].is_trace
        assert not (presence_on_other.is_complete and presence_by_host[host].is_complete)
        if out_of_reach:
            assert not is_removed and presence_by_host[host].is_complete
            assert presence_by_host[host].state in ("running", "paused")


def test_a_silent_host_that_had_nothing_of_the_vm_does_not_count():
    for sighting in SIGHTINGS:
        if sighting.is_trace:
            assert whereabouts.decide(vm_with_presence({"a": sighting}, {}), Purpose.ACT) == "a"


@pytest.mark.parametrize(
    ("ends", "expected"), [((), ["b", "c"]), (("a", "b"), ["c"]), (("b", "c"), ["b", "c"])]
)
def test_the_other_host_of_a_move_on_record_does_not_count_beside_one_that_has_the_vm(
    ends, expected
):
    out_of_reach = {"b": "does not answer", "c": "does not answer"}
    rule, report = whereabouts.RULES[Purpose.ACT], whereabouts.RULES[Purpose.REPORT]
    vm = replace(
        vm_with_presence({"a": VmPresence(state="shutdown")}, out_of_reach), move_hosts=ends
    )

    assert [*vm.out_of_reach(rule)] == expected and vm.out_of_reach(report) == out_of_reach
    arriving = {"a": VmPresence(state="shutdown", building=True)}
    assert replace(vm, presence_by_host=arriving).out_of_reach(rule) == out_of_reach


# Commands.


@pytest.mark.parametrize(
    "act",
    [
        lambda cloud: locate(cloud.master, "web", Purpose.ACT).host,
        lambda cloud: locate(cloud.master, "web", Purpose.READ).host,
        lambda cloud: cloud.purge(),
        lambda cloud: cloud.purge(delete_key=False),
        lambda cloud: locate(cloud.master, "web", Purpose.MOVE, host="hyper1"),
    ],
)
def test_nothing_is_done_with_a_stale_definition_while_the_vms_host_is_silent(
    cloud_with_stale_definition, act
):
    with pytest.raises(NameTaken) as caught:
        act(cloud_with_stale_definition)

    assert "'web' was last seen on hyper2 (does not answer" in str(caught.value)
    assert "hyper1 has a VM of that name, too" in str(caught.value)
    assert "if hyper2 never comes back: salt-run virt.host_lost hyper2" in str(caught.value)
    assert (
        cloud_with_stale_definition.hosts.where("web") == ["hyper1", "hyper2"]
        and cloud_with_stale_definition.hosts.sent == []
    )


def test_a_running_vm_on_an_answering_host_is_no_stale_definition(cloud):
    cloud.hosts.put("hyper1", "web", state="running")
    lastseen.record_move(cloud.opts, "web", "hyper2")
    cloud.hosts.silence("hyper2")

    assert locate(cloud.master, "web", Purpose.ACT).host == "hyper1"
    locate(cloud.master, "web", Purpose.MOVE, host="hyper1")
    # But the key may belong to the other VM.
    with pytest.raises(NameTaken, match="was last seen on hyper2"):
        cloud.purge()


def test_a_vm_on_its_last_seen_host_does_not_wait_for_an_unrelated_host(cloud):
    cloud.hosts.put("hyper1", "web", state="shutdown")
    cloud.hosts.put("hyper2", "other")
    inventory.overview(cloud.master, "virt.host_info")
    cloud.hosts.silence("hyper2")

    assert locate(cloud.master, "web", Purpose.ACT).host == "hyper1"
    assert cloud.purge() == {"hyper1": {"web": "purged"}}


def test_a_former_minion_of_this_master_does_not_count(cloud_with_stale_definition, monkeypatch):
    compat.KeyStore(cloud_with_stale_definition.opts).discard("hyper2")
    monkeypatch.setattr(inventory, "all_hosts", lambda _cloud: ["hyper1", "hyper3"])

    assert locate(cloud_with_stale_definition.master, "web", Purpose.ACT).host == "hyper1"


def test_the_error_says_for_how_long_the_host_is_silent(cloud_with_stale_definition):
    waits.record_silence(
        cloud_with_stale_definition.opts, ["hyper2"], ["hyper2"], lambda _host: True
    )
    path = waits._file(cloud_with_stale_definition.opts).path
    path.write_text(json.dumps({"version": 1, "since": {"hyper2": time.time() - 7201}}))

    with pytest.raises(NameTaken, match=r"on hyper2 \(does not answer, for 2 h\), and hyper1"):
        locate(cloud_with_stale_definition.master, "web", Purpose.ACT)


@pytest.mark.parametrize("source", ["hyper1", "hyper2"])
def test_the_silent_host_of_a_move_that_is_not_over_does_not_count(
    cloud_with_stale_definition, source
):
    target = "hyper2" if source == "hyper1" else "hyper1"
    with orders.opened(cloud_with_stale_definition.opts, "web") as record:
        orders.begin_move(record, "t1", MoveOrderFacts(source=source, target=target))

    # The host's own record decides whether the VM may be used there.
    assert locate(cloud_with_stale_definition.master, "web", Purpose.ACT).host == "hyper1"


# Answers that are none.


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(minion="b", error="libvirt does not answer at qemu:///system"), "libvirt does not"),
        (Reply(minion="b", is_missing=True, error="b sent no signed answer"), "signed"),
        (Reply(minion="b", value={"state": ["up"]}), "b answers virt.presence with"),
        (Reply(minion="b", is_missing=True), "does not answer"),
    ],
)
def test_the_reason_for_a_missing_answer_is_named(cloud, monkeypatch, reply, reason):
    monkeypatch.setattr(inventory, "all_hosts", lambda _cloud: ["hyper1", "hyper2"])
    original_ask = minions.ask

    def ask(cloud_, targets, fun, *args, **options):
        answers = original_ask(cloud_, targets, fun, *args, **options)
        return {
            **answers,
            **({"hyper2": replace(reply, minion="hyper2")} if "hyper2" in answers else {}),
        }

    monkeypatch.setattr(minions, "ask", ask)
    lastseen.record_move(cloud.opts, "web", "hyper2")
    word = reason.replace("b answers", "hyper2 answers")

    with pytest.raises(NoSuchVm, match=rf"last seen on hyper2\); hyper2 \(.*{word}"):
        locate(cloud.master, "web", Purpose.ACT)
    cloud.hosts.put("hyper1", "web", state="shutdown")
    with pytest.raises(NameTaken, match=rf"was last seen on hyper2 \(.*{word}"):
        locate(cloud.master, "web", Purpose.ACT)


def test_a_kept_definition_is_not_purged_while_a_host_that_may_have_the_vm_is_silent(cloud):
    cloud.hosts.put("hyper1", "web", state="shutdown", moved_to="hyper2")
    cloud.hosts.silence("hyper2")

    with pytest.raises(HostCommandFailed, match="only kept its definition"):
        cloud.purge()
    with pytest.raises(NameTaken, match="moved to hyper2, and hyper1 only kept its definition"):
        locate(cloud.master, "web", Purpose.ACT)


def test_a_survey_has_the_reason_for_a_silent_host():
    survey = surveys.from_replies(
        "virt.presence", {"a": Reply(minion="a", is_missing=True, error="not signed")}
    )

    assert survey.unreachable == ["a"] and survey.reasons() == {"a": "not signed"}
    assert survey.errors_by_kind() == {"unreachable": ["a"]}


# Moves of VMs on a known host, and keys.


@pytest.fixture
def doubled(two, master):
    """h1 has a stale definition of web, h2 runs it and is silent; h1 has db, too."""
    two.put("web", "h1", state="shutdown")
    two.put("web", "h2", state="running")
    two.hosts["h3"] = {}
    two.notes["h3"] = {}
    minionkeys.accept(master.opts, "h3", "a key")
    inventory.overview(master, "virt.host_info")
    two.put("db", "h1", state="shutdown")
    two.silent.add("h2")
    return two


def test_an_evacuation_does_not_move_a_stale_definition(doubled, master):
    plan = evacuate.dry_run(master, "h1", with_stopped=True)
    with pytest.raises(evacuate.NotAllMoved) as caught:
        evacuate.evacuate(master, "h1", **HOW)

    assert plan["moves"] == {"db": "h3"} and "was last seen on h2" in plan["stays"]["web"]
    assert caught.value.table["moved"] == {"db": "h3"}
    assert "was last seen on h2 (does not answer" in caught.value.table["failed"]["web"]
    assert doubled.where("web") == ["h1", "h2"]


def test_a_move_to_a_named_host_asks_the_host_that_had_the_vm(doubled, master):
    with pytest.raises(NameTaken, match="was last seen on h2"):
        migrate.migrate(master, "web", "h3", {}, "h1")
    doubled.silent.clear()
    with pytest.raises(NameTaken, match="is on h1 and h2"):
        migrate.migrate(master, "web", "h3", {}, "h1")

    assert doubled.where("web") == ["h1", "h2"]


def test_a_running_vm_moves_though_another_host_had_its_name_before(doubled, master):
    doubled.put("web", "h1", state="running")

    assert migrate.migrate(master, "web", "h3", {}, "h1")["to"] == "h3"


def test_a_target_that_refused_the_vm_is_not_where_it_was_last_seen(two, master):
    two.put("web", "h1", state="shutdown")
    two.swallows.add("h2")
    # A survey during the move has seen the VM on the target.
    report = lastseen.ReportedNames(names_by_host={"h1": ["web"], "h2": ["web"]})
    two.after["h1", "virt.migrate"] = lambda: lastseen.refresh(master.opts, report)

    with pytest.raises(moveexecutor.MoveFailed, match="on h1 as before"):
        migrate.migrate(master, "web", "h2", {})

    assert lastseen.find_hosts(master.opts, "web") == ["h1"]


def test_a_key_is_not_submitted_by_one_host_for_the_vm_of_another(cloud):
    cloud.hosts.put("hyper2", "web", state="shutdown")
    inventory.overview(cloud.master, "virt.host_info")
    options = {"minutes": 1, "replace": False}

    with pytest.raises(NameTaken, match="is on hyper2, and not on hyper1"):
        authorization.grant(cloud.master, "web", "hyper1", **options)
    cloud.hosts.silence("hyper2")
    with pytest.raises(NameTaken, match="may be on hyper2 .*give replace=True"):
        authorization.grant(cloud.master, "web", "hyper1", **options)
    assert authorization.list_unused(cloud.opts) == {}
