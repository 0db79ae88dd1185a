"""Moves whose hosts fall silent or refuse, and whose runners die: every one comes to an end."""

import re
from contextlib import suppress
from copy import deepcopy

import pytest
from saltvirt.cluster import orders
from saltvirt.cluster.cloud import Cloud as Master
from saltvirt.cluster.rpc import hostcommands
from saltvirt.core.errors import BadArgument, FunctionMissing, NameTaken, VirtError
from saltvirt.core.journal import records
from saltvirt.core.protocol import moveprotocol
from saltvirt.migration.master import migrate, moveexecutor, recovery, settle

CALLS = [
    ("h1", "virt.migrate_begin"),
    ("h2", "virt.migrate_prepare"),
    ("h1", "virt.migrate"),
    ("h2", "virt.migrate_step arrive"),
    ("h1", "virt.migrate_step finish"),
    ("h2", "virt.migrate_step end"),
]
HOSTS = moveexecutor.MoveHosts(source="h1", target="h2")
PLANNED = {"phase": "planned", "target": "h2", "autostart": True, "was": True}


class Killed(BaseException):
    """Nobody catches it: the runner is gone, as it is when it is killed."""


def move(master, name="web", target="h2", **given):
    """Move a VM as salt-run virt.migrate does."""
    return migrate.migrate(master, name, target, given)


def left(master):
    """Return the phase of the order that is on record."""
    record = records.read_record(orders.folder(master.opts), "order", "web")
    return record and record.phase


def is_over(cloud, master, *where):
    """Return whether a VM is on these hosts, whole and with its autostart, and nothing is left."""
    is_auto = all(cloud.hosts[host]["web"]["autostart"] for host in where)
    is_there = cloud.where("web") == list(where)
    return is_there and is_auto and cloud.is_settled() and left(master) is None


def settled(master, name=None, **given):
    """Settle as salt-run virt.settle does."""
    return settle.settle_all(master, name, **given)


def test_a_move_comes_to_its_end_and_the_order_of_what_is_asked(two, master):
    done = move(master)

    assert (done["from"], done["to"], "warning" in done) == ("h1", "h2", False)
    assert is_over(two, master, "h2")
    asked = [call for call in two.asked if call[1].startswith("virt.migrate")]
    assert asked == CALLS


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
@pytest.mark.parametrize("is_done", [False, True], ids=["not done", "done"])
def test_a_host_that_falls_silent_is_waited_for_and_the_rest_is_settled(two, master, call, is_done):
    two.silent.add((*call, "the answer") if is_done else call)
    try:
        move(master)
    except recovery.Unsettled as error:
        assert "go on with: salt-run virt.settle web" in str(error)
        assert f"{call[0]} does not answer" in str(error) or "cannot be asked" in str(error)
        assert left(master) == "moving"
    except hostcommands.HostUnresponsive as error:
        # It has come to its end at once: the VM stays.
        assert call[0] in str(error) and is_over(two, master, "h1")
    two.silent.clear()

    if left(master):
        settled(master)
    assert is_over(two, master, *two.where("web")) and len(two.where("web")) == 1


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
@pytest.mark.parametrize("hook", ["before", "after"])
def test_what_a_killed_runner_leaves_is_settled_by_the_next(two, master, call, hook):
    def kill():
        raise Killed

    getattr(two, hook)[call] = kill
    with pytest.raises(Killed):
        move(master)
    assert left(master) == "moving"
    getattr(two, hook).clear()

    # The next command for this VM settles it first, whatever it is.
    if two.where("web") == ["h1"] and not two.away:
        assert move(master)["to"] == "h2"
    else:
        settled(master, "web")
    assert is_over(two, master, "h2")


@pytest.mark.parametrize("call", CALLS[:3], ids=" ".join)
def test_a_refusal_keeps_the_vm_and_names_its_host(two, master, call):
    def refuse():
        raise hostcommands.HostCommandFailed("no")

    two.before[call] = refuse
    with pytest.raises(VirtError, match="no$|h2: no") as caught:
        move(master)
    assert is_over(two, master, "h1") and not isinstance(caught.value, recovery.Unsettled)


