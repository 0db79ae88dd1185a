"""A VM that has moved on to a third host, with open, silent or lost hosts there or before."""

import pytest
from saltvirt.cluster import orders
from saltvirt.cluster.inventory import inventory, lastseen
from saltvirt.core.errors import VirtError
from saltvirt.migration.master import migrate, recovery, settle


def _move_on_to_h3(four_hosts, state):
    """Move web on to h3, with h1 still handing over to h2, which has no record of that move."""
    four_hosts.put("web", "h1", autostart=True, state=state)
    four_hosts.silent.add(("h1", "virt.migrate", "the answer"))
    four_hosts.after["h1", "virt.migrate"] = lambda: four_hosts.silent.add("h1")
    with pytest.raises(recovery.Unsettled):
        migrate.migrate(four_hosts.master, "web", "h2", {})
    settle.settle_all(four_hosts.master, "web", keep="h2")
    migrate.migrate(four_hosts.master, "web", "h3", {}, "h2")
    four_hosts.silent.clear()
    four_hosts.after.clear()


def test_a_third_host_whose_move_was_refused_has_the_vm(four_hosts):
    """Web is returning to h3 (handing; h4 has refused it): h1 must not take it back."""
    _move_on_to_h3(four_hosts, "shutdown")
    four_hosts.swallows.add("h4")
    four_hosts.silent.add(("h3", "virt.migrate_step cancel"))  # as if the master died here
    with pytest.raises(recovery.Unsettled):
        migrate.migrate(four_hosts.master, "web", "h4", {}, "h3")
    assert four_hosts.departures["h3", "web"]["phase"] == "handing"
    assert four_hosts.arrivals["h4", "web"]["phase"] == "refused"
    four_hosts.silent.clear()

    for line in ("another move of it, by h3 and h4, is not over", "'web' is on h3"):
        with pytest.raises(recovery.Unsettled, match=line):
            settle.settle_all(four_hosts.master)

    assert four_hosts.where("web") == ["h3"] and list(four_hosts.departures) == [("h1", "web")]


def test_a_lost_target_gives_nothing_back_to_a_source_while_a_third_host_has_it(four_hosts):
    """h2 burns down; web runs on h3, which answers."""
    _move_on_to_h3(four_hosts, "running")
    four_hosts.silent.add("h2")
    with pytest.raises(recovery.Unsettled, match="if h2 never comes back, with keep=h1"):
        settle.settle_all(four_hosts.master, "web")

    for force in (False, True):
        with pytest.raises(recovery.Unsettled, match="'web' is on h3.*with keep=h3 force=True"):
            settle.settle_all(four_hosts.master, "web", keep="h1", force=force)

    assert four_hosts.where("web") == ["h3"]


def test_a_lost_target_can_be_ended_by_keeping_the_third_host(four_hosts):
    _move_on_to_h3(four_hosts, "running")
    four_hosts.silent.add("h2")

    with pytest.raises(recovery.Unsettled, match="if h2 never comes back, with force=True too"):
        settle.settle_all(four_hosts.master, "web", keep="h3")
    result = settle.settle_all(four_hosts.master, "web", keep="h3", force=True)

    assert result["settled"]["web"].startswith("is on h3") and not four_hosts.departures


def test_the_remains_of_a_cancelled_move_on_a_third_host_are_not_the_vm(four_hosts, opts, tmp_path):
    """Web is on h1. h3 still has the arrival of a cancelled move; h1 -> h2 was interrupted."""
    four_hosts.put("web", "h1", state="shutdown")
    first = {"token": "t-first", "phase": "ready", "source": "h1"}
    four_hosts.arrivals["h3", "web"] = first
    four_hosts.buried.add(("h1", "t-first"))
    # The source has the hand-over on record; it lost power before libvirt sent anything.
    second = {"token": "t-second", "phase": "handing", "target": "h2"}
    four_hosts.departures["h1", "web"] = {**second, "autostart": False, "was": False}
    four_hosts.away["h1", "web"] = four_hosts.hosts["h1"].pop("web")
    four_hosts.arrivals["h2", "web"] = {"token": "t-second", "phase": "ready", "source": "h1"}
    with orders.opened(opts, "web") as order:
        order.begin("t-second", orders.MOVING, source="h1", target="h2")

    with pytest.raises(VirtError, match="'h3'; one of h1, h2"):
        settle.settle_all(four_hosts.master, "web", keep="h3")

    settle.settle_all(four_hosts.master)

    assert four_hosts.where("web") == ["h1"] and not four_hosts.kept and four_hosts.is_settled()


