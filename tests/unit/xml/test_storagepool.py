"""What is asked for of pools, volumes and secrets: valid XML, and compared by what it means."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saltvirt.core.errors import BadArgument
from saltvirt.xml import parse, to_text
from saltvirt.xml.storage import permissions, poolcapabilities, secret, storagepool, storagevolume

DISKS = {"devices": [{"path": "/dev/sdb", "part_separator": True}], "format": "gpt"}
ADAPTER = {
    "type": "scsi_host",
    "parent_address": {
        "unique_id": 1,
        "address": {"domain": "0x0000", "bus": "0x00", "slot": "0x1f", "function": "0x2"},
    },
}
MODE = {"mode": "0711", "owner": 107, "group": "107", "label": "a:b:c"}
# A pool of each type, as an old formula has it.
EVERY = {
    "dir": ("/srv/vms", {}),
    "fs": ("/mnt/a", {"devices": ["/dev/sdb1"], "format": "ext4"}),
    "netfs": ("/mnt/a", {"hosts": ["a", "b"], "dir": "share", "format": "cifs"}),
    "logical": (None, {"devices": ["/dev/sdb"], "name": "vg0", "format": "lvm2"}),
    "disk": ("/dev", DISKS),
    "iscsi": ("/dev/disk/by-path", {"hosts": ["[::1]:3260"], "devices": ["iqn.2013-06.com.x:a"]}),
    "iscsi-direct": (
        None,
        {
            "hosts": ["a:3260"],
            "devices": ["iqn.2013-06.com.x:a"],
            "initiator": "iqn.2013-06.com.x:i",
            "auth": {"username": "u", "password": "p"},
        },
    ),
    "scsi": ("/dev/disk/by-path", {"adapter": ADAPTER}),
    "mpath": ("/dev/mapper", {}),
    "rbd": (None, {"hosts": ["a:6789"], "auth": {"username": "u", "password": "cA=="}}),
    "sheepdog": (None, {"hosts": ["a:7000"], "name": "x"}),
    "gluster": (None, {"hosts": ["a"], "name": "x", "dir": "/d"}),
    "zfs": (None, {"name": "tank"}),
    "vstorage": ("/mnt/v", {"name": "x"}),
}


def of(ptype, **changed):
    """Return the pool of a type, with another source."""
    target, source = EVERY[ptype]
    return storagepool.from_call("p1", ptype, target, None, {**source, **changed})


def test_a_pool_of_each_type_is_valid_complete_and_like_itself(validate):
    assert set(EVERY) == set(storagepool.TAKES)
    asked = [
        storagepool.from_call("p1", kind, *(target, MODE, source))
        for kind, (target, source) in EVERY.items()
    ]

    validate((to_text(storagepool.build(one)) for one in asked), "storagepool")
    for one in asked:
        storagepool.refuse_incomplete(one)
        assert storagepool.read(parse(to_text(storagepool.build(one)))) == one
        assert storagepool.differences(one, one) == []


@pytest.mark.parametrize(
    ("ptype", "changed", "found"),
    [
        ("netfs", {"hosts": ["a"]}, ["source:hosts"]),
        ("netfs", {"hosts": ["a:1", "b"]}, ["source:hosts"]),
        ("netfs", {"dir": "other"}, ["source:dir"]),
        ("netfs", {"format": None}, ["source:format"]),
        ("disk", {"devices": ["/dev/sdb"]}, ["source:devices"]),
        ("logical", {"name": "vg1"}, ["source:name"]),
        ("rbd", {"auth": None}, ["source:auth"]),
        ("iscsi-direct", {"initiator": "iqn.x:j"}, ["source:initiator"]),
        ("scsi", {"adapter": {"type": "fc_host", "wwnn": "1" * 16}}, ["source:adapter"]),
    ],
)
def test_what_is_asked_for_otherwise_is_a_difference(ptype, changed, found):
    assert storagepool.differences(of(ptype), of(ptype, **changed)) == found


def filled_in(ptype, **filled):
    """Return a pool as libvirt keeps it, with what it fills in by itself."""
    asked = of(ptype)
    source = replace(asked.source, **filled)
    own = {"mode": "0755", "owner": "0", "group": "0"}
    return replace(asked, uuid="x", permissions=own, source=source, target=asked.target or "/dev/x")


@pytest.mark.parametrize(
    ("ptype", "dropped", "filled"),
    [
        ("dir", (), {}),
        ("fs", ("format",), {"format": "auto"}),
        ("logical", ("name", "format"), {"name": "p1", "format": "lvm2"}),
        ("disk", ("format",), {"format": "dos"}),
        ("gluster", ("dir", "name"), {"dir": "/", "name": "p1"}),
        ("rbd", ("name",), {"name": "p1"}),
    ],
)
def test_what_libvirt_fills_in_is_no_difference(ptype, dropped, filled):
    asked = of(ptype, **dict.fromkeys(dropped))

    assert storagepool.differences(filled_in(ptype, **filled), asked) == []


def test_only_permissions_that_are_asked_for_are_compared():
    old = replace(of("dir"), permissions={"mode": "0711", "owner": "0", "group": "0"})

    for asked, found in (({"mode": "711"}, []), ({"mode": 755}, ["permissions"]), (None, [])):
        wanted = storagepool.from_call("p1", "dir", "/srv/vms", asked)
        assert storagepool.differences(old, wanted) == found


def test_an_owner_of_minus_one_is_whoever_it_is_as_libvirt_has_it():
    asked = {"mode": "0711", "owner": -1, "group": "-1"}

    assert permissions.from_call(asked) == {"mode": "0711"}
    assert permissions.from_call({"owner": -1}) is None
    with pytest.raises(BadArgument, match="permissions:owner"):
        permissions.from_call({"owner": -2})


def test_a_change_keeps_what_else_was_defined():
    root = parse(
        """<pool type='netfs'><name>p1</name><uuid>u</uuid><capacity>1</capacity>
        <features><cow state='no'/></features>
        <source><host name='a'/><dir path='/x'/><format type='nfs'/><protocol ver='4'/></source>
        <target><path>/mnt/a</path><permissions><mode>0700</mode></permissions></target></pool>"""
    )
    source = {"hosts": ["b"], "dir": "/x", "format": "nfs"}
    new = storagepool.build_changed(
        root, storagepool.from_call("p1", "netfs", "/mnt/a", {"owner": 7}, source)
    )

    says = storagepool.read(new)
    assert (says.uuid, says.permissions) == ("u", {"mode": "0700", "owner": "7"})
    assert says.source.hosts == ({"name": "b"},)
    assert [one.tag for one in new] == ["name", "uuid", "source", "target", "features"]
    assert new.find("source/protocol").get("ver") == "4"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("x",), "ptype: 'x'; one of dir, fs"),
        (("dir", "srv"), "target: 'srv' is not an absolute path"),
        (("dir", "/srv", {"mode": "0999"}), "'0999' is not a mode"),
        (("dir", "/srv", {"owner": "root"}), "permissions:owner: 'root' is not a whole number"),
        (("dir", "/srv", {"mod": 1}), "permissions has no argument 'mod'.*did you mean 'mode'"),
        (("dir", "/srv", None, {"hots": 1}), "source has no argument 'hots'"),
        (("netfs", "/srv", None, {"hosts": ["a:b"]}), "'a:b' is not a host with a port"),
        (("fs", "/srv", None, {"devices": [{"part_separator": True}]}), "has no path"),
        (("rbd", None, None, {"auth": {"username": "u"}}), "give a password, or secret"),
        (("rbd", None, None, {"auth": {"password": "hush"}}), "has no username"),
    ],
)
def test_what_cannot_be_a_pool_is_refused_by_name(given, why):
    with pytest.raises(BadArgument, match=why) as raised:
        storagepool.from_call("p1", *given)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("ptype", "key"), [("netfs", "hosts"), ("fs", "devices"), ("scsi", "adapter")]
)
def test_what_a_type_cannot_do_without_is_named(ptype, key):
    with pytest.raises(BadArgument, match=f"source: {key}: missing; a pool of type {ptype}"):
        storagepool.refuse_incomplete(of(ptype, **{key: None}))
    with pytest.raises(BadArgument, match="target: is missing"):
        storagepool.refuse_incomplete(replace(of(ptype), target=None))


@pytest.mark.parametrize("value", ["0770", "770", 770, [{"mode": "0770"}]])
def test_a_mode_is_octal_however_it_is_written(value):
    given = value if isinstance(value, list) else {"mode": value}

    assert permissions.from_call(given) == {"mode": "0770"}


@pytest.mark.parametrize(("kind", "auth"), [("ceph", "ceph"), ("iscsi", "chap")])
def test_a_secret_is_valid_and_named_as_on_3006(validate, kind, auth):
    made = secret.for_pool("p1", auth, "pool_p1")

    validate([to_text(secret.build(made))], "secret")
    assert (made.kind, made.usage, made.is_private, made.is_ephemeral) == (
        kind,
        "pool_p1",
        True,
        False,
    )
    assert made.description == "Passphrase for p1 pool created by Salt"


@given(
    size=st.integers(0, 2**40),
    allocation=st.integers(0, 2**40),
    kind=st.sampled_from([None, "qcow2", "raw"]),
    nocow=st.booleans(),
    base=st.sampled_from([None, {"path": "/srv/base", "format": "raw"}]),
)
def test_a_volume_is_read_as_it_was_asked_for(size, allocation, kind, nocow, base):
    given_ = {"allocation": allocation, "format": kind, "nocow": nocow, "backing_store": base}
    asked = storagevolume.from_call("v1", size, **given_)

    assert asked.capacity == size * 2**20
    assert storagevolume.read(parse(to_text(storagevolume.build(asked)))) == asked


def test_a_volume_is_valid(validate):
    base = {"path": "/srv/base", "format": "raw"}
    whole = storagevolume.from_call(
        "v1", "8g", type="file", requested_permissions=MODE, nocow=True, backing_store=base
    )

    made = [whole, storagevolume.from_call("v2", 1, format="qcow2")]
    validate((to_text(storagevolume.build(one)) for one in made), "storagevol")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"size": "much"}, "size: 'much' is not a size"),
        ({"size": 2**63}, "is above libvirt's limit"),
        ({"type": "x"}, "type: 'x'; one of file, block"),
        ({"nocow": "yes"}, "nocow: 'yes' is neither True nor False"),
        ({"backing_store": {"path": "/x"}}, "its path and its format"),
        ({"backing_store": {"path": "/x", "format": "raw", "y": 1}}, "no argument 'y'"),
    ],
)
def test_what_cannot_be_a_volume_is_refused_by_name(given, why):
    with pytest.raises(BadArgument, match=why):
        storagevolume.from_call("v1", **{"size": 1, **given})


def test_capabilities_have_the_shape_of_3006():
    root = parse(
        """<storagepoolCapabilities><pool type='disk' supported='yes'>
        <poolOptions><defaultFormat type='unknown'/>
        <enum name='sourceFormatType'><value>unknown</value><value>dos</value></enum></poolOptions>
        <volOptions><defaultFormat type='none'/></volOptions></pool>
        <pool type='rbd' supported='no'/></storagepoolCapabilities>"""
    )

    # salt/modules/virt.py:7657 of 3006.25
    assert poolcapabilities.read(root) == [
        {
            "name": "disk",
            "supported": True,
            "options": {
                "pool": {"default_format": "unknown", "sourceFormatType": ["unknown", "dos"]},
                "volume": {"default_format": "none"},
            },
        },
        {"name": "rbd", "supported": False},
    ]


def test_the_disks_of_a_domain_and_all_that_is_below_them_are_found():
    root = parse(
        """<domain><devices><disk type='file'><source file='/a'/>
        <backingStore><source file='/b'/><backingStore><source dev='/dev/c'/></backingStore>
        </backingStore></disk><disk type='volume'><source pool='p' volume='v'/></disk>
        <disk type='network'><source protocol='rbd' name='x/y'/></disk>
        <interface><source dev='eth0'/></interface></devices></domain>"""
    )

    assert storagevolume.find_used_locations(root) == {
        *(("path", one) for one in ("/a", "/b", "/dev/c", "x/y")),
        ("volume", "p", "v"),
    }


@pytest.mark.parametrize("ptype", ["logical", "zfs"])
def test_a_pool_of_devices_keeps_its_permissions(validate, ptype):
    asked = storagepool.from_call("p1", ptype, None, {"mode": "0770", "owner": 7}, {"name": "tank"})
    text = to_text(storagepool.build(asked))

    validate([text], "storagepool")
    assert storagepool.read(parse(text)) == asked
    assert asked.permissions == {"mode": "0770", "owner": "7"}


@pytest.mark.parametrize(
    ("asked", "differs"),
    [
        ({}, []),
        ({"format": "raw"}, []),
        ({"backing_store": {"path": "/dev/vg/other", "format": "raw"}}, ["backing store"]),
        ({"backing_store": None}, ["backing store"]),
    ],
)
def test_a_format_that_libvirt_does_not_know_is_no_difference(asked, differs):
    # As libvirt writes a snapshot of LVM.
    there = storagevolume.read(
        parse(
            "<volume type='block'><name>v</name><capacity unit='bytes'>1048576</capacity>"
            "<target><path>/dev/vg/v</path></target>"
            "<backingStore><path>/dev/vg/base</path></backingStore></volume>"
        )
    )
    base = {"path": "/dev/vg/base", "format": "raw"}

    assert (
        storagevolume.differences(
            there, storagevolume.from_call("v", 1, **{"backing_store": base, **asked})
        )
        == differs
    )