def test_a_host_that_does_not_get_ready_is_followed_by_the_next(two, master):
    two.hosts["h3"], two.notes["h3"] = {}, {}
    first = migrate.dry_run(master, "web", None, {})["to"]
    (other,) = {"h2", "h3"} - {first}
    two.refuses[first] = {"web": ["no room any more"]}

    assert move(master, target=None)["to"] == other
    assert is_over(two, master, other)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize(("hook", "where"), [("before", "h1"), ("after", "h2")])
def test_an_interruption_brings_the_move_to_an_end_and_says_which(two, master, error, hook, where):
    def interrupt():
        raise error

    getattr(two, hook)["h1", "virt.migrate"] = interrupt
    # What stays is said to be taken back by whoever catches these for all commands.
    with pytest.raises(error if where == "h1" else recovery.MoveFailed) as caught:
        move(master)
    assert is_over(two, master, where)
    assert where == "h1" or str(caught.value) == "interrupted, but VM 'web' has moved to h2"


def test_an_interruption_whose_move_cannot_be_settled_says_how(two, master):
    def interrupt():
        two.silent.add("h2")
        raise KeyboardInterrupt

    two.after["h1", "virt.migrate"] = interrupt
    with pytest.raises(recovery.Unsettled, match=r"h2 \(does not answer\) cannot be asked\. Noth"):
        move(master)


def test_a_vm_that_its_target_loses_while_it_comes_is_on_its_source_as_before(two, master):
    two.swallows.add("h2")

    with pytest.raises(moveexecutor.MoveFailed, match="was not taken by h2.* is on h1 as before"):
        move(master)
    assert is_over(two, master, "h1")


def test_an_older_host_is_named_with_what_brings_it_up_to_date(two, master):
    two.before["h1", "virt.migrate_begin"] = _old

    with pytest.raises(moveexecutor.MoveFailed, match="'virt.migrate_begin' is not available"):
        move(master)
    assert is_over(two, master, "h1")


def _old():
    raise FunctionMissing("virt.migrate_begin")


def test_a_second_master_does_not_take_part_in_the_move_of_the_first(two, master, tmp_path):
    (tmp_path / "other").mkdir()
    opts = {**master.opts, "cachedir": str(tmp_path / "other")}
    other = Master(opts=opts, settings=two, progress=master.progress)
    said = []

    def meanwhile():
        with pytest.raises(VirtError) as caught:
            move(other)
        said.append(str(caught.value))

    two.before["h1", "virt.migrate"] = meanwhile

    assert move(master)["to"] == "h2"
    assert "a move of it is planned already" in said[0]
    assert is_over(two, master, "h2") and left(other) is None


@pytest.mark.slow
def test_a_second_command_of_this_master_waits_for_the_first(two, master, monkeypatch):
    monkeypatch.setattr(orders, "_END_S", 0.3)
    with orders.opened(master.opts, "web"):
        with pytest.raises(NameTaken, match="'web' is being"):
            move(master)
        two.departures["h1", "web"] = {**PLANNED, "token": "t1"}
        with pytest.raises(recovery.Unsettled, match="'web' is being") as caught:
            settled(master)
    assert list(caught.value.table["failed"]) == ["web"]


def test_settling_says_how_each_move_has_ended(two, master):
    two.before["h1", "virt.migrate_step finish"] = lambda: two.silent.add("h1")
    with pytest.raises(recovery.Unsettled):
        move(master)
    two.before.clear()
    two.silent.clear()
    two.put("db", "h1")
    two.after["h1", "virt.migrate_begin"] = lambda: two.silent.add("h1")
    with pytest.raises(recovery.Unsettled):
        move(master, "db")
    two.silent.clear()

    assert settled(master) == {"settled": {"db": "stays on h1", "web": "has moved to h2"}}
    assert settled(master) == {"settled": {}}
    with pytest.raises(BadArgument, match="no move of VM 'web' is on record on any host"):
        settled(master, "web")


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
@pytest.mark.parametrize("is_done", [False, True], ids=["not done", "done"])
def test_a_dry_run_of_settling_foretells_where_the_vm_is(two, master, call, is_done):
    two.silent.add((*call, "the answer") if is_done else call)
    with suppress(VirtError):
        move(master)
    two.silent.clear()
    before = deepcopy((two.hosts, two.departures, two.arrivals, two.buried, two.away))

    told = settled(master, is_dry=True)["settled"]

    assert (two.hosts, two.departures, two.arrivals, two.buried, two.away) == before
    assert bool(told) == bool(left(master))
    settled(master)
    (host,) = two.where("web")
    for sentence in told.values():
        assert re.match(f"(would stay on|stays on|would move to|has moved to) {host}", sentence)
    assert is_over(two, master, host) and settled(master, is_dry=True) == {"settled": {}}


