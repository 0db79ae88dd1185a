"""The master renames a VM: both names are taken, the key goes with it, and nothing is left over."""

import pytest
from fleetkit import die, is_tidy, key, killed, left
from saltvirt.checks.doctor.master import masterchecks, masterrecords
from saltvirt.checks.doctor.master.doctorcloud import MasterRecords
from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.inventory import lastseen
from saltvirt.core.crypto import keypair
from saltvirt.core.errors import BadArgument, NameTaken, NoSuchVm, VirtError
from saltvirt.core.journal.recordfacts import MoveOrderFacts
from saltvirt.vm.rename.host.renaming import RenameRefused
from saltvirt.vm.rename.master import renaming


class Renaming:
    """A cloud with a stopped VM, whose host renames it, and fails as a test says."""

    def __init__(self, cloud):
        self.cloud, self.fails, self.calls = cloud, None, []
        cloud.hosts.does["virt.rename"] = self._rename
        cloud.init()
        self.host = cloud.hosts.where("web")[0]
        self.uuid = cloud.hosts._vms(self.host)["web"]["uuid"]
        cloud.hosts.put(self.host, "web", "shutdown", uuid=self.uuid)
        self.key = key(cloud)

    def _rename(self, host, old, new, uuid, seed, public_key, report, dry_run=False):
        self.calls.append((old, new, seed, public_key, dry_run))
        assert (uuid, report) == (self.uuid, True)
        if dry_run:
            return
        if self.fails == "refuses":
            raise RenameRefused("its minion is another one")
        if self.fails == "dies":
            die()
        hosts = self.cloud.hosts
        if old in hosts._vms(host):
            (hosts.folder / host / old).rename(hosts.folder / host / new)
        if self.fails == "dies later":
            die()
        if self.fails == "is silent":
            hosts.silence(host)
        if self.fails == "is unsure":
            raise ValueError("libguestfs failed")

    def __call__(self, name="web", new_name="db", seed=None, dry_run=False):
        request = renaming.parse(name, new_name, seed)
        work = renaming.dry_run if dry_run else renaming.rename
        return work(self.cloud.master, request)

    def state(self):
        """Return names of the VM, ids with its key, and phases of the record."""
        names = ("web", "db")
        return (
            [name for name in names if self.cloud.hosts.where(name)],
            [name for name in names if key(self.cloud, name) == self.key],
            [left(self.cloud, name) for name in names],
        )


WEB, DB, BOTH = ["web"], ["db"], ["web", "db"]
OVER = [None, None]


@pytest.fixture
def rename(cloud):
    """A cloud with a stopped VM to rename."""
    return Renaming(cloud)


def test_a_vm_its_key_and_where_it_was_seen_get_the_name(rename, cloud):
    assert rename() == {rename.host: {"web": "renamed to db"}}

    assert rename.state() == (DB, DB, OVER)
    assert rename.calls == [("web", "db", True, rename.key, False)]
    assert lastseen.find_hosts(cloud.opts, "db") == [rename.host]
    assert lastseen.find_hosts(cloud.opts, "web") == []
    assert minionkeys.read_vm_keys(cloud.opts)["db"] == rename.key
    assert "web" not in minionkeys.read_vm_keys(cloud.opts)
    assert is_tidy(cloud)
    assert cloud.purge("db") == {rename.host: {"db": "purged"}}
    assert rename.state()[:2] == ([], [])


def test_a_dry_run_changes_nothing(rename):
    said = {rename.host: {"web": "would be renamed to db with its minion and key"}}
    assert rename(dry_run=True) == said
    assert rename.state() == (WEB, WEB, OVER)
    assert rename.calls == [("web", "db", True, rename.key, True)]


def test_without_its_guest_the_key_stays_and_the_answer_says_what_to_do(rename):
    (outcome,) = rename(seed=False)[rename.host].values()

    assert outcome.startswith("renamed to db; its guest's minion is still called web: in the guest")
    assert outcome.endswith("then salt-key -a db and salt-key -d web")
    assert rename.state() == (DB, WEB, OVER)


