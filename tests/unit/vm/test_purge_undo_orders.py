"""virt.undo at the master: the last purged VM of a name comes back with its key, once."""

import pytest
from fleetkit import die, is_tidy, key, killed, left
from saltvirt.checks.doctor.master import mend
from saltvirt.cluster import minionkeys, orders, undorecords
from saltvirt.cluster.inventory import lastseen
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed
from saltvirt.core.crypto import keypair
from saltvirt.core.errors import NameTaken
from saltvirt.core.journal import records
from saltvirt.storage.master import images
from saltvirt.vm.purge.master import undoing


@pytest.fixture
def trashing(cloud):
    """A cloud with a VM, whose hosts have a trash."""
    cloud.hosts.has_trash = True
    cloud.init(host="hyper1")
    return cloud


def test_a_purged_vm_comes_back_with_its_key(trashing):
    before = key(trashing)
    done = trashing.purge()

    assert done["hyper1"] == {"web": "purged"}
    details = done["details"]["web"]
    assert (details["trashed"], details["undo"]) == (
        ["/srv/web.qcow2"],
        "salt-run virt.undo web",
    )
    assert key(trashing) is None and "web" not in minionkeys.read_vm_keys(trashing.opts)

    back = trashing.undo()

    assert (back["host"], back["files"], back["has_key"]) == ("hyper1", ["/srv/web.qcow2"], True)
    assert trashing.hosts.where("web") == ["hyper1"]
    assert key(trashing) == before == minionkeys.read_vm_keys(trashing.opts)["web"]
    assert lastseen.find_hosts(trashing.opts, "web") == ["hyper1"] and is_tidy(trashing)
    with pytest.raises(undoing.NothingToUndo, match="no purged VM called 'web' on record"):
        trashing.undo()


def test_a_host_that_cannot_report_is_asked_as_before(cloud):
    cloud.init()

    assert cloud.purge() == {"hyper1": {"web": "purged"}}
    assert "report" not in cloud.hosts.sent[-1][2]
    with pytest.raises(undoing.NothingToUndo):
        cloud.undo()


def test_a_key_that_stayed_stays(trashing):
    trashing.purge(delete_key=False)
    before = key(trashing)

    assert trashing.undo()["has_key"] is False
    assert key(trashing) == before


def test_a_dry_run_changes_nothing(trashing):
    trashing.purge()

    assert trashing.undo(is_dry=True)["files"] == ["/srv/web.qcow2"]

    assert trashing.hosts.where("web") == [] and key(trashing) is None and is_tidy(trashing)
    assert trashing.hosts.sent[-1][2]["test"] is True


@pytest.mark.parametrize("is_dry", [True, False])
def test_a_name_that_is_taken_is_refused(trashing, is_dry):
    trashing.purge()
    trashing.hosts.put("hyper2", "web", uuid="another")

    with pytest.raises(NameTaken, match="'web' is on hyper2 already"):
        trashing.undo(is_dry=is_dry)

    assert trashing.hosts.where("web") == ["hyper2"] and key(trashing) is None


def test_a_silent_host_that_may_have_the_name_is_refused_and_forced(trashing):
    trashing.purge()
    lastseen.record_move(trashing.opts, "web", "hyper2")
    trashing.hosts.silence("hyper2")

    with pytest.raises(NameTaken, match="may be on hyper2.*give force=True"):
        trashing.undo()

    assert trashing.undo(force=True)["host"] == "hyper1"


def test_another_minion_of_the_name_is_refused(trashing):
    trashing.purge()
    foreign = keypair.generate()[0]
    minionkeys.accept(trashing.opts, "web", foreign)

    with pytest.raises(NameTaken, match="a minion called 'web' is accepted"):
        trashing.undo()

    assert key(trashing) == foreign.strip() and trashing.hosts.where("web") == []


def test_what_its_host_refuses_leaves_no_order_and_can_be_undone_later(trashing):
    trashing.purge()
    does = trashing.hosts.does["virt.undo"]

    def refuse(*_words, **_given):
        raise ValueError("its disk is gone")

    trashing.hosts.does["virt.undo"] = refuse
    with pytest.raises(HostCommandFailed, match="hyper1: its disk is gone"):
        trashing.undo()
    assert is_tidy(trashing) and key(trashing) is None

    trashing.hosts.does["virt.undo"] = does
    assert trashing.undo()["host"] == "hyper1"


