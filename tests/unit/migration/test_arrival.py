"""A VM arrives: its files are on record before they are made, then checked, or removed."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from saltvirt.core import filecontent, wire
from saltvirt.core.errors import ReservationRefused, VirtError, VmIncomplete
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt import departedvms
from saltvirt.libvirt.domains import lifecycle
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.migration.host import arrival
from saltvirt.placement.answers import FileFacts, ImageFacts
from saltvirt.storage.images import tool
from saltvirt.vm.power.host import startlock
from saltvirt.vm.show.host import migrationinfo
from saltvirt.xml import parse


@pytest.fixture
def moving(end, conn):
    """The migration info of web1 on its source; its files are in a folder of that host."""
    paths = end.make(conn)
    info = migrationinfo.gather(conn, end.settings, "web1")["web1"]
    for path in paths:
        shutil.move(path, end.folder / path.name)
    lifecycle.undefine(conn, "web1")
    return info


def prepare(end, moving, token="t1"):
    """Prepare the arrival of a VM."""
    return arrival.prepare(end.context, moving, token, "hyper1")


def deliver(end, conn, moving):
    """Deliver everything: the files, and the definition."""
    paths = [Path(disk.path) for disk in moving.disks]
    for path in paths:
        path.write_bytes((end.folder / path.name).read_bytes())
    end.define(conn, moving.name, moving.uuid, paths=paths)
    return {"digests": {str(p): filecontent.digest(end.folder / p.name) for p in paths}}


def pools(conn):
    """Return the folders that other hosts may write to."""
    return sorted(
        parse(pool.XMLDesc(0)).findtext("target/path")
        for pool in conn.listAllStoragePools(0)
        if pool.name().startswith("salt-virt-incoming-")
    )


@pytest.mark.parametrize("bad_fields", [{}, {"disks": "of another type"}])
def test_a_newer_version_of_the_protocol_is_refused_in_one_line(end, moving, bad_fields):
    plain_info = {**wire.plain(moving), "wire": moveprotocol.WIRE}
    context = replace(end.context, opts={"id": "hyper2"})
    assert arrival.parse_migration_info(context, plain_info) == replace(
        moving, wire=moveprotocol.WIRE
    )

    with pytest.raises(MigrationFailed, match="VM 'web1' .*update this host: salt hyper2 saltutil"):
        arrival.parse_migration_info(
            context, {**plain_info, "wire": moveprotocol.WIRE + 1, **bad_fields}
        )


def test_a_host_without_a_version_of_the_protocol_is_an_older_one(end, moving):
    assert arrival.parse_migration_info(end.context, wire.plain(moving)) == moving


def test_new_files_are_on_record_and_dropped_when_the_source_keeps_the_vm(end, conn, moving):
    assert prepare(end, moving) == {"images": {}, "present": [], "token": "t1"}

    assert end.phase("arrival") == "ready" and pools(conn) == [str(end.images)]
    assert end.hypervisor.files() == ["web1_0.raw", "web1_1.raw"]
    assert end.record("arrival").facts["paths"] == [disk.path for disk in moving.disks]
    assert end.state(conn)["target"]["is_empty"] is True
    with pytest.raises(startlock.OnItsWay, match="on its way here from hyper1"):
        startlock.refuse_moving(end.settings, "web1")

    end.step("drop")
    assert end.hypervisor.files() == [] and end.record("arrival") is None and pools(conn) == []


def test_a_vm_that_is_not_here_yet_is_not_started(end, conn, moving):
    prepare(end, moving)

    with (
        pytest.raises(startlock.OnItsWay, match="on its way here from hyper1.*virt.settle web1"),
        startlock.allow_start(conn, end.settings, "web1"),
    ):
        pytest.fail("it was started")


def test_a_vm_that_is_still_coming_is_not_started_under_another_name(end, conn, moving):
    prepare(end, moving)
    end.define(conn, "web2", moving.uuid)

    on_record = "'web2' .on record as 'web1'.*on its way here"
    with (
        pytest.raises(startlock.OnItsWay, match=on_record),
        startlock.allow_start(conn, end.settings, "web2"),
    ):
        pytest.fail("it was started")


def test_a_target_with_a_changed_file_is_not_empty(end, conn, moving):
    prepare(end, moving)
    with open(moving.disks[0].path, "r+b") as handle:
        handle.write(b"x")

    assert end.state(conn)["target"]["is_empty"] is False


def test_a_target_without_a_file_of_the_vm_does_not_report_it_as_empty(end, conn, moving):
    prepare(end, replace(moving, disks=[]))

    assert end.state(conn)["target"]["is_empty"] is False


def test_a_shared_disk_is_taken_only_where_it_is_shared(end, conn, moving):
    path = Path(moving.disks[0].path)
    path.write_bytes(b"of long ago")
    moving = replace(moving, disks=[replace(moving.disks[0], how="shared")])

    with pytest.raises(
        ReservationRefused, match="web1_0.raw is shared, and virt:shared_paths there"
    ):
        prepare(end, moving)

    end.settings = end.hypervisor.settings = replace(end.settings, shared_paths=[str(path.parent)])
    prepare(end, moving)
    assert end.phase("arrival") == "ready" and end.record("arrival").facts["paths"] == []


def test_a_file_that_is_there_is_refused_and_stays(end, conn, moving):
    path = Path(moving.disks[1].path)
    path.write_bytes(b"somebody's")

    with pytest.raises(ReservationRefused, match="web1_1.raw is there already"):
        prepare(end, moving)

    assert path.read_bytes() == b"somebody's" and end.record("arrival") is None


def test_files_are_removed_if_the_next_one_cannot_be_made(end, conn, moving, monkeypatch):
    from saltvirt.migration.host import incomingfiles

    real_make = incomingfiles.make

    def fail_for_second(file):
        if file.path.endswith("_1.raw"):
            raise MigrationFailed("disk full")
        real_make(file)

    monkeypatch.setattr(incomingfiles, "make", fail_for_second)
    with pytest.raises(MigrationFailed, match="disk full"):
        prepare(end, moving)
    assert end.hypervisor.files() == [] and end.record("arrival") is None


def test_a_second_move_to_here_is_refused_and_names_what_settles_the_first(end, conn, moving):
    prepare(end, moving)

    with pytest.raises(MigrationFailed, match="is ready already.*salt-run virt.settle web1"):
        prepare(end, moving, "t2")
    assert end.hypervisor.files() == ["web1_0.raw", "web1_1.raw"]


def test_a_vm_that_has_come_whole_belongs_here(end, conn, moving):
    departedvms.note_target(end.settings, "web1", "hyper3")
    prepare(end, moving)
    noted = deliver(end, conn, moving)

    answer = end.step("arrive", is_handed=False, noted={**noted, "autostart": True})

    assert answer == {"warnings": []} and end.phase("arrival") == "arrived"
    assert lifecycle.list_autostarted_domains(conn) == {"web1"}
    with pytest.raises(MigrationFailed, match="it is arrived here"):
        end.step("drop")
    end.step("end")
    assert end.record("arrival") is None and pools(conn) == []
    assert end.hypervisor.files() == ["web1_0.raw", "web1_1.raw"]
    departedvms.refuse_moved(end.settings, "web1")


@pytest.mark.parametrize(("later_facts", "starts"), [({}, {"web1"}), ({"autostart": False}, set())])
def test_a_vm_starts_with_its_host_as_before_even_if_its_source_is_lost(
    end, conn, moving, later_facts, starts
):
    moving = replace(moving, autostart=True)
    prepare(end, moving)
    noted = deliver(end, conn, moving)
    # What a responsive source has noted last decides.
    noted = {**noted, **later_facts} if later_facts else {}

    end.step("arrive", is_handed=True, noted=noted)

    assert lifecycle.list_autostarted_domains(conn) == starts


def test_a_vm_that_was_renamed_after_its_arrival_starts_with_its_host_and_no_other_does(
    end, conn, moving
):
    """The runner died before its last step; meanwhile another VM got the name."""
    prepare(end, moving)
    noted = deliver(end, conn, moving)
    end.step("arrive", is_handed=True, noted=noted)
    paths = [disk.path for disk in moving.disks]
    lifecycle.undefine(conn, "web1")
    end.define(conn, "web1-old", moving.uuid, paths=paths)
    end.define(conn, "web1", "4dea22b3-1d52-d8f3-2516-782e98ab3fa1")

    answer = end.step("arrive", is_handed=True, noted={**noted, "autostart": True})

    assert answer == {"warnings": []} and lifecycle.list_autostarted_domains(conn) == {"web1-old"}


def lose(path):
    path.unlink()


def cut(path):
    with open(path, "r+b") as handle:
        handle.truncate(1000)


def change(path):
    with open(path, "r+b") as handle:
        handle.write(b"x")


@pytest.mark.parametrize(
    ("harm", "reason"),
    [(lose, "is missing"), (cut, "has 1000 bytes, not 400000"), (change, "is not what was sent")],
)
def test_a_vm_that_has_not_come_whole_is_refused_for_good(end, conn, moving, harm, reason):
    prepare(end, moving)
    noted = deliver(end, conn, moving)
    harm(Path(moving.disks[0].path))

    with pytest.raises(VmIncomplete, match=f"has not come here whole: .*web1_0.raw {reason}"):
        end.step("arrive", is_handed=False, noted=noted)
    assert end.phase("arrival") == "refused"

    end.step("drop")
    assert not lifecycle.is_defined(conn, "web1") and end.hypervisor.files() == []


def test_a_disk_that_cannot_be_read_has_not_come_whole(end, conn, moving, monkeypatch):
    prepare(end, moving)
    noted = deliver(end, conn, moving)

    def fail(_path):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("saltvirt.core.filecontent.digest", fail)
    with pytest.raises(VmIncomplete, match="not come here whole: .*cannot be read .Input"):
        end.step("arrive", is_handed=True, noted=noted)


def test_a_vm_that_ran_here_is_not_refused(end, conn, moving):
    prepare(end, moving)
    noted = deliver(end, conn, moving)
    change(Path(moving.disks[0].path))

    with pytest.raises(VmIncomplete, match="has not come here whole"):
        end.step("arrive", is_handed=True, noted=noted)
    assert end.phase("arrival") == "ready"


@pytest.fixture
def live(end, conn, moving):
    """The migration info of web1 as it runs on its source: libvirt copies its disks."""
    formats = ("raw", "qcow2")
    disks = [
        replace(disk, how="copy", format=fmt, virtual_bytes=8 * 2**20)
        for disk, fmt in zip(moving.disks, formats, strict=True)
    ]
    return replace(moving, state="running", disks=disks)


def resize(disk, size_bytes):
    """Give the disk of an arrived VM another size."""
    Path(disk.path).unlink()
    tool.create(disk.path, size_bytes, disk.format)


@pytest.mark.parametrize("size_bytes", [8 * 2**20, 9 * 2**20])
def test_a_copy_by_libvirt_is_as_large_as_its_source_or_was_resized(end, conn, live, size_bytes):
    prepare(end, live)
    for disk in live.disks:
        resize(disk, size_bytes)
    end.define(conn, "web1", live.uuid, paths=[disk.path for disk in live.disks])

    # The guest stopped itself as soon as it ran here.
    end.step("arrive", is_handed=True)
    assert end.phase("arrival") == "arrived"


@pytest.mark.parametrize("number", [0, 1], ids=["raw", "qcow2"])
def test_a_copy_that_is_smaller_has_not_come_whole(end, conn, live, number):
    prepare(end, live)
    end.define(conn, "web1", live.uuid, paths=[disk.path for disk in live.disks])
    resize(live.disks[number], 7 * 2**20)

    with pytest.raises(VmIncomplete, match=f"its disk .*_{number}.raw has 7340032 bytes, not 8"):
        end.step("arrive", is_handed=True)
    assert end.phase("arrival") == "ready"


def test_a_copy_whose_header_is_cut_off_has_not_come_whole(end, conn, live):
    prepare(end, live)
    end.define(conn, "web1", live.uuid, paths=[disk.path for disk in live.disks])
    with open(live.disks[1].path, "r+b") as handle:
        handle.truncate(50)

    with pytest.raises(VmIncomplete, match="its disk .*_1.raw cannot be read"):
        end.step("arrive", is_handed=True)


@pytest.mark.parametrize("leaves", [True, False])
def test_a_vm_whose_definition_leaves_has_one_here_before_it_arrives(end, conn, moving, leaves):
    prepare(end, moving)
    noted = {**deliver(end, conn, moving), "leaves": leaves}
    xml = conn.lookupByName("web1").XMLDesc(0)
    lifecycle.undefine(conn, "web1")
    lifecycle.create_transient(conn, xml)

    if leaves:
        with pytest.raises(MigrationFailed, match="its definition was not kept.* virsh define"):
            end.step("arrive", is_handed=True, noted=noted)
        assert end.phase("arrival") == "ready"
        # As the message says.
        lifecycle.define(conn, xml)
    end.step("arrive", is_handed=True, noted=noted)
    assert end.phase("arrival") == "arrived"


def test_a_running_vm_is_not_dropped(end, conn, moving):
    prepare(end, moving)
    deliver(end, conn, moving)
    lifecycle.start(conn, "web1")

    for step in ("refuse", "drop"):
        with pytest.raises(MigrationFailed, match="runs here, so it is not given back"):
            end.step(step)
    assert end.phase("arrival") == "ready" and lifecycle.is_active(conn, "web1")


def test_a_file_that_another_vm_uses_by_now_is_not_removed(end, conn, moving):
    prepare(end, moving)
    used_paths = [moving.disks[0].path]
    end.define(conn, "db1", uuid="4dea22b3-1d52-d8f3-2516-782e98ab3fa1", paths=used_paths)

    end.step("drop")

    assert end.hypervisor.files() == ["web1_0.raw"]


def test_a_file_is_made_for_the_variables_of_its_firmware(end, conn, moving):
    nvram = end.images / "web1_VARS.fd"
    nvram_facts = FileFacts(path=str(nvram), how="push", size_bytes=8192, actual_bytes=8192)
    prepare(end, replace(moving, nvram=[nvram_facts]))

    assert nvram.stat().st_size == 8192 and nvram.stat().st_mode & 0o777 == 0o600
    noted = deliver(end, conn, moving)
    nvram.unlink()
    with pytest.raises(VmIncomplete, match="its file .*web1_VARS.fd is missing"):
        end.step("arrive", is_handed=False, noted=noted)


def test_no_file_is_made_of_unknown_size(end, conn, moving):
    for how, field in (("push", "size_bytes"), ("copy", "virtual_bytes")):
        (disk,) = [
            replace(incoming_disk, how=how, **{field: None}) for incoming_disk in moving.disks[:1]
        ]

        with pytest.raises(VirtError, match="does not say how big .*web1_0.raw is"):
            prepare(end, replace(moving, disks=[disk]))
        assert end.hypervisor.files() == [] and end.record("arrival") is None


def test_images_that_the_host_lacks_are_sent_first_and_checked(end, conn, moving):
    image = ImageFacts(file_bytes=5, source="https://images.example.com/a.qcow2")
    disks = [
        replace(incoming_disk, base="ab" * 32, image=image) for incoming_disk in moving.disks[:1]
    ]
    without_image = replace(moving, disks=disks)

    ((digest, path),) = prepare(end, without_image)["images"].items()

    assert digest == "ab" * 32 and Path(path).stat().st_size == 5
    assert end.phase("arrival") == "preparing" and end.hypervisor.files() == []
    Path(path).write_bytes(b"other")
    with pytest.raises(VirtError, match="arrived damaged"):
        arrival.resume(end.context, without_image, "t1")
    assert end.record("arrival") is None and not Path(path).exists() and pools(conn) == []


def test_two_moves_into_one_folder_do_not_end_each_others_pool(end, conn, moving):
    other_disks = [replace(d, path=d.path.replace("web1", "web1-1")) for d in moving.disks]
    uuid = "4dea22b3-1d52-d8f3-2516-782e98ab3fa1"
    prepare(end, moving)
    prepare(end, replace(moving, name="web1-1", uuid=uuid, disks=other_disks), "t2")

    end.step("drop")
    assert pools(conn) == [str(end.images)]

    arrival.step(end.context, "web1-1", "t2", "drop")
    assert pools(conn) == [] and end.hypervisor.files() == []
