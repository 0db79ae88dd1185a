"""Pools on libvirt's test driver, with the answers of Salt 3006."""

import pytest
from saltvirt.core.errors import LibvirtRefused, StorageError
from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.connect import libvirt

GIB100 = 107374182400
DOMAIN = """<domain type='test'><name>{}</name><memory>65536</memory><os><type>hvm</type></os>
<devices><disk type='{}' device='disk'><source {}/><target dev='vda'/></disk></devices></domain>"""


def test_the_answers_have_the_shapes_of_3006(virt):
    # Recorded of 3006.25 on test:///default; salt/modules/virt.py:7882-8894
    assert virt.list_pools() == ["default-pool"]
    assert virt.pool_info("nope") == {}
    assert virt.volume_infos("nope") == {}
    assert virt.pool_info() == {
        "default-pool": {
            "uuid": "dfe224cb-28fb-8dd0-c4b2-64eb3f0f4566",
            "state": "running",
            "capacity": GIB100,
            "allocation": 0,
            "free": GIB100,
            "autostart": 0,
            "persistent": 1,
            "target_path": "/default-pool",
            "type": "dir",
        }
    }
    assert virt.pool_define("vms", "dir", target="/srv/vms", start=False) is True
    assert virt.pool_update("vms", "dir", target="/srv/vms") is False
    assert virt.pool_update("vms", "dir", target="/srv/vms2", test=True) is True
    assert virt.pool_update("vms", "dir", target="/srv/vms2") is True
    for name in ("build", "start", "refresh", "set_autostart"):
        assert getattr(virt, f"pool_{name}")("vms") is True
    assert "<path>/srv/vms2</path>" in virt.pool_get_xml("vms")
    assert virt.volume_define("vms", "a.qcow2", 8, format="qcow2") is True
    assert virt.pool_list_volumes("vms") == ["a.qcow2"]
    assert virt.volume_infos("vms") == {
        "vms": {
            "a.qcow2": {
                "type": "file",
                "key": "/srv/vms2/a.qcow2",
                "path": "/srv/vms2/a.qcow2",
                "capacity": 8388608,
                "allocation": 0,
                "used_by": [],
                "backing_store": None,
                "format": "qcow2",
            }
        }
    }
    xml = "<volume><name>d1</name><capacity>65536</capacity></volume>"
    assert virt.define_vol_xml_str(xml, "vms") is True
    assert virt.volume_delete("vms", "a.qcow2") is True
    for name in ("stop", "delete", "undefine"):
        assert getattr(virt, f"pool_{name}")("vms") is True
    assert virt.list_pools() == ["default-pool"]


def expected_answers(name, change, comment=None):
    """Return what 3006 returned with test=True, and in the real run."""
    answer = {"name": name, "changes": {name: f"Pool {change}"}, "comment": f"Pool {name} {change}"}
    return [{**answer, "result": None}, {**answer, "result": True}]


# Recorded of 3006.25 on test:///default; salt/states/virt.py:1839-2175
STEPS = [
    ("pool_defined", "p1", {"target": "/srv/p1"}, "defined, marked for autostart", "unchanged"),
    ("pool_running", "p1", {"target": "/srv/p1"}, "started", "already running"),
    ("pool_running", "p2", {"target": "/srv/p2", "autostart": False}, "defined, started", None),
]


def test_the_states_of_pools_return_what_3006_returned(applied):
    for function, name, options, change, idle in STEPS:
        *answers, rerun = applied(function, name, ptype="dir", **options)

        assert answers == expected_answers(name, change)
        comment = f"Pool {name} {idle or 'already running'}"
        assert rerun == {"name": name, "changes": {}, "result": True, "comment": comment}


def test_a_stopped_pool_is_updated_and_built_once(virt, applied):
    applied("pool_defined", "p2", target="/srv/p2")

    *answers, rerun = applied("pool_defined", "p2", ptype="dir", target="/srv/p3")

    assert answers == expected_answers("p2", "updated, built") and rerun["changes"] == {}
    assert virt.pool_info("p2")["p2"]["target_path"] == "/srv/p3"


