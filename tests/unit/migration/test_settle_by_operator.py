"""Moves that only the operator can end, and how their ends are reported."""

import itertools

import pytest
from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.inventory import inventory, lastseen
from saltvirt.core.errors import VirtError
from saltvirt.migration.master import migrate, recovery, settle

DEPARTURE = {"target": "h2", "autostart": True, "was": True}


def _cut_power_at(hosts, host, call):
    """Cut a host's power in the middle of the move of web from h1 to h2."""
    hosts.before[host, call] = lambda: hosts.silent.add(host)
    with pytest.raises(recovery.Unsettled):
        migrate.migrate(hosts.master, "web", "h2", {})
    hosts.before.clear()


def _every_word(four_hosts, hosts):
    """Try every option that an operator has for a move; return the outcome."""
    errors = []
    for force, keep in itertools.product((False, True), (None, *hosts)):
        try:
            return settle.settle_all(four_hosts.master, "web", force=force, keep=keep)["settled"]
        except VirtError as error:
            errors.append(f"keep={keep} force={force}: {error}")
    pytest.fail("\n".join(errors))


@pytest.mark.parametrize("is_undefined", [False, True])
def test_a_source_that_died_in_its_finish_and_a_lost_target(four_hosts, is_undefined):
    """h1 loses power in its finish; web is kept on h2, moves to h3; h2 burns; h1 is back."""
    four_hosts.put("web", "h1", autostart=True, state="running")
    _cut_power_at(four_hosts, "h1", "virt.migrate_step finish")
    settle.settle_all(four_hosts.master, "web", keep="h2")
    migrate.migrate(four_hosts.master, "web", "h3", {}, "h2")
    four_hosts.silent = {"h2"}
    four_hosts.departures["h1", "web"]["phase"] = "leaving"
    if is_undefined:
        four_hosts.away.clear()

    _every_word(four_hosts, ("h1", "h2", "h3", "h4"))

    assert four_hosts.where("web") == ["h3"] and not four_hosts.departures


def test_an_order_whose_move_another_master_has_ended(four_hosts, opts):
    """
    A master dies before its last record; web moves from h2 to h3 otherwise; h2 burns down.

    The order that is left must not refuse virt.migrate, virt.purge and virt.init for ever.
    """
    four_hosts.put("web", "h3", autostart=True, state="running")
    with orders.opened(opts, "web") as order:
        order.begin("t-old", orders.MOVING, source="h1", target="h2")
    four_hosts.silent = {"h2"}

    _every_word(four_hosts, ("h1", "h2", "h3", "h4"))

    with orders.opened(opts, "web") as order:
        assert order.record is None


def test_a_finished_arrival_on_its_target_is_not_called_lost(four_hosts, opts):
    """h2 has web, and only this master's order is left on record; then h1 is taken out of use."""
    four_hosts.put("web", "h2", autostart=True, state="running")
    with orders.opened(opts, "web") as order:
        order.begin("t-old", orders.MOVING, source="h1", target="h2")
    four_hosts.silent = {"h1"}

    outcome = settle.settle_all(four_hosts.master, "web", keep="h2")["settled"]["web"]

    assert outcome.startswith("is on h2")


def test_a_finished_arrival_is_not_reported_as_given_up(four_hosts, opts):
    four_hosts.put("web", "h2", autostart=True, state="running")
    with orders.opened(opts, "web") as order:
        order.begin("t-old", orders.MOVING, source="h1", target="h2")
    four_hosts.silent = {"h1"}

    outcome = settle.settle_all(four_hosts.master, "web", keep="h2", force=True)["settled"]["web"]

    assert "nothing of it" not in outcome and four_hosts.where("web") == ["h2"]


def _open(four_hosts, opts):
    """Have h1 hand web over to h2, which has no record of this move any more."""
    four_hosts.put("web", "h1", autostart=True, state="shutdown")
    four_hosts.departures["h1", "web"] = {
        **DEPARTURE,
        "token": "t-old",
        "phase": "handing",
        "was": False,
    }
    four_hosts.away["h1", "web"] = four_hosts.hosts["h1"].pop("web")


