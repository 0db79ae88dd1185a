"""Pools on libvirt's test driver: what 3006 answered, in its shapes."""

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


def said(name, change, comment=None):
    """Return what 3006 said with test=True, in the real run and in the second."""
    done = {"name": name, "changes": {name: f"Pool {change}"}, "comment": f"Pool {name} {change}"}
    return [{**done, "result": None}, {**done, "result": True}]


# Recorded of 3006.25 on test:///default; salt/states/virt.py:1839-2175
STEPS = [
    ("pool_defined", "p1", {"target": "/srv/p1"}, "defined, marked for autostart", "unchanged"),
    ("pool_running", "p1", {"target": "/srv/p1"}, "started", "already running"),
    ("pool_running", "p2", {"target": "/srv/p2", "autostart": False}, "defined, started", None),
]


def test_the_states_of_pools_say_what_3006_said(applied):
    for function, name, given, change, idle in STEPS:
        *done, again = applied(function, name, ptype="dir", **given)

        assert done == said(name, change)
        comment = f"Pool {name} {idle or 'already running'}"
        assert again == {"name": name, "changes": {}, "result": True, "comment": comment}


def test_a_stopped_pool_is_updated_and_built_and_one_more_look_changes_nothing(virt, applied):
    applied("pool_defined", "p2", target="/srv/p2")

    *done, again = applied("pool_defined", "p2", ptype="dir", target="/srv/p3")

    assert done == said("p2", "updated, built") and again["changes"] == {}
    assert virt.pool_info("p2")["p2"]["target_path"] == "/srv/p3"


def test_a_secret_in_capitals_has_no_pool_updated_each_time(applied):
    secret = {"type": "uuid", "value": "2EC115D7-3A88-3CEB-BC12-0AC909A6FD87"}
    source = {"name": "p", "hosts": ["m1"], "auth": {"username": "a", "secret": secret}}

    *done, again = applied("pool_defined", "ceph", ptype="rbd", source=source)

    assert done == said("ceph", "defined, marked for autostart") and again["changes"] == {}


def test_the_flag_alone_is_a_change_that_is_said(virt, applied):
    applied("pool_running", "p2", target="/srv/p2", autostart=False)

    *done, again = applied("pool_running", "p2", target="/srv/p2")

    assert done == said("p2", "autostart flag changed") and again["changes"] == {}
    assert virt.pool_info("p2")["p2"]["autostart"] == 1


def test_a_running_pool_is_left_as_it_is_where_nothing_is_said(applied):
    applied("pool_running", "p1", target="/srv/p1")

    for answer in applied("pool_running", "p1"):
        assert (answer["changes"], answer["result"]) == ({}, True)
    missing = applied("pool_running", "p9")
    assert {one["result"] for one in missing} == {False}
    assert "ptype: is missing, and there is no pool 'p9' yet" in missing[0]["comment"]


def test_a_transient_pool_is_started_and_needs_no_flag(virt, applied):
    given = {"ptype": "dir", "target": "/srv/tr", "transient": True}
    *done, again = applied("pool_running", "tr", **given)

    assert done == said("tr", "defined, started") and again["changes"] == {}
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


@pytest.mark.parametrize(("pool", "purge", "gone", "comment"), DELETED)
def test_a_pool_is_deleted_as_on_3006(virt, applied, pool, purge, gone, comment):
    ptype, target, source = pool
    applied("pool_running", "p1", ptype=ptype, target=target, source=source)
    if ptype == "dir":
        virt.volume_define("p1", "v", 1)

    would, done, again = applied("pool_deleted", "p1", purge=purge)

    changes = {
        "stopped": True,
        "deleted": purge and ptype == "dir",
        "undefined": True,
        "deleted_volumes": gone,
    }
    assert would == {"name": "p1", "changes": changes, "result": None, "comment": comment}
    assert done == {**would, "result": True}
    idle = "Storage pool could not be found: p1"
    assert again == {"name": "p1", "changes": {}, "result": True, "comment": idle}
    assert virt.list_pools() == ["default-pool"]


@pytest.mark.parametrize("purge", [True, False])
def test_a_pool_that_does_not_run_is_undefined_and_its_volumes_stay(conn, virt, applied, purge):
    applied("pool_running", "p1", target="/srv/p1")
    virt.volume_define("p1", "v", 1)
    conn.storagePoolLookupByName("p1").destroy()

    would, done, _again = applied("pool_deleted", "p1", purge=purge)

    steps = {"stopped": False, "deleted": False, "undefined": True, "deleted_volumes": []}
    assert would["changes"] == done["changes"] == steps
    assert done["result"] is True
    assert virt.list_pools() == ["default-pool"]


