"""Where VMs were last seen: the record of a host counts only while the host is silent."""

import json
import threading
import time
from pathlib import Path

import pytest
from saltvirt.cluster.inventory import inventory, lastlisted, lastseen
from saltvirt.cluster.inventory.lastseen import ReportedNames
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.presence import VmPresence, find_hosts
from saltvirt.cluster.inventory.whereabouts import Purpose
from saltvirt.core.errors import NameTaken, NoSuchVm
from saltvirt.core.salt import compat
from saltvirt.placement.shownvms import ListedVm

HERE = {"hyper1": ["db", "web"], "hyper2": ["mail"]}


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (ReportedNames(), HERE),
        (ReportedNames(names_by_host={"hyper1": ["web"]}), {"hyper1": ["web"], "hyper2": ["mail"]}),
        (ReportedNames(names_by_host={"hyper1": []}), {"hyper2": ["mail"]}),
        (ReportedNames(names_by_host={"hyper3": {"web": 1}}), {**HERE, "hyper3": ["web"]}),
        (
            ReportedNames(names_by_host={h: ["web"] for h in HERE}),
            {"hyper1": ["web"], "hyper2": ["web"]},
        ),
        (
            ReportedNames(name="db", presence_by_host={"hyper1": VmPresence()}),
            {"hyper1": ["web"], "hyper2": ["mail"]},
        ),
        (
            ReportedNames(name="db", presence_by_host={"hyper2": VmPresence(state="running")}),
            {"hyper1": ["db", "web"], "hyper2": ["db", "mail"]},
        ),
        (
            ReportedNames(
                name="db",
                presence_by_host={"hyper2": VmPresence(state="shutdown", moved_to="hyper1")},
            ),
            HERE,
        ),
        (ReportedNames(names_by_host={"hyper3": ["x" * 64, "", 7]}), HERE),
    ],
)
def test_an_answer_replaces_the_names_of_its_host_and_silent_hosts_keep_theirs(report, expected):
    assert lastseen.merge_report(HERE, report) == expected


def test_a_move_puts_a_name_on_one_host():
    assert lastseen.place_name(HERE, "web", "hyper2") == {
        "hyper1": ["db"],
        "hyper2": ["mail", "web"],
    }
    assert lastseen.place_name(HERE, "mail", None) == {"hyper1": ["db", "web"]}


def test_a_host_that_makes_names_up_fills_no_disk():
    many_names = [f"vm{n}" for n in range(100_000)]

    assert (
        len(
            lastseen.merge_report({}, ReportedNames(names_by_host={"hyper1": many_names}))["hyper1"]
        )
        <= 4096
    )


def test_a_moving_vm_is_no_duplicate():
    arriving = {"h1": VmPresence(state="running"), "h2": VmPresence(state="paused", building=True)}

    assert find_hosts(arriving) == ["h1"]
    assert find_hosts({"h2": arriving["h2"]}) == ["h2"]
    assert find_hosts({**arriving, "h3": VmPresence(state="shutdown")}) == ["h1", "h3"]


def test_a_kept_definition_is_no_duplicate():
    presence_by_host = {"h0": VmPresence(state="shutdown", moved_to="h1")}

    assert find_hosts({**presence_by_host, "h1": VmPresence(state="running")}) == ["h1"]
    assert find_hosts({**presence_by_host, "h1": VmPresence(state="paused", building=True)}) == [
        "h1"
    ]
    # The definition can still be removed if no other host has the VM.
    assert find_hosts(presence_by_host) == ["h0"]


@pytest.mark.parametrize("command", ["init", "dry_run"])
def test_a_name_that_a_silent_host_has_is_not_given_away(cloud, command):
    cloud.init("web", image=None)
    (host,) = cloud.hosts.where("web")
    cloud.hosts.silence(host)

    with pytest.raises(NameTaken) as caught:
        getattr(cloud, command)("web")

    assert str(caught.value) == (
        f"VM 'web' may be on {host} (does not answer); try again when {host} can be asked, or, if "
        "you know that the VM is not there any more, give force=True"
    )
    assert cloud.init("db", image=None)["host"] != host


@pytest.mark.parametrize(("fun", "arg"), [("virt.host_info", []), ("virt.presence", ["web"])])
def test_a_name_of_a_silent_host_stays_taken_though_another_host_had_it_since(cloud, fun, arg):
    cloud.init("web", image=None)
    (host,) = cloud.hosts.where("web")
    cloud.hosts.silence(host)
    cloud.hosts.put("hyper3", "web")
    inventory.survey(cloud.master, inventory.all_hosts(cloud.master), fun, arg)
    # The operator removes a wrong one there; or the host has only claimed the VM.
    cloud.hosts.remove("hyper3", "web")

    with pytest.raises(NameTaken, match=f"may be on {host} "):
        cloud.init("web", image=None)


def test_a_survey_records_the_vms_it_has_seen(cloud):
    cloud.hosts.put("hyper3", "web", "shutdown")
    inventory.overview(cloud.master, "virt.full_info")
    cloud.hosts.silence("hyper3")

    with pytest.raises(NameTaken, match="may be on hyper3"):
        cloud.init("web", image=None)
    with pytest.raises(NoSuchVm, match="not asked: hyper3; it was last seen on hyper3"):
        locate(cloud.master, "web", Purpose.ACT)
    with pytest.raises(NoSuchVm, match=r"not asked: hyper3 \(does not answer\)"):
        locate(cloud.master, "other", Purpose.ACT)


