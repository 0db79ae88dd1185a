"""Moves that cannot end by themselves: how they are reported, and what force does."""

import pytest
from saltvirt.cluster import orders
from saltvirt.core.errors import VirtError, VmIncomplete
from saltvirt.core.journal import records
from saltvirt.migration.master import migrate, moveexecutor, recovery, settle

# A host's report of a record that cannot be read, without the reason.
UNREADABLE = {
    "purpose": "unreadable",
    "token": "",
    "phase": "unreadable",
    "since": 0,
    "uuid": None,
    "source": None,
    "target": None,
}


def settle_moves(master, name=None, **options):
    """Settle as salt-run virt.settle does."""
    return settle.settle_all(master, name, **options)


@pytest.mark.parametrize("source", ["h1", None])
def test_an_incomplete_arrival_is_given_up_by_force_alone(two, master, source):
    two.hosts["h1"].clear()
    two.arrivals["h2", "web"] = {"token": "t1", "phase": "ready", "source": source}
    two.put("web", "h2", state="shutdown")

    def refuse():
        raise VmIncomplete("VM 'web' has not come here whole: its file /srv/web.raw is missing")

    two.before["h2", "virt.migrate_step arrive"] = refuse

    message = "web.raw is missing; the source no longer has it: bring back .* on h2 .* force=True"
    with pytest.raises(recovery.Unsettled, match=message):
        settle_moves(master, "web")
    assert two.where("web") == ["h2"]

    settle_moves(master, "web", force=True)
    assert two.where("web") == [] and two.is_settled()


def test_a_move_with_a_silent_target_and_an_unknown_source_names_no_host_to_keep(two, master):
    two.arrivals["h2", "web"] = {"token": "t1", "phase": "ready", "source": None}
    order_record = records.hold_record(orders.folder(master.opts), orders.PURPOSE, "web")
    hosts = moveexecutor.MoveHosts(source=None, target="h2")
    two.silent.add(("h2", "virt.migration_state"))

    with order_record as order, pytest.raises(recovery.Unsettled) as excinfo:
        recovery.settle(master, order, "t1", hosts)

    message = "the move of VM 'web' from an unknown host to h2 is not over: "
    assert str(excinfo.value).startswith(message)
    assert str(excinfo.value).endswith("; if h2 never comes back: salt-run virt.host_lost h2")


def test_an_unknown_host_is_not_given_up_for_another(two, master):
    two.arrivals["h2", "web"] = {"token": "t1", "phase": "ready", "source": None}
    two.hosts["h1"].clear()

    with pytest.raises(
        recovery.Unsettled, match="no host .* knows of sending VM 'web'.* keep= out"
    ):
        settle_moves(master, "web", keep="h2")
    with pytest.raises(recovery.Unsettled, match="keep: 'h1'; one of h2$"):
        settle_moves(master, "web", keep="h1")


def test_force_gives_up_nothing_that_its_source_has_or_that_only_fails_now(two, master):
    two.departures["h1", "web"] = {
        "token": "t1",
        "phase": "handing",
        "target": "h2",
        "autostart": True,
        "was": False,
    }
    two.arrivals["h2", "web"] = {"token": "t1", "phase": "ready", "source": "h1"}
    two.put("web", "h2", state="shutdown")
    two.silent.add(("h2", "virt.migrate_step arrive"))

    with pytest.raises(recovery.Unsettled, match="h2 does not answer"):
        settle_moves(master, "web", force=True)
    two.hosts["h1"].clear()
    with pytest.raises(recovery.Unsettled, match="h2 does not answer"):
        settle_moves(master, "web", force=True)
    assert two.where("web") == ["h2"]


def test_force_removes_nothing_that_its_target_has_not_looked_at(two, master):
    two.hosts["h1"].clear()
    two.arrivals["h2", "web"] = {"token": "t1", "phase": "ready", "source": "h1"}
    two.put("web", "h2", state="shutdown")

    def fail():
        raise VirtError("cannot write the record /r/web.json: No space left on device")

    two.before["h2", "virt.migrate_step arrive"] = fail
    with pytest.raises(recovery.Unsettled, match="No space left") as excinfo:
        settle_moves(master, "web", force=True)

    assert two.where("web") == ["h2"] and "force=True" not in str(excinfo.value)
    del two.before["h2", "virt.migrate_step arrive"]
    settle_moves(master, "web", force=True)
    assert two.where("web") == ["h2"] and two.is_settled()


def test_a_record_that_cannot_be_read_is_named_and_the_others_are_settled(two, master, monkeypatch):
    two.put("db", "h1", autostart=True)
    two.silent.add(("h2", "virt.migrate_step end"))
    with pytest.raises(recovery.Unsettled):
        migrate.migrate(master, "web", "h2", {})
    two.silent.clear()
    real_state = two._migration_state

    def with_unreadable(host, name=None, token=None, uuid=None):
        moves = real_state(host, name, token, uuid)
        unreadable = {"db": [{**UNREADABLE, "error": "the record /d cannot"}]}
        return {**moves, **unreadable} if name is None and host == "h2" else moves

    monkeypatch.setattr(two, "_migration_state", with_unreadable)
    folder = orders.folder(master.opts) / orders.PURPOSE
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mail.json").write_text("{")

    with pytest.raises(recovery.Unsettled, match="h2: the record /d cannot") as excinfo:
        settle_moves(master)

    assert excinfo.value.table["settled"] == {"web": "has moved to h2"}
    assert "mail.json cannot be read" in excinfo.value.table["failed"]["mail"]
    with pytest.raises(recovery.Unsettled, match="mail.json cannot be read"):
        settle_moves(master, "mail")