def test_a_pool_with_a_volume_of_a_vm_that_runs_is_not_purged(conn, virt, applied):
    applied("pool_running", "p1", target="/srv/p1")
    virt.volume_define("p1", "v", 1)
    conn.createXML(DOMAIN.format("d1", "volume", "pool='p1' volume='v'"))

    answers = applied("pool_deleted", "p1", purge=True)

    assert {(one["result"], str(one["changes"])) for one in answers} == {(False, "{}")}
    assert "v by d1; stop them first" in answers[0]["comment"]
    with pytest.raises(StorageError, match="VM 'd1' runs and uses volume p1/v; stop it first"):
        virt.volume_delete("p1", "v")
    assert virt.pool_list_volumes("p1") == ["v"]


def test_an_absent_pool_is_stopped_and_undefined_once(virt, applied):
    applied("pool_running", "p1", target="/srv/p1")

    *done, again = applied("pool_absent", "p1")

    assert done == said("p1", "stopped, undefined")
    assert (again["changes"], again["result"]) == ({}, True)


def test_a_volume_is_defined_as_on_3006(virt, applied):
    applied("pool_running", "p1", target="/srv/p1")

    # Recorded of 3006.25; salt/states/virt.py:2306
    would, done, again = applied("volume_defined", "p1", "v", 8, format="qcow2")
    changes = {"p1/v": {"old": "", "new": "defined"}}
    comment = "Volume v would be defined in pool p1"
    assert would == {"name": "v", "changes": changes, "result": None, "comment": comment}
    assert done == {**would, "result": True, "comment": "Volume v defined in pool p1"}
    assert again == {"name": "v", "changes": {}, "result": True, "comment": "volume is existing"}
    for answer in applied("volume_defined", "p1", "v", 9, format="qcow2"):
        words = "The capacity of the volume is different, but no resize performed"
        assert answer == {"name": "v", "changes": {}, "result": True, "comment": words}
    for answer in applied("volume_defined", "p1", "v", 8, format="raw"):
        words = "A volume with the same name but different backing store or format is existing"
        assert answer == {"name": "v", "changes": {}, "result": False, "comment": words}
    (answer, *_rest) = applied("volume_defined", "nope", "v", 8)
    assert answer["result"] is False and "no storage pool with matching name" in answer["comment"]


def test_the_spelling_of_the_release_before_is_accepted(applied, virt):
    source = {"host": "nas1", "dir": "/export", "format": "nfs"}
    applied("pool_defined", "n1", ptype="netfs", target="/mnt/n", source=source)
    both = applied("pool_defined", "n1", source={**source, "hosts": ["nas1"]})

    assert "<host name='nas1'/>" in virt.pool_get_xml("n1")
    assert "without host and device beside them" in both[0]["comment"]


def test_a_pool_that_cannot_be_started_is_not_left_defined(conn, virt, monkeypatch):
    """The test driver starts whatever is defined, so a source that is taken makes it fail."""
    virt.pool_define("a", "logical", source_devices=["/dev/sdx"])

    with pytest.raises(LibvirtRefused, match="Storage source conflict with pool: 'a'"):
        virt.pool_define("b", "disk", target="/dev", source_devices=["/dev/sdx"])
    with pytest.raises(LibvirtRefused, match="already exists"):
        virt.pool_define("a", "logical")
    assert virt.list_pools() == ["a", "default-pool"]


class Busy:
    """Stand for a pool in which libvirt is at a volume: its test driver has no such jobs."""

    def __init__(self, times):
        self.times = times

    def storagePoolLookupByName(self, _name):
        return self

    def refresh(self, _flags):
        self.times -= 1
        if self.times >= 0:
            raise libvirt.libvirtError("pool 'p1' has asynchronous jobs running.")


@pytest.mark.slow
def test_whoever_is_at_a_volume_of_a_pool_is_waited_for():
    pool = Busy(2)

    hostfacts.refresh_pool(pool, "p1")

    assert pool.times == -1
    with pytest.raises(StorageError, match="'p1', .* try again when that is over"):
        hostfacts.refresh_pool(Busy(9), "p1", patience_s=0)


def test_what_is_taken_back_is_so_whoever_is_at_its_pool(caplog):
    hostfacts.forget_removed(Busy(9), "p1")

    assert "storage pool p1 was not refreshed" in caplog.text
