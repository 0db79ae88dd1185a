"""Hosts that never come back, or come back late: what the operator's word ends."""

import pytest
from saltvirt.cluster import minionkeys, orders
from saltvirt.core.errors import MasterError, VmIncomplete
from saltvirt.migration.master import migrate, recovery, settle

PLANNED = {"target": "h2", "autostart": True, "was": True}


def settle_web(master, **options):
    """Settle as salt-run virt.settle does; return how the move of web ended."""
    return settle.settle_all(master, "web", **options)["settled"]["web"]


def cut_off(two, master, host, call):
    """Silence a host in the middle of a move; only the other one stays on record."""
    two.before[host, call] = lambda: two.silent.add(host)
    with pytest.raises(recovery.Unsettled) as excinfo:
        migrate.migrate(master, "web", "h2", {})
    two.before.clear()
    return str(excinfo.value)


def order(master):
    """Return the order of web on record."""
    with orders.opened(master.opts, "web") as order_record:
        return order_record.record


@pytest.fixture
def came_back(two, master):
    """A target that fell silent after the VM had arrived, was given up, and came back."""
    cut_off(two, master, "h2", "virt.migrate_step end")
    two.departures["h1", "web"] = {**PLANNED, "token": "t1", "phase": "cancelled"}
    (arrival,) = two.arrivals.values()
    arrival["token"] = "t1"
    two.put("web", "h1", autostart=True)
    two.silent.clear()
    with orders.opened(master.opts, "web") as order_record:
        order_record.end()


def test_a_target_that_comes_back_with_the_vm_is_named_with_what_ends_it(two, master, came_back):
    message = "had come to h2 before that was given up, and h1 has it too: .* keep=h1.* or keep=h2"

    with pytest.raises(recovery.Unsettled, match=message):
        settle_web(master)

    assert two.where("web") == ["h1", "h2"]


def test_a_returned_vm_that_runs_is_not_removed(two, master, came_back):
    with pytest.raises(recovery.Unsettled, match="it runs here"):
        settle_web(master, keep="h1")

    assert two.where("web") == ["h1", "h2"]


@pytest.mark.parametrize("options", [{"keep": "h1"}, {"force": True}])
def test_a_returned_vm_is_removed_by_the_operators_word(two, master, came_back, options):
    two.hosts["h2"]["web"]["state"] = "shutdown"

    assert settle_web(master, **options) in ("is on h1", "stays on h1")

    assert two.where("web") == ["h1"] and two.is_settled() and order(master) is None


@pytest.mark.parametrize("has_two", [True, False])
def test_a_returned_vm_is_kept_by_the_operators_word(two, master, came_back, has_two):
    if not has_two:
        two.hosts["h1"].clear()

    suffix = "; h1 has one too, see virt.query" if has_two else ""
    assert settle_web(master, keep="h2") == f"is on h2{suffix}"

    assert two.where("web") == (["h1", "h2"] if has_two else ["h2"]) and two.is_settled()


def test_a_source_that_is_lost_while_it_sends_has_sent_nothing_that_can_run(two, master):
    message = cut_off(two, master, "h1", "virt.migrate")
    assert message.endswith("or if h1 never comes back, with keep=h2")

    with pytest.raises(
        recovery.Unsettled, match="nothing that could run has come to h2.* force=True"
    ):
        settle_web(master, keep="h2")
    assert settle_web(master, keep="h2", force=True) == (
        "was given up with h1: h2 has nothing of it any more"
    )

    assert not two.arrivals and order(master) is None
    # If the source comes back late, it has the VM, and no record is left.
    two.silent.clear()
    assert settle_web(master) == "stays on h1"
    assert two.where("web") == ["h1"] and two.is_settled()


