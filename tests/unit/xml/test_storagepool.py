"""Pools, volumes and secrets of a call: their XML is valid, and compared by its meaning."""

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
POOL_BY_TYPE = {
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


def pool_of_type(ptype, **changes):
    """Return the pool of a type, with changes in its source."""
    target, source = POOL_BY_TYPE[ptype]
    return storagepool.from_call("p1", ptype, target, None, {**source, **changes})


def test_a_pool_of_each_type_is_valid_complete_and_equal_to_itself(validate):
    assert set(POOL_BY_TYPE) == set(storagepool.TAKES)
    pools = [
        storagepool.from_call("p1", kind, *(target, MODE, source))
        for kind, (target, source) in POOL_BY_TYPE.items()
    ]

    validate((to_text(storagepool.build(pool)) for pool in pools), "storagepool")
    for pool in pools:
        storagepool.refuse_incomplete(pool)
        assert storagepool.read(parse(to_text(storagepool.build(pool)))) == pool
        assert storagepool.differences(pool, pool) == []


@pytest.mark.parametrize(
    ("ptype", "changes", "expected"),
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
def test_another_source_is_a_difference(ptype, changes, expected):
    assert storagepool.differences(pool_of_type(ptype), pool_of_type(ptype, **changes)) == expected


def pool_as_kept(ptype, **values):
    """Return a pool as libvirt keeps it, with the values that it fills in."""
    pool = pool_of_type(ptype)
    source = replace(pool.source, **values)
    default_permissions = {"mode": "0755", "owner": "0", "group": "0"}
    return replace(
        pool,
        uuid="x",
        permissions=default_permissions,
        source=source,
        target=pool.target or "/dev/x",
    )


@pytest.mark.parametrize(
    ("ptype", "omitted", "values"),
    [
        ("dir", (), {}),
        ("fs", ("format",), {"format": "auto"}),
        ("logical", ("name", "format"), {"name": "p1", "format": "lvm2"}),
        ("disk", ("format",), {"format": "dos"}),
        ("gluster", ("dir", "name"), {"dir": "/", "name": "p1"}),
        ("rbd", ("name",), {"name": "p1"}),
    ],
)
def test_a_value_that_libvirt_fills_in_is_no_difference(ptype, omitted, values):
    pool = pool_of_type(ptype, **dict.fromkeys(omitted))

    assert storagepool.differences(pool_as_kept(ptype, **values), pool) == []


def test_only_requested_permissions_are_compared():
    old = replace(pool_of_type("dir"), permissions={"mode": "0711", "owner": "0", "group": "0"})

    for request, expected in (({"mode": "711"}, []), ({"mode": 755}, ["permissions"]), (None, [])):
        pool = storagepool.from_call("p1", "dir", "/srv/vms", request)
        assert storagepool.differences(old, pool) == expected


def test_an_owner_of_minus_one_means_any_owner_as_in_libvirt():
    request = {"mode": "0711", "owner": -1, "group": "-1"}

    assert permissions.from_call(request) == {"mode": "0711"}
    assert permissions.from_call({"owner": -1}) is None
    with pytest.raises(BadArgument, match="permissions:owner"):
        permissions.from_call({"owner": -2})


def test_a_change_keeps_the_rest_of_the_definition():
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

    content = storagepool.read(new)
    assert (content.uuid, content.permissions) == ("u", {"mode": "0700", "owner": "7"})
    assert content.source.hosts == ({"name": "b"},)
    assert [part.tag for part in new] == ["name", "uuid", "source", "target", "features"]
    assert new.find("source/protocol").get("ver") == "4"


@pytest.mark.parametrize(
    ("arguments", "reason"),
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
def test_an_impossible_pool_is_refused_by_name(arguments, reason):
    with pytest.raises(BadArgument, match=reason) as excinfo:
        storagepool.from_call("p1", *arguments)
    assert "hush" not in str(excinfo.value)


@pytest.mark.parametrize(
    ("ptype", "key"), [("netfs", "hosts"), ("fs", "devices"), ("scsi", "adapter")]
)
def test_a_required_part_of_a_type_is_named(ptype, key):
    with pytest.raises(BadArgument, match=f"source: {key}: missing; a pool of type {ptype}"):
        storagepool.refuse_incomplete(pool_of_type(ptype, **{key: None}))
    with pytest.raises(BadArgument, match="target: is missing"):
        storagepool.refuse_incomplete(replace(pool_of_type(ptype), target=None))


@pytest.mark.parametrize("value", ["0770", "770", 770, [{"mode": "0770"}]])
def test_a_mode_is_octal_however_it_is_written(value):
    options = value if isinstance(value, list) else {"mode": value}

    assert permissions.from_call(options) == {"mode": "0770"}


@pytest.mark.parametrize(("kind", "auth"), [("ceph", "ceph"), ("iscsi", "chap")])
def test_a_secret_is_valid_and_named_as_on_3006(validate, kind, auth):
    secret_ = secret.for_pool("p1", auth, "pool_p1")

    validate([to_text(secret.build(secret_))], "secret")
    assert (secret_.kind, secret_.usage, secret_.is_private, secret_.is_ephemeral) == (
        kind,
        "pool_p1",
        True,
        False,
    )
    assert secret_.description == "Passphrase for p1 pool created by Salt"


@given(
    size=st.integers(0, 2**40),
    allocation=st.integers(0, 2**40),
    kind=st.sampled_from([None, "qcow2", "raw"]),
    nocow=st.booleans(),
    base=st.sampled_from([None, {"path": "/srv/base", "format": "raw"}]),
)
def test_a_volume_is_read_as_it_was_asked_for(size, allocation, kind, nocow, base):
    options = {"allocation": allocation, "format": kind, "nocow": nocow, "backing_store": base}
    volume = storagevolume.from_call("v1", size, **options)

    assert volume.capacity == size * 2**20
    assert storagevolume.read(parse(to_text(storagevolume.build(volume)))) == volume


def test_a_volume_is_valid(validate):
    base = {"path": "/srv/base", "format": "raw"}
    full_volume = storagevolume.from_call(
        "v1", "8g", type="file", requested_permissions=MODE, nocow=True, backing_store=base
    )

    volumes_ = [full_volume, storagevolume.from_call("v2", 1, format="qcow2")]
    validate((to_text(storagevolume.build(volume)) for volume in volumes_), "storagevol")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"size": "much"}, "size: 'much' is not a size"),
        ({"size": 2**63}, "is above libvirt's limit"),
        ({"type": "x"}, "type: 'x'; one of file, block"),
        ({"nocow": "yes"}, "nocow: 'yes' is neither True nor False"),
        ({"backing_store": {"path": "/x"}}, "its path and its format"),
        ({"backing_store": {"path": "/x", "format": "raw", "y": 1}}, "no argument 'y'"),
    ],
)
def test_an_impossible_volume_is_refused_by_name(options, reason):
    with pytest.raises(BadArgument, match=reason):
        storagevolume.from_call("v1", **{"size": 1, **options})


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