def test_a_guest_without_a_key_is_renamed_without_its_guest(rename, cloud):
    minionkeys.delete(cloud.opts, "web", rename.key)

    assert rename() == {rename.host: {"web": "renamed to db"}}
    assert rename.calls == [("web", "db", False, None, False)]


def runs(rename):
    """Run."""
    rename.cloud.hosts.put(rename.host, "web", "running", uuid=rename.uuid)


def is_built(rename):
    """Be built."""
    rename.cloud.hosts.put(rename.host, "web", "shutdown", uuid=rename.uuid, building=True)


def is_gone(rename):
    """Not be there."""
    rename.cloud.hosts.remove(rename.host, "web")


def has_namesake(rename):
    """Be beside a VM of the new name on another host."""
    rename.cloud.hosts.put("hyper3", "db", "shutdown", uuid="another")


def had_silent_namesake(rename):
    """Be beside a host that had a VM of the new name and is silent."""
    rename.cloud.hosts.put("hyper3", "db", "shutdown", uuid="another")
    lastseen.record_move(rename.cloud.opts, "db", "hyper3")
    rename.cloud.hosts.silence("hyper3")


def has_minion_of_name(rename):
    """Be beside a minion of the new name."""
    minionkeys.accept(rename.cloud.opts, "db", keypair.generate()[0])


def was_moving(rename):
    """Have an interrupted move."""
    with orders.opened(rename.cloud.opts, "web") as order:
        orders.begin_move(order, "t1", MoveOrderFacts(source="hyper1", target="hyper2"))


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        (runs, NameTaken, "is running on .*only a stopped VM is renamed: salt-run virt.shutdown"),
        (is_built, NameTaken, "has only a part of VM 'web'"),
        (is_gone, NoSuchVm, "no VM called 'web'"),
        (has_namesake, NameTaken, "VM 'db' is on hyper3 already"),
        (had_silent_namesake, NameTaken, "VM 'db' may be on hyper3 .*; try again when hyper3"),
        (has_minion_of_name, NameTaken, "a minion called 'db' is accepted on this master"),
        (was_moving, NameTaken, "another command has a record .*: salt-run virt.settle web"),
    ],
)
def test_what_cannot_be_renamed_is_refused_with_nothing_changed(
    rename, change, error, reason, dry_run
):
    change(rename)
    before = rename.state()

    with pytest.raises(error, match=reason):
        rename(dry_run=dry_run)

    assert (rename.state(), rename.calls) == (before, [])


def test_a_name_of_a_hypervisor_is_refused(rename):
    with pytest.raises(BadArgument, match="'hyper7' is kept for hypervisors"):
        rename(new_name="hyper7")


def test_a_host_that_refuses_leaves_nothing(rename, cloud):
    rename.fails = "refuses"

    with pytest.raises(VirtError, match="its minion is another one") as error:
        rename()

    assert "interrupted" not in str(error.value)
    assert rename.state() == (WEB, WEB, OVER) and is_tidy(cloud)
    assert lastseen.find_hosts(cloud.opts, "db") == []


def begin(rename, fails):
    """Begin a rename that is cut off."""
    rename.fails = fails
    if fails.startswith("dies"):
        killed(rename)
    else:
        with pytest.raises(VirtError, match="virt.rename web db completes it"):
            rename()
    rename.fails = None
    if fails == "is silent":
        rename.cloud.hosts.silence(rename.host, False)


CUT_OFF = pytest.mark.parametrize("fails", ["dies", "dies later", "is silent", "is unsure"])