def undo_and_die(cloud):
    """Have the host bring the VM back, and the master die then."""

    def bring_back(host, name, **given):
        cloud.hosts.bring_back(host, name, **given)
        die()

    cloud.hosts.does["virt.undo"] = bring_back
    killed(cloud.undo)
    cloud.hosts.does["virt.undo"] = cloud.hosts.bring_back
    assert cloud.hosts.where("web") == ["hyper1"] and left(cloud) == "restoring"
    assert key(cloud) is None


@pytest.mark.parametrize("by", ["the next undo", "virt.init", "virt.doctor"])
def test_an_undo_that_was_killed_is_finished(trashing, by):
    before = key(trashing)
    trashing.purge()
    undo_and_die(trashing)

    if by == "the next undo":
        assert trashing.undo()["host"] == "hyper1"
    elif by == "virt.init":
        with pytest.raises(NameTaken, match="is on hyper1 already"):
            trashing.init()
    else:
        mend._settle_order(trashing.master, "web", None)

    assert key(trashing) == before and is_tidy(trashing)
    with pytest.raises(undoing.NothingToUndo):
        trashing.undo()


def test_a_vm_whose_undo_was_killed_can_be_purged_again(trashing):
    before = key(trashing)
    trashing.purge()
    undo_and_die(trashing)

    assert trashing.purge()["hyper1"] == {"web": "purged"}

    assert key(trashing) is None and trashing.hosts.where("web") == []
    trashing.undo()
    assert key(trashing) == before


@pytest.mark.parametrize("point", ["order.restoring", "order.end"])
def test_an_undo_that_was_killed_at_a_boundary_of_its_order_is_finished(trashing, kill_at, point):
    before = key(trashing)
    trashing.purge()
    kill_at(point, trashing.undo)

    assert trashing.undo()["host"] == "hyper1"

    assert key(trashing) == before and is_tidy(trashing)


def test_an_undo_whose_host_falls_silent_says_that_the_next_one_goes_on(trashing):
    before = key(trashing)
    trashing.purge()

    def silence(host, *_words, **_given):
        trashing.hosts.silence(host)

    trashing.hosts.does["virt.undo"] = silence
    with pytest.raises(HostCommandFailed, match="run salt-run virt.undo web again, which goes on"):
        trashing.undo()
    with pytest.raises(NameTaken, match="virt.undo of VM 'web' is not over: hyper1"):
        trashing.undo()
    trashing.hosts.silence("hyper1", False)
    trashing.hosts.does["virt.undo"] = trashing.hosts.bring_back

    trashing.undo()

    assert key(trashing) == before and is_tidy(trashing)


def test_the_vm_of_a_purge_that_was_killed_before_the_keys_deletion_comes_back(trashing):
    before = key(trashing)

    def remove(host, name, **given):
        trashing.hosts.remove(host, name, **given)
        die()

    trashing.hosts.does["virt.purge"] = remove
    killed(trashing.purge)
    assert trashing.purge() == {"hyper1": {"web": "purged; its minion key is deleted now"}}

    trashing.undo()

    assert key(trashing) == before


def test_old_records_go_with_the_next_purge(trashing, monkeypatch):
    trashing.purge()
    now = undorecords.time.time()
    monkeypatch.setattr(undorecords.time, "time", lambda: now + 400 * 86400)
    trashing.init("other")

    trashing.purge("other")

    folder = orders.folder(trashing.opts)
    assert [one.name for one in records.read_records(folder, undorecords.PURPOSE)] == ["other"]


def test_the_trash_names_the_command_that_undoes(trashing):
    trashing.purge()
    uuid = undorecords.read(trashing.opts, "web").uuid
    rows = {
        "web-1": {"vm": "web", "uuid": uuid, "is_purged": True},
        "web-0": {"vm": "web", "uuid": "older", "is_purged": True},
        "my put": {"vm": "web", "uuid": uuid},
    }

    out = images._with_undo(trashing.master, "hyper1", rows)

    assert [row["undo"] for row in out.values()] == [
        "salt-run virt.undo web",
        "salt-run virt.trash_restore hyper1 web-0",
        "salt-run virt.trash_restore hyper1 'my put'",
    ]
    assert images._with_undo(trashing.master, "hyper1", "nonsense") == "nonsense"
