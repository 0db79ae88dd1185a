"""A VM that was purged comes back as it was: its own minion answers, and no key is accepted."""

import pytest
from cloudkit import wait

DEBIAN = "salt://images/debian-minion.qcow2"


@pytest.fixture
def trashing(clean):
    """A lab whose hosts have a trash."""
    with clean.pillar("hyper*", {"virt": {"trash_days": 7}}):
        yield clean
        clean.purge_all()
        clean.run("virt.trash_empty")


def test_the_minion_of_a_vm_that_is_back_answers_again(trashing):
    made = trashing.run("virt.init", "back1", "1", "1024", DEBIAN, "wait_s=1200")
    assert made.code == 0, made.out
    host, keys = made.data["host"], trashing.accepted()
    uuid = trashing.sh(host, "virsh domuuid back1").strip()

    gone = trashing.run("virt.purge", "back1")

    details = gone.data["details"]["back1"]
    assert gone.data[host] == {"back1": "purged"} and "back1" not in trashing.accepted()
    assert details["undo"] == "salt-run virt.undo back1" and details["trashed"]
    assert trashing.run("virt.trash").data[host][details["entry"]]["undo"] == details["undo"]
    assert trashing.run("virt.undo", "back1", "dry_run=True").data["files"] == details["trashed"]

    back = trashing.run("virt.undo", "back1")

    assert back.code == 0, back.out
    assert (back.data["host"], back.data["uuid"]) == (host, uuid)
    assert trashing.accepted() == keys
    assert trashing.run("virt.start", "back1").code == 0
    answers = {"back1": True}
    wait("its minion", lambda: trashing.salt("back1", "test.ping").data == answers, 600)
    assert "no purged VM called 'back1'" in trashing.run("virt.undo", "back1").out
    assert trashing.run("virt.doctor").code == 0
