"""A command on one device changes that device alone, and says what has become of it."""

from pathlib import Path

import pytest
from saltvirt.core import nics
from saltvirt.core.errors import BadArgument, LibvirtRefused, NoSuchVm, StorageError
from saltvirt.libvirt.domains import changing, lifecycle
from saltvirt.storage import trash
from saltvirt.vm.update.host import single
from saltvirt.vm.update.host.single import Call
from saltvirt.xml import parse
from saltvirt.xml.domain import domain
from saltvirt.xml.edit import amend

OTHERS = """<disk type='network' device='disk'><driver name='qemu' type='raw' cache='none'/>
<source protocol='rbd' name='pool/x'><host name='192.0.2.1' port='6789'/></source>
<target dev='vdx' bus='virtio'/></disk>
<disk type='file' device='cdrom'><target dev='hda' bus='ide'/><readonly/></disk>
<interface type='network'><mac address='52:54:00:00:00:01'/><source network='default'/>
<model type='e1000'/></interface>
<interface type='network'><mac address='52:54:00:00:00:02'/><source network='default'/>
<model type='rtl8139'/></interface></devices>"""
NEW = {"network": "default"}
TEST = Call(vm="web1", test=True)
CALL = Call(vm="web1")
MIB = 1 << 20


@pytest.fixture
def vm(hypervisor):
    """A VM with a system disk, a disk called data, a seed, and devices that no call could name."""
    with hypervisor.libvirt() as conn:
        hypervisor.init(start=False)
        lifecycle.define(conn, lifecycle.secure_xml(conn, "web1").replace("</devices>", OTHERS))
        hypervisor.conn = conn
        yield hypervisor
        del hypervisor.conn


def devices(vm, *, running=False):
    """Return the disks and NICs of the definition, or of the running VM, as they are written."""
    text = (lifecycle.xml if running else lifecycle.inactive_xml)(vm.conn, "web1")
    return [amend.text_of(one) for one in amend.devices(parse(text), "disk", "interface")]


def disks(vm):
    """Return ``{target: path}`` of the definition's disks."""
    said = domain.read(parse(lifecycle.inactive_xml(vm.conn, "web1")))
    return {one.target["dev"]: one.path for one in said.disks}


def macs(vm):
    """Return the MACs of the definition's NICs."""
    return [
        one.mac for one in domain.read(parse(lifecycle.inactive_xml(vm.conn, "web1"))).interfaces
    ]


def data(vm):
    """Return the file of the disk called data."""
    return Path(vm.settings.images) / "web1_data.qcow2"


def plugged(monkeypatch, refusal=None):
    """Have what is plugged be noted, not done; return the notes."""
    steps = []

    def plug(_conn, _name, how, xml):
        steps.append((how, xml))
        return refusal

    monkeypatch.setattr(changing, "plug", plug)
    return steps


def test_a_disk_more_leaves_all_others(vm):
    before = devices(vm)

    answer = single.disk_add(vm.context, CALL, "more", {"size": "16M"})

    path = f"{vm.settings.images}/web1_more.qcow2"
    assert answer == {
        "outcome": f"disk {answer['device']} added: {path}",
        "device": answer["device"],
        "restart": False,
        "file": path,
        "made": True,
    }
    assert set(before) < set(devices(vm)) and len(devices(vm)) == len(before) + 1
    assert disks(vm)[answer["device"]] == path
    assert "web1_more.qcow2" in vm.files()


@pytest.mark.parametrize("name", ["data", "system"])
def test_a_disk_that_the_vm_has_is_not_added_again(vm, name):
    before = devices(vm)

    with pytest.raises(BadArgument, match=rf"has disk vd\w \(.*web1_{name}.qcow2\) already"):
        single.disk_add(vm.context, CALL, name, {"size": 16})
    with pytest.raises(BadArgument, match="already"):
        single.disk_add(vm.context, CALL, "other", {"source_file": str(data(vm))})

    assert devices(vm) == before


def test_a_drive_more_is_a_second_one(vm):
    answer = single.disk_add(vm.context, CALL, "cd", {"device": "cdrom"})

    assert answer["outcome"] == f"cdrom {answer['device']} added" and answer["file"] is None
    assert list(disks(vm).values()).count(None) == 2