def test_a_third_host_that_is_no_hypervisor_any_more_may_have_it(four_hosts, monkeypatch):
    """Web runs on h3, which is off the list; this master noted itself that h3 has it."""
    _move_on_to_h3(four_hosts, "running")
    assert "h3" in lastseen.find_hosts(four_hosts.master.opts, "web")
    monkeypatch.setattr(inventory, "all_hosts", lambda _cloud: ["h1", "h2", "h4"])

    with pytest.raises(
        recovery.Unsettled, match="h3 .this master does not know it as a hypervisor"
    ):
        settle.settle_all(four_hosts.master, "web")

    assert four_hosts.where("web") == ["h3"]


def test_a_running_domain_is_the_vm_despite_a_mark_in_its_definition(four_hosts, monkeypatch):
    """Web runs on h3, over a definition that was kept there when web had left h3 before."""
    _move_on_to_h3(four_hosts, "running")
    real_presence = four_hosts._presence

    def presence_with_mark(host, name):
        answer = real_presence(host, name)
        return {**answer, "moved_to": "h2"} if host == "h3" else answer

    monkeypatch.setattr(four_hosts, "_presence", presence_with_mark)

    with pytest.raises(recovery.Unsettled, match="'web' is on h3"):
        settle.settle_all(four_hosts.master, "web")

    assert four_hosts.where("web") == ["h3"]


def test_another_vm_of_that_name_holds_no_move_up_for_ever(four_hosts, monkeypatch):
    """h3 has a web of its own, with another UUID: no command ends the move from h1 to h2."""
    four_hosts.put("web", "h1", state="shutdown")
    four_hosts.put("web", "h3", state="running", uuid="another")
    real_state, real_on_record = four_hosts._migration_state, four_hosts._on_record

    def state_by_uuid(host, name=None, token=None, uuid=None):
        answer = real_state(host, name, token, uuid)
        if host == "h3" and uuid is not None:
            answer["target"]["has"] = answer["source"]["has"] = False
        return answer

    monkeypatch.setattr(four_hosts, "_migration_state", state_by_uuid)
    second = {"token": "t-second", "phase": "handing", "target": "h2"}
    four_hosts.departures["h1", "web"] = {**second, "autostart": False, "was": False}
    four_hosts.away["h1", "web"] = four_hosts.hosts["h1"].pop("web")
    four_hosts.arrivals["h2", "web"] = {"token": "t-second", "phase": "ready", "source": "h1"}
    monkeypatch.setattr(
        four_hosts,
        "_on_record",
        lambda host: {
            name: [{**move, "uuid": "uuid of web"} for move in moves]
            for name, moves in real_on_record(host).items()
        },
    )

    settle.settle_all(four_hosts.master, "web")

    assert four_hosts.where("web") == ["h1", "h3"] and not four_hosts.departures


def test_the_operator_ends_two_moves_that_wait_for_each_other(four_hosts):
    """By hand: h1 to h2, to h3, to h4; the jobs of the first move and the last one died."""
    for host, target in (("h1", "h2"), ("h3", "h4")):
        four_hosts.put("web", host, state="shutdown")
        departure = {"token": f"t-{host}", "phase": "handing", "target": target}
        four_hosts.departures[host, "web"] = {**departure, "autostart": False, "was": False}
    four_hosts.away["h1", "web"] = four_hosts.hosts["h1"].pop("web")
    line = "another move of it, by h[13], is not over either.*with keep=h[13]"
    with pytest.raises(recovery.Unsettled, match=line):
        settle.settle_all(four_hosts.master, "web")

    outcomes = settle.settle_all(four_hosts.master, "web", keep="h3")["settled"]

    assert outcomes == {"web": "is on h3; h1: its files are left there: /a; stays on h3"}
    assert four_hosts.where("web") == ["h3"] and not four_hosts.departures
    assert four_hosts.kept == {("h1", "web"): "h3"}
