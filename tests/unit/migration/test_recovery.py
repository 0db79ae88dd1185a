"""Moves with silent or refusing hosts, or with killed runners: each of them ends."""

import re
from contextlib import suppress
from copy import deepcopy

import pytest
from saltvirt.cluster import orders
from saltvirt.cluster.cloud import Cloud
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
    """A kill of the runner: no ``except`` of the runner catches it."""


def move(master, name="web", target="h2", **options):
    """Move a VM as salt-run virt.migrate does."""
    return migrate.migrate(master, name, target, options)


def order_phase(master):
    """Return the phase of the recorded order of web."""
    record = records.read_record(orders.folder(master.opts), "order", "web")
    return record and record.phase


def is_over(cloud, master, *hosts):
    """Return whether web is on these hosts alone, with its autostart, and no record is left."""
    is_auto = all(cloud.hosts[host]["web"]["autostart"] for host in hosts)
    is_there = cloud.where("web") == list(hosts)
    return is_there and is_auto and cloud.is_settled() and order_phase(master) is None


def settle_moves(master, name=None, **options):
    """Settle as salt-run virt.settle does."""
    return settle.settle_all(master, name, **options)


def test_a_move_ends_after_these_calls_in_this_order(two, master):
    result = move(master)

    assert (result["from"], result["to"], "warning" in result) == ("h1", "h2", False)
    assert is_over(two, master, "h2")
    calls = [call for call in two.asked if call[1].startswith("virt.migrate")]
    assert calls == CALLS


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
@pytest.mark.parametrize("is_done", [False, True], ids=["not done", "done"])
def test_a_host_that_falls_silent_is_waited_for_and_the_rest_is_settled(two, master, call, is_done):
    two.silent.add((*call, "the answer") if is_done else call)
    try:
        move(master)
    except recovery.Unsettled as error:
        assert "go on with: salt-run virt.settle web" in str(error)
        assert f"{call[0]} does not answer" in str(error) or "cannot be asked" in str(error)
        assert order_phase(master) == "moving"
    except hostcommands.HostUnresponsive as error:
        # The move has ended at once: the VM stays.
        assert call[0] in str(error) and is_over(two, master, "h1")
    two.silent.clear()

    if order_phase(master):
        settle_moves(master)
    assert is_over(two, master, *two.where("web")) and len(two.where("web")) == 1


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
@pytest.mark.parametrize("hook", ["before", "after"])
def test_a_killed_runners_move_is_settled_by_the_next_command(two, master, call, hook):
    def kill():
        raise Killed

    getattr(two, hook)[call] = kill
    with pytest.raises(Killed):
        move(master)
    assert order_phase(master) == "moving"
    getattr(two, hook).clear()

    # Any next command for this VM settles its move first.
    if two.where("web") == ["h1"] and not two.away:
        assert move(master)["to"] == "h2"
    else:
        settle_moves(master, "web")
    assert is_over(two, master, "h2")


@pytest.mark.parametrize("call", CALLS[:3], ids=" ".join)
def test_a_refusal_keeps_the_vm_and_names_its_host(two, master, call):
    def refuse():
        raise hostcommands.HostCommandFailed("no")

    two.before[call] = refuse
    with pytest.raises(VirtError, match="no$|h2: no") as excinfo:
        move(master)
    assert is_over(two, master, "h1") and not isinstance(excinfo.value, recovery.Unsettled)


def test_a_host_that_does_not_get_ready_is_followed_by_the_next(two, master):
    two.hosts["h3"], two.notes["h3"] = {}, {}
    first = migrate.dry_run(master, "web", None, {})["to"]
    (other_host,) = {"h2", "h3"} - {first}
    two.refuses[first] = {"web": ["no room any more"]}

    assert move(master, target=None)["to"] == other_host
    assert is_over(two, master, other_host)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize(("hook", "final_host"), [("before", "h1"), ("after", "h2")])
def test_an_interruption_ends_the_move_and_reports_the_host(two, master, error, hook, final_host):
    def interrupt():
        raise error

    getattr(two, hook)["h1", "virt.migrate"] = interrupt
    # If the VM stays, the handler of these exceptions for all commands reports it.
    with pytest.raises(error if final_host == "h1" else recovery.MoveFailed) as excinfo:
        move(master)
    assert is_over(two, master, final_host)
    assert final_host == "h1" or str(excinfo.value) == "interrupted, but VM 'web' has moved to h2"


