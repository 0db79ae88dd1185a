"""Hosts that never come back, or come back after all: what the operator's word ends."""

import pytest
from saltvirt.cluster import minionkeys, orders
from saltvirt.core.errors import MasterError, VmIncomplete
from saltvirt.migration.master import migrate, recovery, settle

PLANNED = {"target": "h2", "autostart": True, "was": True}


def settled(master, **given):
    """Settle as salt-run virt.settle does; return how the move of web ended."""
    return settle.settle_all(master, "web", **given)["settled"]["web"]


def cut_off(two, master, host, call):
    """Have a host fall silent in the middle of a move, and the other alone on record."""
    two.before[host, call] = lambda: two.silent.add(host)
    with pytest.raises(recovery.Unsettled) as caught:
        migrate.migrate(master, "web", "h2", {})
    two.before.clear()
    return str(caught.value)


def order(master):
    """Return what this master has on record of web."""
    with orders.opened(master.opts, "web") as held:
        return held.record


@pytest.fixture
def came_back(two, master):
    """The target fell silent when the VM had arrived there, was given up, and comes back."""
    cut_off(two, master, "h2", "virt.migrate_step end")
    two.departures["h1", "web"] = {**PLANNED, "token": "t1", "phase": "cancelled"}
    (arrival,) = two.arrivals.values()
    arrival["token"] = "t1"
    two.put("web", "h1", autostart=True)
    two.silent.clear()
    with orders.opened(master.opts, "web") as held:
        held.end()


def test_a_target_that_comes_back_with_the_vm_is_named_with_what_ends_it(two, master, came_back):
    said = "had come to h2 before that was given up, and h1 has it too: .* keep=h1.* or keep=h2"

    with pytest.raises(recovery.Unsettled, match=said):
        settled(master)

    assert two.where("web") == ["h1", "h2"]


def test_what_came_back_runs_and_is_not_removed(two, master, came_back):
    with pytest.raises(recovery.Unsettled, match="it runs here"):
        settled(master, keep="h1")

    assert two.where("web") == ["h1", "h2"]


@pytest.mark.parametrize("given", [{"keep": "h1"}, {"force": True}])
def test_what_came_back_is_removed_by_the_operators_word(two, master, came_back, given):
    two.hosts["h2"]["web"]["state"] = "shutdown"

    assert settled(master, **given) in ("is on h1", "stays on h1")

    assert two.where("web") == ["h1"] and two.is_settled() and order(master) is None


@pytest.mark.parametrize("has_two", [True, False])
def test_what_came_back_is_kept_by_the_operators_word(two, master, came_back, has_two):
    if not has_two:
        two.hosts["h1"].clear()

    more = "; h1 has one too, see virt.query" if has_two else ""
    assert settled(master, keep="h2") == f"is on h2{more}"

    assert two.where("web") == (["h1", "h2"] if has_two else ["h2"]) and two.is_settled()


def test_of_a_source_that_is_lost_while_it_sends_nothing_that_runs_has_come(two, master):
    said = cut_off(two, master, "h1", "virt.migrate")
    assert said.endswith("or if h1 never comes back, with keep=h2")

    with pytest.raises(
        recovery.Unsettled, match="nothing that could run has come to h2.* force=True"
    ):
        settled(master, keep="h2")
    assert settled(master, keep="h2", force=True) == (
        "was given up with h1: h2 has nothing of it any more"
    )

    assert not two.arrivals and order(master) is None
    # If it comes back after all, it has the VM, and no record is left over.
    two.silent.clear()
    assert settled(master) == "stays on h1"
    assert two.where("web") == ["h1"] and two.is_settled()