def test_an_incomplete_vm_is_given_up_with_its_source_by_force(two, master):
    cut_off(two, master, "h1", "virt.migrate")
    two.put("web", "h2", state="shutdown")

    def refuse():
        raise VmIncomplete("VM 'web' has not come here whole: /srv/web.raw is missing")

    two.before["h2", "virt.migrate_step arrive"] = refuse
    with pytest.raises(
        recovery.Unsettled, match="web.raw is missing; bring back .* force=True too"
    ):
        settle_web(master, keep="h2")
    assert "was given up with h1" in settle_web(master, keep="h2", force=True)

    assert two.where("web") == ["h1"] and not two.hosts["h2"] and not two.arrivals


def test_a_move_whose_hosts_are_both_lost_is_forgotten_by_force(two, master):
    cut_off(two, master, "h1", "virt.migrate")
    two.silent = {"h1", "h2"}

    with pytest.raises(
        recovery.Unsettled, match="if neither host ever comes back, with force=True"
    ):
        settle_web(master)
    outcome = settle_web(master, force=True)

    assert outcome.startswith("was given up, as neither h1 nor h2 answers")
    assert order(master) is None
    # Their records are settled when they come back.
    two.silent.clear()
    assert settle_web(master) == "stays on h1" and two.is_settled()


def test_a_target_that_is_no_longer_a_minion_is_not_waited_for(two, master):
    cut_off(two, master, "h2", "virt.migrate_step arrive")
    assert settle_web(master, keep="h1") == "stays on h1; h2 is lost"
    with pytest.raises(recovery.Unsettled, match="if h2 never comes back"):
        settle_web(master)

    minionkeys.discard(master.opts, "h2", "a key")
    two.hosts.pop("h2")
    two.arrivals.clear()

    assert settle_web(master) == "stays on h1; h2 is not a minion of this master any more"
    assert two.is_settled()


@pytest.mark.parametrize("keep", ["h1", "h2"])
def test_nothing_is_given_up_while_both_hosts_answer(two, master, keep):
    cut_off(two, master, "h2", "virt.migrate_step arrive")
    two.silent.clear()

    with pytest.raises(recovery.Unsettled, match="answers, so it is not lost: leave keep= out"):
        settle_web(master, keep=keep)
    assert settle_web(master) == "has moved to h2"


def test_settling_without_any_answer_is_no_success(two, master):
    two.silent = {"h1", "h2"}

    with pytest.raises(MasterError, match="no hypervisor answers: h1: does not answer; h2: does"):
        settle.settle_all(master)


def test_a_vm_that_had_left_for_a_lost_target_is_forgotten_by_force(two, master):
    """The source has finished, so it has nothing of the VM: without force the order stays."""
    message = cut_off(two, master, "h2", "virt.migrate_step end")
    assert "if h2 never comes back, with keep=h1" in message

    line = "'web' has gone from h1 already, and is lost if h2 is; with force=True too"
    with pytest.raises(recovery.Unsettled, match=line):
        settle_web(master, keep="h1")
    assert order(master) is not None

    assert settle_web(master, keep="h1", force=True) == "is lost with h2"
    assert order(master) is None and two.where("web") == ["h2"]

    two.silent.clear()
    assert settle_web(master) == "has moved to h2" and two.is_settled()


@pytest.mark.parametrize("has_vm", [True, False])
def test_a_vm_that_is_still_whole_on_its_source_is_taken_back_from_a_lost_target(
    two, master, has_vm
):
    """The source's job died after it had noted *leaving*, before it removed the VM."""
    cut_off(two, master, "h2", "virt.migrate_step end")
    two.departures["h1", "web"] = {**PLANNED, "token": _token(two), "phase": "leaving"}
    if has_vm:
        two.away["h1", "web"] = {**two.hosts["h2"]["web"], "autostart": False}

    outcome = settle_web(master, keep="h1", force=not has_vm)

    assert order(master) is None
    if has_vm:
        assert outcome == "stays on h1; h2 is lost"
        assert two.where("web") == ["h1", "h2"] and two.hosts["h1"]["web"]["autostart"]
    else:
        assert outcome == "is lost with h2; h1: its files are left there: /a"
        assert not two.departures


def _token(two):
    (arrival,) = two.arrivals.values()
    return arrival["token"]
