"""Moves that the operator alone can end, and what is said of their ends."""

import itertools

import pytest
from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.inventory import inventory, lastseen
from saltvirt.core.errors import VirtError
from saltvirt.migration.master import migrate, recovery, settle

LEFT = {"target": "h2", "autostart": True, "was": True}


def _lost_power_at(made, host, call):
    """Have a host lose its power in the middle of the move of web from h1 to h2."""
    made.before[host, call] = lambda: made.silent.add(host)
    with pytest.raises(recovery.Unsettled):
        migrate.migrate(made.master, "web", "h2", {})
    made.before.clear()


def _every_word(made, hosts):
    """Say all that an operator can say of a move; return what is answered."""
    said = []
    for force, keep in itertools.product((False, True), (None, *hosts)):
        try:
            return settle.settle_all(made.master, "web", force=force, keep=keep)["settled"]
        except VirtError as error:
            said.append(f"keep={keep} force={force}: {error}")
    pytest.fail("\n".join(said))


@pytest.mark.parametrize("is_undefined", [False, True])
def test_a_source_that_had_begun_to_tidy_up_and_a_target_that_is_lost(made, is_undefined):
    """h1 loses its power as it tidies up; kept on h2, moved on to h3; h2 burns; h1 is back."""
    made.put("web", "h1", autostart=True, state="running")
    _lost_power_at(made, "h1", "virt.migrate_step finish")
    settle.settle_all(made.master, "web", keep="h2")
    migrate.migrate(made.master, "web", "h3", {}, "h2")
    made.silent = {"h2"}
    made.departures["h1", "web"]["phase"] = "leaving"
    if is_undefined:
        made.away.clear()

    _every_word(made, ("h1", "h2", "h3", "h4"))

    assert made.where("web") == ["h3"] and not made.departures


def test_an_order_that_another_master_has_brought_to_its_end(made, opts):
    """
    A master dies over its last note; another (or a hand) moves web from h2 to h3; h2 burns down.

    The order that is left must not refuse virt.migrate, virt.purge and virt.init for ever.
    """
    made.put("web", "h3", autostart=True, state="running")
    with orders.opened(opts, "web") as held:
        held.begin("t-old", orders.MOVING, source="h1", target="h2")
    made.silent = {"h2"}

    _every_word(made, ("h1", "h2", "h3", "h4"))

    with orders.opened(opts, "web") as held:
        assert held.record is None


def test_what_has_arrived_and_is_over_on_its_target_is_not_called_lost(made, opts):
    """h2 has web, and no record is left but this master's order; then h1 is taken out of use."""
    made.put("web", "h2", autostart=True, state="running")
    with orders.opened(opts, "web") as held:
        held.begin("t-old", orders.MOVING, source="h1", target="h2")
    made.silent = {"h1"}

    said = settle.settle_all(made.master, "web", keep="h2")["settled"]["web"]

    assert said.startswith("is on h2")


def test_what_has_arrived_and_is_over_is_not_said_to_be_given_up(made, opts):
    made.put("web", "h2", autostart=True, state="running")
    with orders.opened(opts, "web") as held:
        held.begin("t-old", orders.MOVING, source="h1", target="h2")
    made.silent = {"h1"}

    said = settle.settle_all(made.master, "web", keep="h2", force=True)["settled"]["web"]

    assert "nothing of it" not in said and made.where("web") == ["h2"]


def _open(made, opts):
    """Have h1 still hand web over to h2, that has nothing of this move on record any more."""
    made.put("web", "h1", autostart=True, state="shutdown")
    made.departures["h1", "web"] = {**LEFT, "token": "t-old", "phase": "handing", "was": False}
    made.away["h1", "web"] = made.hosts["h1"].pop("web")


def test_a_definition_that_was_kept_on_the_target_is_not_the_vm(made, opts):
    """From h2 it went on to h3, and its definition stayed on h2; h3 does not answer."""
    _open(made, opts)
    made.put("web", "h2", state="shutdown", moved_to="h3")
    lastseen.record_move(opts, "web", "h3")
    made.silent = {"h3"}

    with pytest.raises(recovery.Unsettled, match="h3 .* may have it, and cannot be asked"):
        settle.settle_all(made.master, "web")
    assert lastseen.find_hosts(opts, "web") == ["h3"]


def test_a_third_host_says_where_the_vm_went_that_it_only_kept(made, opts):
    """h3 kept the definition when web went on to h5, which is no hypervisor of this master."""
    _open(made, opts)
    made.put("web", "h3", state="shutdown", moved_to="h5")

    with pytest.raises(recovery.Unsettled, match="h5"):
        settle.settle_all(made.master, "web")

    assert "web" not in made.hosts["h1"]


def test_a_vm_that_comes_to_the_target_while_the_others_are_asked(made, opts):
    """Off on h3, moved to h2 by hand after h2 was asked, and before h3 answers."""
    _open(made, opts)
    made.put("web", "h3", state="shutdown")

    def by_hand():
        if "web" in made.hosts["h3"]:
            made.hosts["h2"]["web"] = made.hosts["h3"].pop("web")

    made.before["h3", "virt.presence"] = by_hand

    assert settle.settle_all(made.master, "web")["settled"] == {"web": "has moved to h2"}

    assert made.where("web") == ["h2"] and made.is_settled()


def test_a_vm_that_was_moved_on_by_other_means_does_not_arrive(made, opts):
    """By virsh, from h2 to h3: it runs there, and h2 still has its definition, and its arrival."""
    _open(made, opts)
    made.put("web", "h2", autostart=False, state="shutdown")
    made.arrivals["h2", "web"] = {"token": "t-old", "phase": "ready", "source": "h1"}
    made.put("web", "h3", autostart=False, state="running")

    with pytest.raises(recovery.Unsettled, match="'web' is on h3"):
        settle.settle_all(made.master, "web")

    assert not made.hosts["h2"]["web"]["autostart"]


def test_it_is_the_same_when_the_lost_target_is_taken_off_this_master(made, opts, monkeypatch):
    """As above, and h2's key is deleted, as of a host that is given up."""
    made.put("web", "h3", autostart=True, state="running")
    made.departures["h1", "web"] = {**LEFT, "token": "t-old", "phase": "leaving"}
    minionkeys.discard(opts, "h2", "a key")
    monkeypatch.setattr(inventory, "all_hosts", lambda _cloud: ["h1", "h3", "h4"])
    made.silent = {"h2"}

    _every_word(made, ("h1", "h2", "h3", "h4"))


def test_an_order_of_a_move_that_was_cancelled_before_the_vm_left_for_another_host(made, opts):
    """Another master took it back to h1 (h2 is lost), and then moved it to h3."""
    made.put("web", "h3", autostart=True, state="running")
    made.buried.add(("h1", "t-old"))
    with orders.opened(opts, "web") as held:
        held.begin("t-old", orders.MOVING, source="h1", target="h2")
    made.silent = {"h2"}

    _every_word(made, ("h1", "h2", "h3", "h4"))
