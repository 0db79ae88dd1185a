"""The doctor looks twice, mends what it found both times, and asks before it deletes a key."""

import pytest
from saltvirt.ca import store
from saltvirt.checks.doctor.doctoranswer import SeenVm
from saltvirt.checks.doctor.master import masterrecords, mend, run
from saltvirt.checks.master.asking import ProblemsFound
from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.inventory import inventory, lastseen
from saltvirt.cluster.rpc import minions
from saltvirt.core import wire
from saltvirt.core.errors import BadArgument
from saltvirt.core.findings import MASTER
from saltvirt.seeding.master import authorization
from test_doctor_judging import facts, loose

NOW = store.utc_now()


@pytest.fixture
def tended(cloud, monkeypatch):
    """Three hosts that are folders, and a doctor: ``look()`` returns what it says."""
    monkeypatch.setattr(run, "_PAUSE_S", 0)
    # No unit test has minions of guests that could answer.
    monkeypatch.setattr(masterrecords, "find_answering_minions", lambda _cloud, _names: cloud.live)
    monkeypatch.setattr(inventory, "allowed_hosts", cloud.hosts.names)
    cloud.live, cloud.says, cloud.mended, cloud.said = set(), {}, [], []
    for host in cloud.hosts.names():
        # A hypervisor's key was never accepted for a VM.
        minionkeys.forget(cloud.opts, host)

    def seen(host):
        there = cloud.hosts._vms(host)
        vms = {name: SeenVm(uuid=str(vm.get("uuid")), files=[]) for name, vm in there.items()}
        return facts(code=masterrecords.filecontent.of_code(), vms=vms)

    def ask(master, targets, fun, *given, **more):
        replies = cloud.hosts.ask(master, targets, fun, *given, **more)
        if fun != run.FUN:
            return replies
        said = {host: wire.plain(cloud.says.get(host) or seen(host)) for host in targets}
        return {
            h: one if one.is_missing else minions.Reply(minion=h, value=said[h])
            for h, one in replies.items()
        }

    monkeypatch.setattr(minions, "ask", ask)

    def order(master, host, fun, arg, *given, **more):
        if fun != mend.FUN:
            return cloud.hosts.order(master, host, fun, arg, *given, **more)
        cloud.mended.append((host, *arg))
        return minions.Reply(minion=host, value=["done"])

    monkeypatch.setattr(minions, "order", order)
    return cloud


def look(cloud, **given):
    """Return what the doctor says, and whether nothing is left over."""
    try:
        return run.doctor(cloud.master, NOW, **given), True
    except ProblemsFound as error:
        return error.table, False


def named(cloud, **given):
    """Return ``[(check, subject)]`` of what is found."""
    return [(one["check"], one["subject"]) for one in look(cloud, **given)[0]["findings"]]


def test_nothing_is_left_over_of_a_vm_that_was_built_and_purged(tended):
    tended.init()
    assert named(tended) == []
    tended.purge()

    said, is_well = look(tended)

    assert (said["findings"], is_well, said["ready"]) == ([], True, "nothing is left over")
    assert minionkeys.read_vm_keys(tended.opts) == {}


def test_a_key_whose_vm_no_host_has_is_named_and_stays(tended):
    """The definition of its VM may be lost, and come back with a backup."""
    minionkeys.accept(tended.opts, "web", "K")
    assert named(tended) == [("key", "web")]

    said, is_well = look(tended, fix=True)

    assert (said["mended"], is_well) == ([], False)
    assert [one["fix"] for one in said["findings"]] == [
        "define it again; or if it is gone for good: salt-key -d web"
    ]
    assert minionkeys.read_accepted(tended.opts, "web") == "K"


@pytest.mark.parametrize("more", ["silent", "answers"])
def test_a_key_stays_while_a_host_is_silent_or_its_minion_answers(tended, more):
    minionkeys.accept(tended.opts, "web", "K")
    if more == "silent":
        tended.hosts.silence("hyper3")
    tended.live = {"web"} if more == "answers" else set()

    said, _is_well = look(tended, fix=True)

    assert ("key", "web") not in [(one["check"], one["subject"]) for one in said["findings"]]
    assert minionkeys.read_accepted(tended.opts, "web") == "K"


def test_a_minion_that_is_not_a_vm_keeps_its_key(tended):
    minionkeys.accept(tended.opts, "server", "K")
    minionkeys.forget(tended.opts, "server")

    assert look(tended, fix=True)[1] is True
    assert minionkeys.read_accepted(tended.opts, "server") == "K"


def test_a_host_that_is_shut_out_and_had_vms_keeps_all_keys(tended, monkeypatch):
    minionkeys.accept(tended.opts, "web", "K")
    lastseen.record_move(tended.opts, "other", "hyper3")
    monkeypatch.setattr(inventory, "allowed_hosts", lambda _cloud: ["hyper1", "hyper2"])

    assert named(tended) == [("not-checked", "hyper3")]


