"""The laws of a life find what is planted, and nothing in a cloud that is as it should be."""

import copy

import pytest
from lifelaws import OWN, Fates, always, at_rest

ROOM_MIB, DISK = 512, "vm-a_system.qcow2"
DOMAIN = {
    "uuid": "1",
    "is_up": True,
    "state": [1, 1],
    "is_defined": True,
    "is_coming": False,
    "is_at_job": False,
    "starts": True,
    "is_kept": False,
    "memory_mib": 256,
    "files": [OWN + DISK],
}
RECORD = {"purpose": "departure", "name": "vm-a", "phase": "handing", "paths": [], "is_live": False}


def cloud():
    """Return a cloud of two hosts, with one VM on the first."""
    return {
        "hosts": {
            "h0": {"domains": {"vm-a": copy.deepcopy(DOMAIN)}, "files": {DISK: "d"}, "records": []},
            "h1": {"domains": {}, "files": {}, "records": []},
        },
        "keys": ["vm-a"],
        "orders": [],
        "jobs": [],
    }


def on_both(**other):
    """Return a cloud in which the second host has the VM too, with something else about it."""
    seen = cloud()
    seen["hosts"]["h1"]["domains"]["vm-a"] = {**DOMAIN, **other}
    seen["hosts"]["h1"]["files"][DISK] = "d"
    return seen


def first(seen, **other):
    """Return a cloud with something else about the VM on the first host."""
    seen["hosts"]["h0"]["domains"]["vm-a"] |= other
    return seen


OFF = {"is_up": False, "state": [5, 3], "starts": False}
COMING = {"state": [3, 2], "is_coming": True, "is_defined": False, "starts": False}


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        (cloud(), []),
        (on_both(**COMING), []),
        (first(on_both(starts=False), state=[3, 2]), []),
        (on_both(**OFF), []),
        (on_both(starts=False), ["vm-a runs on ['h0', 'h1']"]),
        (on_both(**{**OFF, "starts": True}), ["vm-a starts with its host on ['h0', 'h1']"]),
        (on_both(**OFF, uuid="2"), ["two VMs are called vm-a: ['1', '2']"]),
        (first(cloud(), memory_mib=513), ["h0 has given 513 MiB of 512: ['vm-a']"]),
    ],
)
def test_what_must_never_be(seen, wrong):
    assert list(always(seen, ROOM_MIB)) == wrong


def test_nothing_is_wrong_with_a_cloud_at_rest():
    assert list(at_rest(cloud())) == []


def test_two_homes_need_a_record():
    seen = on_both(**OFF)
    assert list(at_rest(seen)) == ["vm-a is on 2 hosts, and nothing of that is on record"]
    seen["hosts"]["h0"]["records"].append(RECORD)
    assert list(at_rest(seen)) == []


def test_a_disk_that_is_gone_and_one_that_is_nobodys():
    seen = cloud()
    seen["hosts"]["h0"]["files"] = {"vm-b_system.qcow2": "d", ".salt-virt-1": "d"}

    assert list(at_rest(seen)) == [
        f"vm-a lacks ['{OWN}{DISK}'] on h0",
        "nobody's file on h0: vm-b_system.qcow2",
    ]


def test_keys_and_vms_go_together():
    seen = {**cloud(), "keys": ["vm-b"]}

    assert list(at_rest(seen)) == ["nobody's key: vm-b", "vm-a has no key"]


def test_fates():
    fates, gone = Fates(), cloud()
    gone["hosts"]["h0"]["domains"] = {}
    back = ["vm-a is back, which nobody has made"]
    assert list(Fates().wrong(cloud(), ["vm-a"])) == back

    fates.tried("init", "vm-a")
    assert list(fates.wrong(cloud(), ["vm-a"])) == []
    assert fates.alive == ["vm-a"]
    assert list(fates.wrong(gone, ["vm-a"])) == ["vm-a is lost"]


def test_what_was_purged_may_be_gone_and_a_purge_that_is_on_record_may_go_on():
    fates, gone = Fates(), cloud()
    gone["hosts"]["h0"]["domains"] = {}
    fates.tried("init", "vm-a")
    list(fates.wrong(cloud(), ["vm-a"]))

    fates.tried("purge", "vm-a")
    begun = {**cloud(), "orders": [{**RECORD, "purpose": "order"}]}
    assert list(fates.wrong(begun, ["vm-a"])) == []
    assert list(fates.wrong(gone, ["vm-a"])) == []
    assert fates.alive == []


def test_a_disk_keeps_what_was_written_into_it():
    fates, seen = Fates(), cloud()
    fates.tried("init", "vm-a")
    list(fates.wrong(seen, ["vm-a"]))
    assert fates.unmarked(seen) == [("h0", "vm-a", "1")]
    fates.marked("vm-a", "1", "d")
    assert fates.unmarked(seen) == []
    assert list(fates.wrong(seen, ["vm-a"])) == []

    seen["hosts"]["h0"]["files"][DISK] = "another"
    wrong = "the disk of vm-a on h0 is not what was written into it"
    assert list(fates.wrong(seen, ["vm-a"])) == [wrong]
