"""The plan of an arrival: which files are made, and which images are sent first."""

import pytest
import told
from saltvirt.core.errors import StorageError
from saltvirt.migration.host import arrivalplan, sending
from saltvirt.migration.host.arrivalplan import ArrivalPlan, AwaitedImage, ComingFile, LocalFacts
from saltvirt.storage.images.validation import ValidatedImage

ISO = "/srv/tools.iso"
A, B = "a" * 64, "b" * 64
BASE = ValidatedImage(path=f"/srv/base/{A}.qcow2", format="qcow2", size_bytes=900)
IMAGE = {"source": "salt://a.qcow2", "file_bytes": 700}
SIZES = {"virtual_bytes": 1000, "actual_bytes": 1, "backing": None, "size_bytes": 400}
NOTHING = LocalFacts(present_media=frozenset(), images={}, incoming={})


def disk(name="vda", how="push", **facts):
    """Return the facts of a disk on its source."""
    return {"target": name, "path": f"/srv/{name}", "how": how, **SIZES, **facts}


def medium(**facts):
    """Return the facts of a medium on its source."""
    return disk("sda", path=ISO, device="cdrom", format="raw", **facts)


def moving(*disks, **facts):
    """Return the migration info of a VM."""
    return told.moving(disks=list(disks), uuid="u1", **facts)


def lacking(*digests):
    """Return the facts of a host without these images, with the paths for them."""
    return LocalFacts(
        present_media=frozenset(),
        images=dict.fromkeys(digests),
        incoming={digest: f"/srv/base/{digest[0]}" for digest in digests},
    )


def test_a_sent_file_keeps_its_size_and_a_copied_disk_is_made_empty():
    vm = moving(disk(), disk("vdb", "copy", format="raw"), disk("vdc", "shared"))

    assert arrivalplan.decide(vm, NOTHING) == ArrivalPlan(
        files=(
            ComingFile(path="/srv/vda", transfer="push", size_bytes=400),
            ComingFile(path="/srv/vdb", transfer="copy", size_bytes=1000, format="raw"),
        )
    )


def test_a_copy_is_made_over_the_image_that_is_here():
    local_facts = LocalFacts(present_media=frozenset(), images={A: BASE}, incoming={})

    (file,) = arrivalplan.decide(moving(disk(how="copy", base=A)), local_facts).files

    assert (file.format, file.size_bytes, file.base) == ("qcow2", 1000, BASE)


def test_a_sent_disk_needs_its_image_here_and_names_it():
    local_facts = LocalFacts(present_media=frozenset(), images={A: BASE}, incoming={})

    (file,) = arrivalplan.decide(moving(disk(base=A, image=IMAGE)), local_facts).files

    assert file == ComingFile(path="/srv/vda", transfer="push", size_bytes=400)


def test_images_are_sent_before_anything_is_made_over_them():
    other_disk = disk("vdc", "copy", base=B, image={**IMAGE, "file_bytes": 800})
    vm = moving(disk(base=A, image=IMAGE), disk("vdb", base=A, image=IMAGE), other_disk)

    plan = arrivalplan.decide(vm, lacking(A, B))

    assert plan.images == (
        AwaitedImage(digest=A, path="/srv/base/a", size_bytes=700),
        AwaitedImage(digest=B, path="/srv/base/b", size_bytes=800),
    )
    assert plan.files == () and plan.image_paths == {A: "/srv/base/a", B: "/srv/base/b"}


def test_an_image_that_neither_host_knows_is_refused():
    with pytest.raises(StorageError, match="nothing is known of the image aaaaaaaaaaaaaaaa below"):
        arrivalplan.decide(moving(disk(base=A)), lacking(A))


@pytest.mark.parametrize(
    ("how", "missing_field"), [("push", "size_bytes"), ("copy", "virtual_bytes")]
)
def test_a_file_of_unknown_size_is_refused(how, missing_field):
    with pytest.raises(StorageError, match="does not say how big /srv/vda is"):
        arrivalplan.decide(moving(disk(how=how, **{missing_field: None})), NOTHING)


def test_a_medium_is_made_only_where_it_is_missing():
    vm, local_facts = (
        moving(disk(), medium()),
        LocalFacts(present_media=frozenset([ISO]), images={}, incoming={}),
    )

    without_medium, with_medium = (
        arrivalplan.decide(vm, NOTHING),
        arrivalplan.decide(vm, local_facts),
    )

    assert [file.path for file in without_medium.files] == [
        "/srv/vda",
        ISO,
    ] and without_medium.present_media == ()
    assert [file.path for file in with_medium.files] == [
        "/srv/vda"
    ] and with_medium.present_media == (ISO,)


def test_a_medium_that_is_in_two_drives_is_made_and_sent_once():
    """With the second drive its file would exist already, and no host would take the VM."""
    vm = moving(medium(), disk(), {**medium(), "target": "sdb"})

    plan = arrivalplan.decide(vm, NOTHING)

    assert [file.path for file in plan.files] == [ISO, "/srv/vda"]
    assert [file.path for file in sending.find_pushed(vm, ())] == [ISO, "/srv/vda"]


def test_a_variables_file_is_made_if_it_is_sent():
    pushed_file, copied_file = (
        {"path": f"/srv/{how}.fd", "how": how, "size_bytes": 8, "actual_bytes": 8}
        for how in ("push", "copy")
    )

    (file,) = arrivalplan.decide(moving(nvram=[pushed_file, copied_file]), NOTHING).files

    assert file == ComingFile(path="/srv/push.fd", transfer="push", size_bytes=8)


def test_the_record_before_anything_is_made():
    vm = moving(
        disk(),
        medium(),
        disk("vdb", "copy"),
        disk("vdc", "shared"),
        vcpus=2,
        memory_mib=512,
        affinity=["shop"],
    )

    facts = arrivalplan.initial_facts(vm, frozenset([ISO]), "hyper1")

    assert (facts.uuid, facts.source, facts.was_running) == ("u1", "hyper1", True)
    assert facts.sizes == {"/srv/vda": 400} and facts.virtual == {"/srv/vdb": ["qcow2", 1000]}
    assert (facts.vcpus, facts.memory_mib, facts.affinity) == (2, 512, ["shop"])
    assert (facts.paths, facts.images, facts.folders, facts.untouched) == ([], {}, [], None)
    assert arrivalplan.initial_facts(vm, frozenset(), None).sizes == {"/srv/vda": 400, ISO: 400}


def test_a_disk_that_its_source_could_not_measure_is_taken_as_it_comes():
    unmeasured = disk("vdb", "copy", virtual_bytes=None)
    unknown_format = disk("vdc", "copy", format="vmdk")

    facts = arrivalplan.initial_facts(
        moving(disk(how="copy"), unmeasured, unknown_format), frozenset(), "hyper1"
    )

    assert facts.virtual == {"/srv/vda": ["qcow2", 1000]}