def test_an_interruption_of_a_move_that_cannot_be_settled_names_the_remedy(two, master):
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
    second_master = Cloud(opts=opts, settings=two, progress=master.progress)
    errors = []

    def move_by_second_master():
        with pytest.raises(VirtError) as excinfo:
            move(second_master)
        errors.append(str(excinfo.value))

    two.before["h1", "virt.migrate"] = move_by_second_master

    assert move(master)["to"] == "h2"
    assert "a move of it is planned already" in errors[0]
    assert is_over(two, master, "h2") and order_phase(second_master) is None


@pytest.mark.slow
def test_a_second_command_of_this_master_waits_for_the_first(two, master, monkeypatch):
    monkeypatch.setattr(orders, "_END_S", 0.3)
    with orders.opened(master.opts, "web"):
        with pytest.raises(NameTaken, match="'web' is being"):
            move(master)
        two.departures["h1", "web"] = {**PLANNED, "token": "t1"}
        with pytest.raises(recovery.Unsettled, match="'web' is being") as excinfo:
            settle_moves(master)
    assert list(excinfo.value.table["failed"]) == ["web"]


def test_settling_reports_how_each_move_has_ended(two, master):
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

    assert settle_moves(master) == {"settled": {"db": "stays on h1", "web": "has moved to h2"}}
    assert settle_moves(master) == {"settled": {}}
    with pytest.raises(BadArgument, match="no move of VM 'web' is on record on any host"):
        settle_moves(master, "web")


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
@pytest.mark.parametrize("is_done", [False, True], ids=["not done", "done"])
def test_a_dry_run_of_settling_foretells_where_the_vm_is(two, master, call, is_done):
    two.silent.add((*call, "the answer") if is_done else call)
    with suppress(VirtError):
        move(master)
    two.silent.clear()
    before = deepcopy((two.hosts, two.departures, two.arrivals, two.buried, two.away))

    told = settle_moves(master, is_dry=True)["settled"]

    assert (two.hosts, two.departures, two.arrivals, two.buried, two.away) == before
    assert bool(told) == bool(order_phase(master))
    settle_moves(master)
    (host,) = two.where("web")
    for sentence in told.values():
        assert re.match(f"(would stay on|stays on|would move to|has moved to) {host}", sentence)
    assert is_over(two, master, host) and settle_moves(master, is_dry=True) == {"settled": {}}


def test_a_dry_run_of_settling_fails_where_settling_would(two, master):
    two.departures["h1", "web"] = {**PLANNED, "token": "t1", "phase": "handing"}
    two.silent.add("h2")
    told = settle_moves(master, is_dry=True)["settled"]["web"]
    assert told.startswith("would stay on h1") and told.endswith("over only when h2 answers")

    two.departures["h1", "web"]["was"] = False
    with pytest.raises(recovery.Unsettled, match="h2 .* cannot be asked.* virt.settle web") as told:
        settle_moves(master, is_dry=True)
    with pytest.raises(recovery.Unsettled) as done:
        settle_moves(master)

    assert told.value.table == done.value.table
    with pytest.raises(BadArgument, match="goes without keep and force"):
        settle_moves(master, "web", is_dry=True, keep="h1")


def test_a_dry_run_of_settling_leaves_a_command_at_work_alone(two, master, monkeypatch):
    two.departures["h1", "web"] = {**PLANNED, "token": "t1"}
    monkeypatch.setattr(orders, "is_at_work", lambda *_: True)  # else a process of its own
    with pytest.raises(recovery.Unsettled, match="'web' is being moved by another salt-run"):
        settle_moves(master, is_dry=True)


def test_settling_names_the_hosts_that_were_not_asked(two, master):
    two.departures["h1", "web"] = {**PLANNED, "token": "t1"}
    two.silent.add("h2")

    with pytest.raises(recovery.Unsettled) as excinfo:
        settle_moves(master)
    assert excinfo.value.table["unreachable"] == ["h2"]
    with pytest.raises(BadArgument, match=r"on any host that answers \(not asked: h2\)"):
        settle_moves(master, "other")


def test_the_order_of_another_move_is_not_ended(two, master):
    two.departures["h1", "web"] = {**PLANNED, "token": "t0", "phase": "cancelled"}
    with orders.opened(master.opts, "web") as order:
        order.begin("t1", orders.MOVING, source="h1", target="h2", uuid=None)
        assert recovery.settle(master, order, "t0", HOSTS) == "stays on h1"
        assert order.now.token == "t1"
        recovery.settle_order(master, order)
        assert order.record is None