def test_all_files_of_a_domains_backing_chains_are_found():
    root = parse(
        """<domain><devices><disk type='file'><source file='/a'/>
        <backingStore><source file='/b'/><backingStore><source dev='/dev/c'/></backingStore>
        </backingStore></disk><disk type='volume'><source pool='p' volume='v'/></disk>
        <disk type='network'><source protocol='rbd' name='x/y'/></disk>
        <interface><source dev='eth0'/></interface></devices></domain>"""
    )

    assert storagevolume.find_used_locations(root) == {
        *(("path", path) for path in ("/a", "/b", "/dev/c", "x/y")),
        ("volume", "p", "v"),
    }


@pytest.mark.parametrize("ptype", ["logical", "zfs"])
def test_a_pool_of_devices_keeps_its_permissions(validate, ptype):
    pool = storagepool.from_call("p1", ptype, None, {"mode": "0770", "owner": 7}, {"name": "tank"})
    text = to_text(storagepool.build(pool))

    validate([text], "storagepool")
    assert storagepool.read(parse(text)) == pool
    assert pool.permissions == {"mode": "0770", "owner": "7"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, []),
        ({"format": "raw"}, []),
        ({"backing_store": {"path": "/dev/vg/other", "format": "raw"}}, ["backing store"]),
        ({"backing_store": None}, ["backing store"]),
    ],
)
def test_a_format_that_libvirt_does_not_know_is_no_difference(options, expected):
    # libvirt writes a snapshot of LVM like this.
    snapshot = storagevolume.read(
        parse(
            "<volume type='block'><name>v</name><capacity unit='bytes'>1048576</capacity>"
            "<target><path>/dev/vg/v</path></target>"
            "<backingStore><path>/dev/vg/base</path></backingStore></volume>"
        )
    )
    base = {"path": "/dev/vg/base", "format": "raw"}

    assert (
        storagevolume.differences(
            snapshot, storagevolume.from_call("v", 1, **{"backing_store": base, **options})
        )
        == expected
    )
