"""The file of a removed disk goes only if no host needs it; and what the host's functions take."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import asloaded
import pytest
from saltvirt.core.errors import BadArgument, LibvirtRefused, StorageError
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import putaway, sharing, trash
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.vm.diskmove.host import moving
from saltvirt.vm.update.host import single
from saltvirt.vm.update.host.single import Call
from saltvirt.xml import parse
from saltvirt.xml.domain import domain
from test_update_small_volumes import POOL, VM, VOLUME

CALL = Call(vm="web1")


@pytest.fixture
def vm(hypervisor):
    """A VM with a disk called data, on storage that other hosts see."""
    hypervisor.settings = replace(hypervisor.settings, shared_paths=(hypervisor.settings.images,))
    with hypervisor.libvirt() as conn:
        hypervisor.init(start=False)
        hypervisor.conn = conn
        yield hypervisor
        del hypervisor.conn


def disks(vm):
    """Return the files of the definition's disks."""
    said = domain.read(parse(lifecycle.inactive_xml(vm.conn, "web1")))
    return [one.path for one in said.disks]


def data(vm):
    """Return the file of the disk called data."""
    return Path(vm.settings.images) / "web1_data.qcow2"


def test_the_master_is_asked_about_a_shared_file_before_the_disk_goes(vm):
    before = disks(vm)

    with pytest.raises(sharing.AskAll, match="salt-run virt.disk_remove web1 vd. file=True") as ask:
        single.disk_remove(vm.context, CALL, "data", file=True)

    assert ask.value.paths == [str(data(vm))]
    assert disks(vm) == before and data(vm).exists()


def test_a_file_that_another_host_needs_keeps_its_disk(vm):
    before = disks(vm)
    used = OtherHostsUsage(used={str(data(vm)): "hyper2: VM 'web2' has it as a disk"})

    with pytest.raises(StorageError, match="nothing is changed: hyper2: VM 'web2' has it"):
        single.disk_remove(vm.context, CALL, "data", file=True, other_hosts=used)

    assert disks(vm) == before and data(vm).exists()


@pytest.mark.parametrize("kind", ["free", "doubts"])
def test_a_file_that_no_host_is_known_to_need_goes_into_the_trash(vm, kind):
    path = str(data(vm))
    answers = {"free": frozenset([path])} if kind == "free" else {"doubts": {path: "hyper2"}}

    answer = single.disk_remove(
        vm.context, CALL, "data", file=True, other_hosts=OtherHostsUsage(**answers)
    )

    assert trash.list_entries(vm.settings)[answer["trash"]]["files"] == [path]
    assert path not in disks(vm)


@pytest.mark.parametrize("error", [StorageError("used"), sharing.AskAll("used", ["/x"])])
def test_a_file_that_is_needed_since_the_look_stays_and_that_is_said(vm, monkeypatch, error):
    def put(*_args):
        raise error

    monkeypatch.setattr(putaway, "put", put)
    free = OtherHostsUsage(free=frozenset([str(data(vm))]))

    with pytest.raises(StorageError, match="disk vd. is removed, but its file stays: used") as said:
        single.disk_remove(vm.context, CALL, "data", file=True, other_hosts=free)

    assert not isinstance(said.value, sharing.AskAll), "the disk is there no more"
    assert str(data(vm)) not in disks(vm) and data(vm).exists()


def test_a_removed_disk_keeps_its_shared_file_without_any_question(vm):
    answer = single.disk_remove(vm.context, CALL, "data")

    assert (answer["trash"], data(vm).exists()) == (None, True)


def test_calls_for_3006_leave_all_other_disks_too(vm):
    vm.settings = replace(vm.settings, compat="3006", shared_paths=())
    before = disks(vm)

    single.disk_add(vm.context, CALL, "more", {"size": 8})
    single.disk_remove(vm.context, CALL, "data")

    assert sorted(disks(vm)) == sorted(
        [*(path for path in before if path != str(data(vm))), str(data(vm)).replace("data", "more")]
    )


@pytest.fixture
def module(tmp_path):
    """The host's functions, as Salt loads them, and what they hand on."""
    virt = {"connection": {"uri": "test:///default"}, "images": str(tmp_path / "images")}
    loaded = asloaded.module(
        "_modules/virt_device.py", virt={**virt, "state_dir": str(tmp_path / "state")}
    )
    loaded.__salt__ = {}
    return loaded


CALLS = [
    ("disk_add", ("data", "8M"), {"pool": "p", "__pub_user": "root"}, ("data",)),
    ("disk_grow", ("vda", "+1G"), {}, ("vda", "+1G")),
    ("nic_add", (), {"bridge": "br1"}, (None, {"bridge": "br1"})),
    ("nic_remove", ("eth1",), {}, ("eth1",)),
    ("eject", (), {}, (None,)),
    ("insert", ("/a.iso", "sda"), {}, ("/a.iso", "sda")),
]


@pytest.mark.parametrize(("function", "args", "keywords", "handed"), CALLS)
@pytest.mark.parametrize("flag", ["test", "dry_run", ""])
def test_a_function_hands_on_what_it_was_given(
    module, monkeypatch, function, args, keywords, handed, flag
):
    seen = []
    monkeypatch.setattr(single, function, lambda _context, *given: seen.append(given))
    flags = {flag: True} if flag else {}

    getattr(module, function)("web1", *args, **keywords, **flags)

    ((call, *given),) = seen
    assert call == Call(vm="web1", test=bool(flag))
    assert tuple(given[: len(handed)]) == handed
    if function == "disk_add":
        assert given[1] == {"pool": "p", "size": "8M"}