def test_a_secret_in_capitals_has_no_pool_updated_each_time(applied):
    secret = {"type": "uuid", "value": "2EC115D7-3A88-3CEB-BC12-0AC909A6FD87"}
    source = {"name": "p", "hosts": ["m1"], "auth": {"username": "a", "secret": secret}}

    *answers, rerun = applied("pool_defined", "ceph", ptype="rbd", source=source)

    assert (
        answers == expected_answers("ceph", "defined, marked for autostart")
        and rerun["changes"] == {}
    )


def test_a_change_of_the_flag_alone_is_reported(virt, applied):
    applied("pool_running", "p2", target="/srv/p2", autostart=False)

    *answers, rerun = applied("pool_running", "p2", target="/srv/p2")

    assert answers == expected_answers("p2", "autostart flag changed") and rerun["changes"] == {}
    assert virt.pool_info("p2")["p2"]["autostart"] == 1


def test_a_running_pool_is_left_as_it_is_without_options(applied):
    applied("pool_running", "p1", target="/srv/p1")

    for answer in applied("pool_running", "p1"):
        assert (answer["changes"], answer["result"]) == ({}, True)
    answers = applied("pool_running", "p9")
    assert {reply["result"] for reply in answers} == {False}
    assert "ptype: is missing, and there is no pool 'p9' yet" in answers[0]["comment"]


def test_a_transient_pool_is_started_and_needs_no_flag(virt, applied):
    options = {"ptype": "dir", "target": "/srv/tr", "transient": True}
    *answers, rerun = applied("pool_running", "tr", **options)

    assert answers == expected_answers("tr", "defined, started") and rerun["changes"] == {}
    assert virt.pool_info("tr")["tr"]["persistent"] == 0


NETWORK = {"hosts": ["a:1", "b"], "name": "x"}
# salt/states/virt.py:2176
DELETED = [
    (("dir", "/srv/p1", None), True, ["v"], ""),
    (("dir", "/srv/p1", None), False, [], ""),
    (
        ("rbd", None, NETWORK),
        True,
        [],
        'Unsupported actions for pool of type "rbd": deleting pool',
    ),
]


@pytest.mark.parametrize(("pool", "purge", "deleted_volumes", "comment"), DELETED)
def test_a_pool_is_deleted_as_on_3006(virt, applied, pool, purge, deleted_volumes, comment):
    ptype, target, source = pool
    applied("pool_running", "p1", ptype=ptype, target=target, source=source)
    if ptype == "dir":
        virt.volume_define("p1", "v", 1)

    prediction, answer, rerun = applied("pool_deleted", "p1", purge=purge)

    changes = {
        "stopped": True,
        "deleted": purge and ptype == "dir",
        "undefined": True,
        "deleted_volumes": deleted_volumes,
    }
    assert prediction == {"name": "p1", "changes": changes, "result": None, "comment": comment}
    assert answer == {**prediction, "result": True}
    idle = "Storage pool could not be found: p1"
    assert rerun == {"name": "p1", "changes": {}, "result": True, "comment": idle}
    assert virt.list_pools() == ["default-pool"]


@pytest.mark.parametrize("purge", [True, False])
def test_a_pool_that_does_not_run_is_undefined_and_its_volumes_stay(conn, virt, applied, purge):
    applied("pool_running", "p1", target="/srv/p1")
    virt.volume_define("p1", "v", 1)
    conn.storagePoolLookupByName("p1").destroy()

    prediction, answer, _rerun = applied("pool_deleted", "p1", purge=purge)

    steps = {"stopped": False, "deleted": False, "undefined": True, "deleted_volumes": []}
    assert prediction["changes"] == answer["changes"] == steps
    assert answer["result"] is True
    assert virt.list_pools() == ["default-pool"]


