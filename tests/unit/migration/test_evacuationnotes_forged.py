"""A host that draws the VMs of others to itself by notes that it makes up, or keeps."""

import copy
import shutil
import stat
from pathlib import Path

import pytest
from playedhosts import HOW, clouds, table
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed
from saltvirt.core.errors import MasterError
from saltvirt.migration.master import evacuate, notesignatures, restore

HOME = {"max_parallel": 2}
LINE = (
    "{0} says that {1} was evacuated from it, and cannot prove it: move it by hand: "
    "salt-run virt.migrate {1} {0}"
)


@pytest.fixture
def three(monkeypatch):
    """Three hosts; web1 is on h1, and h3 is hostile."""
    made = clouds(monkeypatch)(3)
    made.put("web1", "h1")
    return made


@pytest.fixture
def is_in_vain(three, run):
    """A function that asserts that a restore of h3 names web1 and leaves it on h1."""

    def look():
        assert run(restore.dry_run, three, "h3")["failed"] == {"web1": LINE.format("h3", "web1")}
        with pytest.raises(evacuate.NotAllMoved) as caught:
            run(restore.restore, three, "h3", **HOME)
        assert table(caught)["failed"] == {"web1": LINE.format("h3", "web1")}
        assert three.where("web1") == ["h1"]

    return look


def key_file(opts):
    """Return where the master has its keys."""
    return Path(opts["pki_dir"]) / "salt-virt" / "evacuations.json"


@pytest.mark.parametrize(
    "note",
    [
        {"hosts": ["h1"]},
        {"hosts": ["h1"], "uuid": "uuid of web1"},
        {"hosts": ["h1"], "uuid": "uuid of web1", "proof": ""},
        {"hosts": ["h1"], "uuid": "uuid of web1", "proof": "0" * 64},
        {"hosts": ["h1"], "uuid": "uuid of web1", "proof": "\ud800\u00e4"},
    ],
    ids=["no proof", "uuid", "empty", "made up", "no text"],
)
@pytest.mark.parametrize("has_key", [False, True])
def test_a_note_that_the_master_did_not_prove_is_named_and_not_obeyed(
    three, opts, is_in_vain, note, has_key
):
    if has_key:
        three.proved(opts, "h3", other=["h2"])
    three.notes["h3"] = {"web1": note}

    is_in_vain()

    assert three.notes["h3"] == {"web1": note}, "it is named until somebody has moved it"


@pytest.mark.parametrize("key", ["name", "uuid", "host", "hosts"])
def test_a_proof_of_something_else_is_none(three, opts, is_in_vain, key):
    about = {"host": "h3", "name": "web1", "uuid": "uuid of web1", "hosts": ["h1"]}
    other = {"host": "h2", "name": "web2", "uuid": "uuid of web2", "hosts": ["h2"]}
    three.proved(opts, "h3", web1=["h2"])
    proof = notesignatures.note(opts, **{**about, key: other[key]}).proof
    three.notes["h3"] = {"web1": {"hosts": ["h1"], "uuid": "uuid of web1", "proof": proof}}

    is_in_vain()


def test_what_another_master_has_proved_is_not_proved(three, opts, is_in_vain):
    three.proved(opts, "h3", web1=["h1"])
    shutil.rmtree(key_file(opts).parent)

    is_in_vain()

    three.notes["h3"] = {}
    three.proved(opts, "h3", web1=["h1"])  # by the rebuilt one


def test_whoever_is_moved_home_by_hand_is_named_no_more(three, run, is_in_vain):
    three.notes["h3"] = {"web1": {"hosts": ["h1"]}}
    is_in_vain()

    three.hosts["h3"]["web1"] = three.hosts["h1"].pop("web1")

    assert run(restore.restore, three, "h3", **HOME)["failed"] == {}
    assert three.notes["h3"] == {}


def test_another_vm_of_that_name_stays_where_it_is(three, run, opts):
    three.proved(opts, "h3", web1=["h1"])
    three.put("web1", "h1", uuid="another")

    assert run(restore.dry_run, three, "h3")["elsewhere"] == {"web1": "h1"}
    done = run(restore.restore, three, "h3", **HOME)

    assert done["elsewhere"] == {"web1": "h1"} and done["moved"] == {}
    assert three.where("web1") == ["h1"] and three.notes["h3"] == {}


def test_a_host_that_does_not_say_which_vm_it_has_keeps_it(three, run, opts):
    three.proved(opts, "h3", web1=["h1"])
    three.silent.add(("h1", "virt.migration_info"))

    with pytest.raises(evacuate.NotAllMoved) as caught:
        run(restore.restore, three, "h3", **HOME)

    assert "h1 does not answer" in table(caught)["failed"]["web1"]
    assert three.noted("h3") == {"web1": ["h1"]}
    three.silent.clear()
    assert run(restore.restore, three, "h3", **HOME)["moved"] == {"web1": "h3"}


def test_notes_that_others_made_up_lead_nowhere(three, run, opts):
    """H3 says that what was evacuated to it went on to h1; somebody has moved it there by hand."""
    three.proved(opts, "h2", web1=["h3"])
    three.notes["h3"] = {"web1": {"hosts": ["h1"]}}

    assert run(restore.restore, three, "h2", **HOME)["elsewhere"] == {"web1": "h1"}
    assert three.where("web1") == ["h1"]


