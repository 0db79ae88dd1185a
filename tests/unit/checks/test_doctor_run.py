"""The doctor looks twice, mends what it found both times, and never deletes a key."""

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
from test_doctor_judging import facts, loose_file_of

NOW = store.utc_now()


@pytest.fixture
def doctored_cloud(cloud, monkeypatch):
    """Three hosts that are folders, and the doctor's replies; ``look()`` runs the doctor."""
    monkeypatch.setattr(run, "_PAUSE_S", 0)
    # No unit test has minions of guests that could answer.
    monkeypatch.setattr(masterrecords, "find_answering_minions", lambda _cloud, _names: cloud.live)
    monkeypatch.setattr(inventory, "allowed_hosts", cloud.hosts.names)
    cloud.live, cloud.host_facts, cloud.mended, cloud.said = set(), {}, [], []
    for host in cloud.hosts.names():
        # No key of a hypervisor is on record as a VM's.
        minionkeys.forget(cloud.opts, host)

    def seen(host):
        vms_of_host = cloud.hosts._vms(host)
        vms = {name: SeenVm(uuid=str(vm.get("uuid")), files=[]) for name, vm in vms_of_host.items()}
        return facts(code=masterrecords.filecontent.of_code(), vms=vms)

    def ask(master, targets, fun, *args, **kwargs):
        replies = cloud.hosts.ask(master, targets, fun, *args, **kwargs)
        if fun != run.FUN:
            return replies
        facts_by_host = {
            host: wire.plain(cloud.host_facts.get(host) or seen(host)) for host in targets
        }
        return {
            h: reply if reply.is_missing else minions.Reply(minion=h, value=facts_by_host[h])
            for h, reply in replies.items()
        }

    monkeypatch.setattr(minions, "ask", ask)

    def order(master, host, fun, arg, *args, **kwargs):
        if fun != mend.FUN:
            return cloud.hosts.order(master, host, fun, arg, *args, **kwargs)
        cloud.mended.append((host, *arg))
        return minions.Reply(minion=host, value=["done"])

    monkeypatch.setattr(minions, "order", order)
    return cloud


def look(cloud, **options):
    """Return the doctor's answer, and whether it found no leftovers."""
    try:
        return run.doctor(cloud.master, NOW, **options), True
    except ProblemsFound as error:
        return error.table, False


def named_subjects(cloud, **options):
    """Return ``[(check, subject)]`` of the findings."""
    return [
        (finding["check"], finding["subject"]) for finding in look(cloud, **options)[0]["findings"]
    ]


def test_a_vm_that_was_built_and_purged_leaves_nothing(doctored_cloud):
    doctored_cloud.init()
    assert named_subjects(doctored_cloud) == []
    doctored_cloud.purge()

    answer, is_well = look(doctored_cloud)

    assert (answer["findings"], is_well, answer["ready"]) == ([], True, "nothing is left over")
    assert minionkeys.read_vm_keys(doctored_cloud.opts) == {}


def test_a_key_without_a_vm_is_named_and_stays(doctored_cloud):
    """The VM's definition may be lost, and a backup may restore it."""
    minionkeys.accept(doctored_cloud.opts, "web", "K")
    assert named_subjects(doctored_cloud) == [("key", "web")]

    answer, is_well = look(doctored_cloud, fix=True)

    assert (answer["mended"], is_well) == ([], False)
    assert [finding["fix"] for finding in answer["findings"]] == [
        "define it again; or if it is gone for good: salt-key -d web"
    ]
    assert minionkeys.read_accepted(doctored_cloud.opts, "web") == "K"


@pytest.mark.parametrize("more", ["silent", "answers"])
def test_a_key_stays_while_a_host_is_silent_or_its_minion_answers(doctored_cloud, more):
    minionkeys.accept(doctored_cloud.opts, "web", "K")
    if more == "silent":
        doctored_cloud.hosts.silence("hyper3")
    doctored_cloud.live = {"web"} if more == "answers" else set()

    answer, _is_well = look(doctored_cloud, fix=True)

    assert ("key", "web") not in [
        (finding["check"], finding["subject"]) for finding in answer["findings"]
    ]
    assert minionkeys.read_accepted(doctored_cloud.opts, "web") == "K"


def test_a_minion_that_is_not_a_vm_keeps_its_key(doctored_cloud):
    minionkeys.accept(doctored_cloud.opts, "server", "K")
    minionkeys.forget(doctored_cloud.opts, "server")

    assert look(doctored_cloud, fix=True)[1] is True
    assert minionkeys.read_accepted(doctored_cloud.opts, "server") == "K"


def test_a_host_that_is_shut_out_and_had_vms_keeps_all_keys(doctored_cloud, monkeypatch):
    minionkeys.accept(doctored_cloud.opts, "web", "K")
    lastseen.record_move(doctored_cloud.opts, "other", "hyper3")
    monkeypatch.setattr(inventory, "allowed_hosts", lambda _cloud: ["hyper1", "hyper2"])

    assert named_subjects(doctored_cloud) == [("not-checked", "hyper3")]


def test_a_leftover_that_is_seen_only_once_is_not_named(doctored_cloud, monkeypatch):
    code = masterrecords.filecontent.of_code()
    doctored_cloud.host_facts["hyper1"] = facts(code=code, files=[loose_file_of()])
    monkeypatch.setattr(run.time, "sleep", lambda _s: doctored_cloud.host_facts.clear())

    assert named_subjects(doctored_cloud) == []