def test_a_definition_that_was_kept_on_the_target_is_not_the_vm(four_hosts, opts):
    """Web moved on from h2 to h3, and its definition stayed on h2; h3 does not answer."""
    _open(four_hosts, opts)
    four_hosts.put("web", "h2", state="shutdown", moved_to="h3")
    lastseen.record_move(opts, "web", "h3")
    four_hosts.silent = {"h3"}

    with pytest.raises(recovery.Unsettled, match="h3 .* may have it, and cannot be asked"):
        settle.settle_all(four_hosts.master, "web")
    assert lastseen.find_hosts(opts, "web") == ["h3"]


def test_a_third_hosts_kept_definition_names_where_the_vm_went(four_hosts, opts):
    """h3 kept the definition when web moved on to h5, which is no hypervisor of this master."""
    _open(four_hosts, opts)
    four_hosts.put("web", "h3", state="shutdown", moved_to="h5")

    with pytest.raises(recovery.Unsettled, match="h5"):
        settle.settle_all(four_hosts.master, "web")

    assert "web" not in four_hosts.hosts["h1"]


def test_a_vm_that_comes_to_the_target_while_the_others_are_asked(four_hosts, opts):
    """Web is off on h3; it moves to h2 by hand after h2 was asked, and before h3 answers."""
    _open(four_hosts, opts)
    four_hosts.put("web", "h3", state="shutdown")

    def by_hand():
        if "web" in four_hosts.hosts["h3"]:
            four_hosts.hosts["h2"]["web"] = four_hosts.hosts["h3"].pop("web")

    four_hosts.before["h3", "virt.presence"] = by_hand

    assert settle.settle_all(four_hosts.master, "web")["settled"] == {"web": "has moved to h2"}

    assert four_hosts.where("web") == ["h2"] and four_hosts.is_settled()


def test_a_vm_that_was_moved_on_by_other_means_does_not_arrive(four_hosts, opts):
    """Virsh moved web from h2 to h3, where it runs; h2 still has its definition and arrival."""
    _open(four_hosts, opts)
    four_hosts.put("web", "h2", autostart=False, state="shutdown")
    four_hosts.arrivals["h2", "web"] = {"token": "t-old", "phase": "ready", "source": "h1"}
    four_hosts.put("web", "h3", autostart=False, state="running")

    with pytest.raises(recovery.Unsettled, match="'web' is on h3"):
        settle.settle_all(four_hosts.master, "web")

    assert not four_hosts.hosts["h2"]["web"]["autostart"]


def test_the_operator_can_also_end_a_move_whose_lost_target_is_removed_from_this_master(
    four_hosts, opts, monkeypatch
):
    """As above, and h2's key is deleted, because h2 is given up."""
    four_hosts.put("web", "h3", autostart=True, state="running")
    four_hosts.departures["h1", "web"] = {**DEPARTURE, "token": "t-old", "phase": "leaving"}
    minionkeys.discard(opts, "h2", "a key")
    monkeypatch.setattr(inventory, "all_hosts", lambda _cloud: ["h1", "h3", "h4"])
    four_hosts.silent = {"h2"}

    _every_word(four_hosts, ("h1", "h2", "h3", "h4"))


def test_an_order_of_a_move_that_was_cancelled_before_the_vm_left_for_another_host(
    four_hosts, opts
):
    """Another master gave web back to h1 (h2 is lost), and then moved it to h3."""
    four_hosts.put("web", "h3", autostart=True, state="running")
    four_hosts.buried.add(("h1", "t-old"))
    with orders.opened(opts, "web") as order:
        order.begin("t-old", orders.MOVING, source="h1", target="h2")
    four_hosts.silent = {"h2"}

    _every_word(four_hosts, ("h1", "h2", "h3", "h4"))
