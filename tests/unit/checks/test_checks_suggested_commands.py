"""A host chooses what its VMs are called; a command that is suggested is one all the same."""

import shlex

import pytest
from playedhosts import HOW, clouds
from saltvirt.checks.doctor.doctoranswer import DoctorFacts, MoveLeft
from saltvirt.checks.doctor.master.doctorcloud import DoctorCloud, MasterRecords
from saltvirt.checks.doctor.master.masterchecks import CHECKS as OF_MASTER
from saltvirt.checks.doctor.master.run import CHECKS
from saltvirt.cluster.inventory import presence
from saltvirt.migration.master import evacuate, evacuationnotes, override

# libvirt takes all but a slash and a line break.
NAME = "web1;id>x '$(id)' #"


def suggests(text, *words):
    """Return whether a text has a command of these words, as a shell takes them."""
    return shlex.join(words) in text


def doctored(**more):
    """Return a look at a cloud of one host."""
    empty = {
        **{"code": "1", "copies": ["/a"], "vms": {}, "made_for": [], "shared": [], "files": []},
        **{"busy": [], "left": {}, "unreadable": {}, "moves": []},
    }
    master = MasterRecords(code="1", copies=["/a"], authorizations={NAME: ("h1", -1)}, now_s=0)
    return DoctorCloud(master=master, hosts={"h1": DoctorFacts(**{**empty, **more})})


def test_what_the_doctor_suggests_of_a_move():
    left = MoveLeft(name=NAME, purpose="departure", phase="sending", is_live=False)

    (found,) = CHECKS.judge_host("h1", doctored(moves=[left]))

    assert suggests(found.fix, "salt-run", "virt.settle", NAME)


def test_what_the_doctor_suggests_of_an_authorization():
    (found,) = OF_MASTER.judge(doctored())

    assert suggests(found.fix, "salt-run", "virt.unauthorize", NAME)


def test_what_an_emptied_host_still_has(monkeypatch, run):
    two = clouds(monkeypatch)(2)
    usual = two._host_info
    kept = {"kept": {NAME: "h2"}, "unfinished": ["a" + NAME]}
    monkeypatch.setattr(two, "_host_info", lambda host, **given: usual(host, **given) | kept)

    said = run(evacuate.evacuate, two, "h1", **HOW)["warnings"]

    assert suggests(said[NAME], "salt", "h1", "virt.undefine", NAME)
    assert suggests(said["a" + NAME], "salt", "h1", "virt.purge", "a" + NAME)


def test_what_an_emptied_host_waits_for(monkeypatch, run):
    two = clouds(monkeypatch)(2)
    two.building["h1"] = [NAME]

    with pytest.raises(evacuate.NotAllMoved) as caught:
        run(evacuate.evacuate, two, "h1", **{**HOW, "wait_s": 0})

    assert suggests(caught.value.table["stays"][NAME], "salt-run", "virt.settle", NAME)


def test_what_is_said_of_notes_that_are_not_proved():
    noted = {"h1": {NAME: ["h2"]}, "h2": {}, "h3": {}}

    back = evacuationnotes.find_away(noted, "h1", {"h2": {NAME}}, set())
    unsure = evacuationnotes.confirm_away(back, "h1", {}, {}, {}).uncertain[NAME]
    elsewhere = evacuationnotes.find_away(noted, "h1", {"h3": {NAME}}, {"h2"}).uncertain[NAME]

    assert suggests(unsure, "salt-run", "virt.migrate", NAME, "h1")
    assert suggests(elsewhere, "salt-run", "virt.migrate", NAME, "h1")
    assert elsewhere.endswith(f"virt.evacuated {shlex.quote(f'{{{NAME}: null}}')}")


def test_what_is_said_of_a_vm_on_its_way_or_on_several_hosts():
    assert suggests(presence.coming_message(NAME, "h1"), "salt-run", "virt.settle", NAME)
    assert shlex.quote(NAME) in presence.several_message(NAME, ["h1", "h2"])
    assert suggests(override._settle_command(NAME), "salt-run", "virt.settle", NAME)