def test_an_evacuation_proves_nothing_that_was_not_proved(three, run):
    """H3 says that web1 was its own; h1, where it is, is emptied."""
    three.notes["h3"] = {"web1": {"hosts": ["h1"]}}
    three.refuses["h3"] = {"web1": ["it is full"]}

    assert run(evacuate.evacuate, three, "h1", **HOW)["moved"] == {"web1": "h2"}

    assert three.notes["h3"] == {"web1": {"hosts": ["h1"]}}


# Proofs that it was given, and keeps.


def emptied(three, run):
    """Have h3 emptied of web1, and return what it notes; web1 is on h1."""
    three.hosts["h1"].pop("web1", None)
    three.put("web1", "h3")
    three.refuses["h2"] = {"web1": ["it is full"]}
    assert run(evacuate.evacuate, three, "h3", **HOW)["moved"] == {"web1": "h1"}
    return copy.deepcopy(three.notes["h3"])


def replayed(three, kept):
    """Have web1 moved to h1 by hand, and h3 say again what it noted once."""
    three.hosts["h3"].pop("web1", None)
    three.put("web1", "h1")
    three.notes["h3"] = kept


def test_a_proof_is_of_no_use_when_the_vm_has_come_home(three, run, is_in_vain):
    kept = emptied(three, run)
    assert run(restore.restore, three, "h3", **HOME)["moved"] == {"web1": "h3"}

    replayed(three, kept)

    is_in_vain()


def test_a_proof_is_of_no_use_when_its_host_is_emptied_anew(three, run, is_in_vain):
    kept = emptied(three, run)
    again = emptied(three, run)
    assert again["web1"] != kept["web1"]

    replayed(three, kept)

    is_in_vain()


def test_a_proof_of_a_vm_that_did_not_move_is_of_no_use(three, run, is_in_vain):
    three.hosts["h1"].clear()
    three.put("web1", "h3")
    three.refuses["h2"], kept = {"web1": ["it is full"]}, []

    def fails():
        kept.append(copy.deepcopy(three.notes["h3"]))
        raise MasterError("disk full")

    three.before["h3", "virt.migrate"] = fails
    with pytest.raises(evacuate.NotAllMoved):
        run(evacuate.evacuate, three, "h3", **HOW)

    replayed(three, kept[0])

    is_in_vain()


def test_what_did_not_come_home_is_proved_anew(three, run):
    emptied(three, run)
    three.put("web2", "h3")
    three.refuses = {"h2": {"web2": ["it is full"]}}
    assert run(evacuate.evacuate, three, "h3", **HOW)["moved"] == {"web2": "h1"}
    before = copy.deepcopy(three.notes["h3"])
    three.refuses = {"h3": {"web1": ["it is full"]}}

    with pytest.raises(evacuate.NotAllMoved, match="web1 did not come back"):
        run(restore.restore, three, "h3", **HOME)

    assert three.noted("h3") == {"web1": ["h1"]} and three.notes["h3"]["web1"] != before["web1"]
    three.refuses = {}
    assert run(restore.restore, three, "h3", **HOME)["moved"] == {"web1": "h3"}


def test_a_host_that_is_not_told_of_new_proofs_keeps_those_it_has(three, run, opts):
    three.proved(opts, "h3", web1=["h1"])

    class Cut(Exception):
        pass

    with pytest.raises(Cut), notesignatures.renewed_key(opts, "h3"):
        raise Cut
    assert run(restore.dry_run, three, "h3")["moves"] == {"web1": "h3"}
    with notesignatures.renewed_key(opts, "h3"):
        assert run(restore.dry_run, three, "h3")["moves"] == {"web1": "h3"}
        three.proved(opts, "h3", web1=["h1"])
    assert run(restore.restore, three, "h3", **HOME)["moved"] == {"web1": "h3"}


# VMs that it says it has.


def test_a_host_that_says_it_has_the_vm_of_another_gets_no_proof(three, run):
    """H3 is emptied of a web1 that h1 has; no proof is given, whatever h3 says afterwards."""
    three.put("web1", "h3")
    seen = []

    def gone():
        seen.append(copy.deepcopy(three.notes["h3"]))
        three.hosts["h3"].pop("web1", None)
        raise HostCommandFailed("h3: it is not here")

    for fun in ("virt.migrate_begin", "virt.migrate"):
        three.before["h3", fun] = gone
    done = run(evacuate.evacuate, three, "h3", **HOW)

    assert seen and not any(seen) and three.notes["h3"] == {}
    assert done["moved"] == {"web1": "h1"}
    assert "h1 had one of that name before" in done["warnings"]["web1"]


# The key.


def test_the_key_is_the_masters_alone(three, opts):
    assert notesignatures.select_proved(opts, {"h3": {}}) == {"h3": {}}
    assert not key_file(opts).exists(), "nobody has been emptied"

    three.proved(opts, "h3", web1=["h1"])

    assert stat.S_IMODE(key_file(opts).stat().st_mode) == 0o600
    assert stat.S_IMODE(key_file(opts).parent.stat().st_mode) == 0o700


def test_a_key_that_cannot_be_read_is_one_line(three, run, opts):
    three.proved(opts, "h3", web1=["h1"])
    key_file(opts).write_text("{")

    with pytest.raises(MasterError, match="evacuations.json cannot be read .*move it away"):
        run(restore.dry_run, three, "h3")