def test_leftovers_of_a_host_are_mended_by_the_host(doctored_cloud):
    code = masterrecords.filecontent.of_code()
    leftovers = {"lock": ["/l"], "unfinished": ["web"]}
    doctored_cloud.host_facts["hyper1"] = facts(code=code, files=[loose_file_of()], left=leftovers)

    answer, is_well = look(doctored_cloud, fix=True)

    assert doctored_cloud.mended == [
        ("hyper1", {"unfinished": ["web"]}),
        ("hyper1", {"lock": ["/l"]}),
    ]
    assert answer["mended"] == ["hyper1: done", "hyper1: done"]
    # This host reports the same leftovers again.
    assert (len(answer["findings"]), is_well) == (3, False)


def test_an_interrupted_order_is_settled(doctored_cloud, kill_at):
    kill_at("order.keyed", doctored_cloud.init)
    assert named_subjects(doctored_cloud)[0] == ("order", "web")

    answer, is_well = look(doctored_cloud, fix=True)

    assert is_well, answer
    assert (
        answer["mended"][0] == "order web: what an interrupted virt.init had begun was taken back"
    )
    assert minionkeys.read_accepted(doctored_cloud.opts, "web") is None


def leave_an_order(doctored_cloud):
    """Leave the order of an interrupted command."""
    with orders.opened(doctored_cloud.opts, "web") as order:
        orders.begin(order, orders.PLACING)


def test_outcomes_are_reported_though_the_masters_disk_is_full(doctored_cloud, monkeypatch):
    doctored_cloud.hosts.does["virt.authorized"] = lambda *_args, **_kwarg: None
    authorization.grant(doctored_cloud.master, "old", "hyper1", minutes=1, replace=False)
    path = authorization._file(doctored_cloud.opts, "old").path
    path.write_text(path.read_text().replace('"until": ', '"until": 0, "was": '))
    leave_an_order(doctored_cloud)

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mend.interrupted, "settle", full)
    answer, is_well = look(doctored_cloud, fix=True)

    assert (answer["mended"], is_well) == (["authorization old: revoked"], False)
    assert answer["failed"] == ["order web: [Errno 28] No space left on device"]


def test_a_running_command_is_not_named(doctored_cloud):
    with orders.opened(doctored_cloud.opts, "web") as order:
        orders.begin(order, orders.PLACING)

        assert named_subjects(doctored_cloud) == []


def test_only_expired_authorizations_are_revoked(doctored_cloud):
    doctored_cloud.hosts.does["virt.authorized"] = lambda *_args, **_kwarg: None
    for name, minutes in (("old", 1), ("new", 60)):
        authorization.grant(doctored_cloud.master, name, "hyper1", minutes=minutes, replace=False)
    path = authorization._file(doctored_cloud.opts, "old").path
    path.write_text(path.read_text().replace('"until": ', '"until": 0, "was": '))

    answer, is_well = look(doctored_cloud, fix=True)

    assert (answer["mended"], is_well) == (["authorization old: revoked"], True)
    assert list(authorization.list_unused(doctored_cloud.opts)) == ["new"]


def test_a_lock_that_no_command_holds_is_removed(doctored_cloud):
    folder = orders.folder(doctored_cloud.opts) / orders.PURPOSE
    folder.mkdir(parents=True)
    (folder / "web.lock").touch()
    assert named_subjects(doctored_cloud) == [("lock", str(folder / "web.lock"))]

    assert look(doctored_cloud, fix=True)[1] is True
    assert list(folder.iterdir()) == []


def test_progress_names_each_step_before_it_runs(doctored_cloud):
    leave_an_order(doctored_cloud)
    answer = []
    master = run.replace(
        doctored_cloud.master, progress=lambda stage, **more: answer.append((stage, more))
    )

    run.doctor(master, NOW, fix=True)

    assert [stage for stage, _more in answer] == ["Looking", "Mending"]
    assert answer[1][1]["detail"].startswith(f"{MASTER}: a command for VM web")


def test_a_wrong_argument_is_refused(doctored_cloud):
    with pytest.raises(BadArgument):
        look(doctored_cloud, fix="maybe")


@pytest.mark.parametrize(
    ("silent_at", "expected"),
    [
        ({0}, [("key", "web")]),
        ({1}, [("key", "web")]),
        ({1, 2, 3}, [("not-checked", "hyper2")]),
        ({0, 2}, [("not-checked", "hyper2")]),
    ],
)
def test_a_host_that_is_silent_once_leaves_the_cloud_unproved(
    doctored_cloud, monkeypatch, silent_at, expected
):
    """No key is judged while a host is silent, so no two looks find this one."""
    minionkeys.accept(doctored_cloud.opts, "web", "K")
    host_looks = []

    def next_look(_s):
        was_silent = len(host_looks) in silent_at
        host_looks.append(_s)
        if was_silent != (len(host_looks) in silent_at):
            doctored_cloud.hosts.silence("hyper2", is_silent=not was_silent)

    if 0 in silent_at:
        doctored_cloud.hosts.silence("hyper2")
    monkeypatch.setattr(run.time, "sleep", next_look)

    assert named_subjects(doctored_cloud) == expected