@pytest.mark.parametrize("name", ["data", "PATH", "TARGET"])
def test_a_disk_goes_by_each_of_its_names_and_its_file_stays(vm, name):
    (target,) = [target for target, path in disks(vm).items() if path == str(data(vm))]
    before = devices(vm)

    answer = single.disk_remove(
        vm.context, CALL, {"PATH": str(data(vm)), "TARGET": target}.get(name, name)
    )

    remove = f"salt-run virt.trash_put HOST {data(vm)}"
    assert answer == {
        "outcome": f"disk {target} removed; {data(vm)} stays; to remove that: {remove}",
        "device": target,
        "restart": False,
        "file": str(data(vm)),
        "trash": None,
        "remove": remove,
    }
    assert [one for one in before if one not in devices(vm)] == [
        one for one in before if "web1_data" in one
    ]
    assert data(vm).exists()


def test_a_disk_that_was_removed_comes_back_with_its_file(vm):
    before = disks(vm)
    single.disk_remove(vm.context, CALL, "data")

    answer = single.disk_add(vm.context, CALL, "data", {})

    assert (answer["made"], disks(vm)) == (False, before)
    assert answer["outcome"].endswith("web1_data.qcow2 (it was there already)")


def test_the_file_goes_into_the_trash_alone(vm):
    data(vm).write_bytes(b"x" + data(vm).read_bytes()[1:])

    answer = single.disk_remove(vm.context, CALL, "data", file=True)

    entries = trash.list_entries(vm.settings)
    assert [entries[answer["trash"]]["files"]] == [[str(data(vm))]]
    assert f"undo: salt-run virt.trash_restore HOST {answer['trash']}" in answer["outcome"]
    assert (answer["remove"], data(vm).exists()) == (None, False)
    trash.restore(vm.settings, answer["trash"])
    assert data(vm).exists()


def test_a_file_that_another_vm_needs_keeps_its_disk(vm):
    other = f"""<domain type='test'><name>web2</name><memory>1024</memory><os><type>hvm</type></os>
<devices><disk type='file' device='disk'><source file='{data(vm)}'/><target dev='vda'/></disk>
</devices></domain>"""
    vm.conn.defineXML(other)
    before = devices(vm)

    with pytest.raises(StorageError, match="has to stay, so nothing is changed: .*web2"):
        single.disk_remove(vm.context, CALL, "data", file=True)

    assert devices(vm) == before and data(vm).exists()


def test_the_file_of_a_vm_with_snapshots_keeps_its_disk(vm):
    vm.conn.lookupByName("web1").snapshotCreateXML(
        "<domainsnapshot><name>s1</name></domainsnapshot>"
    )
    before = devices(vm)

    with pytest.raises(BadArgument, match="has snapshots, which may need disk vd"):
        single.disk_remove(vm.context, CALL, "data", file=True)

    assert devices(vm) == before and data(vm).exists()


def test_what_is_no_file_of_the_vm_is_not_removed(vm):
    with pytest.raises(BadArgument, match="disk vdx .* is no file of the VM"):
        single.disk_remove(vm.context, CALL, "vdx", file=True)
    with pytest.raises(BadArgument, match="cdrom hda is no file of the VM"):
        single.disk_remove(vm.context, CALL, "hda", file=True)

    assert single.disk_remove(vm.context, CALL, "vdx")["remove"] is None


def test_the_seed_is_no_disk_that_a_call_can_name(vm):
    (seed,) = [target for target, path in disks(vm).items() if "web1_seed" in (path or "")]

    with pytest.raises(BadArgument, match=rf"has no '{seed}'; it has disk vda"):
        single.disk_remove(vm.context, CALL, seed)


def test_a_disk_that_is_named_like_the_target_of_another_is_asked_for(vm):
    (target,) = [target for target, path in disks(vm).items() if path == str(data(vm))]
    single.disk_add(vm.context, CALL, target, {"size": 8})

    with pytest.raises(BadArgument, match=rf"'{target}' may be disk .*, disk .*; give the file"):
        single.disk_remove(vm.context, CALL, target)


@pytest.mark.parametrize(
    ("size", "mib"), [("16M", 16), (16, 16), ("+8M", 16), ("+1", 9), ("1G", 1024)]
)
def test_a_disk_grows_to_a_size_or_by_one(vm, size, mib):
    before = devices(vm)

    answer = single.disk_grow(vm.context, CALL, "data", size)

    assert (answer["bytes_before"], answer["bytes"]) == (8 * MIB, mib * MIB)
    assert "grown from 8.0M to " in answer["outcome"] and "guest must then" in answer["outcome"]
    assert single.disk_grow(vm.context, TEST, "data", "+1")["bytes_before"] == mib * MIB
    assert devices(vm) == before


