"""A source with *leaving* on record, while its target no longer has the VM."""

import pytest
from saltvirt.migration.master import migrate, recovery, settle


@pytest.fixture
def leaving_cloud(four_hosts):
    """Four hosts. web's source h1 has noted *leaving*; its job died right after that."""
    four_hosts.put("web", "h1", autostart=True, state="shutdown")
    four_hosts.silent.add(("h1", "virt.migrate_step finish"))
    with pytest.raises(recovery.Unsettled):
        migrate.migrate(four_hosts.master, "web", "h2", {})
    four_hosts.silent.clear()
    four_hosts.departures["h1", "web"]["phase"] = "leaving"
    return four_hosts


def _reinstall(cloud, host):
    cloud.hosts[host].clear()
    for records in (cloud.arrivals, cloud.departures):
        records.pop((host, "web"), None)


def _ended(cloud, **options):
    return settle.settle_all(cloud.master, "web", **options)["settled"]["web"]


@pytest.mark.parametrize("is_on_record", [True, False])
def test_an_only_copy_waits_for_its_operator(leaving_cloud, is_on_record):
    if is_on_record:
        leaving_cloud.hosts["h2"].clear()  # virsh undefine
    else:
        _reinstall(leaving_cloud, "h2")

    with pytest.raises(recovery.Unsettled, match="h2, which does not have it any more.*keep=h1"):
        settle.settle_all(leaving_cloud.master, "web")
    with pytest.raises(recovery.Unsettled, match="h1 answers, so it is not lost"):
        settle.settle_all(leaving_cloud.master, "web", keep="h2")
    assert ("h1", "web") in leaving_cloud.away and ("h1", "web") in leaving_cloud.departures

    assert _ended(leaving_cloud, keep="h1") == "stays on h1"
    assert leaving_cloud.where("web") == ["h1"] and leaving_cloud.is_settled()
    assert leaving_cloud.hosts["h1"]["web"]["autostart"]


def test_by_force_the_move_is_forgotten_and_the_files_stay(leaving_cloud):
    _reinstall(leaving_cloud, "h2")

    outcome = _ended(leaving_cloud, force=True)

    assert outcome.startswith("was given up, and nothing was removed on h1; h1: its files are left")
    assert not leaving_cloud.departures and ("h1", "web") in leaving_cloud.away


def test_the_operators_word_ends_the_move_of_a_vm_on_a_third_host(leaving_cloud):
    """By virsh migrate from h2 to h3, with the arrival still on record on h2."""
    leaving_cloud.put("web", "h3", state="running")
    leaving_cloud.hosts["h2"].clear()

    with pytest.raises(recovery.Unsettled, match="'web' is on h3.*keep=h3"):
        settle.settle_all(leaving_cloud.master, "web")
    assert ("h1", "web") in leaving_cloud.away

    assert _ended(leaving_cloud, keep="h3").startswith("is on h3; h1: its files are left there")
    assert not leaving_cloud.departures and not leaving_cloud.arrivals


def test_a_silent_third_host_may_have_it(leaving_cloud):
    _reinstall(leaving_cloud, "h2")
    leaving_cloud.silent.add("h3")

    with pytest.raises(recovery.Unsettled, match="h3 .* may have it, and cannot be asked"):
        settle.settle_all(leaving_cloud.master, "web")
    with pytest.raises(recovery.Unsettled, match="h3 .* may have it, and cannot be asked"):
        settle.settle_all(leaving_cloud.master, "web", keep="h1")
    assert ("h1", "web") in leaving_cloud.away

    assert _ended(leaving_cloud, keep="h1", force=True) == "stays on h1"


def test_a_target_that_has_it_is_not_asked_about_by_others(leaving_cloud):
    leaving_cloud.silent.add("h3")

    assert _ended(leaving_cloud) == "has moved to h2"
    assert leaving_cloud.where("web") == ["h2"] and leaving_cloud.is_settled()
