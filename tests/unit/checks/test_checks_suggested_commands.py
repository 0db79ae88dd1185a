"""Suggested commands stay safe with any name that a host gives to a VM."""

import shlex

import pytest
from playedhosts import HOW, clouds
from saltvirt.checks.doctor.doctoranswer import DoctorFacts, MoveLeft
from saltvirt.checks.doctor.master.doctorcloud import DoctorCloud, MasterRecords
from saltvirt.checks.doctor.master.masterchecks import CHECKS as OF_MASTER
from saltvirt.checks.doctor.master.run import CHECKS
from saltvirt.cluster.inventory import presence
from saltvirt.migration.master import evacuate, evacuationnotes, override

# libvirt accepts all characters but a slash and a line break.
NAME = "web1;id>x '$(id)' #"


def suggests(text, *words):
    """Return whether a text has a command of these words, as a shell splits it."""
    return shlex.join(words) in text


def doctor_cloud(**more):
    """Return the doctor's view of a cloud of one host."""
    empty = {
        **{"code": "1", "copies": ["/a"], "vms": {}, "made_for": [], "shared": [], "files": []},
        **{"busy": [], "left": {}, "unreadable": {}, "moves": []},
    }
    master = MasterRecords(code="1", copies=["/a"], authorizations={NAME: ("h1", -1)}, now_s=0)
    return DoctorCloud(master=master, hosts={"h1": DoctorFacts(**{**empty, **more})})


def test_the_doctors_command_for_a_move_quotes_the_name():
    move = MoveLeft(name=NAME, purpose="departure", phase="sending", is_live=False)

    (finding,) = CHECKS.judge_host("h1", doctor_cloud(moves=[move]))

    assert suggests(finding.fix, "salt-run", "virt.settle", NAME)


def test_the_doctors_command_for_an_authorization_quotes_the_name():
    (finding,) = OF_MASTER.judge(doctor_cloud())

    assert suggests(finding.fix, "salt-run", "virt.unauthorize", NAME)


def test_commands_for_leftovers_of_an_emptied_host_quote_the_name(monkeypatch, run):
    cloud = clouds(monkeypatch)(2)
    host_info = cloud._host_info
    leftovers = {"kept": {NAME: "h2"}, "unfinished": ["a" + NAME]}
    monkeypatch.setattr(
        cloud, "_host_info", lambda host, **kwargs: host_info(host, **kwargs) | leftovers
    )

    warnings = run(evacuate.evacuate, cloud, "h1", **HOW)["warnings"]

    assert suggests(warnings[NAME], "salt", "h1", "virt.undefine", NAME)
    assert suggests(warnings["a" + NAME], "salt", "h1", "virt.purge", "a" + NAME)


def test_the_wait_of_an_emptied_host_quotes_the_name(monkeypatch, run):
    two = clouds(monkeypatch)(2)
    two.building["h1"] = [NAME]

    with pytest.raises(evacuate.NotAllMoved) as caught:
        run(evacuate.evacuate, two, "h1", **{**HOW, "wait_s": 0})

    assert suggests(caught.value.table["stays"][NAME], "salt-run", "virt.settle", NAME)


def test_errors_about_unproved_records_quote_the_name():
    notes_by_host = {"h1": {NAME: ["h2"]}, "h2": {}, "h3": {}}

    away_vms = evacuationnotes.find_away(notes_by_host, "h1", {"h2": {NAME}}, set())
    reason = evacuationnotes.confirm_away(away_vms, "h1", {}, {}, {}).uncertain[NAME]
    elsewhere = evacuationnotes.find_away(notes_by_host, "h1", {"h3": {NAME}}, {"h2"}).uncertain[
        NAME
    ]

    assert suggests(reason, "salt-run", "virt.migrate", NAME, "h1")
    assert suggests(elsewhere, "salt-run", "virt.migrate", NAME, "h1")
    assert elsewhere.endswith(f"virt.evacuated {shlex.quote(f'{{{NAME}: null}}')}")


def test_errors_about_a_moving_or_duplicate_vm_quote_the_name():
    assert suggests(presence.coming_message(NAME, "h1"), "salt-run", "virt.settle", NAME)
    assert shlex.quote(NAME) in presence.several_message(NAME, ["h1", "h2"])
    assert suggests(override._settle_command(NAME), "salt-run", "virt.settle", NAME)