@pytest.mark.parametrize("size", ["4M", "1", "+0", "x", "-1", "+x", ""])
def test_a_disk_does_not_shrink(vm, size):
    with pytest.raises(BadArgument, match="size: "):
        single.disk_grow(vm.context, CALL, "data", size)


def test_a_disk_that_is_as_large_is_left(vm):
    answer = single.disk_grow(vm.context, CALL, "data", "8M")

    assert answer["outcome"].endswith("has 8.0M already; nothing was changed")


def test_a_disk_whose_size_this_host_does_not_know_is_not_grown(vm):
    with pytest.raises(BadArgument, match="the size of disk vdx .* cannot be changed on this host"):
        single.disk_grow(vm.context, CALL, "vdx", "+1G")
    with pytest.raises(BadArgument, match="the size of cdrom hda cannot be changed"):
        single.disk_grow(vm.context, CALL, "hda", "+1G")


def test_a_nic_more_leaves_all_others(vm):
    before = devices(vm)

    first = single.nic_add(vm.context, CALL, None, NEW)
    second = single.nic_add(vm.context, CALL, None, NEW)
    third = single.nic_add(vm.context, CALL, "lan", {**NEW, "mac": "52:54:00:00:00:AA"})

    expected = [nics.mac_for("web1", name) for name in ("eth0", "eth1")] + ["52:54:00:00:00:aa"]
    assert [one["device"] for one in (first, second, third)] == expected
    assert first["outcome"] == f"NIC {expected[0]} (network default) added"
    assert macs(vm) == ["52:54:00:00:00:01", "52:54:00:00:00:02", *expected]
    assert set(before) < set(devices(vm))


def test_a_nic_with_the_mac_of_another_is_not_added(vm):
    with pytest.raises(BadArgument, match=r"has NIC 52:54:00:00:00:01 \(network default\) already"):
        single.nic_add(vm.context, CALL, None, {**NEW, "mac": "52:54:00:00:00:01"})
    single.nic_add(vm.context, CALL, "eth7", NEW)
    with pytest.raises(BadArgument, match="give another name or mac"):
        single.nic_add(vm.context, CALL, "eth7", NEW)


@pytest.mark.parametrize(
    ("options", "lacking"),
    [({"bridge": "vmbr0"}, "bridge vmbr0"), ({"network": "lan"}, "network lan, .*: default")],
)
def test_a_nic_on_what_the_host_lacks_is_refused_before_anything_changes(vm, options, lacking):
    before = devices(vm)

    with pytest.raises(BadArgument, match=f"this host has no {lacking}"):
        single.nic_add(vm.context, CALL, None, options)

    assert devices(vm) == before


def test_a_nic_goes_by_its_mac_or_the_name_that_made_it(vm):
    single.nic_add(vm.context, CALL, "eth7", NEW)

    by_name = single.nic_remove(vm.context, CALL, "eth7")
    by_mac = single.nic_remove(vm.context, CALL, "52:54:00:00:00:01")

    assert by_name["outcome"] == f"NIC {nics.mac_for('web1', 'eth7')} (network default) removed"
    assert by_mac["device"] == "52:54:00:00:00:01"
    assert macs(vm) == ["52:54:00:00:00:02"]
    with pytest.raises(BadArgument, match="has no 'eth7'; it has NIC 52:54:00:00:00:02"):
        single.nic_remove(vm.context, CALL, "eth7")


def test_a_medium_comes_and_goes(vm, tmp_path):
    first, second = (tmp_path / name for name in ("a.iso", "b.iso"))
    for path in (first, second):
        path.write_bytes(bytes(4096))
    before = devices(vm)

    outcomes = [
        single.insert(vm.context, CALL, str(first), None),
        single.insert(vm.context, CALL, str(first), None),
        single.insert(vm.context, CALL, str(second), "hda"),
        single.eject(vm.context, CALL, None),
        single.eject(vm.context, CALL, "hda"),
    ]

    assert [one["outcome"] for one in outcomes] == [
        f"drive hda: {first} inserted",
        f"drive hda has {first} already; nothing was changed",
        f"drive hda: {second} inserted in place of {first}",
        f"drive hda: {second} ejected",
        "drive hda has no medium already; nothing was changed",
    ]
    assert [one["file"] for one in outcomes] == [*map(str, (first, first, second, second)), None]
    assert devices(vm) == before and first.exists() and second.exists()