@pytest.mark.parametrize("flag", ["test", "dry_run", ""])
@pytest.mark.parametrize("replies", [None, {}, {"free": ["/a"]}])
def test_the_move_of_a_disk_gets_what_its_function_was_given(module, monkeypatch, flag, replies):
    calls = []
    monkeypatch.setattr(
        moving,
        "move_disk",
        lambda _context, *given, other_hosts: calls.append((given, other_hosts)),
    )
    flags = {flag: True} if flag else {}

    module.move_disk("web1", "vda", pool="fast", replies=replies, **flags)

    (((call, *args), other_hosts),) = calls
    assert call == Call(vm="web1", test=bool(flag)) and args == ["vda", "fast"]
    assert other_hosts.free == frozenset((replies or {}).get("free", ()))


def test_the_move_of_a_disk_tells_the_master_which_files_it_must_ask_about(module, monkeypatch):
    def asks(*_given, other_hosts):
        raise sharing.AskAll("ask", ["/a"])

    monkeypatch.setattr(moving, "move_disk", asks)
    assert module.move_disk("web1", "vda", "fast", replies={}) == {"ask_all_hosts": ["/a"]}
    with pytest.raises(sharing.AskAll):
        module.move_disk("web1", "vda", "fast")


@pytest.mark.parametrize(
    ("function", "args"),
    [
        ("move_disk", ("vda", "fast")),
        ("disk_grow", ("vda", 8)),
        ("disk_remove", ("vda",)),
        ("nic_remove", ("a",)),
        ("eject", ()),
    ],
)
def test_an_unknown_argument_is_refused_by_name(module, function, args):
    with pytest.raises(BadArgument, match=f"virt.{function} has no argument 'colour'"):
        getattr(module, function)("web1", *args, colour="red")


def test_an_unknown_key_of_a_device_is_refused_by_name(vm):
    with pytest.raises(BadArgument, match="disk 'more' has no argument 'colour'"):
        single.disk_add(vm.context, CALL, "more", {"colour": "red"})
    with pytest.raises(BadArgument, match="interface 'eth0' has no argument 'colour'"):
        single.nic_add(vm.context, CALL, None, {"colour": "red"})


@pytest.fixture
def on_volume(hypervisor):
    """A VM with a logical volume of 100 MiB as its disk."""
    with hypervisor.libvirt() as conn:
        pool = conn.storagePoolDefineXML(POOL)
        pool.create()
        pool.createXML(VOLUME.format(100))
        lifecycle.define(conn, VM)
        hypervisor.conn = conn
        yield hypervisor
        del hypervisor.conn
        for volume in pool.listAllVolumes():
            volume.delete()
        pool.destroy()
        pool.undefine()


@pytest.mark.parametrize(
    ("size", "text"),
    [(200, "virt.volume_resize vg1 web1_data 200"), ("+512k", "stays as it is; grow it by")],
)
def test_a_volume_that_is_no_file_is_not_grown_and_that_is_an_error(on_volume, size, text):
    for call in (CALL, Call(vm="web1", test=True)):
        with pytest.raises(LibvirtRefused, match=text):
            single.disk_grow(on_volume.context, call, "data", size)


def test_a_volume_stays_and_the_line_that_deletes_it_is_said(on_volume):
    with pytest.raises(BadArgument, match="vda .vg1/web1_data. is a volume: leave out file=True"):
        single.disk_remove(on_volume.context, CALL, "data", file=True)

    gone = single.disk_remove(on_volume.context, CALL, "vg1/web1_data")
    back = single.disk_add(on_volume.context, CALL, "data", {"pool": "vg1"})

    remove = "salt-run virt.volume_delete HOST vg1 web1_data"
    assert gone["outcome"] == f"disk vda removed; vg1/web1_data stays; to remove that: {remove}"
    assert (gone["remove"], gone["file"]) == (remove, "vg1/web1_data")
    assert (back["made"], back["file"]) == (False, "vg1/web1_data")


def test_a_disk_keeps_its_name_above_an_external_snapshot(vm):
    overlay = data(vm).with_suffix(".s1")
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", data(vm), overlay]
    subprocess.run(command, check=True)
    text = lifecycle.secure_xml(vm.conn, "web1").replace(str(data(vm)), str(overlay))
    lifecycle.define(vm.conn, text)

    with pytest.raises(BadArgument, match=r"has disk vd. \(.*web1_data.s1\) already"):
        single.disk_add(vm.context, CALL, "data", {"size": 8})
    assert single.disk_remove(vm.context, CALL, "data")["file"] == str(overlay)
    assert data(vm).exists() and overlay.exists()


def test_an_empty_file_is_removed_for_good_and_no_undo_is_named(vm):
    free = OtherHostsUsage(free=frozenset([str(data(vm))]))
    data(vm).write_bytes(b"")
    os.truncate(data(vm), 1 << 20)

    answer = single.disk_remove(vm.context, CALL, "data", file=True, other_hosts=free)

    assert answer["outcome"].endswith(f"its file {data(vm)} was empty, and is removed")
    assert (answer["trash"], data(vm).exists()) == (None, False)


def test_the_file_of_a_vm_with_a_saved_state_keeps_its_disk(vm, monkeypatch):
    monkeypatch.setattr(lifecycle, "saved", lambda _conn: {"web1"})
    before = disks(vm)

    with pytest.raises(BadArgument, match="has a saved state, which needs disk vd"):
        single.disk_remove(vm.context, CALL, "data", file=True)

    assert disks(vm) == before and data(vm).exists()