def test_what_has_not_come_whole_is_given_up_with_its_source_by_force(two, master):
    cut_off(two, master, "h1", "virt.migrate")
    two.put("web", "h2", state="shutdown")

    def refuse():
        raise VmIncomplete("VM 'web' has not come here whole: /srv/web.raw is missing")

    two.before["h2", "virt.migrate_step arrive"] = refuse
    with pytest.raises(
        recovery.Unsettled, match="web.raw is missing; bring back .* force=True too"
    ):
        settled(master, keep="h2")
    assert "was given up with h1" in settled(master, keep="h2", force=True)

    assert two.where("web") == ["h1"] and not two.hosts["h2"] and not two.arrivals


def test_a_move_whose_hosts_are_both_lost_is_forgotten_by_force(two, master):
    cut_off(two, master, "h1", "virt.migrate")
    two.silent = {"h1", "h2"}

    with pytest.raises(
        recovery.Unsettled, match="if neither host ever comes back, with force=True"
    ):
        settled(master)
    said = settled(master, force=True)

    assert said.startswith("was given up, as neither h1 nor h2 answers")
    assert order(master) is None
    # What they have on record is settled all the same.
    two.silent.clear()
    assert settled(master) == "stays on h1" and two.is_settled()


def test_a_target_that_is_not_a_minion_any_more_is_waited_for_no_longer(two, master):
    cut_off(two, master, "h2", "virt.migrate_step arrive")
    assert settled(master, keep="h1") == "stays on h1; h2 is lost"
    with pytest.raises(recovery.Unsettled, match="if h2 never comes back"):
        settled(master)

    minionkeys.discard(master.opts, "h2", "a key")
    two.hosts.pop("h2")
    two.arrivals.clear()

    assert settled(master) == "stays on h1; h2 is not a minion of this master any more"
    assert two.is_settled()


@pytest.mark.parametrize("keep", ["h1", "h2"])
def test_nothing_is_given_up_where_both_hosts_answer(two, master, keep):
    cut_off(two, master, "h2", "virt.migrate_step arrive")
    two.silent.clear()

    with pytest.raises(recovery.Unsettled, match="answers, so it is not lost: leave keep= out"):
        settled(master, keep=keep)
    assert settled(master) == "has moved to h2"


def test_that_nobody_answers_is_no_success(two, master):
    two.silent = {"h1", "h2"}

    with pytest.raises(MasterError, match="no hypervisor answers: h1: does not answer; h2: does"):
        settle.settle_all(master)


def test_what_had_left_for_a_target_that_is_lost_is_forgotten_by_force(two, master):
    """The source is done, so nothing of the VM is there: without force nothing is said of it."""
    said = cut_off(two, master, "h2", "virt.migrate_step end")
    assert "if h2 never comes back, with keep=h1" in said

    line = "'web' has gone from h1 already, and is lost if h2 is; with force=True too"
    with pytest.raises(recovery.Unsettled, match=line):
        settled(master, keep="h1")
    assert order(master) is not None

    assert settled(master, keep="h1", force=True) == "is lost with h2"
    assert order(master) is None and two.where("web") == ["h2"]

    two.silent.clear()
    assert settled(master) == "has moved to h2" and two.is_settled()


@pytest.mark.parametrize("has", [True, False])
def test_what_is_still_whole_on_its_source_is_taken_back_from_a_target_that_is_lost(
    two, master, has
):
    """The source's job died between its note that the VM has left, and removing it."""
    cut_off(two, master, "h2", "virt.migrate_step end")
    two.departures["h1", "web"] = {**PLANNED, "token": _token(two), "phase": "leaving"}
    if has:
        two.away["h1", "web"] = {**two.hosts["h2"]["web"], "autostart": False}

    said = settled(master, keep="h1", force=not has)

    assert order(master) is None
    if has:
        assert said == "stays on h1; h2 is lost"
        assert two.where("web") == ["h1", "h2"] and two.hosts["h1"]["web"]["autostart"]
    else:
        assert said == "is lost with h2; h1: its files are left there: /a"
        assert not two.departures


def _token(two):
    (arrival,) = two.arrivals.values()
    return arrival["token"]