def test_what_is_seen_once_alone_is_not_named(tended, monkeypatch):
    code = masterrecords.filecontent.of_code()
    tended.says["hyper1"] = facts(code=code, files=[loose()])
    monkeypatch.setattr(run.time, "sleep", lambda _s: tended.says.clear())

    assert named(tended) == []


def test_what_is_a_hosts_affair_is_mended_there(tended):
    code = masterrecords.filecontent.of_code()
    left = {"lock": ["/l"], "unfinished": ["web"]}
    tended.says["hyper1"] = facts(code=code, files=[loose()], left=left)

    said, is_well = look(tended, fix=True)

    assert tended.mended == [
        ("hyper1", {"unfinished": ["web"]}),
        ("hyper1", {"lock": ["/l"]}),
    ]
    assert said["mended"] == ["hyper1: done", "hyper1: done"]
    # This host says the same as before.
    assert (len(said["findings"]), is_well) == (3, False)


def test_an_order_that_was_cut_off_is_settled(tended, kill_at):
    kill_at("order.keyed", tended.init)
    assert named(tended)[0] == ("order", "web")

    said, is_well = look(tended, fix=True)

    assert is_well, said
    assert said["mended"][0] == "order web: what an interrupted virt.init had begun was taken back"
    assert minionkeys.read_accepted(tended.opts, "web") is None


def leave_an_order(tended):
    """Leave the order of a command that was cut off."""
    with orders.opened(tended.opts, "web") as order:
        orders.begin(order, orders.PLACING)


def test_what_was_mended_is_said_though_the_masters_disk_is_full(tended, monkeypatch):
    tended.hosts.does["virt.authorized"] = lambda *_args, **_kwarg: None
    authorization.grant(tended.master, "old", "hyper1", minutes=1, replace=False)
    path = authorization._file(tended.opts, "old").path
    path.write_text(path.read_text().replace('"until": ', '"until": 0, "was": '))
    leave_an_order(tended)

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mend.interrupted, "settle", full)
    said, is_well = look(tended, fix=True)

    assert (said["mended"], is_well) == (["authorization old: revoked"], False)
    assert said["failed"] == ["order web: [Errno 28] No space left on device"]


def test_a_command_that_is_at_work_is_not_named(tended):
    with orders.opened(tended.opts, "web") as order:
        orders.begin(order, orders.PLACING)

        assert named(tended) == []


def test_an_authorization_that_is_over_is_revoked_and_one_that_is_not_stays(tended):
    tended.hosts.does["virt.authorized"] = lambda *_args, **_kwarg: None
    for name, minutes in (("old", 1), ("new", 60)):
        authorization.grant(tended.master, name, "hyper1", minutes=minutes, replace=False)
    path = authorization._file(tended.opts, "old").path
    path.write_text(path.read_text().replace('"until": ', '"until": 0, "was": '))

    said, is_well = look(tended, fix=True)

    assert (said["mended"], is_well) == (["authorization old: revoked"], True)
    assert list(authorization.list_unused(tended.opts)) == ["new"]


def test_a_lock_that_no_command_holds_is_removed(tended):
    folder = orders.folder(tended.opts) / orders.PURPOSE
    folder.mkdir(parents=True)
    (folder / "web.lock").touch()
    assert named(tended) == [("lock", str(folder / "web.lock"))]

    assert look(tended, fix=True)[1] is True
    assert list(folder.iterdir()) == []


def test_all_is_said_before_it_is_done(tended):
    leave_an_order(tended)
    said = []
    master = run.replace(tended.master, progress=lambda stage, **more: said.append((stage, more)))

    run.doctor(master, NOW, fix=True)

    assert [stage for stage, _more in said] == ["Looking", "Mending"]
    assert said[1][1]["detail"].startswith(f"{MASTER}: a command for VM web")


def test_a_wrong_argument_is_refused(tended):
    with pytest.raises(BadArgument):
        look(tended, fix="maybe")


@pytest.mark.parametrize(
    ("silent_at", "found"),
    [
        ({0}, [("key", "web")]),
        ({1}, [("key", "web")]),
        ({1, 2, 3}, [("not-checked", "hyper2")]),
        ({0, 2}, [("not-checked", "hyper2")]),
    ],
)
def test_a_host_that_is_silent_at_one_look_makes_no_clean_cloud(
    tended, monkeypatch, silent_at, found
):
    """While it is silent no key is judged, so that no two looks would find this one."""
    minionkeys.accept(tended.opts, "web", "K")
    looks = []

    def next_look(_s):
        was_silent = len(looks) in silent_at
        looks.append(_s)
        if was_silent != (len(looks) in silent_at):
            tended.hosts.silence("hyper2", is_silent=not was_silent)

    if 0 in silent_at:
        tended.hosts.silence("hyper2")
    monkeypatch.setattr(run.time, "sleep", next_look)

    assert named(tended) == found