def test_the_only_empty_drive_gets_the_medium_and_else_the_call_says_which(vm, tmp_path):
    for name in ("a.iso", "b.iso", "c.iso"):
        (tmp_path / name).write_bytes(bytes(4096))
    other = single.disk_add(vm.context, CALL, "cd", {"device": "cdrom"})["device"]

    with pytest.raises(BadArgument, match=r"has cdrom \w+, cdrom \w+; say which"):
        single.insert(vm.context, CALL, str(tmp_path / "a.iso"), None)
    single.insert(vm.context, CALL, str(tmp_path / "a.iso"), "hda")
    assert single.insert(vm.context, CALL, str(tmp_path / "b.iso"), None)["device"] == other
    assert single.eject(vm.context, CALL, str(tmp_path / "a.iso"))["device"] == "hda"
    assert single.eject(vm.context, CALL, None)["device"] == other


def test_a_medium_that_is_not_there_and_a_vm_without_a_drive(vm, tmp_path):
    with pytest.raises((BadArgument, StorageError), match=r"gone\.iso"):
        single.insert(vm.context, CALL, str(tmp_path / "gone.iso"), None)
    single.disk_remove(vm.context, CALL, "hda")
    with pytest.raises(BadArgument, match="virt.disk_add web1 cd device=cdrom adds one"):
        single.eject(vm.context, CALL, None)


TESTS = [
    ("disk_add", ("more", {"size": 8}), "would be added: /"),
    ("disk_grow", ("data", "+8M"), "would be grown from 8.0M to 16.0M"),
    ("disk_remove", ("data",), "would be removed; /"),
    ("nic_add", (None, NEW), "would be added"),
    ("nic_remove", ("52:54:00:00:00:02",), "would be removed"),
    ("insert", ("/etc/hosts", None), "/etc/hosts would be inserted"),
]


@pytest.mark.parametrize(("function", "args", "text"), TESTS)
def test_a_test_says_it_and_changes_nothing(vm, function, args, text):
    before, files = devices(vm), vm.files()

    answer = getattr(single, function)(vm.context, TEST, *args)

    assert text in answer["outcome"]
    # The growth of a disk is on record in the definition's notes, except where it has none.
    assert answer["diff"] or function == "disk_grow"
    assert (devices(vm), vm.files()) == (before, files)


def test_a_test_of_a_file_for_the_trash_puts_none_there(vm):
    answer = single.disk_remove(vm.context, TEST, "data", file=True)

    assert answer["outcome"].endswith(f"its file {data(vm)} would go into the trash")
    assert not trash.list_entries(vm.settings) and data(vm).exists()


@pytest.fixture
def running(vm):
    """The VM while it runs."""
    lifecycle.start(vm.conn, "web1")
    return vm


def test_only_the_device_is_plugged_into_a_running_vm(running, monkeypatch):
    # What the definition lost without this project, the running VM keeps.
    text = lifecycle.secure_xml(running.conn, "web1")
    root = parse(text)
    kept = [
        element
        for element in amend.devices(root, "disk")
        if "web1_data" not in amend.text_of(element)
    ]
    amend.put_devices(root, "disk", kept)
    lifecycle.define(running.conn, amend.text_of(root))
    steps = plugged(monkeypatch)

    disk = single.disk_add(running.context, CALL, "more", {"size": 8})
    nic = single.nic_add(running.context, CALL, None, NEW)

    assert [how for how, _xml in steps] == ["attached", "attached"]
    assert "web1_more.qcow2" in steps[0][1] and nic["device"] in steps[1][1]
    assert disk["device"] not in {
        one.target["dev"] for one in domain.read(parse(text)).disks
    }, "the running VM has another disk there"
    assert not disk["restart"] and not nic["restart"]


def test_what_only_the_running_vm_has_can_be_removed_again(running, monkeypatch):
    single.disk_remove(running.context, Call(vm="web1", live=False), "data")
    steps = plugged(monkeypatch)
    monkeypatch.setattr(
        changing, "running", _gone_afterwards(changing.running, "web1_data.qcow2", steps)
    )

    answer = single.disk_remove(running.context, CALL, "data")

    assert [how for how, _xml in steps] == ["detached"] and "web1_data" in steps[0][1]
    assert not answer["restart"]