def test_a_dry_run_of_settling_fails_where_settling_would(two, master):
    two.departures["h1", "web"] = {**PLANNED, "token": "t1", "phase": "handing"}
    two.silent.add("h2")
    told = settled(master, is_dry=True)["settled"]["web"]
    assert told.startswith("would stay on h1") and told.endswith("over only when h2 answers")

    two.departures["h1", "web"]["was"] = False
    with pytest.raises(recovery.Unsettled, match="h2 .* cannot be asked.* virt.settle web") as told:
        settled(master, is_dry=True)
    with pytest.raises(recovery.Unsettled) as done:
        settled(master)

    assert told.value.table == done.value.table
    with pytest.raises(BadArgument, match="goes without keep and force"):
        settled(master, "web", is_dry=True, keep="h1")


def test_a_dry_run_of_settling_leaves_a_command_at_work_alone(two, master, monkeypatch):
    two.departures["h1", "web"] = {**PLANNED, "token": "t1"}
    monkeypatch.setattr(orders, "is_at_work", lambda *_: True)  # else a process of its own
    with pytest.raises(recovery.Unsettled, match="'web' is being moved by another salt-run"):
        settled(master, is_dry=True)


def test_settling_names_the_hosts_that_were_not_asked(two, master):
    two.departures["h1", "web"] = {**PLANNED, "token": "t1"}
    two.silent.add("h2")

    with pytest.raises(recovery.Unsettled) as caught:
        settled(master)
    assert caught.value.table["unreachable"] == ["h2"]
    with pytest.raises(BadArgument, match=r"on any host that answers \(not asked: h2\)"):
        settled(master, "other")


def test_the_order_of_another_move_is_not_ended(two, master):
    two.departures["h1", "web"] = {**PLANNED, "token": "t0", "phase": "cancelled"}
    with orders.opened(master.opts, "web") as held:
        held.begin("t1", orders.MOVING, source="h1", target="h2", uuid=None)
        assert recovery.settle(master, held, "t0", HOSTS) == "stays on h1"
        assert held.now.token == "t1"
        recovery.settle_order(master, held)
        assert held.record is None


@pytest.mark.parametrize("source", ["h1", None])
def test_what_may_be_all_there_is_goes_by_force_alone(two, master, source):
    two.hosts["h1"].clear()
    two.arrivals["h2", "web"] = {"token": "t1", "phase": "refused", "source": source}
    two.put("web", "h2", state="shutdown")

    with pytest.raises(
        recovery.Unsettled, match="may be all there is of it.* force=True"
    ) as caught:
        settled(master)
    knows = "h1 does not have all of it" if source else "no host that answers knows of sending it"
    assert knows in str(caught.value) and two.where("web") == ["h2"]

    with pytest.raises(BadArgument, match="name that VM"):
        settled(master, force=True)
    said = settled(master, "web", force=True)
    nor = ", nor has h1" if source else ""
    assert said["settled"] == {"web": f"was given up: h2 has nothing of it any more{nor}"}
    assert two.where("web") == [] and two.is_settled()


def test_force_gives_up_nothing_that_runs(two, master):
    two.hosts["h1"].clear()
    two.arrivals["h2", "web"] = {"token": "t1", "phase": "refused", "source": "h1"}
    two.put("web", "h2")

    with pytest.raises(recovery.Unsettled, match="it runs here, so it is not given back"):
        settled(master, "web", force=True)
    assert two.where("web") == ["h2"]


def test_what_has_come_and_may_be_all_there_is_is_not_taken_for_empty():
    # Of a VM on shared disks no file was made: its definition is what has come.
    gone = moveprotocol.Source()
    come = moveprotocol.Target(phase="ready", has=True, is_empty=True)

    assert moveprotocol.next_step(gone, come) == moveprotocol.ARRIVE