@pytest.mark.parametrize("source", ["h1", None])
def test_an_only_copy_is_given_up_by_force_alone(two, master, source):
    two.hosts["h1"].clear()
    two.arrivals["h2", "web"] = {"token": "t1", "phase": "refused", "source": source}
    two.put("web", "h2", state="shutdown")

    with pytest.raises(
        recovery.Unsettled, match="may be all there is of it.* force=True"
    ) as excinfo:
        settle_moves(master)
    expected = (
        "h1 does not have all of it" if source else "no host that answers knows of sending it"
    )
    assert expected in str(excinfo.value) and two.where("web") == ["h2"]

    with pytest.raises(BadArgument, match="name that VM"):
        settle_moves(master, force=True)
    result = settle_moves(master, "web", force=True)
    suffix = ", nor has h1" if source else ""
    assert result["settled"] == {"web": f"was given up: h2 has nothing of it any more{suffix}"}
    assert two.where("web") == [] and two.is_settled()


def test_force_gives_up_nothing_that_runs(two, master):
    two.hosts["h1"].clear()
    two.arrivals["h2", "web"] = {"token": "t1", "phase": "refused", "source": "h1"}
    two.put("web", "h2")

    with pytest.raises(recovery.Unsettled, match="it runs here, so it is not given back"):
        settle_moves(master, "web", force=True)
    assert two.where("web") == ["h2"]


def test_an_arrived_only_copy_is_not_mistaken_for_empty():
    # No file was made for a VM on shared disks: only its definition has come.
    source = moveprotocol.Source()
    target = moveprotocol.Target(phase="ready", has=True, is_empty=True)

    assert moveprotocol.next_step(source, target) == moveprotocol.ARRIVE


def test_a_vm_that_was_handed_over_and_refused_goes_back_by_force(two, master):
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
        settle_moves(master)
    assert settle_moves(master, "web", force=True)["settled"] == {"web": "stays on h1"}

    assert is_over(two, master, "h1")


def interrupt_at(two, master, call):
    """Interrupt a move: a host falls silent at a call."""
    two.silent.add(call)
    with pytest.raises(recovery.Unsettled):
        move(master)
    two.silent = {call[0]}


@pytest.mark.parametrize(
    ("call", "keep"),
    [(("h2", "virt.migrate_step arrive"), "h1"), (("h1", "virt.migrate_step finish"), "h2")],
)
def test_the_remaining_one_of_two_hosts_has_the_vm(two, master, call, keep):
    interrupt_at(two, master, call)
    lost_host = call[0]

    with pytest.raises(recovery.Unsettled, match="go on with: salt-run virt.settle web"):
        settle_moves(master, "web")
    result = settle_moves(master, "web", keep=keep)

    assert result["settled"] == {
        "web": f"{'stays' if keep == 'h1' else 'is'} on {keep}; {lost_host} is lost"
    }
    assert keep in two.where("web") and order_phase(master) is None
    assert keep == "h1" or not two.arrivals, "it may be moved and purged there"


def test_a_host_that_answers_is_not_lost(two, master):
    interrupt_at(two, master, ("h2", "virt.migrate_step arrive"))

    with pytest.raises(recovery.Unsettled, match="'h3'; one of h1, h2"):
        settle_moves(master, "web", keep="h3")
    with pytest.raises(recovery.Unsettled, match="h1 answers, so it is not lost"):
        settle_moves(master, "web", keep="h2")


@pytest.mark.parametrize(
    ("source", "target", "message"),
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
def test_the_cause_that_a_move_waits_for_is_named(master, source, target, message):
    with orders.opened(master.opts, "web") as order:
        executor = moveexecutor.MoveExecutor(master, order, "t1", HOSTS)
        executor.answers = {"h1": source, "h2": target}
        assert re.search(message, executor.waits())


def test_a_vm_that_was_kept_nowhere_and_has_ended_keeps_the_files_that_came():
    # A transient VM ran on the target only, so the source has no definition of it.
    source = moveprotocol.Source(phase="handing")
    target = moveprotocol.Target(phase="ready")

    assert moveprotocol.next_step(source, target) == moveprotocol.KEEP
    assert (
        moveprotocol.next_step(source, moveprotocol.Target(phase="ready", is_empty=True))
        == "refuse"
    )
    assert (
        moveprotocol.next_step(moveprotocol.Source(phase="handing", has=True), target) == "refuse"
    )