def _gone_afterwards(read, text, steps):
    """Return a reader of the running VM, which loses a disk once something was plugged."""

    def running(conn, name):
        root = parse(read(conn, name))
        if steps:
            kept = [one for one in amend.devices(root, "disk") if text not in amend.text_of(one)]
            amend.put_devices(root, "disk", kept)
        return amend.text_of(root)

    return running


def test_a_guest_that_keeps_its_disk_is_an_error_and_the_file_stays(running, monkeypatch):
    plugged(monkeypatch)

    with pytest.raises(LibvirtRefused, match="out of the definition .* is still in use by the gu"):
        single.disk_remove(running.context, CALL, "data", file=True)

    assert data(running).exists() and str(data(running)) not in disks(running).values()


@pytest.mark.parametrize(
    ("function", "args", "text"),
    [
        ("disk_add", ("more", {"size": 8}), "disk vd. is in the definition of VM 'web1'; no"),
        ("nic_add", (None, NEW), "NIC .* is in the definition of VM 'web1'; no"),
        ("nic_remove", ("52:54:00:00:00:02",), "NIC .* is out of the definition .*; no"),
        ("insert", ("/etc/hosts", None), "drive hda is changed in the definition .*; no"),
    ],
)
def test_what_libvirt_refuses_is_an_error_that_says_what_was_done(
    running, monkeypatch, function, args, text
):
    plugged(monkeypatch, "no")

    with pytest.raises(LibvirtRefused, match=text):
        getattr(single, function)(running.context, CALL, *args)


def test_without_live_the_change_waits_and_is_said_to(running, monkeypatch):
    steps = plugged(monkeypatch)
    cold = Call(vm="web1", live=False)

    answers = [
        single.disk_add(running.context, cold, "more", {"size": 8}),
        single.nic_add(running.context, cold, None, NEW),
        single.insert(running.context, cold, "/etc/hosts", None),
    ]

    assert all(one["restart"] for one in answers) and not steps
    assert all(one["outcome"].endswith("at the VM's next start") for one in answers)


def test_a_file_that_the_running_vm_keeps_is_not_taken_from_it(running):
    before = devices(running)

    with pytest.raises(BadArgument, match="keeps disk vd.* until it stops; stop it first"):
        single.disk_remove(running.context, Call(vm="web1", live=False), "data", file=True)

    assert devices(running) == before and data(running).exists()


def test_a_running_vm_with_another_disk_at_the_target_loses_none(running, monkeypatch):
    cold = Call(vm="web1", live=False)
    single.disk_remove(running.context, cold, "data")
    root = parse(lifecycle.secure_xml(running.conn, "web1"))
    (target,) = [
        one.target["dev"]
        for one in domain.read(parse(lifecycle.xml(running.conn, "web1"))).disks
        if one.path == str(data(running))
    ]
    other = parse(
        "<disk type='file' device='disk'><source file='/srv/o.qcow2'/>"
        f"<target dev='{target}' bus='virtio'/></disk>"
    )
    amend.put_devices(root, "disk", [*amend.devices(root, "disk"), other])
    lifecycle.define(running.conn, amend.text_of(root))
    steps = plugged(monkeypatch)

    with pytest.raises(LibvirtRefused, match="has another disk at .* stop the VM first"):
        single.disk_remove(running.context, CALL, "/srv/o.qcow2")

    assert not steps
    assert "/srv/o.qcow2" in disks(running).values()


def test_a_running_disk_grows_in_the_guest(running, monkeypatch):
    monkeypatch.setattr(changing, "disk_size", lambda *_: 8 * MIB)
    grown = []
    monkeypatch.setattr(
        changing, "resize_disk", lambda _conn, _name, target, size: grown.append((target, size))
    )

    answer = single.disk_grow(running.context, CALL, "data", "+8M")

    assert grown == [(answer["device"], 16 * MIB)]
    monkeypatch.setattr(changing, "resize_disk", lambda *_: "no")
    with pytest.raises(LibvirtRefused, match="^no$"):
        single.disk_grow(running.context, CALL, "data", "+8M")


def test_a_vm_that_is_not_there_has_no_devices(vm):
    with pytest.raises(NoSuchVm, match="no2"):
        single.eject(vm.context, Call(vm="no2"), None)