def test_a_pool_with_a_volume_of_a_vm_that_runs_is_not_purged(conn, virt, applied):
    applied("pool_running", "p1", target="/srv/p1")
    virt.volume_define("p1", "v", 1)
    conn.createXML(DOMAIN.format("d1", "volume", "pool='p1' volume='v'"))

    answers = applied("pool_deleted", "p1", purge=True)

    assert {(answer["result"], str(answer["changes"])) for answer in answers} == {(False, "{}")}
    assert "v by d1; stop them first" in answers[0]["comment"]
    with pytest.raises(StorageError, match="VM 'd1' runs and uses volume p1/v; stop it first"):
        virt.volume_delete("p1", "v")
    assert virt.pool_list_volumes("p1") == ["v"]


def test_an_absent_pool_is_stopped_and_undefined_once(virt, applied):
    applied("pool_running", "p1", target="/srv/p1")

    *answers, rerun = applied("pool_absent", "p1")

    assert answers == expected_answers("p1", "stopped, undefined")
    assert (rerun["changes"], rerun["result"]) == ({}, True)


def test_a_volume_is_defined_as_on_3006(virt, applied):
    applied("pool_running", "p1", target="/srv/p1")

    # Recorded of 3006.25; salt/states/virt.py:2306
    prediction, run, rerun = applied("volume_defined", "p1", "v", 8, format="qcow2")
    changes = {"p1/v": {"old": "", "new": "defined"}}
    comment = "Volume v would be defined in pool p1"
    assert prediction == {"name": "v", "changes": changes, "result": None, "comment": comment}
    assert run == {**prediction, "result": True, "comment": "Volume v defined in pool p1"}
    assert rerun == {"name": "v", "changes": {}, "result": True, "comment": "volume is existing"}
    for answer in applied("volume_defined", "p1", "v", 9, format="qcow2"):
        words = "The capacity of the volume is different, but no resize performed"
        assert answer == {"name": "v", "changes": {}, "result": True, "comment": words}
    for answer in applied("volume_defined", "p1", "v", 8, format="raw"):
        words = "A volume with the same name but different backing store or format is existing"
        assert answer == {"name": "v", "changes": {}, "result": False, "comment": words}
    (answer, *_rerun) = applied("volume_defined", "nope", "v", 8)
    assert answer["result"] is False and "no storage pool with matching name" in answer["comment"]


def test_the_spelling_of_the_release_before_is_accepted(applied, virt):
    source = {"host": "nas1", "dir": "/export", "format": "nfs"}
    applied("pool_defined", "n1", ptype="netfs", target="/mnt/n", source=source)
    answers = applied("pool_defined", "n1", source={**source, "hosts": ["nas1"]})

    assert "<host name='nas1'/>" in virt.pool_get_xml("n1")
    assert "without host and device beside them" in answers[0]["comment"]


def test_a_pool_that_cannot_be_started_is_not_left_defined(conn, virt, monkeypatch):
    """The test driver starts any definition; a source that is in use makes the start fail."""
    virt.pool_define("a", "logical", source_devices=["/dev/sdx"])

    with pytest.raises(LibvirtRefused, match="Storage source conflict with pool: 'a'"):
        virt.pool_define("b", "disk", target="/dev", source_devices=["/dev/sdx"])
    with pytest.raises(LibvirtRefused, match="already exists"):
        virt.pool_define("a", "logical")
    assert virt.list_pools() == ["a", "default-pool"]


class Busy:
    """Stand for a pool with a job of libvirt on a volume: the test driver has no such jobs."""

    def __init__(self, times):
        self.times = times

    def storagePoolLookupByName(self, _name):
        return self

    def refresh(self, _flags):
        self.times -= 1
        if self.times >= 0:
            raise libvirt.libvirtError("pool 'p1' has asynchronous jobs running.")


@pytest.mark.slow
def test_a_job_on_a_volume_of_a_pool_is_waited_for():
    pool = Busy(2)

    hostfacts.refresh_pool(pool, "p1")

    assert pool.times == -1
    with pytest.raises(StorageError, match="'p1', .* try again when that is over"):
        hostfacts.refresh_pool(Busy(9), "p1", patience_s=0)


def test_a_removal_succeeds_while_its_pool_is_busy(caplog):
    hostfacts.forget_removed(Busy(9), "p1")

    assert "storage pool p1 was not refreshed" in caplog.text
