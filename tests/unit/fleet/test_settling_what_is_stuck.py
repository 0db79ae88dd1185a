"""Moves that cannot come to an end by themselves: what is said of them, and what force does."""

import pytest
from saltvirt.errors import VirtError
from saltvirt.fleet import migrate, moves, orders, settle

# What a host says of a record that cannot be read, beside why.
UNREADABLE = {
    "purpose": "unreadable",
    "token": "",
    "phase": "unreadable",
    "since": 0,
    "uuid": None,
    "source": None,
    "target": None,
}


def settled(master, name=None, **given):
    """Settle as salt-run virt.settle does."""
    return settle.every(master, name, **given)


@pytest.mark.parametrize("source", ["h1", None])
def test_what_has_come_and_is_not_whole_goes_by_force_alone(two, master, source):
    two.hosts["h1"].clear()
    two.arrivals["h2", "web"] = {"token": "t1", "phase": "ready", "source": source}
    two.put("web", "h2", state="shutdown")

    def refuse():
        raise VirtError("VM 'web' has not come here whole: its file /srv/web.raw is missing")

    two.before["h2", "virt.migrate_step arrive"] = refuse

    said = "web.raw is missing; the source has it no more: bring back .* on h2 .* force=True"
    with pytest.raises(moves.Unsettled, match=said):
        settled(master, "web")
    assert two.where("web") == ["h2"]

    settled(master, "web", force=True)
    assert two.where("web") == [] and two.is_settled()


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

    with pytest.raises(moves.Unsettled, match="h2 does not answer"):
        settled(master, "web", force=True)
    two.hosts["h1"].clear()
    with pytest.raises(moves.Unsettled, match="h2 does not answer"):
        settled(master, "web", force=True)
    assert two.where("web") == ["h2"]


def test_force_removes_nothing_that_its_target_has_not_looked_at(two, master):
    two.hosts["h1"].clear()
    two.arrivals["h2", "web"] = {"token": "t1", "phase": "ready", "source": "h1"}
    two.put("web", "h2", state="shutdown")

    def fail():
        raise VirtError("cannot write the record /r/web.json: No space left on device")

    two.before["h2", "virt.migrate_step arrive"] = fail
    with pytest.raises(moves.Unsettled, match="No space left") as caught:
        settled(master, "web", force=True)

    assert two.where("web") == ["h2"] and "force=True" not in str(caught.value)
    del two.before["h2", "virt.migrate_step arrive"]
    settled(master, "web", force=True)
    assert two.where("web") == ["h2"] and two.is_settled()


def test_a_record_that_cannot_be_read_is_named_and_the_others_are_settled(two, master, monkeypatch):
    two.put("db", "h1", autostart=True)
    two.silent.add(("h2", "virt.migrate_step end"))
    with pytest.raises(moves.Unsettled):
        migrate.migrate(master, "web", "h2", {})
    two.silent.clear()
    state = two._migration_state

    def said(host, name=None, token=None, uuid=None):
        found = state(host, name, token, uuid)
        broken = {"db": [{**UNREADABLE, "error": "the record /d cannot"}]}
        return {**found, **broken} if name is None and host == "h2" else found

    monkeypatch.setattr(two, "_migration_state", said)
    place = orders.folder(master.opts) / orders.PURPOSE
    place.mkdir(parents=True, exist_ok=True)
    (place / "mail.json").write_text("{")

    with pytest.raises(moves.Unsettled, match="h2: the record /d cannot") as caught:
        settled(master)

    assert caught.value.table["settled"] == {"web": "has moved to h2"}
    assert "mail.json cannot be read" in caught.value.table["failed"]["mail"]
    with pytest.raises(moves.Unsettled, match="mail.json cannot be read"):
        settled(master, "mail")