def test_what_was_handed_over_and_refused_goes_back_by_force(two, master):
    two.away["h1", "web"] = two.hosts["h1"].pop("web")
    two.departures["h1", "web"] = {
        "token": "t1",
        "phase": "handing",
        "target": "h2",
        "autostart": True,
        "was": True,
    }
    two.arrivals["h2", "web"] = {"token": "t1", "phase": "refused", "source": "h1"}

    with pytest.raises(recovery.Unsettled, match="says that it has handed it over.* force=True"):
        settled(master)
    assert settled(master, "web", force=True)["settled"] == {"web": "stays on h1"}

    assert is_over(two, master, "h1")


def interrupted(two, master, at):
    """Leave a move on record of which one host falls silent at a call."""
    two.silent.add(at)
    with pytest.raises(recovery.Unsettled):
        move(master)
    two.silent = {at[0]}


@pytest.mark.parametrize(
    ("at", "keep"),
    [(("h2", "virt.migrate_step arrive"), "h1"), (("h1", "virt.migrate_step finish"), "h2")],
)
def test_of_two_hosts_the_one_that_is_left_has_the_vm(two, master, at, keep):
    interrupted(two, master, at)
    lost = at[0]

    with pytest.raises(recovery.Unsettled, match="go on with: salt-run virt.settle web"):
        settled(master, "web")
    done = settled(master, "web", keep=keep)

    assert done["settled"] == {
        "web": f"{'stays' if keep == 'h1' else 'is'} on {keep}; {lost} is lost"
    }
    assert keep in two.where("web") and left(master) is None
    assert keep == "h1" or not two.arrivals, "it may be moved and purged there"


def test_a_host_that_answers_is_not_lost(two, master):
    interrupted(two, master, ("h2", "virt.migrate_step arrive"))

    with pytest.raises(recovery.Unsettled, match="'h3'; one of h1, h2"):
        settled(master, "web", keep="h3")
    with pytest.raises(recovery.Unsettled, match="h1 answers, so it is not lost"):
        settled(master, "web", keep="h2")


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        (
            moveprotocol.Source(phase="handing", is_moving=True),
            moveprotocol.Target(),
            "h1 is still send",
        ),
        (
            moveprotocol.Source(phase="handing"),
            moveprotocol.Target(is_live=True),
            "h2 is still taking it",
        ),
        (
            moveprotocol.Source(phase="handing"),
            moveprotocol.Target(phase="ready", has=True),
            r"agree: h1 does not have the VM \(handing\), h2 has the VM \(ready\)$",
        ),
        (
            moveprotocol.Source(phase="handing", is_cut=True),
            moveprotocol.Target(phase="ready", is_arriving=True, is_cut=True),
            r"^post-copy has failed: .*stop it on neither.* --postcopy-resume web qemu\+tls://h2/sy",
        ),
        (
            moveprotocol.Source(phase="handing", has=True),
            moveprotocol.Target(phase="ready", is_arriving=True, is_cut=True),
            "its source has lost the memory .*virsh destroy web on h2, virsh define FILE on h2;",
        ),
        (
            moveprotocol.Source(phase="handing", has=True, is_cut=True),
            moveprotocol.Target(phase="ready"),
            "h2 has lost the memory .*virsh define FILE on h2, virsh destroy web on the source;",
        ),
        (
            moveprotocol.Source(),
            "does not answer",
            r"^h2 \(does not answer\) cannot be asked$",
        ),
    ],
)
def test_what_a_move_waits_for_is_said_in_words(master, source, target, says):
    with orders.opened(master.opts, "web") as held:
        hands = moveexecutor.MoveExecutor(master, held, "t1", HOSTS)
        hands.answers = {"h1": source, "h2": target}
        assert re.search(says, hands.waits())


def test_a_vm_that_was_kept_nowhere_and_has_ended_keeps_the_files_that_came():
    # It ran on the target alone, which a definition never told of: the source has no such VM.
    gone = moveprotocol.Source(phase="handing")
    come = moveprotocol.Target(phase="ready")

    assert moveprotocol.next_step(gone, come) == moveprotocol.KEEP
    assert (
        moveprotocol.next_step(gone, moveprotocol.Target(phase="ready", is_empty=True)) == "refuse"
    )
    assert moveprotocol.next_step(moveprotocol.Source(phase="handing", has=True), come) == "refuse"