def test_a_duplicate_that_was_forced_is_named_and_not_started(cloud):
    cloud.init("web", image=None)
    cloud.hosts.silence("hyper1")
    assert cloud.init("web", image=None, force=True)["host"] == "hyper2"
    cloud.hosts.silence("hyper1", False)

    survey = inventory.overview(cloud.master, "virt.full_info")

    assert survey.errors_by_kind() == {"duplicates": {"web": ["hyper1", "hyper2"]}}
    for command in (
        lambda: locate(cloud.master, "web", Purpose.ACT).host,
        lambda: cloud.init("web"),
        lambda: cloud.purge("web"),
    ):
        with pytest.raises(NameTaken, match="on hyper1 and hyper2: look at each .*WRONG-HOST"):
            command()
    cloud.hosts.remove("hyper1", "web")
    assert inventory.overview(cloud.master, "virt.host_info").errors_by_kind() == {}


def test_a_vm_that_moves_is_not_a_duplicate(cloud):
    cloud.hosts.put("hyper1", "web")
    cloud.hosts.put("hyper2", "web", "paused", building=True)

    assert inventory.overview(cloud.master, "virt.full_info").errors_by_kind() == {}
    assert locate(cloud.master, "web", Purpose.ACT).host == "hyper1"


def test_a_host_removed_from_the_cloud_holds_no_names(cloud, opts):
    lastseen.record_move(opts, "web", "hyper9")
    compat.KeyStore(opts).accept("hyper9", "a key")

    with pytest.raises(NameTaken, match="may be on hyper9 "):
        cloud.init("web", image=None)
    compat.KeyStore(opts).discard("hyper9")
    assert cloud.init("web", image=None)["host"] == "hyper1"
    assert lastseen.find_hosts(opts, "web") == ["hyper1"]


def test_a_purged_vm_is_no_longer_recorded(cloud, opts):
    cloud.init()
    cloud.purge()

    assert lastseen.find_hosts(opts, "web") == []


def test_last_seen_vms_are_written_only_when_they_change(opts):
    report = ReportedNames(
        names_by_host={f"hyper{h}": [f"vm{h}-{n}" for n in range(20)] for h in range(1000)}
    )
    lastseen.refresh(opts, report)
    path = lastseen._file(opts).path
    stat_before, begin = path.stat(), time.process_time()

    lastseen.refresh(opts, report)

    assert time.process_time() - begin < 1
    assert path.stat().st_ino == stat_before.st_ino and stat_before.st_size < 300_000
    assert stat_before.st_mode & 0o777 == 0o600
    lastseen.record_move(opts, "vm1-1", "hyper2")
    assert path.stat().st_ino != stat_before.st_ino


def test_surveys_at_once_lose_nothing(opts):
    def refresh(number):
        for n in range(20):
            lastseen.record_move(opts, f"vm{number}-{n}", f"hyper{number}")

    threads = [threading.Thread(target=refresh, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(
        lastseen.find_hosts(opts, f"vm{number}-{n}") == [f"hyper{number}"]
        for number in range(4)
        for n in range(20)
    )


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 1}', '{"version": 1, "hosts": {"h": 1}}', '{"version": 9}']
)
def test_unreadable_last_seen_vms_stop_no_command(opts, caplog, text):
    lastseen.record_move(opts, "web", "hyper1")
    lastseen._file(opts).path.write_text(text)

    assert lastseen.find_hosts(opts, "web") == []
    assert "it is written anew" in caplog.text
    lastseen.record_move(opts, "web", "hyper1")
    assert json.loads(lastseen._file(opts).path.read_text())["hosts"] == {"hyper1": ["web"]}


def test_last_seen_vms_that_cannot_be_written_stop_no_command(opts, caplog):
    lastseen._file(opts).path.parent.write_text("a file where the folder should be")

    lastseen.record_move(opts, "web", "hyper1")

    assert "cannot be written" in caplog.text


@pytest.mark.parametrize(("force", "unasked"), [(False, ["hyper3"]), (True, [])])
def test_a_purge_tells_the_host_which_others_may_need_the_disks(cloud, force, unasked):
    for name in ("we", "web_a", "webb"):
        cloud.hosts.put("hyper2", name)
    # The host itself created the VM, so the master does not know it.
    cloud.hosts.put("hyper3", "web")
    cloud.hosts.silence("hyper3")

    cloud.init(force=force)

    ((host, _fun, kwarg),) = cloud.hosts.sent
    report = kwarg["report"]
    expected = {"unasked": unasked, "others": ["web_a"], "images": {}}
    assert report == {**expected, "uuid": report["uuid"]}
    assert host == "hyper1"


def test_rows_of_an_unknown_host_are_forgotten(opts):
    rows = {host: {"web1": ListedVm(state="running", mem_mib=512)} for host in ("hyper1", "hyper2")}
    lastlisted.remember(opts, rows)

    lastseen.drop_unknown_hosts(opts, lambda host: host == "hyper2")

    assert lastlisted.read(opts, ["hyper1", "hyper2"]) == {"hyper2": rows["hyper2"]}


def test_a_host_whose_vms_are_all_gone_has_no_rows(opts):
    lastlisted.remember(opts, {"hyper1": {"web1": ListedVm(state="running")}})
    lastlisted.remember(opts, {"hyper1": {}})

    assert lastlisted.read(opts, ["hyper1"]) == {}
    assert lastlisted.read(opts, []) == {}


def test_unreadable_rows_count_as_none(opts):
    lastlisted.remember(opts, {"hyper1": {"web1": ListedVm(state="running")}})
    (Path(opts["cachedir"]) / "salt-virt" / "listed.json").write_text('{"version": 1, "hosts": 7}')

    assert lastlisted.read(opts, ["hyper1"]) == {}
