"""A VM that has gone on to a third host, and what is open, silent or lost there or before."""

import pytest
from saltvirt.cluster import orders
from saltvirt.cluster.inventory import inventory, lastseen
from saltvirt.core.errors import VirtError
from saltvirt.migration.master import migrate, recovery, settle


def _gone_on(made, state):
    """Have web on h3, and h1 still handing it over to h2, which has nothing of that move."""
    made.put("web", "h1", autostart=True, state=state)
    made.silent.add(("h1", "virt.migrate", "the answer"))
    made.after["h1", "virt.migrate"] = lambda: made.silent.add("h1")
    with pytest.raises(recovery.Unsettled):
        migrate.migrate(made.master, "web", "h2", {})
    settle.settle_all(made.master, "web", keep="h2")
    migrate.migrate(made.master, "web", "h3", {}, "h2")
    made.silent.clear()
    made.after.clear()


def test_a_third_host_whose_move_was_refused_has_the_vm(made):
    """It is on its way back to h3 (handing; h4 has refused it): h1 must not take it back."""
    _gone_on(made, "shutdown")
    made.swallows.add("h4")
    made.silent.add(("h3", "virt.migrate_step cancel"))  # here the master dies, say
    with pytest.raises(recovery.Unsettled):
        migrate.migrate(made.master, "web", "h4", {}, "h3")
    assert made.departures["h3", "web"]["phase"] == "handing"
    assert made.arrivals["h4", "web"]["phase"] == "refused"
    made.silent.clear()

    for line in ("another move of it, by h3 and h4, is not over", "'web' is on h3"):
        with pytest.raises(recovery.Unsettled, match=line):
            settle.settle_all(made.master)

    assert made.where("web") == ["h3"] and list(made.departures) == [("h1", "web")]


def test_a_lost_target_gives_nothing_back_to_a_source_while_a_third_host_has_it(made):
    """h2 burns down; web runs on h3, which answers."""
    _gone_on(made, "running")
    made.silent.add("h2")
    with pytest.raises(recovery.Unsettled, match="if h2 never comes back, with keep=h1"):
        settle.settle_all(made.master, "web")

    for force in (False, True):
        with pytest.raises(recovery.Unsettled, match="'web' is on h3.*with keep=h3 force=True"):
            settle.settle_all(made.master, "web", keep="h1", force=force)

    assert made.where("web") == ["h3"]


def test_a_lost_target_can_be_ended_by_keeping_the_third_host(made):
    _gone_on(made, "running")
    made.silent.add("h2")

    with pytest.raises(recovery.Unsettled, match="if h2 never comes back, with force=True too"):
        settle.settle_all(made.master, "web", keep="h3")
    said = settle.settle_all(made.master, "web", keep="h3", force=True)

    assert said["settled"]["web"].startswith("is on h3") and not made.departures


def test_what_a_cancelled_move_has_left_on_a_third_host_is_not_the_vm(made, opts, tmp_path):
    """Web is on h1. h3 still has what came of a cancelled move; h1 -> h2 was cut off."""
    made.put("web", "h1", state="shutdown")
    first = {"token": "t-first", "phase": "ready", "source": "h1"}
    made.arrivals["h3", "web"] = first
    made.buried.add(("h1", "t-first"))
    # Handed over on record, then the source lost its power before libvirt had sent anything.
    second = {"token": "t-second", "phase": "handing", "target": "h2"}
    made.departures["h1", "web"] = {**second, "autostart": False, "was": False}
    made.away["h1", "web"] = made.hosts["h1"].pop("web")
    made.arrivals["h2", "web"] = {"token": "t-second", "phase": "ready", "source": "h1"}
    with orders.opened(opts, "web") as held:
        held.begin("t-second", orders.MOVING, source="h1", target="h2")

    with pytest.raises(VirtError, match="'h3'; one of h1, h2"):
        settle.settle_all(made.master, "web", keep="h3")

    settle.settle_all(made.master)

    assert made.where("web") == ["h1"] and not made.kept and made.is_settled()


def test_a_third_host_that_is_no_hypervisor_any_more_may_have_it(made, monkeypatch):
    """Web runs on h3, which was taken off the list; this master noted itself that it has it."""
    _gone_on(made, "running")
    assert "h3" in lastseen.find_hosts(made.master.opts, "web")
    monkeypatch.setattr(inventory, "all_hosts", lambda _cloud: ["h1", "h2", "h4"])

    with pytest.raises(
        recovery.Unsettled, match="h3 .this master does not know it as a hypervisor"
    ):
        settle.settle_all(made.master, "web")

    assert made.where("web") == ["h3"]


def test_what_runs_is_the_vm_whatever_its_definition_says(made, monkeypatch):
    """Web runs on h3, over a definition that was kept there when it had left h3 before."""
    _gone_on(made, "running")
    presence = made._presence

    def with_note(host, name):
        said = presence(host, name)
        return {**said, "moved_to": "h2"} if host == "h3" else said

    monkeypatch.setattr(made, "_presence", with_note)

    with pytest.raises(recovery.Unsettled, match="'web' is on h3"):
        settle.settle_all(made.master, "web")

    assert made.where("web") == ["h3"]


def test_another_vm_of_that_name_holds_no_move_up_for_ever(made, monkeypatch):
    """h3 has a web of its own, with another UUID: no command ends the move from h1 to h2."""
    made.put("web", "h1", state="shutdown")
    made.put("web", "h3", state="running", uuid="another")
    state, on_record = made._migration_state, made._on_record

    def by_uuid(host, name=None, token=None, uuid=None):
        said = state(host, name, token, uuid)
        if host == "h3" and uuid is not None:
            said["target"]["has"] = said["source"]["has"] = False
        return said

    monkeypatch.setattr(made, "_migration_state", by_uuid)
    second = {"token": "t-second", "phase": "handing", "target": "h2"}
    made.departures["h1", "web"] = {**second, "autostart": False, "was": False}
    made.away["h1", "web"] = made.hosts["h1"].pop("web")
    made.arrivals["h2", "web"] = {"token": "t-second", "phase": "ready", "source": "h1"}
    monkeypatch.setattr(
        made,
        "_on_record",
        lambda host: {
            name: [{**one, "uuid": "uuid of web"} for one in known]
            for name, known in on_record(host).items()
        },
    )

    settle.settle_all(made.master, "web")

    assert made.where("web") == ["h1", "h3"] and not made.departures


def test_two_moves_that_wait_for_each_other_are_ended_by_who_knows(made):
    """By hand: h1 to h2, on to h3, and from there to h4; the jobs of the first and last died."""
    for host, target in (("h1", "h2"), ("h3", "h4")):
        made.put("web", host, state="shutdown")
        left = {"token": f"t-{host}", "phase": "handing", "target": target}
        made.departures[host, "web"] = {**left, "autostart": False, "was": False}
    made.away["h1", "web"] = made.hosts["h1"].pop("web")
    line = "another move of it, by h[13], is not over either.*with keep=h[13]"
    with pytest.raises(recovery.Unsettled, match=line):
        settle.settle_all(made.master, "web")

    said = settle.settle_all(made.master, "web", keep="h3")["settled"]

    assert said == {"web": "is on h3; h1: its files are left there: /a; stays on h3"}
    assert made.where("web") == ["h3"] and not made.departures
    assert made.kept == {("h1", "web"): "h3"}
