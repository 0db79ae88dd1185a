"""A host forges notes, or keeps old ones, to draw the VMs of other hosts to itself."""

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
    cloud = clouds(monkeypatch)(3)
    cloud.put("web1", "h1")
    return cloud


@pytest.fixture
def is_in_vain(three, run):
    """A function that asserts that a restore of h3 names web1 and leaves it on h1."""

    def assert_in_vain():
        assert run(restore.dry_run, three, "h3")["failed"] == {"web1": LINE.format("h3", "web1")}
        with pytest.raises(evacuate.NotAllMoved) as excinfo:
            run(restore.restore, three, "h3", **HOME)
        assert table(excinfo)["failed"] == {"web1": LINE.format("h3", "web1")}
        assert three.where("web1") == ["h1"]

    return assert_in_vain


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

    assert three.notes["h3"] == {"web1": note}, "it is named until it is moved by hand"


@pytest.mark.parametrize("key", ["name", "uuid", "host", "hosts"])
def test_a_proof_of_other_facts_is_no_proof(three, opts, is_in_vain, key):
    own_facts = {"host": "h3", "name": "web1", "uuid": "uuid of web1", "hosts": ["h1"]}
    other_facts = {"host": "h2", "name": "web2", "uuid": "uuid of web2", "hosts": ["h2"]}
    three.proved(opts, "h3", web1=["h2"])
    proof = notesignatures.note(opts, **{**own_facts, key: other_facts[key]}).proof
    three.notes["h3"] = {"web1": {"hosts": ["h1"], "uuid": "uuid of web1", "proof": proof}}

    is_in_vain()


def test_a_proof_of_another_master_is_no_proof(three, opts, is_in_vain):
    three.proved(opts, "h3", web1=["h1"])
    shutil.rmtree(key_file(opts).parent)

    is_in_vain()

    three.notes["h3"] = {}
    three.proved(opts, "h3", web1=["h1"])  # by the rebuilt one


def test_a_vm_that_was_moved_home_by_hand_is_not_named_again(three, run, is_in_vain):
    three.notes["h3"] = {"web1": {"hosts": ["h1"]}}
    is_in_vain()

    three.hosts["h3"]["web1"] = three.hosts["h1"].pop("web1")

    assert run(restore.restore, three, "h3", **HOME)["failed"] == {}
    assert three.notes["h3"] == {}


def test_another_vm_of_that_name_stays_where_it_is(three, run, opts):
    three.proved(opts, "h3", web1=["h1"])
    three.put("web1", "h1", uuid="another")

    assert run(restore.dry_run, three, "h3")["elsewhere"] == {"web1": "h1"}
    result = run(restore.restore, three, "h3", **HOME)

    assert result["elsewhere"] == {"web1": "h1"} and result["moved"] == {}
    assert three.where("web1") == ["h1"] and three.notes["h3"] == {}


def test_a_host_that_does_not_report_its_vms_uuid_keeps_the_vm(three, run, opts):
    three.proved(opts, "h3", web1=["h1"])
    three.silent.add(("h1", "virt.migration_info"))

    with pytest.raises(evacuate.NotAllMoved) as excinfo:
        run(restore.restore, three, "h3", **HOME)

    assert "h1 does not answer" in table(excinfo)["failed"]["web1"]
    assert three.noted("h3") == {"web1": ["h1"]}
    three.silent.clear()
    assert run(restore.restore, three, "h3", **HOME)["moved"] == {"web1": "h3"}


def test_notes_that_others_made_up_have_no_effect(three, run, opts):
    """h3 claims that its guest went on to h1; in fact it was moved there by hand."""
    three.proved(opts, "h2", web1=["h3"])
    three.notes["h3"] = {"web1": {"hosts": ["h1"]}}

    assert run(restore.restore, three, "h2", **HOME)["elsewhere"] == {"web1": "h1"}
    assert three.where("web1") == ["h1"]


def test_an_evacuation_proves_nothing_that_was_not_proved(three, run):
    """H3 claims web1 as its own; h1, which has it, is emptied."""
    three.notes["h3"] = {"web1": {"hosts": ["h1"]}}
    three.refuses["h3"] = {"web1": ["it is full"]}

    assert run(evacuate.evacuate, three, "h1", **HOW)["moved"] == {"web1": "h2"}

    assert three.notes["h3"] == {"web1": {"hosts": ["h1"]}}


# Old proofs that h3 keeps.


def empty_h3(three, run):
    """Evacuate web1 from h3 to h1, and return the notes of h3."""
    three.hosts["h1"].pop("web1", None)
    three.put("web1", "h3")
    three.refuses["h2"] = {"web1": ["it is full"]}
    assert run(evacuate.evacuate, three, "h3", **HOW)["moved"] == {"web1": "h1"}
    return copy.deepcopy(three.notes["h3"])


def replay_notes(three, old_notes):
    """Move web1 to h1 by hand, and have h3 present its old notes again."""
    three.hosts["h3"].pop("web1", None)
    three.put("web1", "h1")
    three.notes["h3"] = old_notes


def test_a_proof_is_of_no_use_when_the_vm_has_come_home(three, run, is_in_vain):
    old_notes = empty_h3(three, run)
    assert run(restore.restore, three, "h3", **HOME)["moved"] == {"web1": "h3"}

    replay_notes(three, old_notes)

    is_in_vain()


def test_a_proof_is_of_no_use_when_its_host_is_emptied_anew(three, run, is_in_vain):
    old_notes = empty_h3(three, run)
    new_notes = empty_h3(three, run)
    assert new_notes["web1"] != old_notes["web1"]

    replay_notes(three, old_notes)

    is_in_vain()


def test_a_proof_of_a_vm_that_did_not_move_is_of_no_use(three, run, is_in_vain):
    three.hosts["h1"].clear()
    three.put("web1", "h3")
    three.refuses["h2"], old_notes = {"web1": ["it is full"]}, []

    def copy_and_fail():
        old_notes.append(copy.deepcopy(three.notes["h3"]))
        raise MasterError("disk full")

    three.before["h3", "virt.migrate"] = copy_and_fail
    with pytest.raises(evacuate.NotAllMoved):
        run(evacuate.evacuate, three, "h3", **HOW)

    replay_notes(three, old_notes[0])

    is_in_vain()


def test_a_vm_that_did_not_come_home_gets_a_new_proof(three, run):
    empty_h3(three, run)
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


def test_a_host_without_new_proofs_keeps_its_old_ones(three, run, opts):
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


# VMs that a host claims to have.


def test_a_host_that_claims_another_hosts_vm_gets_no_proof(three, run):
    """h3 is emptied of a web1 that h1 has; it gets no proof, even if it then disclaims web1."""
    three.put("web1", "h3")
    noted = []

    def lose_vm():
        noted.append(copy.deepcopy(three.notes["h3"]))
        three.hosts["h3"].pop("web1", None)
        raise HostCommandFailed("h3: it is not here")

    for fun in ("virt.migrate_begin", "virt.migrate"):
        three.before["h3", fun] = lose_vm
    result = run(evacuate.evacuate, three, "h3", **HOW)

    assert noted and not any(noted) and three.notes["h3"] == {}
    assert result["moved"] == {"web1": "h1"}
    assert "h1 had one of that name before" in result["warnings"]["web1"]


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