@CUT_OFF
@pytest.mark.parametrize("undone", [False, True])
def test_the_same_command_completes_it_and_the_exchanged_one_undoes_it(
    rename, cloud, fails, undone
):
    begin(rename, fails)
    assert rename.state()[1:] == (BOTH, ["renaming"] * 2)

    rename(*(("db", "web") if undone else ("web", "db")))

    names = WEB if undone else DB
    assert rename.state() == (names, names, OVER) and is_tidy(cloud)


@CUT_OFF
def test_no_other_command_takes_either_name_meanwhile(rename, cloud, fails):
    begin(rename, fails)

    for name in ("web", "db"):
        for command in (cloud.init, cloud.purge):
            with pytest.raises(NameTaken, match="'web' was being renamed to 'db', and that was"):
                command(name)
    with pytest.raises(NameTaken, match="was being renamed to 'db'"):
        rename("web", "third")
    assert rename.state()[1:] == (BOTH, ["renaming"] * 2)


def test_a_refusal_after_an_earlier_attempt_leaves_both_keys(rename):
    begin(rename, "dies later")
    rename.fails = "refuses"

    with pytest.raises(VirtError, match="another one; .*virt.rename web db completes it"):
        rename()

    assert rename.state() == (DB, BOTH, ["renaming"] * 2)


def test_nothing_is_done_while_its_host_is_silent(rename, cloud):
    begin(rename, "dies later")
    cloud.hosts.silence(rename.host)

    with pytest.raises(VirtError, match="does not answer, and may be renaming VM 'web'"):
        rename()
    assert rename.state()[1:] == (BOTH, ["renaming"] * 2)


def test_an_order_that_waits_on_its_host_is_given_up_first(rename, cloud):
    cloud.hosts.is_queueing("virt.rename")
    with pytest.raises(VirtError, match="virt.rename web db completes it"):
        rename()
    queued = cloud.hosts.queued
    cloud.hosts.queues = None

    rename("db", "web")
    cloud.hosts.queued = queued
    with pytest.raises(VirtError, match="has given this order up"):
        cloud.hosts.late()

    assert rename.state() == (WEB, WEB, OVER)


@pytest.mark.parametrize(
    ("point", "again"),
    [
        ("order.before-renaming", WEB),
        ("order.renaming", WEB),
        ("order.renamed", DB),
        ("order.end", DB),
    ],
)
@pytest.mark.parametrize("undone", [False, True])
def test_a_master_that_is_killed_leaves_what_the_next_command_ends(
    rename, cloud, kill_at, point, again, undone
):
    kill_at(point, rename)
    assert rename.state()[0] == again
    (opened,) = {tuple(sorted({"web", "db"}))}

    if undone:
        if point == "order.before-renaming":
            with pytest.raises(NoSuchVm):
                rename("db", "web")
        else:
            rename("db", "web")
    else:
        rename(*opened[::-1])

    names = WEB if undone else DB
    assert rename.state() == (names, names, OVER) and is_tidy(cloud)


def test_doctor_names_a_rename_that_was_cut_off_and_leaves_it_to_the_operator(rename, cloud):
    begin(rename, "dies later")

    left_over = MasterRecords(orders=list(masterrecords.find_orders_left(cloud.opts)))
    findings = list(masterchecks._orders(left_over))

    assert {finding.subject for finding in findings} == {"web", "db"}
    assert {finding.mend for finding in findings} == {""}
    assert "salt-run virt.rename web db: it is called db afterwards" in findings[1].fix
    assert "salt-run virt.rename db web: it is called web afterwards" in findings[0].fix


def test_a_vm_that_is_gone_meanwhile_ends_the_record(rename, cloud):
    begin(rename, "dies later")
    cloud.hosts.remove(rename.host, "db")

    with pytest.raises(NoSuchVm, match="on any host any more; its rename has ended"):
        rename()

    assert rename.state() == ([], WEB, OVER)


def test_another_seed_is_refused_for_a_rename_that_was_begun(rename):
    begin(rename, "dies later")

    with pytest.raises(BadArgument, match="was begun with seed=True: leave it out"):
        rename(seed=False)
